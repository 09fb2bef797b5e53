"""A new skill works as it is: under the bare protocol, in both languages, in every runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pytest

from authoring.wrong import write_good
from needs import go_cache, needs
from satchel.authoring.scaffold import KINDS, new_skill, write_scaffold
from satchel.authoring.text_rules import find_message_fault
from satchel.errors import InvalidInput
from sizes import sized

if TYPE_CHECKING:
    from satchel.authoring.scaffold import Kind

pytestmark = pytest.mark.req("E11")

WRONG = [
    {},
    {"text": "a", "path": "b"},
    {"path": "../../../../etc/passwd"},
    {"path": "/etc/passwd"},
    {"path": "gone.txt"},
    {"path": "."},
    {"text": 5},
    {"path": ["a"]},
    {"nothing": "x"},
]


def _command(kind: str, folder: str) -> list[str]:
    if kind == "python":
        return [sys.executable, "main.py"]
    if kind == "typescript":
        return [needs("node24"), "--no-warnings", "main.ts"]
    if kind == "binary":
        needs("cc")
        return ["./skill"]
    go = needs("go")
    target = os.path.join(folder, "built")
    env = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOCACHE": go_cache(),
        "GOFLAGS": "-mod=mod",
        "GOTOOLCHAIN": "local",
    }
    # As Satchel does: the compiled library is kept per set of options.
    options = ["-trimpath", "-ldflags=-s -w"]
    subprocess.run([go, "build", *options, "-o", target, "."], cwd=folder, env=env, check=True)
    return [target]


@pytest.mark.req("E4")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", sized(["en"], ["en", "zh"]))
@pytest.mark.parametrize("kind", KINDS[2:])
def test_a_program_runs_under_the_bare_protocol(kind, language, tmp_path):
    folder = str(write_good(tmp_path, kind, language).folder)
    command = _command(kind, folder)
    with open(os.path.join(folder, "poem.txt"), "w", encoding="utf-8") as file:
        file.write("床前明月光\n疑是地上霜\n")

    def ask(line: str) -> dict:
        done = subprocess.run(
            command,
            cwd=folder,
            input=line + "\n",
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        reply = json.loads(done.stdout)
        assert set(reply) == {"output", "error"}
        return reply

    reply = ask(json.dumps({"arguments": {"text": "to be or not to be"}}))
    assert reply["error"] == ""
    # Chinese puts no spaces between words: there characters are counted.
    words = {"en": (["6"], ["2"]), "zh": ([], [])}[language]
    counts = [row.split(": ")[1] for row in reply["output"].splitlines()]
    assert counts == ["1", *words[0], "18"]
    reply = ask(json.dumps({"arguments": {"path": "poem.txt", "text": ""}}))
    counts = [row.split(": ")[1] for row in reply["output"].splitlines()]
    assert counts == ["2", *words[1], "12"]
    for line in (
        *(json.dumps({"arguments": one}) for one in WRONG),
        "",
        "null",
        "{",
        '{"arguments": [1]}',
    ):
        reply = ask(line)
        assert reply["output"] == "", line
        assert find_message_fault(reply["error"]) == "", (line, reply)
        assert reply["error"].isascii() is False  # the dash, and Chinese words
    os.symlink("/etc/hostname", os.path.join(folder, "link.txt"))
    assert ask(json.dumps({"arguments": {"path": "link.txt"}}))["output"] == ""


def test_names_become_ids_and_tools():
    made = new_skill("Word Count!", "python")
    assert (made.id, made.tool) == ("word-count", "word_count_count")
    nothing = (("  ", "skill"), ("单词统计", "skill"), ("!?", "go"))
    for name, kind in (*nothing, ("3d", "python"), ("a" * 62, "go")):
        with pytest.raises(InvalidInput):
            new_skill(name, cast("Kind", kind))
    assert new_skill("3d").id == "3d"


def test_nothing_is_overwritten(tmp_path):
    made = new_skill("word-count")
    write_scaffold(made, str(tmp_path))
    with pytest.raises(InvalidInput, match="exists already"):
        write_scaffold(made, str(tmp_path))
    assert os.listdir(tmp_path) == ["word-count"]
