"""Deliberately wrong skills: a good one of each kind, and one mutation that a rule must see.

Most are a replaced text (`wrong.toml`); those that need more are functions here. Each says which
rules fire, and so which do not: the set must be equal.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.authoring.check_skill import check_folder
from satchel.authoring.scaffold import new_skill, write_scaffold

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "word-count"
TOOL = "word_count_count"
MD = "SKILL.md"


class Skill:
    """A skill on disk that can be spoilt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def edit(self, old: str, new: str, file: str = "skill.yaml") -> None:
        """Replace a text, which must be there."""
        path = self.folder / file
        text = path.read_bytes().decode()
        assert old in text, f"{old!r} is not in {file}"
        path.write_bytes(text.replace(old, new, 1).encode())

    def read(self, file: str) -> str:
        return (self.folder / file).read_text(encoding="utf-8")

    def write(self, file: str, text: str | bytes) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def failing(self) -> set[str]:
        """The rules that it breaks."""
        return {rule for report in check_folder(str(self.folder)) for rule in report.failed_codes}

    def rename(self, name: str) -> None:
        """Give the whole skill another name."""
        folder = self.folder.parent / name
        self.folder.rename(folder)
        self.folder = folder


class Wrong(NamedTuple):
    """One wrong skill."""

    id: str
    kind: str
    fires: frozenset[str]
    spoil: Callable[[Skill], None]
    language: str = "en"


def write_good(base: Path, kind: Any, language: Any = "en", name: str = NAME) -> Skill:
    """The scaffold itself."""
    return Skill(Path(write_scaffold(new_skill(name, kind, language), os.fspath(base))))


def _replaced(case: dict[str, Any]) -> Wrong:
    def spoil(skill: Skill) -> None:
        skill.edit(case["old"], case["new"], case.get("file", "skill.yaml"))

    fires = frozenset(case["fires"])
    return Wrong(case["id"], case["kind"], fires, spoil, case.get("language", "en"))


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "wrong.toml"), "rb") as stream:
    WRONG = [_replaced(case) for case in tomllib.load(stream)["wrong"]]


def wrong(kind: str, *fires: str) -> Callable[..., Callable[[Skill], None]]:
    """Declare how a good skill becomes a wrong one."""

    def declare(spoil: Callable[[Skill], None]) -> Callable[[Skill], None]:
        WRONG.append(Wrong(spoil.__name__, kind, frozenset(fires), spoil))
        return spoil

    return declare


@wrong("python", "name-domain")
def library_as_a_domain(skill: Skill) -> None:
    skill.edit(f"name: {TOOL}", "name: openpyxl_count")
    skill.rename("openpyxl")


@wrong("python", "name-domain")
def dependency_as_a_domain(skill: Skill) -> None:
    skill.write("requirements.txt", "tableforge>=2\n")
    skill.edit(f"name: {TOOL}", "name: tableforge_count")
    skill.rename("tableforge")


@wrong("python", "name-order")
def action_as_a_domain(skill: Skill) -> None:
    skill.edit(f"name: {TOOL}", "name: count_words")
    skill.rename("count")


@wrong("python", "description-library")
def description_names_a_dependency(skill: Skill) -> None:
    skill.write("requirements.txt", "tableforge==2.0\n")
    skill.edit("in the workspace.", "in the workspace, by tableforge.")


@wrong("binary", "entry-executable")
def binary_that_may_not_run(skill: Skill) -> None:
    (skill.folder / "skill").chmod(0o644)


@wrong("python", "tool-packages")
def requirements_with_an_address(skill: Skill) -> None:
    skill.write("requirements.txt", "tableforge==2.0\n-e .\nhttps://example.org/a.whl\n")


@wrong("typescript", "tool-packages")
def package_from_a_folder(skill: Skill) -> None:
    skill.write("package.json", '{\n  "dependencies": {\n    "rows": "file:../rows"\n  }\n}\n')


@wrong("typescript", "tool-packages")
def package_json_that_is_none(skill: Skill) -> None:
    skill.write("package.json", "{")


@wrong("python", "tool-entry-path")
def entry_is_a_folder(skill: Skill) -> None:
    skill.edit("entry: main.py", "entry: lib.py")
    (skill.folder / "lib.py").mkdir()


@wrong("python", "tool-entry-path")
def entry_leads_outside(skill: Skill) -> None:
    (skill.folder.parent / "outside.py").write_text("pass\n")
    (skill.folder / "run.py").symlink_to("../outside.py")
    skill.edit("entry: main.py", "entry: run.py")


@wrong("python", "tool-not-a-mapping")
def empty_manifest(skill: Skill) -> None:
    skill.write("skill.yaml", "")


@wrong("python", "docs-examples")
def no_examples(skill: Skill) -> None:
    path = skill.folder / "skill.yaml"
    text = path.read_text()
    path.write_text(text[: text.index("  examples:")])


@wrong("python", "script-ends")
def windows_line_ends_after_a_shebang(skill: Skill) -> None:
    skill.write("tools/run.sh", "#!/bin/sh\r\necho\r\n")


@wrong("go", "tool-go-module")
def go_without_a_module(skill: Skill) -> None:
    (skill.folder / "go.mod").unlink()


@wrong("skill", "file-missing")
def md_names_a_missing_script(skill: Skill) -> None:
    skill.write("scripts/here.py", "print(1)\n")
    skill.edit("4. Ask before", "4. Run `scripts/gone.py`. Ask before", MD)


@wrong("skill", "script-plan")
def md_with_a_script_of_an_unknown_package(skill: Skill) -> None:
    skill.write("scripts/fill.py", "import acmelib\n")


@wrong("skill", "body-empty")
def md_without_instructions(skill: Skill) -> None:
    text = skill.read(MD)
    skill.write(MD, text[: text.index("# Word count")])


@wrong("skill", "body-long")
def md_of_600_lines(skill: Skill) -> None:
    text = skill.read(MD)
    skill.write(MD, text + "- One more thing.\n" * 600)


@wrong("skill", "script-ends")
def md_with_a_windows_script(skill: Skill) -> None:
    skill.write("scripts/run.sh", "#!/bin/sh\r\nexit\r\n")
