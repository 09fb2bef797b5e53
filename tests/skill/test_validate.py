"""Validation in practice, and agreement with the published validator."""

from __future__ import annotations

import os
import random

import pytest

from satchel.errors import NotFound
from satchel.skill.validate import validate_folder
from sizes import sized


def write(folder, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return str(folder)


def test_all_problems_come_at_once(tmp_path):
    folder = write(
        tmp_path / "demo",
        "---\nname: Other_Name\ndescription: Use <b>when</b>: asked\nallowed-tools: [Read, Bash]\n"
        "metadata:\n  deep:\n    er: 1\nmood: happy\neffort: big\n---\n",
    )
    found = {problem.code for problem in validate_folder(folder)}
    assert found >= {
        "name-pattern", "name-mismatch", "repaired-value", "tools-list", "metadata-nested",
        "unknown-field", "inert-field", "description-markup", "body-empty",
    }  # fmt: skip


def test_a_clean_skill_has_none(tmp_path):
    folder = write(tmp_path / "demo", "---\nname: demo\ndescription: Does it.\n---\nSteps.\n")
    assert validate_folder(folder) == []
    assert validate_folder(os.path.join(folder, "SKILL.md"), strict=True) == []


def _missing(folder: str) -> list[tuple[str, int]]:
    return [
        (problem.values["file"], problem.line)
        for problem in validate_folder(folder)
        if problem.code == "file-missing"
    ]


@pytest.mark.parametrize(
    ("line", "with_scripts", "missing"),
    [
        ("Run scripts/fill.py.", False, ["scripts/fill.py"]),
        ("Then use `scripts/fill.py` on each page.", False, ["scripts/fill.py"]),
        ("See references/forms.md for the fields.", False, ["references/forms.md"]),
        ("Call `python scripts/fill.py in.pdf`.", True, ["scripts/fill.py"]),
        ("```bash\npython3 scripts/fill.py in.pdf\n```", True, ["scripts/fill.py"]),
        ("```\nuv run ${CLAUDE_SKILL_DIR}/scripts/fill.py\n```", True, ["scripts/fill.py"]),
        ("```bash\npython scripts/there.py\n```", True, []),
        ("```powershell\npwsh -NoProfile -File scripts/a.ps1\n```", True, ["scripts/a.ps1"]),
        (
            "`powershell.exe -ExecutionPolicy Bypass -File scripts/a.ps1`",
            True,
            ["scripts/a.ps1"],
        ),
        ("```bash\nRscript scripts/plot.R x.csv\n```", True, ["scripts/plot.R"]),
        (
            "Call `php scripts/report.php`, then `perl scripts/b.pl`.",
            True,
            ["scripts/report.php", "scripts/b.pl"],
        ),
        # Of the project, of another one, written by the skill, or made up.
        ("```bash\npython scripts/fill.py\n```", False, []),
        ("```bash\ncd web && npm install\npython scripts/fill.py\n```", True, []),
        ("```bash\npytest\npython scripts/fill.py\n```", True, []),
        ("```markdown\npython scripts/fill.py\n```", True, []),
        ("Create scripts/fill.py first. Run scripts/fill.py.", True, []),
        ("Run scripts/<name>.py, for example scripts/fill.py.", True, []),
        ("Run scripts/above.sh.", False, []),
        ("It runs scripts of scripts/fill.pyramid-schemes.", True, []),
    ],
)
def test_a_file_that_the_text_says_to_run_or_read_must_be_there(
    tmp_path, line, with_scripts, missing
):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/above.sh").write_text("")
    text = f"---\nname: demo\ndescription: Does it.\n---\n{line}\n"
    folder = write(tmp_path / "demo", text)
    if with_scripts:
        (tmp_path / "demo/scripts").mkdir()
        (tmp_path / "demo/scripts/there.py").write_text("")
    assert [path for path, _ in _missing(folder)] == missing


HEAD = "---\nname: demo\ndescription: Does it.\n---\n"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("See `references/gone.md`.", "references/gone.md"),
        ("See [it](references/gone.md).", "references/gone.md"),
        ("See [it](./references/gone.md#part).", "references/gone.md"),
        ('See [it](<a%20b.md> "a title").', "a b.md"),
        ("Run `scripts/gone.py --fast x`.", "scripts/gone.py"),
        ("[`references/gone.md`](references/gone.md) twice", "references/gone.md"),
    ],
)
def test_a_file_that_is_named_and_missing_is_noted(tmp_path, body, path):
    folder = write(tmp_path / "demo", f"{HEAD}\n# Title\n\n{body}\n")
    (tmp_path / "demo/scripts").mkdir()
    assert _missing(folder) == [(path, 8)]


