"""All main functions work without JavaScript."""

from __future__ import annotations

import zipfile

import pytest
from playwright.sync_api import expect


@pytest.fixture
def plain(come, house):
    """A window without JavaScript."""
    return come(house, script=False)


def test_the_list_is_searched_and_a_skill_is_opened(plain, house):
    house.skill("bake-bread", "Bakes bread. Use on Sundays.")
    page = plain.go("/skills")
    page.locator("#q").fill("bread")
    page.locator("#q").press("Enter")
    page.wait_for_url("**/skills?q=bread*")
    page.get_by_role("link", name="bake-bread").click()
    expect(page.get_by_role("heading", name="bake-bread").first).to_be_visible()


@pytest.mark.req("B6")
def test_a_skill_is_added(plain, house):
    page = plain.go("/skills")
    page.locator("a[href='/skills/add']").first.click()
    page.wait_for_url("**/skills/add")
    page.locator("#new-name").fill("Knead Dough")
    page.locator("#new-description").fill("Kneads dough. Use before baking.")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/skills?**")
    expect(page.get_by_role("link", name="knead-dough").first).to_be_visible()
    assert (house.skills / "knead-dough" / "SKILL.md").is_file()


@pytest.mark.req("B7", "B8")
def test_a_zip_is_imported_and_the_skill_is_deleted_again(plain, house, tmp_path):
    with zipfile.ZipFile(tmp_path / "shape-rolls.zip", "w") as archive:
        text = "---\nname: shape-rolls\ndescription: Shapes rolls. Use after kneading.\n---\n# Do\n"
        archive.writestr("shape-rolls/SKILL.md", text)
    page = plain.go("/skills/import")
    page.locator("#zip-file").set_input_files(tmp_path / "shape-rolls.zip")
    page.locator("form[data-upload=zip] button").click()
    page.wait_for_url("**/plans/**")
    page.get_by_role("button", name="Install 1 skill", exact=True).click()
    page.wait_for_url("**/skills?**")
    assert (house.skills / "shape-rolls" / "SKILL.md").is_file()

    page.get_by_role("link", name="shape-rolls").first.click()
    page.locator("form[action*='/skills/remove'] button").first.click()
    page.wait_for_url("**/plans/**")
    page.locator(".decide button.danger").click()
    page.wait_for_url("**/skills?**")
    assert not (house.skills / "shape-rolls").exists()
