"""Imports in Chromium: what is ticked is counted. No page scrolls sideways on a phone."""

from __future__ import annotations

import zipfile

import pytest
from playwright.sync_api import expect

NARROW = 390


def skill_text(name: str) -> str:
    return f"---\nname: {name}\ndescription: Does {name}. Use when asked.\n---\n# Do\n"


@pytest.mark.req("B8")
def test_the_button_counts_what_is_ticked(visitor, house, tmp_path):
    house.skill("fold-paper", "Folds paper. Use when asked.", body="# Old\n")
    with zipfile.ZipFile(tmp_path / "office.zip", "w") as archive:
        for name in ("cut-paper", "glue-paper", "fold-paper"):
            archive.writestr(f"{name}/SKILL.md", skill_text(name))
    page = visitor.go("/skills/import")
    page.locator("#zip-file").set_input_files(tmp_path / "office.zip")
    page.locator("form[data-upload=zip] button.primary").click()
    page.wait_for_url("**/plans/**")
    button = page.locator("[data-install]")
    expect(button).to_have_text("Install 2 skills")
    page.get_by_role("checkbox", name="glue-paper").uncheck()
    expect(button).to_have_text("Install 1 skill")
    page.get_by_role("checkbox", name="cut-paper").uncheck()
    expect(button).to_be_disabled()
    page.get_by_role("checkbox", name="Select all").check()
    expect(button).to_have_text("Install 3 skills")
    page.get_by_role("checkbox", name="fold-paper").uncheck()
    button.click()
    page.wait_for_url("**/skills?**")
    assert (house.skills / "glue-paper" / "SKILL.md").is_file()
    assert "# Old" in (house.skills / "fold-paper" / "SKILL.md").read_text()


@pytest.mark.parametrize("path", ["/goals", "/goals/+new", "/skills/import", "/history", "/health"])
def test_a_phone_shows_pages_without_scrolling_sideways(come, house, path):
    visitor = come(house, width=NARROW)
    page = visitor.go(path)
    page.wait_for_function("() => !document.querySelector('.working')")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
