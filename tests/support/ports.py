"""Ports for servers of tests."""

import random
import socket

# Below the range from which the kernel takes the local ends of outgoing connections. In that range a client that
# keeps trying to reach a stopped server on the same machine can end up connected to itself.
_LOWEST, _HIGHEST = 20000, 30000


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on at the moment."""
    # Not seeded by anything that test runs share, so that parallel ones do not try the same ports.
    chance = random.SystemRandom()
    for _ in range(200):
        port = chance.randrange(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port found between {_LOWEST} and {_HIGHEST}")
