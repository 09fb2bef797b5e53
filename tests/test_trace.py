"""Trace events, the trace file, listeners and spans."""

from __future__ import annotations

import asyncio

import pytest

from satchel import Satchel
from satchel.detect import BaseDetector, Detection, Match
from satchel.testing import make_skill
from satchel.trace import Trace


@pytest.fixture
def satchel(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SATCHEL_TRUST", "all")
    make_skill(tmp_path / "project/skills", "demo", "Demonstrates.")
    make_skill(tmp_path / "project/.agents/skills", "demo", "Hides the other.")
    text = "---\nname: odd\ndescription: Use when: odd\n---\n"
    (tmp_path / "project/skills/odd").mkdir()
    (tmp_path / "project/skills/odd/SKILL.md").write_text(text)
    return Satchel.for_project(tmp_path / "project", builtin=False)


def test_every_step_of_a_turn_is_an_event(satchel):
    satchel.catalogue()
    satchel.tools().call("Skill", {"name": "demo"})
    satchel.tools().call("Skill", {"name": "nobody"})
    satchel.tools().call("SkillSearch", {"query": "odd"})
    kinds = {event.kind for event in satchel.trace.events}
    assert kinds >= {"discovered", "listed", "offered", "loaded", "failed", "searched"}


def test_the_past_is_known_to_the_next_process(satchel, tmp_path):
    satchel.catalogue()
    satchel.catalogue()
    satchel.tools().call("Skill", {"name": "demo"})
    later = Satchel.for_project(tmp_path / "project", builtin=False)
    facts = later.why("demo").to_dict()
    assert facts["last_offered"]
    assert facts["last_loaded"]
    assert later.why("odd").to_dict()["last_loaded"] is None
    other = Satchel.for_project(tmp_path, builtin=False)
    assert list(other.trace.history()) == []


def test_listeners_get_all_events_until_they_stop(satchel):
    heard = []
    stop = satchel.trace.listen(heard.append)
    satchel.catalogue()
    count = len(heard)
    assert count
    stop()
    satchel.catalogue()
    assert len(heard) == count


def test_a_listener_that_raises_is_dropped_and_logged(satchel):
    def broken(_event):
        raise RuntimeError("no")

    satchel.trace.listen(broken)
    assert satchel.tools().call("Skill", {"name": "demo"}).status == "success"
    assert any(event.values.get("what") == "listener" for event in satchel.trace.events)


@pytest.mark.parametrize(("where", "kept"), [("off", 0), ("memory", 1)])
def test_off_and_memory_write_no_file(tmp_path, monkeypatch, where, kept):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    satchel = Satchel.for_project(tmp_path, trace=where)
    satchel.catalogue()
    assert bool(satchel.trace.events) is bool(kept)
    assert not (tmp_path / "home/state/trace.jsonl").exists()


def test_a_trace_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    trace = Trace(str(tmp_path / "file" / "below"))
    trace.record("loaded", ("demo",))
    trace.record("loaded", ("demo",))
    assert [event.kind for event in trace.events] == ["loaded", "failed", "loaded"]


def test_torn_lines_are_passed_over(tmp_path):
    trace = Trace(str(tmp_path), "p")
    trace.record("loaded", ("demo",))
    with open(tmp_path / "trace.jsonl", "a") as file:
        file.write('{"t": 1, "ki\n[1]\n')
    trace.record("loaded", ("demo",))
    assert len(list(trace.history())) == 2


@pytest.fixture
def spans():
    """What OpenTelemetry was told; a process has one provider for good, each test its own ear."""
    from opentelemetry import trace as api
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider = api.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        api.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter.get_finished_spans
    exporter.shutdown()


def test_tool_calls_are_spans(satchel, spans):
    satchel.tools().call("Skill", {"name": "demo"})
    satchel.tools().call("Skill", {"name": "nobody"})
    attributes = [span.attributes or {} for span in spans()]
    assert [one["satchel.tool.name"] for one in attributes] == ["Skill", "Skill"]
    assert [one["satchel.status"] for one in attributes] == ["success", "error"]


def test_spans_follow_the_conventions_for_tools(satchel, spans):
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
    from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
    from opentelemetry.trace import StatusCode

    satchel.tools().call("Skill", {"name": "demo"}, call_id="call_1")
    asyncio.run(satchel.tools().acall("Skill", {"name": "nobody"}))
    good, failed = spans()
    assert good.name == "execute_tool Skill"
    assert {
        names.GEN_AI_OPERATION_NAME: names.GenAiOperationNameValues.EXECUTE_TOOL.value,
        names.GEN_AI_TOOL_NAME: "Skill",
        names.GEN_AI_TOOL_CALL_ID: "call_1",
    }.items() <= good.attributes.items()
    assert good.status.status_code is StatusCode.UNSET
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes[ERROR_TYPE] == "NOT_FOUND"


# --- selections ---------------------------------------------------------------------------


class Picks(BaseDetector):
    """A detector that chooses the first skill and has the others come next."""

    name = "picks"

    def detect(self, goal_text, skills):
        return self.look(goal_text, skills).matches

    def look(self, goal_text, skills, limit=None):
        first, *rest = [Match(one.name, 0.75, f"`{goal_text}`", (), one, "picks") for one in skills]
        notes = (f"There is no skill `{goal_text}`",)
        return Detection([first], rest, 0.9, 0.4, "picks", 1.25, notes, (), {"calls": 1})


@pytest.fixture
def picking(satchel):
    return Satchel(satchel.library, satchel.settings, detector=Picks())


@pytest.mark.req("C7")
def test_a_selection_is_an_event_that_is_kept(picking, tmp_path):
    picking.which("show me")
    event = picking.trace.events[-1]
    assert (event.kind, list(event.skills)) == ("selected", ["demo"])
    later = Satchel.for_project(tmp_path / "project", builtin=False)
    row = next(row for row in later.trace.history() if row["kind"] == "selected")
    assert {key: row[key] for key in event.values} == event.values
    assert row["skills"] == ["demo"]
    assert row["detector"] == "picks"
    assert row["scores"] == [0.75]
    assert row["runners_up"] == [["odd", 0.75]]


@pytest.mark.req("C7")
def test_a_selection_is_a_span_without_the_words_of_the_request(picking, spans):
    picking.which("my private words")
    picking.shortlist("my private words")
    picking.which("only a look", record=False)
    chosen, listed = spans()
    assert chosen.name == listed.name == "satchel.select"
    told = dict(chosen.attributes)
    assert told.pop("satchel.took_ms") >= 0
    assert told == {
        "satchel.detector": "picks",
        "satchel.selected": ("demo",),
        "satchel.scores": (0.75,),
        "satchel.fit": 0.9,
        "satchel.threshold": 0.4,
        "satchel.runners_up": ("odd",),
        "satchel.notes": 1,
        "satchel.cost.calls": 1.0,
    }
    more = dict(listed.attributes)
    assert more["satchel.listed"] == ("demo", "odd")
    assert "private" not in str(more)


def test_a_detector_that_fails_is_seen_on_its_span(satchel, spans):
    class Broken:
        def detect(self, goal_text, skills):
            raise RuntimeError("no")

    Satchel(satchel.library, satchel.settings, detector=Broken()).shortlist("x")
    (span,) = spans()
    assert span.status.is_ok is False
    assert [event.name for event in span.events] == ["exception"]
