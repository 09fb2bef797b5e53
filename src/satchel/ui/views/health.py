"""The Health page: problems, scan and use of one library.

The problems and the scan are found by a thread (`jobs`) and kept until the library changes; use is
counted on each request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.ui.views.doctor import diagnosis, look_deep
from satchel.ui.views.jobs import Job, Standing
from satchel.ui.views.shelf import look_now
from satchel.ui.views.use import Counting, use
from satchel.ui.views.verdicts import scan_all, verdicts

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.ui.views.doctor import Doctor
    from satchel.ui.views.use import Use
    from satchel.ui.views.verdicts import Verdicts

SECTIONS = ("problems", "scan", "use")
MANY_READ = 2_000
"""Skills from which on the problems are looked for only on request."""
MANY_SCANNED = 500
"""Skills from which on a scan begins only on request."""


class Look(NamedTuple):
    """One section as it is now."""

    key: str
    found: Doctor | Verdicts | Use | None
    """None as long as there is nothing to show."""
    job: Standing
    stale: bool = False
    """The skills changed since."""
    ask: int = 0
    """How many skills it would take, where it begins only on request."""


class Health:
    """The sections of one project; one object per server, so that all readers share the work."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._counting = Counting(satchel)
        snapshot = satchel.library.snapshot
        self._problems = Job(lambda tell: look_deep(satchel, tell), snapshot)
        self._scan = Job(lambda tell: scan_all(satchel, tell), snapshot)

    def titles(self) -> dict[str, tuple[str, str]]:
        """Section -> its title and what it is about."""
        return {
            "problems": (say("Problems"), say("What is wrong or odd, by kind, with what to do")),
            "scan": (say("Safety"), say("What the skills that you installed could do to you")),
            "use": (say("Use"), say("What was offered, chosen, loaded and ran in 30 days")),
        }

    def start(self, key: str) -> None:
        """Begin the work of a section, unless it runs."""
        self._freshen()
        if key != "use":
            job = self._problems if key == "problems" else self._scan
            job.start()
            job.wait(0.2)

    def stop(self) -> None:
        """Let all work end at the next skill: the server ends. It waits for nothing."""
        self._problems.stop()
        self._scan.stop()

    def look(self, key: str) -> Look:
        """One section, as it is now; what is quick is done again."""
        self._freshen()
        if key == "use":
            return Look("use", use(self._satchel, self._counting.tally()), Standing(ran=True))
        count = len(self._satchel.library.snapshot())
        if key == "scan":
            job = self._scan.look(begin=count <= MANY_SCANNED)
            reports = self._scan.result
            found = verdicts(reports) if reports is not None else None
            return Look("scan", found, job, self._scan.stale, count)
        job = self._problems.look(begin=count <= MANY_READ)
        problems = self._problems.result
        doctor = diagnosis(self._satchel, problems) if problems is not None else None
        return Look("problems", doctor, job, self._problems.stale, count)

    def _freshen(self) -> None:
        """What was saved a moment ago counts, where a look costs next to nothing."""
        if look_now(self._satchel):
            self._satchel.library.tools(refresh=True)
