"""A goal of twelve steps on its page while its worker is killed and replaced."""

from __future__ import annotations

import signal
import time

import pytest
from playwright.sync_api import expect

from model_server import ModelServer, Reply
from ui_server import open_house

pytestmark = pytest.mark.timeout(180)
NEEDS = {
    "s1": (), "s2": ("s1",), "s3": ("s1",), "s4": ("s1",), "s5": ("s2",), "s6": ("s2", "s3"),
    "s7": ("s3",), "s8": ("s4",), "s9": ("s5", "s6"), "s10": ("s7", "s8"), "s11": ("s9", "s10"),
    "s12": ("s11",),
}  # fmt: skip
PLAN = "goal: Watch twelve steps\nsteps:\n" + "".join(
    f"  - {{id: {name}, prompt: Say {name}., needs: [{', '.join(needs)}]}}\n"
    for name, needs in NEEDS.items()
)
TAKES, LAST = 0.4, 3.0
"""Seconds of each step; the last is long enough to be drawn on a busy machine."""
RECORD = """
window.sameWindow = true;
window.seen = [];
const note = (box) => {
  const last = window.seen.findLast((one) => one[0] === box.dataset.step);
  const state = box.getAttribute("class");
  if (!last || last[1] !== state) window.seen.push([box.dataset.step, state]);
};
const all = () => document.querySelectorAll("#board .drawing [data-step]").forEach(note);
new MutationObserver(all).observe(document.getElementById("board"),
  { subtree: true, childList: true, attributes: true, attributeFilter: ["class"] });
all();
"""


@pytest.fixture
def model():
    def slow(request) -> Reply:
        return Reply("said", delay=LAST if "Say s12." in request.last_user else TAKES)

    with ModelServer(slow) as server:
        yield server


@pytest.fixture
def busy_house(tmp_path, model):
    made = open_house(
        tmp_path,
        **model.environment(),
        SATCHEL_MODEL="anthropic:claude-sonnet-5",
        SATCHEL_ENGINE=f"dbos:sqlite:///{tmp_path / 'goals.db'}",
        SATCHEL_BUILTIN="false",
    )
    yield made
    made.server.close()


@pytest.fixture
def workers(busy_house):
    """Start workers as processes; all are stopped afterwards."""
    started = []

    def start():
        process = busy_house.server.start("goal", "worker", "--json")
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def states(page) -> dict[str, str]:
    return dict(
        page.eval_on_selector_all(
            "#board .drawing [data-step]",
            "all => all.map(one => [one.dataset.step, one.getAttribute('class')])",
        )
    )


def until(page, wanted, patience: float = 60.0) -> dict[str, str]:
    """Return the states of all steps, once they are as wanted."""
    end = time.monotonic() + patience
    while not wanted(now := states(page)):
        assert time.monotonic() < end, now
        page.wait_for_timeout(50)
    return now


def done(now: dict[str, str]) -> list[str]:
    return [name for name, state in now.items() if state == "done"]


@pytest.mark.soak
@pytest.mark.req("C6")
def test_a_goal_is_watched_while_its_worker_is_killed_and_returns(busy_house, come, workers, model):
    (busy_house.project / "plan.yaml").write_text(PLAN, "utf-8")
    busy_house.server.run("goal", "run", "plan.yaml", "--id", "week", "--detach")
    first = workers()
    visitor = come(busy_house)
    page = visitor.page
    visitor.go("/goals/week")
    page.evaluate(RECORD)
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    page.locator("#box-s12").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#step [data-of=s12]")).to_be_visible()

    until(page, lambda now: len(done(now)) >= 4)
    first.send_signal(signal.SIGKILL)
    first.wait()
    # Events of finished steps may still arrive; then nothing changes, and the page shows why.
    expect(page.locator("#reason")).to_contain_text("Its worker is gone")
    still = states(page)
    assert 4 <= len(done(still)) < 12
    assert "running" in still.values()
    page.wait_for_timeout(1_500)
    assert states(page) == still
    assert page.locator("#board-in").get_attribute("data-state") == "running"
    expect(page.locator("html")).to_have_attribute("data-live", "on")

    workers()
    until(page, lambda now: len(done(now)) > len(done(still)))
    expect(page.locator("#reason")).to_have_count(0)
    until(page, lambda now: len(done(now)) == 12)
    expect(page.locator("#board-in")).to_have_attribute("data-state", "done")
    expect(page.locator("#step [data-of=s12]")).to_have_attribute("data-state", "done")

    # The window was never reloaded, and the focus is unchanged.
    assert page.evaluate("window.sameWindow")
    assert page.evaluate("document.activeElement.id") == "box-s12"
    seen = page.evaluate("window.seen")
    course = {name: [state for one, state in seen if one == name] for name in NEEDS}
    for name, passed in course.items():
        assert passed[-1] == "done", (name, passed)
        assert passed.count("done") == 1, (name, passed)  # no finished step is lost
        assert set(passed) <= {"waiting", "running", "done"}
    ended = [name for name, state in seen if state == "done"]
    for at, name in enumerate(ended):
        assert set(NEEDS[name]) <= set(ended[:at]), ended
    assert {"waiting", "running"} <= set(course["s12"])
    # Steps that were shown as done before the kill were not repeated.
    asked = [str(request.body) for request in model.requests]
    for name in done(still):
        assert sum(f"Say {name}." in body for body in asked) == 1, name
