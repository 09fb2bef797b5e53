"""Which skills were never loaded: read once from the file, then heard."""

from __future__ import annotations

from satchel.tools.usage import Usage
from satchel.trace import Trace


def test_the_past_is_read_and_the_present_heard(tmp_path):
    Trace(str(tmp_path), "p").record("loaded", ("old",))
    trace = Trace(str(tmp_path), "p")
    usage = Usage(trace)
    assert not usage.never("old")
    assert usage.never("new")
    trace.record("loaded", ("new",))
    assert not usage.never("new")


def test_what_is_not_a_load_of_this_project_does_not_count(tmp_path):
    trace = Trace(str(tmp_path), "p")
    trace.record("selected", ("one",), goal='"kind": "loaded", "skills": ["one"]')
    trace.record("failed", ("one",), reason='{"kind": "loaded"}')
    Trace(str(tmp_path), "other").record("loaded", ("one",))
    with open(tmp_path / "trace.jsonl", "a") as file:
        file.write('{"kind": "loaded", "project": "p"}\n{"kind": "loaded", "project": "p", "sk')
    assert Usage(Trace(str(tmp_path), "p")).never("one")


def test_a_trace_in_memory_knows_its_own_past():
    trace = Trace()
    trace.record("loaded", ("one",))
    assert not Usage(trace).never("one")
    assert Usage(trace).never("two")


def test_where_nothing_is_recorded_nobody_can_say():
    assert not Usage(Trace(enabled=False)).never("one")
