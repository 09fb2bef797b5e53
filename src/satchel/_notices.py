"""Reports what a library does not offer, through the logger `satchel`.

One warning for each kind, when the library is first read and again when what it names changes.
`logging` is imported only when there is something to report: start-up time matters. The commands
do not use this, since they print the same themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import listed, say
from satchel.library.snapshot import find_broken

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.library import Library, Snapshot

_MOST_NAMED = 5


class Notices:
    """Logs the notices of one library, each set of names once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._logged: dict[str, tuple[str, ...]] = {}

    def __call__(self, snapshot: Snapshot) -> None:
        """Log what is new about a snapshot."""
        found: dict[str, list[str]] = {}
        for skill in snapshot.hidden:  # by state: another state needs a sentence in `_sentence`
            name = f"{skill.name} ({skill.winner})" if skill.state == "shadowed" else skill.name
            found.setdefault(skill.state, []).append(name)
        broken = find_broken(snapshot.problems, self._library.locations)
        found["broken"] = [one.problem.path for one in broken]
        found["settings"] = [
            f"{one.path}: {one.message}"
            for one in snapshot.problems
            if one.code.startswith("setting-")
        ]
        found["unmatched"] = self._library.unmatched()
        for kind, names in found.items():
            if self._logged.get(kind, ()) != tuple(names):
                self._logged[kind] = tuple(names)
                _warn(kind, names)


def warn_unmatched(library: Library, patterns: Sequence[str]) -> None:
    """Log the patterns of an `include` that match no skill."""
    _warn("unmatched", library.unmatched(patterns) if patterns else ())


def _warn(kind: str, names: Sequence[str]) -> None:
    sentence = _sentence(kind, _some(names)) if names else ""
    if sentence:
        import logging

        logging.getLogger("satchel").warning("%s", sentence)


def _sentence(kind: str, names: str) -> str:
    """The warning of a kind; empty for what the programmer asked for, such as `excluded`."""
    return {
        "untrusted": say("Skills not offered, since they are not trusted: {names}", names=names),
        "blocked": say("Skills not offered, since the scan blocks them: {names}", names=names),
        "shadowed": say("Skills hidden by others of the same name: {names}", names=names),
        "broken": say("Files that cannot be used as skills: {names}", names=names),
        "settings": say("Settings ignored: {names}", names=names),
        "unmatched": say("No skill matches these patterns of `include`: {names}", names=names),
    }.get(kind, "")


def _some(names: Iterable[str]) -> str:
    every = list(names)
    if len(every) <= _MOST_NAMED:
        return listed(every)
    shown = listed(every[:_MOST_NAMED])
    return say("{names} and {count} more", names=shown, count=len(every) - _MOST_NAMED)
