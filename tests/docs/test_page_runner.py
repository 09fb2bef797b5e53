"""The page runner finds wrong pages."""

from __future__ import annotations

import os

import pytest

from page_blocks import Block, parse
from page_runner import PageError, PageRunner, check_output


def run(page: str, folder) -> PageRunner:
    runner = PageRunner("page.md", str(folder))
    for block in parse(page):
        runner.run(block)
    return runner


@pytest.fixture(autouse=True)
def _stay_here(monkeypatch):
    monkeypatch.chdir(os.getcwd())


def test_blocks_have_line_language_title_and_reason():
    page = (
        "<!-- fixture: git -->\n\n"
        '```python title="a.py"\nx = 1\n```\n\n'
        "- in a list\n\n    ```json\n    {}\n    ```\n\n"
        "<!-- not run: because -->\n\n"
        "~~~console\n$ rm x\n~~~\n"
    )
    assert parse(page) == [
        Block(1, "fixture", "git"),
        Block(3, "python", "x = 1", "a.py"),
        Block(9, "json", "{}"),
        Block(15, "console", "$ rm x", "", "because"),
    ]


@pytest.mark.parametrize(
    "page", ["```python\nx = 1\n", "<!-- not run: x -->\n\nText.\n", "<!-- not run: x -->\n"]
)
def test_a_page_that_cannot_be_read_is_an_error(page):
    with pytest.raises(ValueError, match="not"):
        parse(page)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```python\nassert False\n```\n", "AssertionError"),
        ("```json\n{,}\n```\n", "JSONDecodeError"),
        ("```yaml\na: b: c\n```\n", "mapping values"),
        ("```toml\na =\n```\n", "TOMLDecodeError"),
        ("```rust\n```\n", "no rule for a block of `rust`"),
        ("```\nplain\n```\n", "no rule for a block of ``"),
        ("```console\nls\n```\n", "begins with"),
        ("```console\n$ echo a\nb\n```\n", "the page shows"),
        ("```console\n$ false\n```\n", "exited with 1"),
        ("```console\n$ exit 3\n```\n", "ended early"),
        ("<!-- fixture: nothing -->\n", "no fixture `nothing`"),
        ('```text title="../x"\n```\n', "leads out"),
    ],
)
def test_what_is_wrong_is_found(page, words, tmp_path):
    with pytest.raises(PageError, match=words):
        run(page, tmp_path)


@pytest.mark.parametrize(
    ("shown", "output"),
    [(["a … c"], "a b\nc\n"), (["a"], "a\nb\n"), (["b", "…"], "a\nb\n"), (["a.c"], "abc\n")],
)
def test_dots_do_not_stand_for_everything(shown, output):
    with pytest.raises(PageError):
        check_output("cmd", shown, output, 0)


def test_a_shown_error_must_fail():
    check_output("cmd", ["error: no"], "error: no\n", 3)
    with pytest.raises(PageError):
        check_output("cmd", ["error: no"], "error: no\n", 0)
