"""Labelled sets: documents, and requests with the ids of the right ones.

    DIR/<set>/corpus.jsonl[.xz]    {"_id", "name", "description", "body"?}
    DIR/<set>/queries.jsonl[.xz]   {"_id", "text", "relevant": [ids]}

A document becomes a `Skill` that lies nowhere: ranking needs its texts, not its file.
"""

from __future__ import annotations

import json
import lzma
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if find_spec("satchel") is None:  # the installed one, where there is one
    sys.path.insert(0, str(ROOT / "src"))

from satchel.detect.skill_texts import header_texts, make_row_from_texts  # noqa: E402
from satchel.skill.document import SkillHeader  # noqa: E402
from satchel.skill.model import Skill, SkillOrigin  # noqa: E402

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from satchel.detect.index import IndexRow

_BODY = 8_000


class Request(NamedTuple):
    """One request and the keys of the skills that serve it."""

    text: str
    right: frozenset[str]


class LabelledSet(NamedTuple):
    """One folder of labelled data."""

    name: str
    skills: tuple[Skill, ...]
    bodies: dict[str, str]
    """By key; empty where the set has none."""
    requests: tuple[Request, ...]

    @property
    def rows(self) -> Callable[[Skill], IndexRow]:
        """How the index reads these skills."""
        bodies = self.bodies

        def row(skill: Skill) -> IndexRow:
            texts = header_texts(skill)
            body = bodies.get(skill.path)
            return make_row_from_texts(skill, {**texts, "body": body} if body else texts)

        return row


def find_sets(folder: Path) -> list[Path]:
    """The sets of a folder, by name; the folder itself when it is one."""
    if _file(folder, "corpus") and _file(folder, "queries"):
        return [folder]
    if not folder.is_dir():
        raise SystemExit(f"error: There is no folder `{folder}`")
    return [
        one for one in sorted(folder.iterdir()) if _file(one, "corpus") and _file(one, "queries")
    ]


def load_set(folder: Path) -> LabelledSet:
    """Read one set."""
    origin = SkillOrigin(f"{os.sep}labelled{os.sep}{folder.name}", "extra", folder.name)
    keys: dict[str, str] = {}
    skills: list[Skill] = []
    bodies: dict[str, str] = {}
    for number, row in enumerate(_read(folder, "corpus")):
        head = SkillHeader(
            str(row.get("name") or ""),
            str(row.get("description") or ""),
            f"{number:07d}",
            "SKILL.md",
            number,
            number,
            0,
        )
        skill = Skill(head, origin)
        keys[str(row["_id"])] = skill.path
        skills.append(skill)
        if row.get("body"):
            bodies[skill.path] = str(row["body"])[:_BODY]
    requests = [
        Request(str(row["text"]), frozenset(keys[str(one)] for one in row["relevant"]))
        for row in _read(folder, "queries")
    ]
    return LabelledSet(folder.name, tuple(skills), bodies, tuple(requests))


def small_library(
    given: LabelledSet, right: frozenset[str], count: int, dice: random.Random
) -> tuple[Skill, ...]:
    """Some skills drawn by chance, without the right ones: what a person has installed."""
    drawn: Sequence[Skill] = dice.sample(given.skills, min(len(given.skills), count + len(right)))
    return tuple(skill for skill in drawn if skill.path not in right)[:count]


def _file(folder: Path, stem: str) -> Path | None:
    for name in (f"{stem}.jsonl", f"{stem}.jsonl.xz"):
        if (folder / name).is_file():
            return folder / name
    return None


def _read(folder: Path, stem: str) -> Iterator[dict[str, Any]]:
    path = _file(folder, stem)
    assert path is not None
    packed = path.suffix == ".xz"
    with lzma.open(path) if packed else path.open("rb") as stream:
        for line in stream:
            if line.strip():
                yield json.loads(line)
