"""Loaded skills: rules, reminders, and failed turns."""

from __future__ import annotations

import os

BASH = {"command": "rm -rf /"}


def refused(session, tool="ReadFile", arguments=None):
    return session.permit(tool, arguments or {"path": "a.md"}) is not None


def test_loading_again_lifts_nothing_and_says_that_the_skill_changed(talks):
    talks.add("strict", disallowed_tools="ReadFile")
    session = talks.begin()
    session.call("Skill", {"name": "strict"})
    talks.add("strict", disallowed_tools="SkillSearch")
    assert "call Skill again" in session.news()
    again = session.call("Skill", {"name": "strict"})
    assert again.data["changed_since_loaded"]
    assert session.loaded["strict"].disallowed == ("ReadFile", "SkillSearch")
    assert refused(session)
    assert refused(session, "SkillSearch", {"query": "x"})
    talks.add("strict")
    session.call("Skill", {"name": "strict"})
    assert refused(session)


def test_a_grant_that_came_later_counts_only_once_the_model_was_told(talks):
    session = talks.begin(ask=("Bash",))
    session.call("Skill", {"name": "code-review"})
    talks.add("code-review", "Reviews code for faults.", body="Look at each line.\n",
              allowed_tools="Bash")  # fmt: skip
    assert "call Skill again" in session.news()
    assert refused(session, "Bash", BASH)
    again = session.call("Skill", {"name": "code-review"})
    assert "already_loaded" not in again.data
    assert again.data["changed_since_loaded"]
    assert not refused(session, "Bash", BASH)


def test_a_reminder_is_given_once_until_it_is_lost_itself(talks):
    session = talks.begin()
    session.call("Skill", {"name": "code-review"})
    session.call("Skill", {"name": "write-docs"})
    assert session.reminder_due() == ""
    session.forget("code-review")
    due = session.reminder_due()
    assert 'name="code-review"' in due
    assert "write-docs" not in due
    assert session.reminder_due() == ""
    assert session.loaded["code-review"].reminded
    session.forget("code-review")  # the reminder was trimmed away
    assert session.reminder_due() == due
    session.call("Skill", {"name": "code-review"})
    assert session.reminder_due() == ""
    assert not session.loaded["code-review"].reminded


def test_each_text_that_arguments_make_comes_once(talks):
    talks.add("write-docs", "Writes documentation.", body="Write $ARGUMENTS plainly.\n")
    session = talks.begin()

    def pointed_at(args):
        reply = session.call("Skill", {"name": "write-docs", "args": args})
        return "already_loaded" in reply.data

    assert [pointed_at(args) for args in ("a", "b", "a")] == [False, False, True]
    session.forget("write-docs")
    os.utime(talks.place / "write-docs" / "SKILL.md")
    assert [pointed_at(args) for args in ("a", "a")] == [False, True]
