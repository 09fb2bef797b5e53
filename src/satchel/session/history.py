"""Detects content that the host removed from the conversation history.

Hosts trim and summarise, turns fail, and some hosts start over with the same session. What left the
history must be sent again: the text of a skill, the change notice, the reminder of a skill. Only
results of the tool `Skill` count as texts of skills: a web page with the same tags proves nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.catalogue.render import clean, xml_value
from satchel.tools.skill_tool import SkillTool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.session.session import Session

SKILL = SkillTool.name
_NEWS = re.compile(r"<skills-changed>.*?</skills-changed>", re.DOTALL)
_REMINDER = "<skills-loaded-before>"


def find_change_notices(*texts: str) -> list[str]:
    """The change notices in the texts of a history."""
    return [found for text in texts for found in _NEWS.findall(text)]


def sync_with_history(
    session: Session,
    skills: Iterable[str],
    seen: Iterable[str] | None = None,
    notices: Iterable[str] = (),
) -> list[str]:
    """Mark skills and change notices that are no longer in the history.

    Args:
        session: The session of the conversation.
        skills: Texts of the results of `Skill` in the history.
        seen: All texts of users and tools in the history; None when unknown.
        notices: Change notices that should be in the history.

    Returns:
        Names of the skills whose text was there before and is gone.
    """
    held = session.loaded.values()
    there = {one.name: one.nonce for one in held if one.present}
    for text in skills if there else ():
        there = {name: nonce for name, nonce in there.items() if f' nonce="{nonce}">' not in text}
    lost = list(there)
    again = [one.name for one in held if not one.present and one.reminded]
    if seen is not None:
        texts = list(seen)
        reminders = [text for text in texts if _REMINDER in text]
        again = [name for name in again if not any(_reminds(text, name) for text in reminders)]
        if any(not any(note in text for text in texts) for note in notices):
            session.forget_news()
    else:
        again = []
    if lost or again:
        session.forget(*lost, *again)
    return lost


def _reminds(text: str, name: str) -> bool:
    return f"<skill name={xml_value(clean(name))} digest=" in text
