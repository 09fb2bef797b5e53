"""Writers of broken skill folders, one per kind of damage.

Each kind occurs in public repositories or costs an attacker one line. The rule under test is
always the same: a broken folder may be lost, its neighbours may not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

BODY = "\n# Guide\n\nDo the thing.\n"

Writer = Callable[[Path, str, str], str | None]
"""Fills a folder and returns the description a careful reader still finds, or None."""


def no_frontmatter(folder: Path, name: str, description: str) -> None:
    """A plain Markdown file: not a skill at all."""
    (folder / "SKILL.md").write_text(f"# {name}\n\n{description}\n{BODY}", "utf-8")


def unquoted_colon(folder: Path, name: str, description: str) -> str:
    """The commonest real mistake: YAML refuses the whole block for one `: ` in a value."""
    wanted = f"Use when: the user asks. {description}"
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {wanted}\n---\n{BODY}", "utf-8"
    )
    return wanted


def bom(folder: Path, name: str, description: str) -> str:
    """A byte order mark, as some editors leave it."""
    text = f"\ufeff---\nname: {name}\ndescription: {description}\n---\n{BODY}"
    (folder / "SKILL.md").write_text(text, "utf-8")
    return description


def invalid_utf8(folder: Path, name: str, description: str) -> None:
    """Latin-1 bytes inside the description."""
    head = f"---\nname: {name}\ndescription: caf\u00e9 {description}\n---\n{BODY}"
    (folder / "SKILL.md").write_bytes(head.encode("latin-1"))


def empty(folder: Path, _name: str, _description: str) -> None:
    """A file of no bytes."""
    (folder / "SKILL.md").touch()


def fifo(folder: Path, _name: str, _description: str) -> None:
    """A pipe without a writer: a plain `open()` never returns."""
    os.mkfifo(folder / "SKILL.md")


def directory(folder: Path, _name: str, _description: str) -> None:
    """A folder where the file should be."""
    (folder / "SKILL.md").mkdir()


def link_to_itself(folder: Path, _name: str, _description: str) -> None:
    """SKILL.md is a symlink to SKILL.md."""
    (folder / "SKILL.md").symlink_to("SKILL.md")


def folder_loop(folder: Path, name: str, description: str) -> str:
    """A healthy skill with a link back to the root: a walk that follows it never ends."""
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {description}\n---\n{BODY}", "utf-8"
    )
    (folder / "again").symlink_to("..")
    return description


def nesting_bomb(folder: Path, name: str, _description: str) -> None:
    """A few kilobytes of brackets: deeper than a recursive parser can go."""
    deep = "[" * 2000 + "]" * 2000
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {deep}\n---\n{BODY}", "utf-8"
    )


def alias_bomb(folder: Path, name: str, description: str) -> None:
    """Half a million items out of 300 bytes, for readers that turn the metadata into text."""
    lines = ["  a: &a [x, x, x, x, x, x, x, x, x]"]
    for upper, lower in zip("bcdef", "abcde", strict=True):
        lines.append(f"  {upper}: &{upper} [" + ", ".join([f"*{lower}"] * 9) + "]")
    block = "\n".join(lines)
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {description}\nmetadata:\n{block}\n---\n{BODY}", "utf-8"
    )


def unclosed(folder: Path, name: str, description: str) -> str:
    """No closing `---`."""
    text = f"---\nname: {name}\ndescription: {description}\n{BODY}"
    (folder / "SKILL.md").write_text(text, "utf-8")
    return description


def tab_indent(folder: Path, name: str, description: str) -> None:
    """A tab before a nested key, which YAML refuses."""
    _block(folder, f"name: {name}\ndescription: {description}\nmetadata:\n\tauthor: someone")


def list_description(folder: Path, name: str, description: str) -> None:
    """A list where a text should be."""
    _block(folder, f"name: {name}\ndescription:\n  - {description}\n  - more")


def no_description(folder: Path, name: str, _description: str) -> None:
    """Nothing to choose it by."""
    _block(folder, f"name: {name}")


def null_bytes(folder: Path, name: str, description: str) -> None:
    """Zero bytes in the middle of a value."""
    _block(folder, f"name: {name}\ndescription: a\0b {description}")


def utf_16(folder: Path, name: str, description: str) -> None:
    """Saved as "Unicode" by an editor of the last century."""
    text = f"---\nname: {name}\ndescription: {description}\n---\n{BODY}"
    (folder / "SKILL.md").write_bytes(text.encode("utf-16"))


def huge_frontmatter(folder: Path, name: str, description: str) -> None:
    """A frontmatter of two megabytes."""
    rest = "".join(f"key-{number}: {'x' * 90}\n" for number in range(20_000))
    _block(folder, f"name: {name}\ndescription: {description}\n{rest}")


def binary(folder: Path, _name: str, _description: str) -> None:
    """A program that was given the wrong name."""
    (folder / "SKILL.md").write_bytes(b"\x7fELF" + bytes(range(256)) * 64)


def merge_conflict(folder: Path, name: str, description: str) -> None:
    """What git left behind, inside the frontmatter."""
    ours, theirs = f"description: {description}", "description: another"
    _block(folder, f"name: {name}\n<<<<<<< HEAD\n{ours}\n=======\n{theirs}\n>>>>>>> other")


def python_tag(folder: Path, name: str, description: str) -> None:
    """YAML that asks an unsafe loader to run a program."""
    tag = "!!python/object/apply:os.getcwd []"
    _block(folder, f"name: {name}\ndescription: {description}\nmetadata: {tag}")


def _block(folder: Path, block: str) -> None:
    (folder / "SKILL.md").write_text(f"---\n{block}\n---\n{BODY}", "utf-8")


KINDS: dict[str, Writer] = {
    "no frontmatter": no_frontmatter,
    "unquoted colon": unquoted_colon,
    "byte order mark": bom,
    "invalid UTF-8": invalid_utf8,
    "empty file": empty,
    "directory as file": directory,
    "link to itself": link_to_itself,
    "folder loop": folder_loop,
    "nesting bomb": nesting_bomb,
    "alias bomb": alias_bomb,
    "FIFO": fifo,
}
"""FIFO is last: a library that hangs on it has at least processed the others."""

MORE: dict[str, Writer] = {
    "unclosed frontmatter": unclosed,
    "tab as indent": tab_indent,
    "list as description": list_description,
    "no description": no_description,
    "null bytes": null_bytes,
    "UTF-16": utf_16,
    "huge frontmatter": huge_frontmatter,
    "binary file": binary,
    "merge conflict": merge_conflict,
    "Python tag": python_tag,
}
"""Further kinds that Satchel is tried with; the peers were tried with `KINDS`."""

EVERY = {**KINDS, **MORE}


def write(kind: str, folder: Path, name: str, description: str) -> str | None:
    """Write one broken skill; the description that can still be had, or None."""
    folder.mkdir(parents=True)
    return EVERY[kind](folder, name, description)
