"""The walk of a Skill call: what is parsed, looked up, read and refreshed, counted at run time."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter

import pytest

from satchel.library import Library
from satchel.session import session as session_module
from satchel.tools import toolset as toolset_module
from satchel.tools.skill_tool import SkillTool

_opened: list[str] | None = None
_others: set[int] = set()
"""Threads that earlier tests left running: what they open is not counted."""


def _record_open(event: str, values: tuple) -> None:
    if event == "open" and _opened is not None and threading.get_ident() not in _others:
        _opened.append(str(values[0]))


sys.addaudithook(_record_open)


@pytest.fixture
def walk(talks, monkeypatch):
    """Runs a function and returns how often each step of a call was made."""

    def run(act) -> Counter[str]:
        global _opened  # noqa: PLW0603
        counts: Counter[str] = Counter()

        def count(owner, name, step):
            real = getattr(owner, name)

            def counted(*given, **named):
                global _opened  # noqa: PLW0603
                counts[step] += 1
                opened = _opened
                if step == "refreshed":
                    _opened = None  # a refresh reads young files again
                try:
                    return real(*given, **named)
                finally:
                    _opened = opened

            monkeypatch.setattr(owner, name, counted)

        for module in (session_module, toolset_module):
            count(module, "read_arguments", "parsed")
        count(SkillTool, "find_named", "resolved")
        count(Library, "refresh", "refreshed")
        here = threading.get_ident()
        _others.clear()
        _others.update(
            other.ident for other in threading.enumerate() if other.ident not in (None, here)
        )
        _opened = []
        try:
            act()
        finally:
            read = [path for path in _opened if path.endswith("SKILL.md")]
            _opened = None
            monkeypatch.undo()
        counts["read"] = len(read)
        return counts

    return run


@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.parametrize("name", ["code-review", "/code-review"])
def test_a_call_parses_resolves_reads_and_refreshes_once(talks, walk, in_turn, name):
    session = talks.begin()
    session.prompt_and_definitions()
    if in_turn:
        session.tail("hello")
    counts = walk(lambda: session.call("Skill", {"name": name}))
    assert session.loaded["code-review"].present
    refreshed = 0 if in_turn else 1
    assert counts == Counter(parsed=1, resolved=1, read=1, refreshed=refreshed)


def test_an_asynchronous_call_takes_the_same_steps(talks, walk):
    session = talks.begin()
    session.tail("hello")
    counts = walk(lambda: asyncio.run(session.acall("Skill", '{"name": "code-review"}')))
    assert session.loaded["code-review"].present
    assert (counts["parsed"], counts["resolved"], counts["read"]) == (1, 1, 1)
    assert counts["refreshed"] == 0
