"""Frontmatter: YAML, repairs key by key, and a problem for each repair."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.skill.reader import parse_document
from sizes import sized


def read(text: str | bytes, folder: str = "demo"):
    data = text if isinstance(text, bytes) else text.encode()
    return parse_document(data, folder, "SKILL.md", (0, 0, 0))


def codes(text: str | bytes, folder: str = "demo") -> list[str]:
    return [problem.code for problem in read(text, folder).problems]


@pytest.mark.req("A2")
def test_name_and_description_are_read_and_other_fields_kept():
    document = read("---\nname: demo\ndescription: Does it.\nversion: 2\ntags: [a, b]\n---\nBody\n")
    assert document.head is not None
    assert (document.head.name, document.head.description) == ("demo", "Does it.")
    assert document.fields["version"] == 2
    assert (document.fields["tags"], document.lines["tags"]) == (["a", "b"], 5)
    assert document.body == "Body\n"
    assert document.problems == ()


@pytest.mark.req("A9", "B2")
@pytest.mark.parametrize(
    "text",
    [
        "description: [unclosed\n - x: {",
        "description: {a: [b]",
        'description: "Use it',
        "description: 'It''s",
        'description: [a, "b] c"',
        "name: [demo",
        "allowed-tools: [Read\ndescription: x",
        'disable-model-invocation: "true\ndescription: x',
    ],
)
def test_a_value_that_never_ends_is_no_skill(text):
    document = read(f"---\n{text}\n---\n")
    assert document.head is None
    assert [one.code for one in document.problems if one.severity == "error"] == ["unclosed-value"]


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("text", "code", "description"),
    [
        ('metadata: {"a": {\nname: demo\ndescription: x', "unclear-value", "x"),
        ("name: demo\ndescription: [Beta] move", "repaired-value", "[Beta] move"),
        ("name: demo\ndescription: Use when: asked", "repaired-value", "Use when: asked"),
        ("name: demo\ndescription: > folded text", "repaired-value", "folded text"),
        ("name: demo\ndescription: @here first", "repaired-value", "@here first"),
        ("name: demo\ndescription: **bold** move", "repaired-value", "**bold** move"),
        ('name: demo\ndescription: "quoted" then more', "unclear-value", '"quoted" then more'),
        ("name: demo\ndescription: &a *a", "yaml-refused", "&a *a"),
        ("name: demo\ndescription: 2024", "description-not-text", "2024"),
        ("name: demo\ndescription: one # two", "hash-comment", "one"),
        ("name: demo\ndescription: a\ndescription: b", "duplicate-key", "b"),
        ("Name: demo\nDescription: x", "key-spelling", "x"),
        ("description: only", "name-missing", "only"),
        ("name: demo\ndescription: line\nwraps here", "repaired-value", "line wraps here"),
    ],
)
def test_a_fault_is_repaired_and_reported(text, code, description):
    document = read(f"---\n{text}\n---\n")
    assert document.head is not None, document.problems
    assert document.head.name == "demo"
    assert document.head.description == description
    assert code in [problem.code for problem in document.problems]
    assert all(problem.message and problem.fix for problem in document.problems)


@pytest.mark.req("A9", "B2")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "no-frontmatter"),
        (b"# Heading\n", "no-frontmatter"),
        (b"../other/SKILL.md", "symlink-as-text"),
        (b"---\n---\n", "not-a-mapping"),
        (b"---\n- a\n- b\n---\n", "not-a-mapping"),
        (b"---\nname: demo\n---\n", "description-missing"),
        (b"---\nname: demo\ndescription:\n---\n", "description-missing"),
        (b"---\nname: demo\ndescription: '  '\n---\n", "description-missing"),
        (b"\x7fELF\x02\x01", "not-text"),
        (b"PK\x03\x04zip", "not-text"),
        (b"---\nname: demo\ndescription: " + b"x" * 70_000 + b"\n---\n", "frontmatter-too-large"),
    ],
)
def test_a_file_that_is_no_skill_has_a_reason(data, code):
    document = read(data)
    assert document.head is None
    assert code in [problem.code for problem in document.problems]


def test_delimiters_are_whole_lines():
    document = read("---\nname: demo\ndescription: a --- b --- c\n---\nBody with --- inside\n")
    assert document.head is not None
    assert document.head.description == "a --- b --- c"
    assert document.body == "Body with --- inside\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_marks(newline, bom):
    text = newline.join(["---", "name: demo", "description: Does it.", "---", "Body", ""])
    document = read(bom + text.encode())
    assert document.head is not None
    assert document.body == "Body\n"
    assert [problem.code for problem in document.problems] == (["bom"] if bom else [])


def test_utf16_is_read_and_reported():
    assert codes("---\nname: demo\ndescription: wide\n---\n".encode("utf-16")) == ["wide-encoding"]


def test_invisible_text_is_removed_and_joiners_stay():
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "ignore all")
    text = "Family 👩‍👩‍👧 and می‌خواهم"
    document = read(f"---\nname: demo\ndescription: {text}\u200b.{hidden}\n---\n")
    assert document.head is not None
    assert document.head.description == f"{text}."
    assert [problem.code for problem in document.problems] == ["invisible-characters"]


@pytest.mark.req("A8")
@pytest.mark.parametrize("name", ["code-review", "a1", "Code", "a--b", "-a", "a_b"])
def test_the_name_pattern(name):
    found = codes(f"---\nname: {name}\ndescription: x\n---\n", folder=name)
    assert ("name-pattern" not in found) is (name in ("code-review", "a1"))


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_bytes_raise(data):
    read(data)
    read(b"---\nname: demo\n" + data + b"\n---\n")


@given(st.text(min_size=1, max_size=200))
def test_a_quoted_description_survives(text):
    document = read(f"---\nname: demo\ndescription: {json.dumps(text)}\n---\n")
    value = document.fields.get("description")
    assert value == text or document.problems


@pytest.mark.timeout(60)  # it reads a great many heads, and coverage makes each slower
def test_reading_keeps_no_references():
    """A host reads for months: nothing may pile up."""
    import gc
    import tracemalloc

    def read_many(start):
        for number in range(start, start + sized(300, 1500)):
            read(f"---\nname: demo\ndescription: x: y\nn: {number}.5\nd: 2024-01-01\n---\n")
        gc.collect()  # what only a collection frees is not kept
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*satchel*")])
        return sum(trace.size for trace in ours.traces)

    tracemalloc.start()
    read_many(0)
    before = read_many(5_000)
    after = read_many(10_000)
    tracemalloc.stop()
    assert after - before < sized(10_000, 50_000)
