"""Whatever the catalogue cannot list, SkillSearch finds: over all real skills.

The library is made of all 69,568 rows (a tenth in CI), written out as folders. Names repeat, so
fewer are offered; the rest is shadowed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from corpus.write_out import write_out
from satchel.catalogue import build_catalogue
from satchel.library import Library
from satchel.settings import load_settings
from sizes import sample, sized
from talking import session_over

if TYPE_CHECKING:
    from satchel.skill import Skill

# The first test writes the folders and reads them.
pytestmark = [pytest.mark.timeout(600), pytest.mark.req("A11")]

WORDS = re.compile(r"\w+")


@pytest.fixture(scope="module")
def library(real_skills, tmp_path_factory):
    folder = os.path.join(tmp_path_factory.mktemp("real"), "skills")
    write_out(list(sample(real_skills, 10)), folder)
    library = Library([folder])
    library.snapshot()
    yield library
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def tools(library, tmp_path_factory):
    project = str(tmp_path_factory.mktemp("project"))
    settings = load_settings(project, env={"HOME": project}, refresh_on_call=False)
    return session_over(library, settings)


@pytest.fixture(scope="module")
def unlisted(library):
    """The offered skills that 12,000 characters have no room for."""
    skills = library.snapshot().skills
    account = build_catalogue(skills, budget=12_000).account
    listed = {*account.full, *account.shortened, *account.named}
    found = [skill for skill in skills if skill.name not in listed]
    assert len(found) == account.unlisted > sized(5_000, 50_000)
    return found


def even(skills: list[Skill], count: int) -> list[Skill]:
    """So many, spread evenly over all."""
    return skills[:: len(skills) // count][:count]


def top(tools, query: str) -> list[str]:
    reply = tools.call("SkillSearch", {"query": query})
    assert reply.status == "success"
    return [row["name"] for row in reply.data["matches"]]


def test_unlisted_skills_are_found_by_name_among_all(tools, unlisted):
    """An even sample, each the first of its answer."""
    lost = [
        one.name for one in even(unlisted, sized(40, 100)) if top(tools, one.name)[:1] != [one.name]
    ]
    assert lost == []


def test_unlisted_skills_are_found_by_three_words_of_their_description(tools, unlisted, library):
    """An even sample, by the three words that the fewest descriptions have."""
    counts = Counter()
    for one in library.snapshot().skills:
        counts.update(set(WORDS.findall(one.description.lower())))
    chosen = even(unlisted, sized(60, 200))
    lost = []
    for one in chosen:
        known = set(WORDS.findall(one.description.lower())) or {one.description}
        words = sorted(known, key=lambda word: (counts[word], word))[:3]
        if one.name not in top(tools, " ".join(words)):
            lost.append((one.name, words))
    assert len(lost) <= len(chosen) * 0.02, lost
