"""Validation of the lists of servers."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.library.remote.listed_skills import read_entries

DIGEST = "sha256:" + sha256(b"").hexdigest()
PIECES = st.sampled_from([
    "a", "b.md", "..", ".", "/", "//", "%2e", "%2F", "%00", "\\", ":", "~", " ", "SKILL.md", "nul",
    "é", "e\u0301", "\u202e", "%", "?", "#", "skill://", "file:///", "pdf", "PDF", "\n",
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=9), below, max_size=3)
    ),
    max_leaves=10,
)


def entry(*uris: str, **more: Any) -> dict[str, Any]:
    rows = [{"uri": uri, "digest": DIGEST, "size": 0} for uri in uris]
    return {
        "uri": "skill://pdf/SKILL.md",
        "frontmatter": {"name": "pdf", "description": "A."},
        "resources": [{"uri": "skill://pdf/SKILL.md", "digest": DIGEST, "size": 0}, *rows],
        **more,
    }


@given(st.lists(PIECES, max_size=8).map("".join))
def test_every_file_lies_below_its_skill(tail: str) -> None:
    for uri in (f"skill://pdf/{tail}", tail):
        served, problems = read_entries([entry(uri)], "docs")
        assert len(served) + len(problems) == 1
        for one in served.values():
            for path, file in one.files.items():
                assert not os.path.isabs(path)
                assert os.path.normpath(path) == path
                assert ".." not in path.split("/")
                assert path.isprintable()
                assert file.uri.startswith("skill://pdf/")


@given(st.lists(JSON, max_size=4))
def test_any_list_is_read_or_refused(rows: list[Any]) -> None:
    served, problems = read_entries(rows, "docs")
    assert served == {}
    assert len(problems) == len(rows)
    assert all(problem.message for problem in problems)


@given(st.dictionaries(st.sampled_from(["uri", "frontmatter", "resources"]), JSON))
def test_an_entry_with_odd_parts_is_refused_or_whole(odd: dict[str, Any]) -> None:
    served, problems = read_entries([entry(**odd)], "docs")
    assert len(served) + len(problems) == 1
    assert served.keys() <= {"pdf"}


def test_the_mark_changes_with_everything_that_was_listed() -> None:
    plain = entry("skill://pdf/a.md")
    others = [
        entry(),
        entry("skill://pdf/b.md"),
        entry("skill://pdf/%61.md"),
        entry("skill://pdf/a.md", frontmatter={"name": "pdf", "description": "B."}),
        entry("skill://pdf/a.md", frontmatter={"name": "pdf", "description": "A.", "x": 1}),
    ]
    sized = entry("skill://pdf/a.md")
    sized["resources"][1]["size"] = 1
    digested = entry("skill://pdf/a.md")
    digested["resources"][1]["digest"] = "sha256:" + "0" * 64
    marks = [
        read_entries([one], "docs")[0]["pdf"].digest for one in (plain, sized, digested, *others)
    ]
    assert len(set(marks)) == len(marks)
    assert marks[0] == read_entries([entry("skill://pdf/a.md")], "docs")[0]["pdf"].digest


@pytest.mark.parametrize("name", ["соde-review", "νat-report", "kaρρa"])
def test_a_name_of_two_alphabets_that_look_alike_is_not_taken(name: str) -> None:
    row = entry(frontmatter={"name": name, "description": "A."})
    found, problems = read_entries([row], "docs")
    assert found == {}
    assert "mixes letters of two alphabets" in problems[0].message
