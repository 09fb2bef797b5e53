"""Each rule fires on its sample and not on the near miss beside it."""

from __future__ import annotations

import re

import pytest

from satchel.security import RULES, scan_tree
from satchel.security.rules import OWASP, SEVERITIES, compile_pattern
from satchel.skill.file_tree import MemoryTree
from security.samples import SAMPLES


def rules_in(sample) -> set[str]:
    report = scan_tree(MemoryTree({sample.path: sample.data}))
    return {finding.rule for finding in report.findings}


def test_every_rule_has_a_sample_and_a_near_miss():
    assert set(SAMPLES) == set(RULES)


@pytest.mark.parametrize("rule", SAMPLES)
def test_a_rule_fires_on_its_sample(rule):
    assert rule in rules_in(SAMPLES[rule][0])


@pytest.mark.parametrize("rule", SAMPLES)
def test_a_rule_is_silent_on_the_near_miss(rule):
    assert rule not in rules_in(SAMPLES[rule][1])


@pytest.mark.parametrize("name", list(RULES))
def test_a_rule_has_a_description_and_a_fix(name):
    rule = RULES[name]
    assert re.fullmatch(r"[a-z]+(?:-[a-z]+)*", rule.id)
    assert rule.severity in SEVERITIES
    assert rule.owasp
    assert set(rule.owasp) <= set(OWASP)
    assert not rule.what.endswith(".")
    assert not rule.fix.endswith(".")
    for sentence in (rule.what, rule.fix):
        assert "safe" not in sentence.split()
    for text in (*rule.any, *rule.all, *rule.unless):
        compile_pattern(text)  # compiled when first tried: here if nowhere else
