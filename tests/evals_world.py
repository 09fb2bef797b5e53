"""A skill with evaluation cases, and a model that answers well with known probabilities.

The model stands behind a real HTTP server. It loads the skill first where there is one, then
answers with or without the word that the cases ask for. The judge decides truly unless a test says
other.
"""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

from model_server import Reply
from satchel import Satchel
from satchel.testing import make_skill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from model_request import Request

WORD = "FROG"
ANSWER = "This is a line of an ordinary answer, as long as they are. " * 34
"""About 500 tokens."""


def write_skill(
    project, cases: Sequence[dict[str, Any]], body: str = "End with FROG.\n"
) -> Satchel:
    """A project with the skill `haiku`."""
    folder = project / ".agents/skills"
    make_skill(folder, "haiku", "Writes a haiku. Use when the user asks for a poem.", body=body)
    (folder / "haiku/evals").mkdir(exist_ok=True)
    text = json.dumps({"evals": list(cases)})
    (folder / "haiku/evals/evals.json").write_text(text, encoding="utf-8")
    return Satchel.for_project(project, trust="all", builtin=False, packaged=False)


def plain_cases(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Cases with one statement each."""
    fields = fields or {"expectations": [f"Ends with {WORD}"]}
    return [{"id": f"c{n}", "prompt": f"Write poem number {n}", **fields} for n in range(count)]


def is_judge(request: Request) -> bool:
    """Whether a request is one to the judge."""
    return "final_result" in request.tools


def answers_of(request: Request) -> list[str]:
    """The two answers in a request to the judge."""
    return re.findall(r"<answer [^>]*>\n(.*?)</answer", request.last_user, re.DOTALL)


def grade(first: object, second: object) -> Reply:
    """A reply of the judge."""
    grades = {"first": bool(first), "second": bool(second), "reason": "seen"}
    return Reply(calls=[("final_result", grades)])


def true_judge(request: Request) -> Reply:
    """Grades by the word."""
    first, second = answers_of(request)
    return grade(WORD in first, WORD in second)


def chance(skill: float, without: float, seed: int = 0) -> Callable[[str, bool], bool]:
    """Whether a run passes, by the probabilities of the two arms."""
    sources: dict[tuple[str, bool], random.Random] = {}

    def passes(prompt: str, with_skill: bool) -> bool:
        # One sequence for each case and arm: workers may take them in any order.
        made = random.Random(f"{seed} {prompt} {with_skill}")
        source = sources.setdefault((prompt, with_skill), made)
        return source.random() < (skill if with_skill else without)

    return passes


def model(passes: Any, judge: Callable[[Request], Reply] = true_judge, addition: str = ""):
    """The script of a server: `passes` gets the prompt and whether there is a skill."""

    def script(request: Request) -> Reply:
        if is_judge(request):
            return judge(request)
        with_skill = "Skill" in request.tools
        if with_skill and request.step == 0:
            return Reply(calls=[("Skill", {"name": "haiku"})])
        prompt = request.last_user.partition("\n")[0]
        ending = WORD if passes(prompt, with_skill) else "."
        return Reply(ANSWER + (addition if with_skill else "") + ending)

    return script
