"""Which skills were never loaded: read once from the file, then heard."""

from __future__ import annotations

from satchel.tools.shortlisting import Usage
from satchel.trace import Trace


def test_what_is_not_a_load_of_this_project_does_not_count(tmp_path):
    trace = Trace(str(tmp_path), "p")
    trace.record("selected", ("one",), goal='"kind": "loaded", "skills": ["one"]')
    trace.record("failed", ("one",), reason='{"kind": "loaded"}')
    Trace(str(tmp_path), "other").record("loaded", ("one",))
    with open(tmp_path / "trace.jsonl", "a") as file:
        file.write('{"kind": "loaded", "project": "p"}\n{"kind": "loaded", "project": "p", "sk')
    assert Usage(Trace(str(tmp_path), "p")).never("one")


def test_where_nothing_is_recorded_nobody_can_say():
    assert not Usage(Trace(enabled=False)).never("one")
