"""All pages work with the keyboard alone, and the focus is always visible."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from satchel.goals.model import Step

_RING = """
() => {
  const look = getComputedStyle(document.activeElement);
  return look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2;
}
"""
_WHERE = "() => document.activeElement.tagName + '#' + document.activeElement.id"


def tab_to(page, wanted, most=80):
    """Press Tab until `wanted` has the focus; every focused element must show it."""
    for _ in range(most):
        if wanted.count() and wanted.evaluate("one => one === document.activeElement"):
            assert page.evaluate(_RING), f"nothing shows the focus on {page.evaluate(_WHERE)}"
            return
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement !== document.body"):
            assert page.evaluate(_RING), f"nothing shows the focus on {page.evaluate(_WHERE)}"
    raise AssertionError(f"Tab does not come to {wanted}")


@pytest.mark.req("B6", "B10")
def test_a_skill_is_added(visitor, house):
    page = visitor.go("/skills")
    page.keyboard.press("a")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name")).to_be_focused()
    page.keyboard.type("Sharpen Knives")
    page.keyboard.press("Tab")
    page.keyboard.type("Sharpens knives. Use when they are blunt.")
    tab_to(page, dialog.get_by_role("button", name="Create", exact=True))
    page.keyboard.press("Enter")
    page.wait_for_url("**/skills?**")
    assert (house.skills / "sharpen-knives" / "SKILL.md").is_file()


@pytest.mark.req("B7", "B10")
def test_a_skill_is_found_opened_and_deleted(visitor, house):
    house.skill("rust-pans", "Lets pans rust. Use never.")
    page = visitor.go("/skills")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("rust-pans")
    rows = page.locator("tr.skill")
    expect(rows.first).to_contain_text("rust-pans")
    page.keyboard.press("ArrowDown")
    expect(rows.first.locator(".naming a")).to_be_focused()
    assert page.evaluate(_RING)
    page.keyboard.press("Enter")
    page.wait_for_url("**/skill?**")
    button = page.locator("form[action*='/skills/remove'] button").first
    expect(button).to_be_visible()
    tab_to(page, button)
    page.keyboard.press("Enter")
    page.wait_for_url("**/plans/**")
    tab_to(page, page.locator(".decide button.danger"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/skills?**")
    assert not (house.skills / "rust-pans").exists()


def test_skills_are_chosen_and_escape_clears_the_choice(visitor, house):
    house.skill("oil-hinges", "Oils hinges. Use yearly.")
    page = visitor.go("/skills?q=oil-hinges")
    box = page.get_by_label("Select oil-hinges")
    tab_to(page, box)
    page.keyboard.press("Space")
    bar = page.locator(".bulk")
    expect(bar).to_contain_text("1 selected")
    expect(bar.get_by_role("button", name="Export")).to_be_visible()
    page.keyboard.press("Escape")
    expect(bar).to_be_hidden()
    expect(box).not_to_be_checked()


# --- Enter in a field -------------------------------------------------------------------------


@pytest.mark.parametrize("script", [True, False])
def test_enter_in_an_answer_approves(come, house, ask_people, script):
    name = f"order-{'with' if script else 'without'}"
    ask_people(name, Step("ask", "human", prompt="How many?", output={"type": "integer"}))
    visitor = come(house, script=script)
    page = visitor.go(f"/goals/{name}")
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.locator("input[type=number]").fill("3")
    if script:
        page.keyboard.press("Enter")
    else:
        with page.expect_navigation():
            page.keyboard.press("Enter")
        for _ in range(40):  # another process continues it
            if "Done" in visitor.go(f"/goals/{name}").locator("#goal-state").inner_text():
                break
            page.wait_for_timeout(250)
    expect(page.locator("#goal-state")).to_contain_text("Done")
    assert not asked


def test_the_content_is_one_key_away(visitor):
    page = visitor.go("/skills")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
