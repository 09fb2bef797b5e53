"""The rules for SKILL.md on 2,000 real ones: how often each fires, and that none cries wolf."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from satchel.authoring.check_skill import check_folder
from satchel.authoring.rules import RULES
from sizes import sized

pytestmark = pytest.mark.timeout(300)


def _checked(folder: str) -> tuple[Counter[str], int]:
    fired: Counter[str] = Counter()
    seen = 0
    for here, _, names in os.walk(folder):
        if any(name.lower() == "skill.md" for name in names):
            seen += 1
            for report in check_folder(here):
                fired.update(report.failing)
    return fired, seen


@pytest.mark.req("E5")
def test_no_rule_cries_wolf(whole_skills):
    fired, seen = _checked(whole_skills)
    assert seen >= sized(400, 2000)
    shares = {rule: count / seen for rule, count in fired.items()}
    loud = [
        rule for rule, share in shares.items() if share > 0.5 and RULES[rule].severity != "note"
    ]
    assert loud == []
    errors = {rule: share for rule, share in shares.items() if RULES[rule].severity == "error"}
    # What decides is rarely wrong: nearly all of these skills are used every day.
    assert max(errors.values()) < 0.03, errors
    # And the rules are awake.
    assert {"skill-when", "skill-what", "skill-name", "references-exist"} <= set(fired)
