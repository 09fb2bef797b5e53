"""Is the search ready? `satchel index` builds what makes it fast, and waits for it."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import click

from satchel._language import listed, say
from satchel.cli.output import one_line, write_json
from satchel.cli.progress import Progress
from satchel.cli.session import command, short_path
from satchel.cli.values import OneOf, help_hint
from satchel.errors import InvalidInput

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
    with _Phases(total) as phases:
        made = satchel.prepare(phases, rebuild=rebuild)
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


@command(
    say("Show the model that compares meanings, or try one.")
    + "\n\n"
    + say(
        "With a model, a skill is also found by other words than its own. MODEL is a folder with "
        "an ONNX file and its tokenizer, `model2vec:FOLDER`, or the address of an embeddings "
        "endpoint; the setting `vectors` names it. Nothing is downloaded."
    ),
    "satchel vectors",
    'satchel vectors check "merge two PDFs" "join documents" --model ~/models/minilm',
)
@click.argument("action", type=OneOf(["show", "check"]), default="show")
@click.argument("words", nargs=-1)
@click.option(
    "--model",
    metavar="MODEL",
    help=say("check: another model than the setting `vectors` names."),
)
def vectors(
    session: Session, action: str, words: tuple[str, ...], model: str | None, as_json: bool
) -> int:
    """The setting or the similarity on stdout; the rest on stderr."""
    chosen = session.satchel.settings.vectors
    if action == "check":
        if len(words) == 1:
            raise InvalidInput(
                say("The second text is missing: two are compared"),
                help_hint(click.get_current_context()),
            )
        one, other = _only(words, "TEXT", "TEXT")
        return _check(session, model or chosen, (one, other), as_json=as_json)
    _only(words)
    if as_json:
        write_json({"setting": chosen})
    elif chosen:
        session.out.data(chosen)
    else:
        session.err.line(say("The setting `vectors` is empty: words alone are compared"))
    return 0


def _only(words: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """The words, as many as there should be."""
    context = click.get_current_context()
    if len(words) < len(names):
        raise InvalidInput(say("`{name}` is missing", name=names[len(words)]), help_hint(context))
    if len(words) > len(names):
        raise InvalidInput(
            say(
                "`{command}` does not take `{words}`",
                command=context.command_path,
                words=one_line(" ".join(words[len(names) :])),
            ),
            help_hint(context),
        )
    return words


def _check(session: Session, spec: str, texts: tuple[str, str], *, as_json: bool) -> int:
    from satchel.detect.vectors.open import open_embedder

    if not spec:
        raise InvalidInput(say("No model is set"), say("Give one with `--model`, or set `vectors`"))
    began = time.perf_counter()
    model = open_embedder(spec)
    opened = time.perf_counter()
    one, other = model.embed(texts)
    took = (time.perf_counter() - opened) / 2
    covered = [model.covers(text) for text in texts]
    found: dict[str, Any] = {
        "similarity": round(float(one @ other), 4),
        "covered": covered,
        "model": spec,
        "id": model.id,
        "dimensions": model.dimensions,
        "open_ms": round((opened - began) * 1e3, 1),
        "text_ms": round(took * 1e3, 2),
    }
    if as_json:
        write_json(found)
        return 0
    session.out.data(f"{found['similarity']:.3f}")
    for text, is_covered in zip(texts, covered, strict=True):
        if not is_covered:
            words = say("The model does not read this script: {text}", text=one_line(text))
            session.err.line(words, "yellow", "▲ ")
    session.err.line(
        say(
            "{model}: {count} numbers a text, opened in {open} ms, {each} ms a text",
            model=one_line(spec),
            count=found["dimensions"],
            open=found["open_ms"],
            each=found["text_ms"],
        ),
        "dim",
    )
    return 0
