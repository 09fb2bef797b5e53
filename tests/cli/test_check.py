"""The commands `new`, `check`, `try` and `test` for authors of skills."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from needs import needs

pytestmark = pytest.mark.timeout(120)


def _edit(terminal, path: str, old: str, new: str) -> None:
    file = terminal.project / ".agents/skills" / path
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.req("E9", "E11")
def test_from_nothing_to_a_tool_that_is_done(empty):
    needs("bwrap")
    made = empty.run("new", "word-count", "--kind", "python")
    assert made.status == 0
    folder = empty.project / ".agents/skills/word-count"
    assert made.out == f"{folder}\n"
    assert "3. `satchel try word_count_count --arg text=hello`" in made.err
    tried = empty.run("try", "word-count", "--arg", "text=to be")
    assert (tried.status, tried.out) == (0, "lines: 1\nwords: 2\ncharacters: 5\n")
    assert 'request: {"arguments": {"text": "to be", "path": ""}}' in tried.err.replace("\n  ", " ")
    for title in ("response:", "time:", "sandbox:", "allowed:"):
        assert title in tried.err
    checked = empty.run("check", "word-count", "--run", "--json")
    assert checked.status == 0, checked.out
    states = {box["rule"]: box["state"] for box in json.loads(checked.out)[0]["boxes"]}
    assert (states["answers"], states["go-builds"]) == ("pass", "skip")
    tested = empty.run("test", "word-count")
    assert tested.status == 0, tested.out
    assert tested.err.endswith("7 passed, 0 failed\n")


@pytest.mark.req("E11")
def test_new_speaks_chinese_and_takes_no_name_twice(empty):
    record = json.loads(empty.run("new", "Style Check", "--json", SATCHEL_LANG="zh").out)
    assert record["path"] == str(empty.project / ".agents/skills/style-check")
    assert record["files"] == [
        "SKILL.md",
        "evals/evals.json",
        "evals/triggers.yaml",
        "references/checklist.md",
    ]
    text = (empty.project / ".agents/skills/style-check/SKILL.md").read_text(encoding="utf-8")
    assert "审阅" in text
    assert empty.run("new", "x", "--kind", "cobol").status == 2
    assert empty.run("new", "style-check").status == 2
    assert "style-check" in empty.run("list").out
    assert empty.run("check", "style-check").status == 0


def test_check_in_chinese_has_no_english_in_the_middle(empty):
    empty.skill("skills/other", "---\nname: notes\ndescription: Takes notes.\n---\nx\n")
    done = empty.run("check", "other", SATCHEL_LANG="zh", COLUMNS="")
    assert "名称 `notes` 与所在文件夹 `other` 不一致" in done.out


@pytest.mark.req("E9")
def test_check_names_failed_rules_and_their_fixes(empty):
    empty.run("new", "word-count", "--kind", "python")
    _edit(empty, "word-count/skill.yaml", "Counts the lines", "A counter of the lines")
    done = empty.run("check", "word-count", "--strict", COLUMNS="")
    assert done.status == 0  # advice on style fails nothing
    assert "✓ word-count  tool" in done.out
    assert (
        "· note description-verb (skill.yaml:3): The description must start with a verb: "
        "`word_count_count`, `A counter`" in done.out
    )
    assert "→ Rewrite it, for example: Reads a range of cells." in done.out
    record = json.loads(empty.run("check", "word-count", "--strict", "--json").out)[0]
    assert record["ok"] is True
    assert [box["rule"] for box in record["boxes"] if box["state"] == "fail"] == [
        "description-verb"
    ]
    assert all(box["message"] for box in record["boxes"] if box["state"] == "skip")


def test_a_skill_yml_is_seen_and_named(empty):
    empty.run("new", "words", "--kind", "python")
    folder = empty.project / ".agents/skills/words"
    (folder / "skill.yaml").rename(folder / "skill.yml")
    for words in (("show", "words"), ("check", "words"), ("check", str(folder)), ("doctor",)):
        done = empty.run(*words)
        assert done.status != 0, words
        said = " ".join((done.out + done.err).split())
        assert "The file should be called `skill.yaml`" in said, words
    assert "1 broken" in empty.run("list").err
    (folder / "skill.yml").rename(folder / "skill.yaml")
    assert empty.run("check", "words").status == 0


@pytest.mark.req("E9")
def test_strict_counts_warnings(empty):
    empty.run("new", "words")
    _edit(empty, "words/SKILL.md", "name: words", "name: other")
    done = empty.run("check", ".agents/skills/words")
    assert done.status == 0
    assert "▲ warning name-mismatch" in done.out
    assert empty.run("check", ".agents/skills/words", "--strict").status == 1


def test_check_looks_at_everything_of_the_project(empty):
    empty.run("new", "words")
    empty.run("new", "word-count", "--kind", "python")
    broken = empty.project / ".agents/skills/broken"
    broken.mkdir()
    (broken / "skill.yaml").write_text("name: [\n")
    rows = {row["name"]: row for row in json.loads(empty.run("check", "--json").out)}
    assert set(rows) == {"words", "word-count", "broken"}
    assert [rows[name]["ok"] for name in ("words", "word-count", "broken")] == [True, True, False]
    several = empty.run("check")
    assert several.status == 1
    assert "✓ words  SKILL.md" in several.out
    assert "`docs.when_to_use` is filled in" not in several.out
    assert empty.run("check", "nothing-like-it").status == 3
    assert len(json.loads(empty.run("check", ".agents", "--json").out)) == 3
    linked = empty.project / ".claude/skills"
    linked.mkdir(parents=True)
    (linked / "words").symlink_to(empty.project / ".agents/skills/words")
    assert [row["name"] for row in json.loads(empty.run("check", str(linked), "--json").out)] == [
        "words"
    ]


_COUNTING = """
import sys
from satchel.cli.main import main
count = 0
def profile(frame, event, called):
    global count
    count += event == "c_call" and called.__name__ == "stat"
