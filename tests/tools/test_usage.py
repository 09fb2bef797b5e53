"""Which skills were never loaded: read once from the file, then heard."""

from __future__ import annotations

import threading
import time

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


def test_the_file_is_read_once(tmp_path):
    trace = Trace(str(tmp_path), "p")
    usage = Usage(trace)
    assert usage.never("one")
    Trace(str(tmp_path), "p").record("loaded", ("one",))  # by another process
    assert usage.never("one")
    assert not Usage(trace).never("one")


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


def test_a_long_trace_is_read_quickly(tmp_path):
    trace = Trace(str(tmp_path), "p")
    trace.record("loaded", ("one",))
    line = b'{"t": 1.0, "kind": "offered", "project": "p", "digest": "0123456789abcdef"}\n'
    with open(tmp_path / "trace.jsonl", "ab") as file:
        file.write(line * (8 * 1024 * 1024 // len(line)))
    began = time.process_time()
    assert not Usage(trace).never("one")
    assert time.process_time() - began < 0.5  # well below 0.1 on a quiet machine


def test_who_asks_while_the_file_is_read_waits(tmp_path, monkeypatch):
    Trace(str(tmp_path), "p").record("loaded", ("old",))
    trace = Trace(str(tmp_path), "p")
    reading, go_on = threading.Event(), threading.Event()
    ever = trace.ever

    def slow(kind):
        reading.set()
        go_on.wait(5)
        return ever(kind)

    monkeypatch.setattr(trace, "ever", slow)
    usage = Usage(trace)
    said: list[bool] = []
    asking = [threading.Thread(target=lambda: said.append(usage.never("old"))) for _ in range(2)]
    asking[0].start()
    assert reading.wait(5)
    asking[1].start()
    asking[1].join(0.2)
    go_on.set()
    for thread in asking:
        thread.join(5)
    assert said == [False, False]
