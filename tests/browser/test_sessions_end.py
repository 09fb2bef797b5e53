"""Sessions that end while pages are open, in a real browser."""

from __future__ import annotations

from playwright.sync_api import expect

MORE = "\nHours of work.\n"


def test_who_comes_in_again_with_another_tab_goes_on_where_they_were(come, house):
    visitor = come(house, fresh=True)
    house.skill("bake-bread")
    page = visitor.go("/skill/edit?ref=.agents/skills/bake-bread")
    text = page.locator("#text")
    with page.expect_response("**/skill/edit/check?*"):
        text.fill(text.input_value() + MORE)
    visitor.context.clear_cookies()
    visitor.allow("401")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("You are signed out")
    assert text.input_value().endswith(MORE)
    other = visitor.context.new_page()
    other.goto(house.server.link())
    other.close()
    page.bring_to_front()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#notes")).to_contain_text("Saved")
    assert (house.skills / "bake-bread" / "SKILL.md").read_text().endswith(MORE)
