"""Is the search ready? `satchel index` builds what makes it fast, and waits for it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import click

from satchel._language import listed, say
from satchel.cli.output import one_line, write_json
from satchel.cli.progress import Progress
from satchel.cli.session import command, short_path
from satchel.errors import Conflict, Refused

if TYPE_CHECKING:
    from satchel.cli.session import Session
    from satchel.detect.base import Prepared

_NAMES = 5
"""Skills without a vector that are named."""


@command(
    say("Build the search index now, or bring it up to date.")
    + "\n\n"
    + say(
        "It is kept up to date by itself, a changed skill alone, and no search waits for it. Run "
        "this after adding thousands of skills, so that the first search is as fast as the "
        "others. The index lies in the cache folder and may be deleted at any time."
    ),
    "satchel index",
    "satchel index --rebuild",
)
@click.option("--rebuild", is_flag=True, help=say("Throw away what is there and begin anew."))
def index(session: Session, rebuild: bool, as_json: bool) -> int:
    """What is there is kept until the new one is whole."""
    satchel = session.satchel
    total = len(satchel.library.snapshot().skills)
    try:
        with _Phases(total) as phases:
            made = satchel.prepare(phases, rebuild=rebuild)
    except TimeoutError as exc:
        raise Conflict(
            say("Another process is writing the index"),
            say("Wait until it is done, then run `satchel index` again"),
        ) from exc
    except OSError as exc:
        raise Refused(
            say("The index cannot be written: {reason}", reason=exc.strerror or exc),
            say("Make the cache folder writable: `{path}`", path=satchel.settings.paths.cache),
        ) from exc
    if made is None:
        if as_json:
            write_json(None)
        session.err.line(say("This detector keeps no index: there is nothing to build"))
        return 0
    size = size_of(made.folder) if made.folder else 0
    if as_json:
        lacking = [{"name": name, "reason": why} for name, why in made.without_vectors]
        told = {**made._asdict(), "seconds": round(made.seconds, 3), "size": size}
        write_json({**told, "without_vectors": lacking})
    else:
        _show(session, made, size, satchel.settings.vectors)
    return 0


class _Phases:
    """A bar for words, and then one for vectors: whoever reports here only counts."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._stack = ExitStack()
        self._words: Progress | None = None
        self._vectors: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, done: int) -> None:
        """Say how many are indexed."""
        if self._words is None:
            self._words = self._stack.enter_context(Progress(say("Indexing skills")))
        self._words("", min(done, self._total), self._total)

    def vectors(self, done: int) -> None:
        """Say how many have their vectors: `Semantic.prepare` asks for it by this name."""
        if self._vectors is None:
            self._stack.close()
            self._vectors = self._stack.enter_context(Progress(say("Making vectors")))
        self._vectors("", min(done, self._total), self._total)


def _show(session: Session, made: Prepared, size: int, setting: str) -> None:
    out = session.out
    lead = [(_skills(made.skills), "bold")]
    told = say(
        ", {changed} read anew, in {seconds} s",
        changed=f"{made.changed:,}",
        seconds=f"{made.seconds:.1f}",
    )
    out.line(told, lead=lead)
    engine = one_line(made.engine)
    if made.engine == "memory":
        engine = (
            say("plain Python and one file")
            if made.folder
            else say("in memory, gone with this process")
        )
    out.line(engine, "", "  ", lead=[(say("engine") + say(": "), "dim")])
    if made.vectors:
        model = one_line(setting or made.vectors)
        # A skill in a script that the model does not read has none.
        told = say("{skills} ({model})", skills=_skills(made.embedded), model=model)
        lead = [(say("vectors") + say(": "), "dim")]
        out.line(told, "", "  ", lead=lead)
        _show_lacking(session, made)
    if made.folder:
        where = f"{one_line(short_path(made.folder))} ({_bytes(size)})"
        out.line(where, "", "  ", lead=[(say("folder") + say(": "), "dim")])


def _show_lacking(session: Session, made: Prepared) -> None:
    """Who is compared by words alone, and why: by the reason, for a library may be Chinese."""
    reasons: dict[str, list[str]] = {}
    for name, why in made.without_vectors:
        reasons.setdefault(why, []).append(f"`{one_line(name)}`")
    for why, names in reasons.items():
        shown = listed(names[:_NAMES])
        if len(names) > _NAMES:
            shown += say(" and {count} more", count=len(names) - _NAMES)
        session.err.line(say("No vector for {names}: {reason}", names=shown, reason=one_line(why)))


def _skills(count: int) -> str:
    return say("1 skill") if count == 1 else say("{count} skills", count=count)


def size_of(folder: str) -> int:
    """Bytes of all files of a folder; one that goes away meanwhile counts nothing."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(here, name)).st_size
            except OSError:
                continue
    return total


def _bytes(size: int) -> str:
    if size < 1_000_000:
        return f"{max(size, 0) / 1000:.0f} kB"
    return f"{size / 1_000_000:.1f} MB"
