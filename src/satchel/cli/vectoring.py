"""`satchel vectors`: shows and tries the model that compares meanings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from satchel._language import say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import command
from satchel.cli.values import OneOf, help_hint
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from satchel.cli.session import Session


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
