"""HOW FAST MAY A PROVIDER BE ASKED? So many requests a second, so many at once, for all together.

    limiter = SqliteLimiter({"anthropic": Limit(per_second=5, at_once=3)}, "limits.db")
    async with limiter.slot("anthropic"):
        ...  # one request

`base` (what a limit is), `local` (one process), `shared` (the turns of several processes),
`shared_sqlite` (of one machine), `shared_postgres` (of several machines).
"""

from satchel.goals.limits.base import Limit, Limiter
from satchel.goals.limits.local import LocalLimiter
from satchel.goals.limits.shared_postgres import PostgresLimiter
from satchel.goals.limits.shared_sqlite import SqliteLimiter

__all__ = ["Limit", "Limiter", "LocalLimiter", "PostgresLimiter", "SqliteLimiter"]
