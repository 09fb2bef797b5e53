"""Is what a conversation was told still in it?

Hosts trim and summarise, turns fail, and some hosts begin anew with the same session. What left the
history must be told again: the text of a skill, the note about changes, the reminder of a skill.
Only results of the tool `Skill` count as texts of skills. A page from the web that has the same
tags proves nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.catalogue.render import clean, xml_value
from satchel.tools.skill_tool import SkillTool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.tools.session import Session

SKILL = SkillTool.name
"""The tool whose results are texts of skills."""

_NEWS = re.compile(r"<skills-changed>.*?</skills-changed>", re.DOTALL)
_REMINDER = "<skills-loaded-before>"


def news_in(*texts: str) -> list[str]:
    """The notes about changes that stand in texts."""
    return [found for text in texts for found in _NEWS.findall(text)]


def settle(
    session: Session,
    skills: Iterable[str],
    seen: Iterable[str] | None = None,
    told: Iterable[str] = (),
) -> list[str]:
    """Tell a session what is no longer in its conversation.

    Args:
        session: Whose.
        skills: The texts of the results of `Skill` that the model sees.
        seen: All that the model sees of what users and tools said; None when nobody knows.
        told: The notes about changes that it was told and should see.

    Returns:
        The names of the skills whose text is gone, and was there before.
    """
    held = session.loaded.values()
    there = {one.name: one.nonce for one in held if one.present}
    for text in skills if there else ():
        there = {name: nonce for name, nonce in there.items() if not _holds(text, nonce)}
    lost = list(there)
    again = [one.name for one in held if not one.present and one.reminded]
    if seen is not None:
        texts = list(seen)
        reminders = [text for text in texts if _REMINDER in text]
        again = [name for name in again if not any(_reminds(text, name) for text in reminders)]
        if any(not any(note in text for text in texts) for note in told):
            session.forget_news()
    else:
        again = []
    if lost or again:
        session.forget(*lost, *again)
    return lost


def _holds(text: str, nonce: str) -> bool:
    """Whether a result of `Skill` has the frame with this nonce, which no text can forge."""
    return bool(nonce) and f' nonce="{nonce}">' in text


def _reminds(text: str, name: str) -> bool:
    return f"<skill name={xml_value(clean(name))} digest=" in text
