"""The HTTP side: `/metrics`, `/healthz`, `/readyz`, the status page and its JSON. Never waits for Redis."""
