"""`python -m tests.chaos --jobs 100000 --seed 7`: a chaos run by hand; see docs/safety.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos.cli import main

main()
