"""Whole skills from real repositories: they load or have a problem, and few rules fire."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from satchel import Library
from satchel.authoring.check_skill import check_folder
from satchel.authoring.checklist import RULES
from satchel.skill.problems import PROBLEMS
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


@pytest.mark.req("E5")
def test_no_rule_cries_wolf(whole_skills):
    fired: Counter[str] = Counter()
    seen = 0
    for here, _, names in os.walk(whole_skills):
        if any(name.lower() == "skill.md" for name in names):
            seen += 1
            for report in check_folder(here):
                fired.update(report.failed_codes.keys())
    assert seen >= sized(400, 2000)
    shares = {rule: count / seen for rule, count in fired.items()}
    severities = {code: (RULES.get(code) or PROBLEMS[code]).severity for code in shares}
    loud = [code for code, share in shares.items() if share > 0.5 and severities[code] != "note"]
    assert loud == []
    errors = {code: share for code, share in shares.items() if severities[code] == "error"}
    # What decides is rarely wrong: nearly all of these skills are used every day.
    assert max(errors.values()) < 0.03, errors
    # And the rules are awake.
    assert {"skill-when", "skill-what", "name-mismatch", "file-missing"} <= set(fired)
