"""What the agent does again and again: one small file per duty, each with a method that does one pass."""
