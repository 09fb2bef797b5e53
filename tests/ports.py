"""Ports for the servers that tests start."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_RANGE = range(20_000, 32_000)
"""Below the ports of outgoing connections, which could take one before its server does."""


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    found: set[int] = set()
    while len(found) < count:
        port = random.SystemRandom().choice(_RANGE)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return list(found)


def free_port() -> int:
    """A port that is free now."""
    return free_ports(1)[0]
