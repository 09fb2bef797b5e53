"""Every view shows the same state of a skill, and the next step."""

from __future__ import annotations

import json

import pytest

from satchel import Satchel
from satchel.presentation.skill_lookup import skills_called
from satchel.presentation.skills import row_of

OWN = "---\nname: mine\ndescription: Signs letters. Use for letters.\n---\nSign it.\n"
PRIVATE = OWN.replace("---\nSign", "disable-model-invocation: true\n---\nSign")


@pytest.fixture
def damaged(empty):
    """A project with an installed skill, whose lockfile has a conflict of git."""
    (empty.project.parent / "source" / "mine").mkdir(parents=True)
    (empty.project.parent / "source" / "mine" / "SKILL.md").write_text(OWN)
    assert empty.run("install", "../source/mine", "--yes").status == 0
    lock = empty.project / ".agents" / "satchel.lock"
    lock.write_text(lock.read_text().replace('"name": "mine"', '"name": "other"'))
    return empty


@pytest.fixture
def private(empty):
    empty.skill(".agents/skills/mine", PRIVATE)
    empty.trust(".agents/skills")
    return empty


def states(terminal) -> dict[str, str]:
    """The state of `mine` in each view."""
    satchel = Satchel.for_project(terminal.project, trust="all")
    (skill,) = skills_called(satchel, "mine")
    listed = json.loads(terminal.run("list", "--all", "--json").out)
    return {
        "list": next(one["state"] for one in listed if one["name"] == "mine"),
        "browser": row_of(satchel, skill).state,
    }


def row(terminal, *words: str) -> str:
    lines = terminal.run("list", *words, COLUMNS="200").out.splitlines()
    return next((line for line in lines if " mine " in line), "")


def test_skills_beside_a_damaged_lockfile_are_unverified_in_every_view(damaged):
    assert states(damaged) == {"list": "unverified", "browser": "unverified"}
    assert row(damaged, "--all").startswith("✗")
    assert row(damaged) == ""
    assert "1 unverified (`satchel doctor`)" in damaged.run("list").err
    assert "mine" not in damaged.run("catalogue").out
    why = damaged.run("why", "mine").out
    assert why.startswith("mine: not offered (unverified)")
    assert "→ Restore it from version control" in why
    assert "lock-broken" in damaged.run("doctor").out
    loaded = damaged.run("show", "--as-model", "mine")
    assert loaded.status != 0
    assert "does not match its check sum" in loaded.err


def test_a_repaired_lockfile_brings_its_skills_back(damaged):
    satchel = Satchel.for_project(damaged.project, trust="all")
    assert satchel.library.get_skill("mine") is None
    lock = damaged.project / ".agents" / "satchel.lock"
    lock.write_text(lock.read_text().replace('"name": "other"', '"name": "mine"'))
    satchel.refresh()
    assert satchel.library.get_skill("mine") is not None


def test_a_large_damaged_lockfile_is_noticed_too(damaged):
    lock = damaged.project / ".agents" / "satchel.lock"
    lock.write_text(lock.read_text() + " " * 200_000)
    assert states(damaged) == {"list": "unverified", "browser": "unverified"}


def test_a_skill_for_people_only_is_so_in_every_view(private):
    assert states(private) == {"list": "withheld", "browser": "withheld"}
    assert row(private).startswith("○")
    assert "user only" in row(private, "--all")
    assert "1 user only" in private.run("list").err
    why = private.run("why", "mine").out
    assert why.startswith("mine: not offered (`disable-model-invocation`)")
    assert "→ Load it yourself: mention it, or run `satchel show --as-model mine`" in why
    assert private.run("show", "--as-model", "mine").status == 0