@pytest.mark.parametrize(
    "body",
    [
        "See `references/here.md` and [it](references/here.md#part).",
        "See [it](https://example.com/gone.md), [top](#top), [mail](mailto:a@b.c).",
        "See [it](/etc/gone.md), [it](~/gone.md), [it](../other/SKILL.md).",
        "Write `references/<topic>.md`, `references/*.md`, `scripts/{name}.py`, `assets/...`.",
        "Files lie in `references/` and `assets/fonts/`.",
        "A link is written [text](url) or [text](path/to/file.md).",
        "For example `references/gone.md`.",
        "Links `[text](gone.md)` are updated.",
        "A `scripts/gone.py` would be helpful; check whether `references/gone.md` exists.",
        "The skill `other` and its `references/gone.md`.",
        "The project's own `scripts/build.sh` does it.",
        "```\n[it](gone.md) `references/gone.md`\n```",
        "references/gone.md without backticks",
    ],
)
def test_words_that_may_be_no_file_are_not_noted(tmp_path, body):
    folder = write(tmp_path / "demo", f"{HEAD}{body}\n")
    (tmp_path / "demo/references").mkdir()
    (tmp_path / "demo/references/here.md").write_text("x")
    assert _missing(folder) == []


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        ("requires: {mcp: [rube, docs]}", "requires-mcp", "MCP servers `rube`, `docs`, which"),
        ("metadata: {openclaw: {requires: {mcp: [rube]}}}", "requires-mcp", "`rube`"),
        ("depends_on: [other]", "inert-field", "`requires: {skills: […]}` count"),
        ("requires: {bins: [git]}", "", ""),
    ],
)
def test_requirements_that_nothing_checks_are_noted(tmp_path, lines, code, words):
    text = f"---\nname: demo\ndescription: Does it.\n{lines}\n---\nDo it.\n"
    problems = validate_folder(write(tmp_path / "demo", text))
    found = [item for item in problems if item.code != "metadata-nested"]
    assert [(item.code, item.severity, item.line) for item in found] == (
        [(code, "note", 4)] if code else []
    )
    assert all(words in item.message for item in found)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "piece", ["](", "[", "](  ", '](a "', "`references/", "`scripts/a ", "](%", "if ", "`](a`if "]
)
def test_looking_for_files_takes_no_longer_for_hostile_text(tmp_path, piece):
    folder = write(tmp_path / "demo", HEAD + piece * (400_000 // len(piece)))
    validate_folder(folder)


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        validate_folder(str(tmp_path))


SPEC_CASES = [
    "name: demo\ndescription: x",
    "name: demo\ndescription: x\nlicense: MIT\ncompatibility: git\nmetadata:\n  a: b",
    "name: demo\ndescription: x\nmetadata:\n  version: 1.0",
    "name: demo\ndescription: 2024-01-01",
    "name: demo\ndescription: |\n  many\n  lines",
    "name: demo",
    "description: x",
    "name: ''\ndescription: x",
    "name: demo\ndescription: ''",
    "name: Demo\ndescription: x",
    "name: demo-\ndescription: x",
    "name: de--mo\ndescription: x",
    "name: other\ndescription: x",
    "name: demo\ndescription: x\nauthor: me",
    "name: demo\ndescription: x\nversion: 1",
    "name: demo\ndescription: Use when: asked",
    "name: demo\ndescription: x\ndescription: y",
    "- a\n- b",
    "just text",
    f"name: demo\ndescription: {'x' * 1024}",
    f"name: demo\ndescription: {'x' * 1025}",
    f"name: demo\ndescription: x\ncompatibility: {'x' * 500}",
    f"name: demo\ndescription: x\ncompatibility: {'x' * 501}",
    "name: demo\ndescription: x\ncompatibility:\n  - a",
    "name: demo\ndescription: 'x",
    "name: demo\n<<<<<<< ours\ndescription: x\n=======\ndescription: y\n>>>>>>> theirs",
]


@pytest.mark.parametrize("block", SPEC_CASES)
def test_strict_agrees_with_the_published_validator(tmp_path, block):
    from pathlib import Path

    from skills_ref.validator import validate

    folder = write(tmp_path / "demo", f"---\n{block}\n---\nBody\n")
    theirs = validate(Path(folder))
    ours = validate_folder(folder, strict=True)
    assert bool(ours) == bool(theirs), (theirs, ours)


@pytest.mark.timeout(240)
def test_strict_agrees_on_real_skills(shared, tmp_path):
    """Whatever they accept we accept; what only we accept is flow style or `---` in a value."""
    import json
    import lzma
    from pathlib import Path

    from skills_ref.validator import validate

    path = os.path.join(shared, "corpus", "raw-frontmatter.jsonl.xz")
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        rows = random.Random(7).sample([json.loads(line) for line in stream], sized(300, 1200))
    stricter, looser = [], []
    for number, row in enumerate(rows):
        folder = tmp_path / str(number) / row["dir_name"]
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_bytes(row["raw"].encode() + b"\nBody\n")
        try:
            theirs = not validate(Path(folder))
        except Exception:  # noqa: BLE001 - it crashes on some real files
            theirs = False
        ours = not validate_folder(str(folder), strict=True)
        if theirs and not ours:
            stricter.append(row["id"])
        elif ours and not theirs:
            looser.append(row["raw"])
    assert stricter == []
    assert [raw for raw in looser if not set("{[") & set(raw) and "---" not in raw[4:-5]] == []
