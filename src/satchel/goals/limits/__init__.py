"""Rate limits of model providers: requests per second and at once, for all workers together.

    limiter = SharedLimiter({"anthropic": Limit(per_second=5, at_once=3)}, "limits.db")
    async with limiter.slot("anthropic"):
        ...  # one request

`base` (what a limit is), `shared` (who keeps it, and the table of turns).
"""

from satchel.goals.limits.base import Limit, Limiter
from satchel.goals.limits.shared import SharedLimiter

__all__ = ["Limit", "Limiter", "SharedLimiter"]
