"""Sessions that end while pages are open, in a real browser."""

from __future__ import annotations

from playwright.sync_api import expect

MORE = "\nHours of work.\n"


def _edit(visitor, name, *, script):
    """Type into the editor, and end the session before saving."""
    visitor.house.skill(name)
    page = visitor.go(f"/skill/edit?ref=.agents/skills/{name}")
    text = page.locator("#text")
    if script:
        with page.expect_response("**/skill/edit/check?*"):
            text.fill(text.input_value() + MORE)
    else:
        text.fill(text.input_value() + MORE)
    visitor.context.clear_cookies()
    visitor.allow("401")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("You are signed out")
    return page


def test_who_comes_in_again_with_another_tab_goes_on_where_they_were(come, house):
    visitor = come(house, fresh=True)
    page = _edit(visitor, "bake-bread", script=True)
    assert page.locator("#text").input_value().endswith(MORE)
    other = visitor.context.new_page()
    other.goto(house.server.link())
    other.close()
    page.bring_to_front()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#notes")).to_contain_text("Saved")
    assert (house.skills / "bake-bread" / "SKILL.md").read_text().endswith(MORE)


def test_without_a_script_the_door_gives_the_text_back(come, house):
    page = _edit(come(house, fresh=True, script=False), "shape-rolls", script=False)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    kept = page.get_by_label("Your text")
    assert kept.input_value().endswith(MORE)
    assert not (house.skills / "shape-rolls" / "SKILL.md").read_text().endswith(MORE)
