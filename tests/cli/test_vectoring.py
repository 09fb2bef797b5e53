"""`satchel vectors`: the model is shown and tried, and nothing is fetched."""

from __future__ import annotations

import json

import pytest

from tiny_models import write_onnx

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def model(empty):
    folder = empty.home / "tiny"
    write_onnx(folder)
    return folder


@pytest.mark.req("C10")
def test_a_model_is_shown_and_tried(empty, model):
    (empty.home / ".config/satchel").mkdir(parents=True)
    (empty.home / ".config/satchel/config.toml").write_text('vectors = "~/tiny"\n')
    assert empty.run("vectors").out == "~/tiny\n"
    assert json.loads(empty.run("vectors", "--json").out) == {"setting": "~/tiny"}
    tried = empty.run("vectors", "check", "merge the files", "merge the files")
    assert (tried.status, tried.out) == (0, "1.000\n")
    assert "12 numbers a text" in tried.err


def test_without_a_model_words_alone_are_compared(empty):
    done = empty.run("vectors")
    assert (done.status, done.out) == (0, "")
    assert "words alone" in done.err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("check",), 2, "`TEXT` is missing"),
        (("check", "one"), 2, "The second text is missing: two are compared"),
        (("check", "one", "two"), 2, "No model is set"),
        (("check", "one", "two", "three", "--model", "m"), 2, "does not take `three`"),
        (("check", "one", "two", "--model", "unknown"), 2, "no whole path"),
        (("check", "one", "two", "--model", "~/unknown"), 3, "There is no folder"),
        (("show", "\x1b[31mmore"), 2, "does not take `"),
        (("frobnicate",), 2, "`frobnicate`"),
    ],
)
def test_slips_are_told(empty, words, status, message):
    done = empty.run("vectors", *words)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "hint: " in done.err
    assert "\x1b" not in done.err
