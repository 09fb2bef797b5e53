from __future__ import annotations

import pytest

from in_memory import skill
from satchel.catalogue import build_catalogue, fill_template

CATALOGUE = build_catalogue([skill("code-review", "Says {{skills}}, {{user}} and \\1.")])


@pytest.mark.req("C5")
@pytest.mark.parametrize("place", ["{{skills}}", "{{ skills }}", "{{\tskills}}"])
def test_the_block_replaces_every_place(place):
    filled = fill_template(f"Before {place} between {place} after", CATALOGUE)
    assert filled == f"Before {CATALOGUE.text} between {CATALOGUE.text} after"


@pytest.mark.req("C5")
def test_braces_in_a_skill_are_not_filled_again():
    filled = fill_template("{{skills}}", CATALOGUE)
    assert filled == CATALOGUE.text
    assert "Says {{skills}}, {{user}} and \\1." in filled


@pytest.mark.parametrize(
    "text", ["", "{skills}", "{{Skills}}", "{{ user }}", "{{skills_dir}}", "$skills"]
)
def test_everything_else_stays(text):
    assert fill_template(text, CATALOGUE) == text


def test_without_skills_the_place_is_empty():
    assert fill_template("a{{skills}}b", build_catalogue([])) == "ab"
