"""Imports, goals and Health in Chromium: what is ticked is counted, a goal starts and ends."""

from __future__ import annotations

import zipfile

import pytest
from playwright.sync_api import expect

PLAN = """\
goal: Order paper
inputs: {sheets: 500}
steps:
  - {id: ask, action_type: human, prompt: "Order {{inputs.sheets}} for {{inputs.reader}}?"}
"""
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


@pytest.mark.req("C6")
def test_a_goal_is_started_answered_and_deleted_by_the_keyboard(visitor, house):
    (house.project / "order.yaml").write_text(PLAN, "utf-8")
    page = visitor.go("/goals")
    page.on("dialog", lambda dialog: dialog.accept())
    page.keyboard.press("n")
    page.wait_for_url("**/goals/+new")
    page.locator("#path").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    reader = page.get_by_label("reader")
    reader.focus()
    page.keyboard.type("Ann")
    page.keyboard.press("Enter")
    expect(page.locator(".question")).to_have_text("Order 500 for Ann?", timeout=30_000)
    expect(page.locator("#goal-state")).to_contain_text("Waiting for you")
    page.locator(".ask textarea").focus()
    page.keyboard.type("Yes, two boxes")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".result")).to_contain_text("Yes, two boxes", timeout=30_000)
    page.locator("#do-delete button").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/goals?told=*")
    expect(page.locator("#notes")).to_contain_text("Removed")


@pytest.mark.parametrize("path", ["/goals", "/goals/+new", "/skills/import", "/history", "/health"])
def test_a_phone_shows_pages_without_scrolling_sideways(come, house, path):
    visitor = come(house, width=NARROW)
    page = visitor.go(path)
    page.wait_for_function("() => !document.querySelector('.working')")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
