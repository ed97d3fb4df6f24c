"""One file per command; each has the attribute ``command``. What they share is in options.py."""
