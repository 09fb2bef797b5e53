"""The table of locations in the documentation is the table in the code."""

from __future__ import annotations

import os
import re

import pytest

from satchel.library import default_locations
from satchel.library.locations import source_words
from satchel.settings import load_settings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW = re.compile(
    r"^\| *(?P<number>\d+) \| (?P<place>.+?) \| (?P<source>[\w-]+)"
    r" \| (?P<trust>.+?) \| (?P<when>.+) \|$"
)
OWN = "*your* `locations`"


def rows() -> list[dict[str, str]]:
    """The lines of the table on the page."""
    with open(os.path.join(ROOT, "docs", "concepts", "locations.md"), encoding="utf-8") as file:
        found = [match.groupdict() for match in map(ROW.match, file) if match]
    assert [int(row["number"]) for row in found] == list(range(1, len(found) + 1))
    return found


def in_code(project, **settings) -> list[tuple[str, str]]:
    """Place and source of each location, as the page writes them."""
    locations = default_locations(load_settings(str(project), env={}, **settings))
    return [
        (f"`{item.name}/SKILL.md`" if item.single else f"`{item.name}`", source_words(item.source))
        for item in locations
    ]


@pytest.mark.req("C8")
def test_the_page_has_every_location_in_order(tmp_path):
    shown = [(row["place"], row["source"]) for row in rows()]
    wanted = in_code(tmp_path, builtin=True, locations=["elsewhere"])
    assert shown == [(OWN if place == "`elsewhere`" else place, who) for place, who in wanted]


@pytest.mark.req("C8")
def test_the_page_says_which_locations_are_there_by_default(tmp_path):
    always = [
        (row["place"], row["source"]) for row in rows() if row["when"].startswith(("always", "unl"))
    ]
    assert always == in_code(tmp_path)


@pytest.mark.req("C8")
def test_the_page_says_who_is_trusted(tmp_path):
    locations = default_locations(load_settings(str(tmp_path), env={}, trust="ask"))
    trusted = {item.name: item.trusted is True for item in locations if not item.single}
    for row in rows():
        place = row["place"].strip("`")
        if place in trusted:
            assert row["trust"].startswith("yes") == trusted[place], place
