"""How does a project's index live beside those of other projects?

A search marks it as used; whoever writes it sweeps those that nobody uses any more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from satchel.detect.hybrid import HybridDetector
from satchel.detect.texts import make_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.detect.base import Answer, Match, Prepared
    from satchel.detect.index.base import Row
    from satchel.detect.index.sweep import Use
    from satchel.detect.semantic import LazySemantic
    from satchel.skill import Skill


class KeptDetector(HybridDetector):
    """The detector of a project whose index lies in the user's cache."""

    def __init__(
        self, use: Use, *, semantic: LazySemantic | None, limit: int, patience: float
    ) -> None:
        rows = partial(_row, use)
        super().__init__(use.folder, semantic=semantic, limit=limit, patience=patience, rows=rows)
        self._use = use

    def prepare(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int], None] | None = None,
        rebuild: bool = False,  # noqa: FBT001, FBT002 - as the protocol has it
    ) -> Prepared:
        """Build the index, or bring it up to date, wait for it, and sweep."""
        before = self._use.swept
        made = super().prepare(skills, progress, rebuild)
        self._use.sweep()
        return made._replace(swept=self._use.swept - before)

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        """The whole answer; the index was used for it."""
        answer = super().look(goal_text, skills)
        self._use.mark()
        return answer

    def _best(
        self, goal_text: str, skills: Sequence[Skill], limit: int, *, reasons: bool
    ) -> list[Match]:
        """The best `limit` skills; the index was used for it."""
        found = super()._best(goal_text, skills, limit, reasons=reasons)
        self._use.mark()
        return found


def _row(use: Use, skill: Skill) -> Row:
    """A skill is read for the index: by whoever writes it, in its thread."""
    use.sweep_daily()
    return make_row(skill)
