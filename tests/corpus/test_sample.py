"""Whole skills from real repositories, as folders, through the library."""

from __future__ import annotations

import os

import pytest

from satchel import Library
from sizes import sized

pytestmark = pytest.mark.timeout(300)


@pytest.mark.req("A1", "A7")
def test_nearly_all_load_and_the_rest_say_why(whole_skills):
    snapshot = Library([whole_skills]).snapshot()
    loaded = {skill.base_dir for skill in (*snapshot.skills, *snapshot.hidden)}
    files = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(whole_skills)
        for name in names
        if name.lower() == "skill.md"
    ]
    top = [path for path in files if os.path.relpath(path, whole_skills).count(os.sep) == 2]
    assert len(top) == sized(400, 2000)
    silent = []
    for path in top:
        folder = os.path.dirname(path)
        if folder not in loaded:
            reasons = [problem for problem in snapshot.problems if problem.path.startswith(folder)]
            if not any(problem.severity == "error" for problem in reasons):
                silent.append(path)
    assert not silent
    assert sum(os.path.dirname(path) in loaded for path in top) >= len(top) - sized(8, 28)
