"""Errors of `satchel try`, `test` and `tools`."""

from __future__ import annotations

import json

import pytest

from needs import needs
from satchel.testing import make_tool_skill

pytestmark = pytest.mark.timeout(120)
READ = "import json, sys\nasked = json.loads(sys.stdin.readline())\n"
ANSWER = "print(json.dumps({'output': 'fine', 'error': ''}))\n"


@pytest.fixture
def desk(empty):
    """A project with one tool of the user's own."""
    needs("bwrap")
    make_tool_skill(empty.project / ".agents/skills", "words", tool="words_count")
    assert empty.run("trust", "--yes").status == 0
    return empty


def _program(desk, text: str) -> None:
    (desk.project / ".agents/skills/words/main.py").write_text(text)


def _edit(desk, old: str, new: str) -> None:
    path = desk.project / ".agents/skills/words/skill.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("words", ['{"text": "a"}', "text=a"])
def test_arguments_without_an_option_are_no_script(desk, words):
    done = desk.run("try", "words_count", words)
    assert done.status == 2
    assert "The arguments of the tool `words_count` need an option" in done.err
    assert "satchel try words_count --arg NAME=VALUE" in done.err


def test_a_tool_whose_name_a_package_has_is_not_listed_as_offered(desk):
    make_tool_skill(desk.project / ".agents/skills", "excel", tool="excel_read")
    listed = desk.run("list").out
    assert "▲  excel" in listed
    assert "●  words" in listed
    assert "not offered" in desk.run("why", "excel").out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("runtime: python", "runtime: pyhton", "`pyhton` is not valid"),
        ("entry: main.py", "entry: mian.py", "There is no `mian.py`"),
        ("description: ", 'description: "', "It is not valid YAML"),
    ],
)
def test_a_fault_of_the_manifest_is_named_instead_of_a_missing_tool(desk, old, new, said):
    _edit(desk, old, new)
    for words in (("try", "words"), ("try", "words.count"), ("test", "words"), ("show", "words")):
        done = desk.run(*words, COLUMNS="")
        assert done.status == 5, words
        assert f"is not a skill: {said}" in done.err
        assert "skill.yaml:" in done.err
    assert desk.run("why", "words").status == 5
    listed = desk.run("list", "--tools")
    assert "1 broken (`satchel doctor`)" in listed.err
    assert [
        path.rpartition("/")[2]
        for path in json.loads(desk.run("list", "--tools", "--json").out)["broken"]
    ] == ["words"]


@pytest.mark.parametrize(
    ("program", "shown", "said", "hint"),
    [
        (
            READ + "print('debug: starting')\n" + ANSWER,
            'response:\n  debug: starting\n  {"output": "fine", "error": ""}\n',
            "it wrote something that is not its reply: `debug: starting`; send it to stderr",
            "hint: Write one line to stdout, a JSON object with `output` and `error`",
        ),
        (
            READ + "def inner():\n    raise ValueError('x')\n\n\ninner()\n",
            "stderr:\n  Traceback (most recent call last):\n    File ",
            "it exited with status 1",
            "hint: Correct `.agents/skills/words/main.py`",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_a_program_is_shown_to_its_author(desk, monkeypatch, program, shown, said, hint):
    monkeypatch.chdir(desk.project)
    _program(desk, program)
    done = desk.run("try", "words", COLUMNS="")
    assert done.status == 1
    for words in (shown, said, hint):
        assert words in done.err
    assert "tell the user" not in done.err
    assert "denied" not in done.err


def test_a_program_that_takes_too_long_may_get_more_time(desk):
    _program(desk, "import time\ntime.sleep(60)\n")
    _edit(desk, "entry: main.py", "entry: main.py\ntimeout: 1")
    done = desk.run("try", "words", COLUMNS="")
    assert "hint: It had 1 s; make it faster, or raise `timeout:` in `skill.yaml`" in done.err
    assert "time: 1." in done.err
    story = desk.run("why", "words", COLUMNS="").out
    assert "Run `satchel try words_count`" in story


def test_a_cut_is_announced(desk):
    _program(desk, READ + "print(json.dumps({'output': 'a' * 50000}))\n")
    done = desk.run("try", "words", COLUMNS="")
    assert done.status == 0
    assert done.out == "a" * 8000 + "\n"
    assert "warning: the model sees 8,000 of 50,000 characters" in done.err
    assert "… (50,014)" in done.err


def test_secrets_are_out_of_the_answer(desk):
    _edit(desk, "entry: main.py", "entry: main.py\nsecrets: [TOKEN_X]")
    missing = desk.run("try", "words", COLUMNS="")
    assert missing.status == 1
    assert "hint: Put `TOKEN_X=…` into " in missing.err
    assert "Put `TOKEN_X=…` into " in desk.run("why", "words", COLUMNS="").out
    _program(desk, READ + "import os\nprint(json.dumps({'output': os.environ['TOKEN_X']}))\n")
    for more in ((), ("--json",)):
        done = desk.run("try", "words", *more, TOKEN_X="abc-123-xyz")
        assert done.status == 0
        assert "abc-123-xyz" not in done.out + done.err
        assert "[secret TOKEN_X]" in done.out


def test_the_permissions_of_a_tool_are_listed(desk):
    more = "network: true\nfiles: write\n"
    make_tool_skill(desk.project / ".agents/skills", "sheets", tool="sheets_read", more=more)
    listed = desk.run("list", "--tools", COLUMNS="").out
    rows = {line.split()[0]: line for line in listed.splitlines()}
    assert " access " in rows["tool"]
    assert "runs, writes, network" in rows["sheets_read"]
    assert "  runs  " in rows["words_count"]
    assert "  reads  " in rows["ReadFile"]
    records = {
        row["name"]: row for row in json.loads(desk.run("list", "--tools", "--json").out)["tools"]
    }
    assert (records["words_count"]["may"], records["words_count"]["writes"]) == (["runs"], False)
    assert records["sheets_read"]["writes"] is True


@pytest.mark.parametrize(
    ("more", "said", "fix"),
    [
        ("files: {read: true}", "`files` names `true`", "Write `files: read`, or the names"),
        ("files: readonly", "it must be `read`, `write`, `none` or a mapping", "Write `files`"),
    ],
)
def test_a_broken_skill_yaml_is_the_answer_of_try_with_its_fix(desk, more, said, fix):
    path = desk.project / ".agents/skills/words/skill.yaml"
    path.write_text(path.read_text() + more + "\n")
    for name in ("words_count", "words"):
        done = desk.run("try", name, COLUMNS="")
        assert done.status == 5
        assert said in done.err
        assert "There is no tool" not in done.err
    assert fix in desk.run("doctor", COLUMNS="200").out


def test_advice_on_style_does_not_fail_the_check_of_a_tool_that_works(desk):
    done = desk.run("check", "words")
    assert done.status == 0
    assert "· note description-length" in done.out
    assert desk.run("check", "words", "--strict").status == 0  # strict counts warnings, not notes
