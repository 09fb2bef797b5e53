"""Changes that a tool proposes in a step of a goal: shown first, then applied or discarded."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from needs import needs
from satchel.testing import make_tool_skill

WRITE = """\
import json, sys
sys.stdin.readline()
text = open("notes.txt").read()
open("notes.txt", "w").write(text.replace("milk", "tea"))
open("new.txt", "w").write("<b>new</b>\\n")
print(json.dumps({"output": "written", "error": ""}))
"""
PLAN = """\
goal: Take a note
timeout: 20
steps: [{id: note, action_type: tool, tool: notes_swap}]
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("button", "width"), [("Approve", 1280), ("Reject", 390)])
def test_changes_are_shown_before_they_are_applied(come, house, button, width):
    needs("bwrap")
    make_tool_skill(house.skills, "notes", WRITE, tool="notes_swap", more="files: write\n")
    (house.project / "plan.yaml").write_text(PLAN)
    notes, new = house.project / "notes.txt", house.project / "new.txt"
    notes.write_text("milk\nbread\n")
    new.unlink(missing_ok=True)
    page = come(house, width=width, fresh=True).page
    page.get_by_role("link", name="Goals").click()
    page.get_by_role("link", name="New goal").first.click()
    page.locator("form:has(#path) button").click()
    page.get_by_role("button", name="Start goal").click()
    asked = page.locator("section.ask")
    expect(asked).to_contain_text("Apply the changes that the tool notes_swap", timeout=30_000)
    for words in ("notes.txt", "11 → 10 bytes", "milk", "tea", "new.txt", "<b>new</b>"):
        expect(asked).to_contain_text(words)
    expect(page.locator("#goal-state")).to_contain_text("Waiting for you")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert (notes.read_text(), new.exists()) == ("milk\nbread\n", False)
    asked.get_by_role("button", name=button).click()
    applied = button == "Approve"
    expect(page.locator("#goal-state")).to_contain_text(
        "Done" if applied else "Failed", timeout=30_000
    )
    assert (notes.read_text(), new.exists()) == (
        f"{'tea' if applied else 'milk'}\nbread\n",
        applied,
    )
