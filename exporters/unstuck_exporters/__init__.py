"""What the outside sees of unstuck: Prometheus metrics, the HTTP server, the status page, notifications.

Everything here reads the board (`board.py`), which the agent's duties write. Nothing here talks to Redis.
"""
