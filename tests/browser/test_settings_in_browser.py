"""Settings and the switch of a skill in a real Chromium, with the keyboard and on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect


@pytest.mark.parametrize("width", [1280, 390])
def test_a_skill_is_turned_off_with_the_keyboard_and_undone(come, house, width):
    name = f"fold-paper-{width}"
    house.skill(name, "Folds paper. Use when asked.")
    page = come(house, width=width).go(f"/skill?ref=.agents/skills/{name}")
    switch = page.get_by_role("switch", name="Offer this skill")
    expect(switch).to_be_checked()
    switch.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("The skill is off")
    expect(switch).not_to_be_checked()
    expect(page.locator(".verdict")).to_contain_text("Excluded")
    assert name in (house.project / "satchel.toml").read_text()
    page.keyboard.press("u")
    page.wait_for_url("**/settings?**")
    assert name not in (house.project / "satchel.toml").read_text()
    page.goto(f"{house.base}/skill?ref=.agents/skills/{name}")
    expect(switch).to_be_checked()


def test_a_setting_is_changed_undone_and_its_source_is_shown(come, house):
    page = come(house, width=390).go("/skills")
    page.get_by_role("link", name="Settings").click()
    row = page.locator(".setting").filter(has=page.locator("#set-budget"))
    expect(row).to_contain_text("Default")
    row.get_by_label("budget", exact=True).fill("900")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("Saved")
    expect(row).to_contain_text("satchel.toml")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.get_by_role("button", name="Undo").click()
    expect(row).to_contain_text("Default")


def test_a_search_shows_which_skills_fit(come, house):
    house.skill("tables", "Reads and analyses Excel files. Use when an xlsx is opened.")
    house.skill("merit-review", "Analyses a filing. Use when securities are reviewed.")
    for width in (1280, 390):
        page = come(house, width=width).go("/skills")
        page.get_by_role("searchbox").fill("analyse excel file")
        first = page.locator("tr.skill").first
        expect(first).to_contain_text("tables")
        expect(first.locator(".fit.good")).to_contain_text("%")
        expect(first.locator(".fit.good")).to_be_visible()
