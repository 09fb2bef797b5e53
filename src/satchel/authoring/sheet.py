"""One check-list being filled in, and the report that comes of it.

A box is ticked only by somebody who looked: what nobody judged is shown as not looked at, never as
passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import say
from satchel.authoring.rules import RULES, Verdict, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.authoring.rules import List

Slip = tuple[int, dict[str, str]]
"""A line and what fills the sentence."""


class Report(NamedTuple):
    """What a check found in one skill, by one list."""

    name: str
    path: str
    """The folder, or the module of a packaged skill."""
    list: List
    verdicts: tuple[Verdict, ...]

    def failed(self, *, strict: bool = False) -> list[Verdict]:
        """What keeps it from passing: errors, and with `strict` warnings too."""
        bad = ("error", "warning") if strict else ("error",)
        return [one for one in self.verdicts if one.state == "fail" and one.severity in bad]

    @property
    def failing(self) -> set[str]:
        """The rules that are not met, whatever their severity."""
        return {one.rule for one in self.verdicts if one.state == "fail"}

    def to_dict(self, *, strict: bool = False) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "name": self.name,
            "path": self.path,
            "list": self.list,
            "ok": not self.failed(strict=strict),
            "boxes": [one.to_dict() for one in self.verdicts],
        }


class Sheet:
    """A check-list while it is filled in."""

    def __init__(self, which: List, file: str) -> None:
        self.which: List = which
        self._file = file
        self._rules = [rule.id for rule in rules_of(which)]
        self._verdicts: dict[str, list[Verdict]] = {}

    def judge(self, rule: str, slips: Iterable[Slip] = (), path: str = "") -> None:
        """Tick a box, or say where it is not met. May be called again: slips add up."""
        rows = [Verdict(rule, "fail", path or self._file, line, values) for line, values in slips]
        known = [one for one in self._verdicts.get(rule, []) if one.state == "fail"]
        self._verdicts[rule] = [*known, *rows] or [Verdict(rule)]

    def skip(self, reason: str, *rules: str, open: bool = False) -> None:  # noqa: A002 - a box
        """Leave boxes out that nobody judged yet, and say why.

        Args:
            reason: Why, in the reader's language.
            rules: Which.
            open: They apply, and somebody asked for them: that is shown.
        """
        for rule in rules:
            if rule in self._rules:
                row = Verdict(rule, "skip", reason=reason, open=open)
                self._verdicts.setdefault(rule, [row])

    def fails(self, rule: str) -> bool:
        """Whether a box is known not to be met."""
        return any(one.state == "fail" for one in self._verdicts.get(rule, []))

    def skip_rest(self, reason: str, *sections: str) -> None:
        """Leave out what is not judged yet, in some sections or in all."""
        self.skip(
            reason,
            *(rule for rule in self._rules if not sections or RULES[rule].section in sections),
        )

    def report(self, name: str, path: str) -> Report:
        """The whole list, in its order."""
        missing = say("nobody looked at it")
        rows = [
            verdict
            for rule in self._rules
            for verdict in self._verdicts.get(rule, [Verdict(rule, "skip", reason=missing)])
        ]
        return Report(name, path, self.which, tuple(rows))
