"""A sidecar for Redis job queues: it sees which jobs are stuck, proves it, and gets them moving again."""

__version__ = "0.1.0"
