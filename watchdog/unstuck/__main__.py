"""`python -m unstuck` is the command `unstuck`."""

from unstuck.cli import main

if __name__ == "__main__":
    main()
