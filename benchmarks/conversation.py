"""The conversation of `prompt_cache.py`: thirty turns over a library that changes.

Forty skills, all alike: a description of 150 to 400 characters, 4 KB of instructions. In between
skills are loaded, added, edited, described anew and removed. The model is a script on loopback:
what it says depends on nothing but the turn, so that every agent has the same conversation.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from corpora import BODY, synthetic

from model_server import Reply
from satchel.testing import make_skill

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_server import Request

TURNS = 30
SKILLS = 40
INSTRUCTIONS = "You are a careful engineer. Answer in one paragraph.\n" + (
    "Say what you did, what you did not do, and what is left to be done by somebody else.\n" * 6
)
"""The host's system prompt; the same in every agent."""

ANSWER = (
    "I looked at what you sent and did the part that can be done now. The figures agree with the "
    "ones of last week but for one row, which I have marked; the reason is in the second file. "
    "I changed nothing else, and the tests that were green before are green now. "
)

ASKED = (
    "Please review the code of the report and say what its quality is.",
    "And the schema of the database, is it still what the query needs?",
    "Convert the audio of the meeting, and write down who said what.",
    "What does the budget say about the cluster?",
    "Parse the excel file I sent and plan the next step.",
    "Is there a risk in how the service is deployed?",
)

LOADED = {
    3: ("skill-000004",),
    6: ("skill-000017", "skill-000021"),
    11: ("late-arrival",),
    15: ("skill-000004",),
    20: ("skill-000030",),
    24: ("skill-000017",),
    28: ("second-late-arrival",),
}
"""What the model loads, in which turn; 15 is after its edit, 24 is a second time, unchanged."""


def write_library(skills: Path) -> None:
    """The library as it is when the conversation begins."""
    shutil.rmtree(skills, ignore_errors=True)
    for _ in synthetic(skills, SKILLS, seed=7):
        pass


def _add(skills: Path, *names: str) -> None:
    for name in names:
        make_skill(skills, name, f"Does what came late, when the user asks for {name}.", body=BODY)


def _edit(skills: Path, name: str) -> None:
    path = skills / name / "SKILL.md"
    path.write_text(f"{path.read_text('utf-8')}\nNew: ask twice before you delete.\n", "utf-8")


def _describe(skills: Path, name: str) -> None:
    make_skill(skills, name, "Now for invoices: reads them and adds them up.", body=BODY)


CHANGES: dict[int, Callable[[Path], None]] = {
    9: lambda skills: _add(skills, "late-arrival"),
    14: lambda skills: _edit(skills, "skill-000004"),
    18: lambda skills: _describe(skills, "skill-000030"),
    22: lambda skills: shutil.rmtree(skills / "skill-000008"),
    26: lambda skills: _add(skills, "second-late-arrival", "third-late-arrival"),
}
"""What happens on disk before a turn."""


def message(turn: int) -> str:
    """What the user says; turns count from one."""
    return f"{ASKED[turn % len(ASKED)]} (This is question {turn}.)"


def script(request: Request) -> Reply:
    """What the model says: first the loads of this turn, one by one, then an answer."""
    names = LOADED.get(request.turn, ())
    if request.step < len(names):
        given: dict[str, Any] = {"name": names[request.step]}
        return Reply("I take a skill for that.", calls=[("Skill", given)])
    return Reply(ANSWER)