sys.setprofile(profile)
try:
    sys.argv = ["satchel", "check"]
    sys.exit(main())
finally:
    sys.setprofile(None)
    print(count)
"""


def test_a_check_of_many_skills_reads_the_folders_of_the_project_once(empty):
    counts: list[int] = []
    for many in (5, 25, 45):
        empty.skills({f"skill-{number}": "Counts words" for number in range(many)})
        done = subprocess.run(
            [sys.executable, "-c", _COUNTING],
            cwd=empty.project,
            env=empty.env(),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        counts.append(int(done.stdout.split()[-1]))
    assert counts[2] - counts[1] < 1.5 * (counts[1] - counts[0]), counts


@pytest.mark.req("E9")
def test_a_packaged_skill_is_checked_by_name(empty):
    done = empty.run("check", "--packaged", "excel", "--json")
    assert done.status == 0, done.out
    assert {box["state"] for box in json.loads(done.out)[0]["boxes"]} <= {"pass", "skip"}
    assert empty.run("check", "--packaged", "nothing").status == 3


def test_the_exit_code_of_try_follows_the_result(empty):
    needs("bwrap")
    empty.run("new", "word-count", "--kind", "python")
    assert empty.run("try", "word-count").status == 1
    assert empty.run("try", "word-count", "--arg", "nothing=1").status == 2
    assert empty.run("try", "word-count", "--arg", "path=../../etc/passwd").status == 4
    assert empty.run("try", "word-count", "--arg", "path=gone.txt").status == 3
    assert empty.run("try", "word-cuont").status == 3
    done = empty.run("try", "word-count", "--json-args", '{"text": "a b"}')
    assert done.out == "lines: 1\nwords: 2\ncharacters: 3\n"
    told = json.loads(empty.run("try", "word-count", "--arg", "text=a", "--json").out)
    assert told["envelope"]["data"]["tier"] in {"bwrap", "landlock"}
    assert told["request"] == '{"arguments": {"text": "a", "path": ""}}'
    wrong = empty.run("try", "word-count", "--arg", "text=")
    assert "error: Nothing to count, or two things" in wrong.err


def test_an_example_without_its_file_makes_a_test_incomplete(empty):
    needs("bwrap")
    empty.run("new", "word-count", "--kind", "python")
    _edit(empty, "word-count/skill.yaml", 'text: "to be or not to be"', "path: data/sales.txt")
    done = empty.run("test", "word-count", COLUMNS="")
    assert done.status == 8
    assert "– not run" in done.out
    assert "needs data/sales.txt" in done.out
    record = json.loads(empty.run("test", "word-count", "--json").out)
    assert (record["ok"], record["complete"]) == (False, False)
    os.makedirs(empty.project / "data")
    (empty.project / "data/sales.txt").write_text("a\n")
    assert empty.run("test", "word-count").status == 0
    _edit(empty, "word-count/main.py", " — put its value in quotes", "")
    assert empty.run("test", "word-count").status == 1
    assert empty.run("test", "nothing").status == 3
