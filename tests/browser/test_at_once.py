"""Concurrent events in one window: neither updates nor clicks are lost."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Error, expect

from ui_server import open_house

NEWS = "htmx.trigger(document.body, 'satchel:library')"
"""The event of a library change."""
LIST = re.compile(r"/skills(\?|$)")


class Holding:
    """Delays responses until the test releases them."""

    def __init__(self, page: Any, pattern: re.Pattern[str], method: str = "GET") -> None:
        self._page = page
        self._method = method
        self._open = False
        self.held: list[tuple[Any, Any]] = []
        """Requests and their responses."""
        self._waiting: list[Any] = []
        page.route(pattern, self._take)

    def _take(self, route: Any) -> None:
        request = route.request
        if self._open or request.method != self._method:
            route.continue_()
        else:
            self._waiting.append(route)

    def wait_for(self, count: int) -> None:
        """Wait until this many requests are delayed."""
        end = time.monotonic() + 10
        while len(self.held) < count:
            assert time.monotonic() < end, f"{len(self.held)} of {count} requests were made"
            self._page.wait_for_timeout(20)
            while self._waiting:
                route = self._waiting.pop(0)
                self.held.append((route, route.fetch(max_redirects=0)))

    @property
    def count(self) -> int:
        """The number of requests."""
        return len(self.held) + len(self._waiting)

    def let_go(self) -> None:
        """Release the responses in the order of their requests, and delay no more."""
        self._open = True
        for route, answer in self.held:
            with suppress(Error):  # the page aborted this one
                route.fulfill(response=answer)
        for route in self._waiting:
            with suppress(Error):
                route.continue_()


def names(page):
    """The names of the skills in the list."""
    return page.locator("tr.skill .naming a")


@pytest.fixture(scope="module", autouse=True)
def garden(house):
    house.skill("harvest-apples", "Harvests apples. Use in autumn.")
    house.skill("press-juice", "Presses juice. Use after the harvest.")


def test_changes_during_the_load_of_a_list_are_not_lost(visitor, house):
    page = visitor.go("/skills")
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    holding = Holding(page, LIST)
    page.evaluate(NEWS)
    holding.wait_for(1)
    page.evaluate(
        "addEventListener('satchel:library', () => { document.body.dataset.heard = '1'; }, true)"
    )
    house.skill("dig-ponds", "Digs ponds. Use in May.")
    expect(page.locator("body")).to_have_attribute("data-heard", "1")
    holding.let_go()  # without the pond
    expect(names(page).filter(has_text="dig-ponds")).to_be_visible()


@pytest.mark.parametrize("order", [1, -1])
def test_a_chosen_filter_precedes_live_updates(visitor, order):
    page = visitor.go("/skills")
    expect(names(page).filter(has_text="write-a-skill")).to_be_visible()
    holding = Holding(page, LIST)
    page.evaluate(NEWS)
    holding.wait_for(1)
    page.locator("#by-source").select_option("user")
    holding.wait_for(2)
    holding.held = holding.held[::order]
    holding.let_go()
    expect(page.locator("#by-source")).to_have_value("user")
    expect(names(page).filter(has_text="write-a-skill")).to_have_count(0)
    expect(names(page).filter(has_text="press-juice")).to_be_visible()


def test_further_clicks_on_save_save_nothing_more(visitor, house):
    house.skill("mend-nets", "Mends nets. Use at sea.")
    page = visitor.go("/skill/edit?ref=.agents/skills/mend-nets")
    holding = Holding(page, re.compile(r"/skill/edit\?"), "POST")
    page.locator("#text").fill("---\nname: mend-nets\ndescription: Mends. Use then.\n---\n# Mend\n")
    save = page.get_by_role("button", name="Save", exact=True)
    page.evaluate(  # a third one during the first request
        "setTimeout(() => document.querySelector('[data-guard] .primary').click(), 800)"
    )
    save.dblclick(no_wait_after=True)
    holding.wait_for(1)
    page.wait_for_timeout(1_200)
    assert holding.count == 1
    holding.let_go()
    expect(page.get_by_role("status").first).to_contain_text("mend-nets")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert "Mends. Use then." in (house.skills / "mend-nets" / "SKILL.md").read_text()


_WORST = """
async () => {
  let worst = 0;
  for (let turn = 0; turn < 20; turn += 1) {
    const began = performance.now();
    await (await fetch("/goals")).text();
    worst = Math.max(worst, performance.now() - began);
    await new Promise(done => setTimeout(done, 100));
  }
  return worst;
}
"""


def test_goals_do_not_wait_for_the_check_of_all_skills(come, tmp_path):
    house = open_house(tmp_path, SATCHEL_TRUST="all")
    try:
        for number in range(101):
            house.skill(f"cut-stone-{number}", "Cuts stone. Use when asked.")
        page = come(house).go("/goals")
        usual = page.evaluate(_WORST)
        program = "import os, subprocess\n" + "os.environ[f(a)[b].c] = d + e\n" * 25_000
        (house.skills / "cut-stone-0/cut.py").write_text(program)  # parsing it takes seconds
        page.context.new_page().goto(f"{house.base}/health")
        assert page.evaluate(_WORST) < 700 + 10 * usual  # milliseconds, on a busy machine
    finally:
        house.server.close()
