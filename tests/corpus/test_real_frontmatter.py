"""Real frontmatters: values equal PyYAML's, fast scan and parser agree, few repairs."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml

from satchel.skill.header import scan_header
from satchel.skill.reader import parse_document, read_header
from sizes import sample, sized

pytestmark = pytest.mark.timeout(300)
STAMP = (0, 0, 0)


def block_of(raw: str) -> str | None:
    """The text between the delimiter lines, found without our own splitter."""
    lines = raw.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").lstrip().split("\n")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip(" \t") == "---":
            return "\n".join(lines[1:number]) + "\n"
    return None


@pytest.mark.req("A2")
def test_every_field_equals_pyyaml_wherever_pyyaml_parses(raw_frontmatters):
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    outcome = Counter()
    for row in raw_frontmatters:
        document = parse_document(row["raw"].encode(), row["dir_name"], "SKILL.md", STAMP)
        block = block_of(row["raw"])
        try:
            truth = yaml.load(block or "", Loader=loader)
        except (yaml.YAMLError, ValueError):
            outcome["repaired" if document.head else "refused"] += 1
            continue
        if not isinstance(truth, dict):
            assert document.head is None or document.problems
            continue
        outcome["valid"] += 1
        for key, value in truth.items():
            ours = document.fields[key if isinstance(key, str) else str(key)]
            assert ours == value, (row["id"], key)
            assert type(ours) is type(value), (row["id"], key)
    assert sum(outcome.values()) + 2 >= len(raw_frontmatters)
    assert outcome["refused"] <= 5, outcome


def test_the_fast_path_agrees_with_the_parser(raw_frontmatters):
    quick = 0
    for row in raw_frontmatters:
        data = row["raw"].encode()
        fast = scan_header(data, row["dir_name"], "SKILL.md", STAMP)
        if fast is not None:
            quick += 1
            slow, _ = read_header(data, row["dir_name"], "SKILL.md", STAMP)
            assert fast == slow, row["id"]
    assert quick > len(raw_frontmatters) / 4  # else this test shows little


def test_scan_and_document_agree(raw_frontmatters):
    for row in raw_frontmatters:
        data = row["raw"].encode()
        head, _ = read_header(data, row["dir_name"], "SKILL.md", STAMP)
        whole = parse_document(data, row["dir_name"], "SKILL.md", STAMP).head
        assert (head is None) == (whole is None), row["id"]
        if head is not None and whole is not None:
            assert head[:8] == whole[:8], row["id"]


def test_an_unquoted_description_comes_back(real_skills):
    """Unquote a valid description: YAML breaks, and we still give it back as it was."""
    kept = total = 0
    for row in sample(real_skills, 10):
        text = " ".join(row["description"].split())
        if not text:
            continue
        total += 1
        data = f"---\nname: x\ndescription: {text}\nlicense: MIT\n---\n\nbody\n"
        head, _ = read_header(data.encode("utf-8", "replace"), "x", "SKILL.md", STAMP)
        kept += head is not None and head.description == text
    assert total > sized(6_900, 69_000)
    assert kept / total >= 0.998, kept / total
