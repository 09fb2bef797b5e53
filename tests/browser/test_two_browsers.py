"""Two browsers and the command line change one library: nothing is lost, and all pages update."""

from __future__ import annotations

import os
import re
import threading

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.timeout(90)
SOON = 2.0
"""Seconds until a change is on all open pages."""
_WATCH = """
() => {
  window.seen = {};
  const look = () => {
    const names = new Set([...document.querySelectorAll("tr.skill .naming")].map(
      (one) => one.innerText.trim().split(/\\s+/)[0]));
    for (const name of names) window.seen[name] ??= Date.now();
    window.names = [...names];
  };
  new MutationObserver(look).observe(document.getElementById("main"),
    { subtree: true, childList: true });
  look();
}
"""
"""Records when a name is on the page for the first time."""


def add(page, name, description):
    """Add a skill by the form."""
    page.goto(re.sub(r"(https?://[^/]+).*", r"\1/skills/add", page.url))
    page.locator("#new-name").fill(name)
    page.locator("#new-description").fill(description)
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/skills?**")


def remove(page, base, name):
    page.goto(f"{base}/skill?ref=.agents/skills/{name}")
    page.locator("form[action*='/skills/remove'] button").first.click()
    page.wait_for_url("**/plans/**")
    page.locator(".decide button.danger").click()
    page.wait_for_url("**/skills?**")


def watch(visitor):
    """A second tab with the list, which is never reloaded."""
    page = visitor.context.new_page()
    page.goto(f"{visitor.house.base}/skills")
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    page.evaluate(_WATCH)
    return page


@pytest.mark.soak
def test_nothing_is_lost_and_everybody_sees_it_soon(come, house):
    ada, bob = come(house, fresh=True), come(house, fresh=True)
    lists = {"ada": watch(ada), "bob": watch(bob)}
    failed: list[str] = []

    def command_line():
        try:
            for number in range(2):
                name = f"cli-{number}"
                about = f"Made by hand {number}. Use now."
                house.server.run("new", name, "--kind", "minimal", "--description", about)
            house.server.run("remove", "cli-0", "--yes")
        except Exception as exc:  # noqa: BLE001 - told by the test
            failed.append(str(exc))

    thread = threading.Thread(target=command_line)
    thread.start()
    for number in range(2):
        for who, visitor in (("ada", ada), ("bob", bob)):
            name = f"{who}-{number}"
            add(visitor.page, name, f"Made by {who} {number}. Use now.")
    remove(ada.page, house.base, "bob-0")
    remove(bob.page, house.base, "ada-0")
    thread.join(60)
    assert not failed, failed

    left = {f"{who}-1" for who in ("ada", "bob", "cli")}
    assert set(os.listdir(house.skills)) >= left
    assert not {"ada-0", "bob-0", "cli-0"} & set(os.listdir(house.skills))
    waits = []
    for who, page in lists.items():
        for name in left:
            expect(page.locator("tr.skill .naming", has_text=name)).to_be_visible()
        expect(page.locator("tr.skill .naming", has_text=re.compile(r"-0\b"))).to_have_count(0)
        seen = page.evaluate("window.seen")
        for name in left:
            written = os.stat(house.skills / name / "SKILL.md").st_mtime
            waits.append((seen[name] / 1000 - written, f"{who} sees {name}"))
    worst = max(waits)
    assert worst[0] <= SOON, waits
