"""One call of a program through a launcher, without a pool."""

from __future__ import annotations

import time
from typing import Any

from satchel.runners.protocol import exchange, to_result
from satchel.runners.reply import request_line


def run_once(starter: Any, launch: Any, request: Any) -> Any:
    """Start a program that is dressed already, ask it once, and see it gone."""
    process = starter.start(launch)
    try:
        deadline = time.monotonic() + request.limits.timeout
        exchanged = exchange(process, request_line(request), request.limits, deadline)
    finally:
        process.close()
    return to_result(exchanged, request.limits, launch.tier)
