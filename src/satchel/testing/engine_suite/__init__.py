"""DOES AN ENGINE OF GOALS DO WHAT IT MUST? Cases as data, for ours and for anybody's.

for outcome in await check_engine(Setup(open_my_engine)):
    print(outcome.case.name, outcome.error or "ok")

Reading order: `base` (what a case is and works with), `script` (who does the work instead of a
model), then one file per question; `suite` puts an engine through them. With pytest, make one
test of each of `CASES` and call `run_case`.
"""

from __future__ import annotations

from satchel.testing.engine_suite.base import Bench, Case, CaseFailed, Setup, Trait
from satchel.testing.engine_suite.suite import (
    CASES,
    Outcome,
    check_engine,
    fitting,
    run_case,
)

__all__ = [
    "CASES",
    "Bench",
    "Case",
    "CaseFailed",
    "Outcome",
    "Setup",
    "Trait",
    "check_engine",
    "fitting",
    "run_case",
]
