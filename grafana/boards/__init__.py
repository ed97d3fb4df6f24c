"""The dashboards as code: one file each, and what they share in kit.py."""
