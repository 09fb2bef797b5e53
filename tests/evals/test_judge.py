"""The verdict with a judge that prefers a position, over simulated evaluations."""

from __future__ import annotations

import asyncio
import random
import re

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from satchel.evals.comparison import PairedScores, compare
from satchel.evals.judge import Judge
from satchel.skill.eval_file import EvalCase
from sizes import sized

EVALUATIONS = sized(3, 200)
CASES, REPEATS = 15, 3
_find_answers = re.compile(r"<answer [^>]*>\n(good|bad)").findall


def prefers_first(messages, info) -> ModelResponse:
    """Sees which answer is good; where both are alike, only the first one fulfils."""
    first, second = (word == "good" for word in _find_answers(messages[0].parts[-1].content))
    grades = {"first": first or not second, "second": second and not first}
    return ModelResponse([ToolCallPart(info.output_tools[0].name, grades)])


async def evaluate(rate: float, baseline_rate: float, source: random.Random) -> tuple[str, str]:
    """The verdicts of one evaluation with the skill's answer first, and with it second."""
    judge = Judge(FunctionModel(prefers_first))
    case = EvalCase("a", "Write", expectations=("It is good",))
    straight: list[PairedScores] = []
    turned_scores: list[PairedScores] = []
    for _ in range(CASES):
        rows: list[tuple[float, float]] = []
        turned_rows: list[tuple[float, float]] = []
        for _ in range(REPEATS):
            answers = ["good" if source.random() < share else "bad"
                       for share in (rate, baseline_rate)]  # fmt: skip
            ((skill, baseline, _, _),) = (await judge.grade(case, *answers)).statements
            ((other, turned, _, _),) = (await judge.grade(case, *answers[::-1])).statements
            rows.append((float(skill), float(baseline)))
            turned_rows.append((float(turned), float(other)))
        straight.append(PairedScores(*zip(*rows, strict=True)))
        turned_scores.append(PairedScores(*zip(*turned_rows, strict=True)))
    return compare(straight).verdict, compare(turned_scores).verdict


@pytest.mark.timeout(sized(240, 1500))
@pytest.mark.parametrize(
    ("rate", "baseline_rate", "right"), [(0.8, 0.4, "helps"), (0.4, 0.8, "harms"), (0.5, 0.5, "")]
)
def test_the_order_of_the_answers_changes_no_verdict(rate, baseline_rate, right):
    source = random.Random(3)

    async def evaluate_all():
        return [await evaluate(rate, baseline_rate, source) for _ in range(EVALUATIONS)]

    verdicts = asyncio.run(evaluate_all())
    assert all(straight == turned for straight, turned in verdicts)
    clear = [verdict for verdict, _ in verdicts if verdict in ("helps", "harms")]
    if right:
        assert clear.count(right) == len(clear) >= 0.8 * EVALUATIONS
    else:
        assert len(clear) <= max(0.05 * EVALUATIONS, 1)
