"""Skills and goals for measuring the speed of retrieval.

Names, descriptions and openings of real skills; beyond their number they are repeated with every
fifth word exchanged, so that copies are near each other and yet not the same. Where the folder of
real skills is absent, made-up ones take their place. Goals are made of words of random skills.
"""

from __future__ import annotations

import json
import lzma
import random
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from corpora import REAL, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from satchel.skill import Skill

_EXCHANGED = 0.2
SHORT = (3, 8)
"""Words of a short goal, from and to."""
LONG = 150
"""Words of a long one."""


class Text(NamedTuple):
    """The words of one skill."""

    name: str
    description: str
    body: str


def texts(count: int, source: Path = REAL) -> list[Text]:
    """So many skills, the real ones first."""
    file = source / "skills.jsonl.xz"
    found = list(islice(_real(file), count)) if file.exists() else list(_made_up(min(count, 5_000)))
    chance = random.Random(11)
    words = [word for text in found[:5_000] for word in text.description.split()]
    first = len(found)
    for number in range(first, count):
        name, description, body = found[number % first]
        found.append(
            Text(
                f"{name}-{number // first}",
                _perturbed(description, words, chance),
                _perturbed(body, words, chance),
            )
        )
    return found


def _real(file: Path) -> Iterator[Text]:
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield Text(str(row["name"]), str(row["description"]), str(row["body_head"]))


def _made_up(count: int) -> Iterator[Text]:
    chance = random.Random(3)
    words = VOCABULARY.split()
    words += [f"{one}{other}" for one in words for other in words]
    for number in range(count):
        yield Text(
            f"{chance.choice(words)}-{number}",
            " ".join(chance.choices(words, k=chance.randint(15, 60))),
            " ".join(chance.choices(words, k=60)),
        )


def _perturbed(text: str, words: list[str], chance: random.Random) -> str:
    """The text with some words exchanged for others."""
    parts = text.split()
    for _ in range(int(len(parts) * _EXCHANGED)):
        parts[chance.randrange(len(parts))] = chance.choice(words)
    return " ".join(parts)


def skills_of(found: list[Text]) -> tuple[Skill, ...]:
    """Skill records without files."""
    from satchel.skill import Skill, SkillHeader, SkillOrigin

    origin = SkillOrigin("/srv/skills", "project", "skills")
    return tuple(
        Skill(SkillHeader(text.name, text.description, f"{number:07}", "SKILL.md", 1, 1, 1), origin)
        for number, text in enumerate(found)
    )


def goals(found: list[Text], count: int, kind: str, seed: int = 5) -> list[str]:
    """So many goals: `short` from words of one skill, `long` from the texts of several."""
    chance = random.Random(seed)
    made: list[str] = []
    while len(made) < count:
        if kind == "short":
            parts = chance.choice(found).description.split()
            size = chance.randint(*SHORT)
            if len(parts) >= size:
                made.append(" ".join(chance.sample(parts, size)))
            continue
        parts: list[str] = []
        while len(parts) < LONG:
            text = chance.choice(found)
            parts += f"{text.description} {text.body}".split()[:60]
        made.append(" ".join(parts[:LONG]))
    return made
