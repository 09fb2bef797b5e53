"""On which detector is a wording tried? On one of its own, that ends with the trial.

The project's index serves other processes, and their agents. A trial neither waits for it nor
writes to it: it works on a copy in a folder that goes away, or in memory where that is as quick. So
nothing that was only tried is ever found, and a test runs while somebody else is indexing.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.detect.semantic import LazySemantic, Semantic
    from satchel.facade import Satchel
    from satchel.skill import Skill

_TURN = 1.0
"""Seconds to wait for whoever writes the index; after that it is built anew, which takes longer."""
_VECTORS = "vectors"


class Rehearsal(NamedTuple):
    """A detector for trials, and what a person should know about it."""

    detector: SelectionPipeline
    notes: tuple[str, ...] = ()
    own: bool = False
    """It is nobody else's, so that what is tried may be put into its index."""

    def prepare(self, skills: Sequence[Skill]) -> None:
        """Know these skills and no others; a detector that is somebody else's is left alone.

        Raises:
            SatchelError: a model that was there is not there any more.
        """
        if self.own:
            self.detector.prepare(skills)


@contextmanager
def rehearsal(
    satchel: Satchel, skills: Sequence[Skill], progress: Callable[[int, int], None] | None = None
) -> Generator[Rehearsal]:
    """A detector that acts as the project's does and has every skill of a line-up in its index.

    A detector that is not ours is used as it is: nobody knows what it keeps.

    Args:
        satchel: As whose detector it should act.
        skills: The line-up.
        progress: Told how many of how many skills are read.
    """
    from satchel.detect.hybrid import HybridDetector

    hybrid = satchel.detector.detector
    if not isinstance(hybrid, HybridDetector):
        yield Rehearsal(satchel.detector)
        return
    from tempfile import TemporaryDirectory

    def tell(done: int) -> None:
        if progress is not None:
            progress(min(done, len(skills)), len(skills))

    with TemporaryDirectory(prefix="satchel-test-", ignore_cleanup_errors=True) as folder:
        kept = _copied(satchel, folder, len(skills))
        meaning, notes = _meaning(satchel, hybrid, folder)
        made = _made(satchel, kept, meaning)
        try:
            made.prepare(skills, progress=tell)
        except SatchelError as exc:
            if meaning is None:
                raise
            notes = [_unheard(exc)]  # a server that is away, say: words are still compared
            made = _made(satchel, kept, None)
            made.prepare(skills, progress=tell)
        yield Rehearsal(made, tuple(notes), own=True)


def _made(
    satchel: Satchel, folder: str | None, meaning: Semantic | LazySemantic | None
) -> SelectionPipeline:
    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.pipeline import SelectionPipeline

    limit = satchel.settings.shortlist or 3
    return SelectionPipeline(HybridDetector(folder, semantic=meaning, limit=limit))


def _copied(satchel: Satchel, folder: str, count: int) -> str | None:
    """Copy what the project keeps; returns where the index is, or None for one in memory.

    The vectors are written once and never changed, so they are copied whoever writes.
    """
    import shutil

    from satchel._fs import locked
    from satchel.detect.default import index_folder
    from satchel.detect.index.open import choose_engine
    from satchel.detect.terms import cutter

    live = index_folder(satchel.settings)
    if live is None:
        return None
    name = cutter() or "plain"
    index, vectors = os.path.join(live, name), os.path.join(live, _VECTORS)
    skip = shutil.ignore_patterns("*.lock")
    if satchel.settings.vectors and os.path.isdir(vectors):
        with suppress(OSError):  # what is missing is embedded again
            shutil.copytree(vectors, os.path.join(folder, _VECTORS), ignore=skip)
    if choose_engine(index, count) == "memory":
        return None
    if os.path.isdir(index):
        copy = os.path.join(folder, name)
        try:
            with locked(os.path.join(index, "writer.lock"), timeout=_TURN):
                shutil.copytree(index, copy, ignore=skip)
        except OSError:  # a TimeoutError is one: it is built anew
            shutil.rmtree(copy, ignore_errors=True)
    return folder


def _meaning(
    satchel: Satchel, hybrid: HybridDetector, folder: str
) -> tuple[Semantic | LazySemantic | None, list[str]]:
    """What compares meanings: the same model, beside vectors of its own."""
    spec = satchel.settings.vectors
    if not spec:
        live = hybrid.semantic
        return (None, []) if live is None else (live.fresh(), [])
    from satchel.detect.semantic import Semantic
    from satchel.detect.vectors.open import open_embedder

    try:
        embedder = open_embedder(spec, cache=satchel.settings.paths.cache)
        return Semantic(embedder, os.path.join(folder, _VECTORS)), []
    except SatchelError as exc:
        return None, [_unheard(exc)]


def _unheard(exc: SatchelError) -> str:
    return say("Meanings are not compared: {reason}", reason=exc.message)
