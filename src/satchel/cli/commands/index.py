"""The commands `index` (build the search index) and `vectors` (show or try an embedding model)."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import click

from satchel.cli.console import count_skills, one_line, write_json
from satchel.cli.context import command, short_path
from satchel.cli.options import OneOf, flag_option, help_hint
from satchel.cli.progress import ProgressBar
from satchel.errors import InvalidInput
from satchel.i18n import listed, say

if TYPE_CHECKING:
    from satchel.cli.context import CliContext
    from satchel.detect.base import IndexReport

_MAX_NAMES_SHOWN = 5


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
@flag_option("--rebuild", say("Throw away what is there and begin anew."))
def index(context: CliContext, rebuild: bool, as_json: bool) -> int:
    satchel = context.satchel
    total = len(satchel.library.snapshot().skills)
    with _Phases(total) as phases:
        made = satchel.prepare(phases, rebuild=rebuild)
    if made is None:
        if as_json:
            write_json(None)
        context.err.line(say("This detector keeps no index: there is nothing to build"))
        return 0
    size = _folder_size(made.folder) if made.folder else 0
    if as_json:
        missing = [{"name": name, "reason": why} for name, why in made.without_vectors]
        record = {**made._asdict(), "seconds": round(made.seconds, 3), "size": size}
        write_json({**record, "without_vectors": missing})
    else:
        _show(context, made, size, satchel.settings.vectors)
    return 0


class _Phases:
    """A progress bar for indexing words, then one for embedding."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._stack = ExitStack()
        self._label = ""
        self._bar: ProgressBar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, done: int) -> None:
        """Show how many skills are indexed."""
        self._show(say("Indexing skills"), done)

    def vectors(self, done: int) -> None:
        """Show how many skills are embedded; called by `Semantic.prepare`."""
        self._show(say("Making vectors"), done)

    def _show(self, label: str, done: int) -> None:
        if self._bar is None or label != self._label:
            self._stack.close()
            self._label, self._bar = label, self._stack.enter_context(ProgressBar(label))
        self._bar("", min(done, self._total), self._total)


def _show(context: CliContext, made: IndexReport, size: int, setting: str) -> None:
    out = context.out
    text = say(
        ", {changed} read anew, in {seconds} s",
        changed=f"{made.changed:,}",
        seconds=f"{made.seconds:.1f}",
    )
    out.line(text, lead=[(count_skills(made.skills), "bold")])
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
        text = say("{skills} ({model})", skills=count_skills(made.embedded), model=model)
        out.line(text, "", "  ", lead=[(say("vectors") + say(": "), "dim")])
        _show_missing(context, made)
    if made.folder:
        where = f"{one_line(short_path(made.folder))} ({_bytes(size)})"
        out.line(where, "", "  ", lead=[(say("folder") + say(": "), "dim")])


def _show_missing(context: CliContext, made: IndexReport) -> None:
    """Print the skills without an embedding, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for name, why in made.without_vectors:
        reasons.setdefault(why, []).append(f"`{one_line(name)}`")
    for why, names in reasons.items():
        shown = listed(names[:_MAX_NAMES_SHOWN])
        if len(names) > _MAX_NAMES_SHOWN:
            shown += say(" and {count} more", count=len(names) - _MAX_NAMES_SHOWN)
        context.err.line(say("No vector for {names}: {reason}", names=shown, reason=one_line(why)))


def _folder_size(folder: str) -> int:
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
    "--model", metavar="MODEL", help=say("check: another model than the setting `vectors` names.")
)
def vectors(
    context: CliContext, action: str, words: tuple[str, ...], model: str | None, as_json: bool
) -> int:
    chosen = context.satchel.settings.vectors
    if action == "check":
        if len(words) == 1:
            raise InvalidInput(
                say("The second text is missing: two are compared"),
                help_hint(click.get_current_context()),
            )
        one, other = _exactly(words, "TEXT", "TEXT")
        return _check(context, model or chosen, (one, other), as_json=as_json)
    _exactly(words)
    if as_json:
        write_json({"setting": chosen})
    elif chosen:
        context.out.data(chosen)
    else:
        context.err.line(say("The setting `vectors` is empty: words alone are compared"))
    return 0


def _exactly(words: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Check that there are as many arguments as names."""
    ctx = click.get_current_context()
    if len(words) < len(names):
        raise InvalidInput(say("`{name}` is missing", name=names[len(words)]), help_hint(ctx))
    if len(words) > len(names):
        raise InvalidInput(
            say(
                "`{command}` does not take `{words}`",
                command=ctx.command_path,
                words=one_line(" ".join(words[len(names) :])),
            ),
            help_hint(ctx),
        )
    return words


def _check(context: CliContext, spec: str, texts: tuple[str, str], *, as_json: bool) -> int:
    from satchel.detect.embeddings.registry import open_embedder

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
    context.out.data(f"{found['similarity']:.3f}")
    for text, is_covered in zip(texts, covered, strict=True):
        if not is_covered:
            message = say("The model does not read this script: {text}", text=one_line(text))
            context.err.line(message, "yellow", "▲ ")
    context.err.line(
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
