"""A part of a library: never more than the whole, and in step with it."""

from __future__ import annotations

from satchel.library import Filter, Library
from satchel.library.narrowed import NarrowedLibrary
from satchel.testing import make_skill, make_tool_skill


def names(library):
    return [skill.name for skill in library.refresh().skills]


def test_only_what_passes_is_offered_and_the_rest_is_known_as_excluded(tmp_path):
    for name in ("code-review", "code-style", "write-docs"):
        make_skill(tmp_path, name)
    part = NarrowedLibrary(Library([str(tmp_path)]), Filter(include=("code-*",)))
    assert names(part) == ["code-review", "code-style"]
    assert part.get_skill("write-docs") is None
    assert part.snapshot().get("write-docs") is None
    hidden = {skill.name: skill.state for skill in part.list_skills(hidden=True)}
    assert hidden["write-docs"] == "excluded"
    assert "Do the thing." in part.load_content("code-style")


def test_a_part_of_a_part_is_never_more_than_either(tmp_path):
    for name in ("code-review", "code-style", "write-docs"):
        make_skill(tmp_path, name)
    part = NarrowedLibrary(Library([str(tmp_path)]), Filter(include=("code-*",)))
    assert names(NarrowedLibrary(part, Filter(include=("*-style", "write-*")))) == ["code-style"]
    assert names(NarrowedLibrary(part, Filter(exclude=("code-style",)))) == ["code-review"]


def test_tools_of_skills_outside_are_not_there(tmp_path):
    make_tool_skill(tmp_path, "weather")
    make_tool_skill(tmp_path, "clock")
    part = NarrowedLibrary(Library([str(tmp_path)]), Filter(exclude=("weather",)))
    tools = part.tools(refresh=True)
    assert list(tools.tools) == ["clock_run"]
    assert part.tools() is tools
    assert tools.withheld("weather_run") is not None
    assert part.find("weather")[0].state == "excluded"
