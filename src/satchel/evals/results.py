"""Figures of an evaluation from the report of pydantic-evals, as JSON, JUnit and receipt.

An assertion is named `BASELINE/ARM/NUMBER`: a statement may be graded differently beside another
baseline. The share of fulfilled assertions is the score of a run.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

from satchel._fs import write_atomic
from satchel.evals.comparison import PairedScores, compare
from satchel.evals.runs import BASELINE, SKILL_ARM
from satchel.skill.eval_receipt import FORMAT_VERSION, RECEIPTS, cases_digest, skill_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.evals.comparison import Comparison
    from satchel.evals.runs import RunOutcome
    from satchel.skill.eval_file import EvalCase


class ArmFigures(NamedTuple):
    """What the runs of one arm used, per run where it is no sum."""

    runs: int
    loaded: int
    """Runs in which the model loaded the skill by itself."""
    input_tokens: float
    output_tokens: float
    cost: float | None
    """Of all runs together; None when a price is unknown."""
    seconds: float


class FailedCriterion(NamedTuple):
    """A check or statement that runs with the skill did not fulfil."""

    text: str
    reason: str
    """The reason of the last failure."""
    times: int
    transcript: str
    """The path of the messages of the last failure."""


class CaseFigures(NamedTuple):
    """The result of one case."""

    id: str
    path: str
    line: int
    pairs: int
    rate: float
    baseline_rate: float
    failed: tuple[FailedCriterion, ...]


class EvalResult(NamedTuple):
    """The result of an evaluation."""

    skill: str
    model: str
    judge: str
    repeats: int
    planned_pairs: int
    comparisons: dict[str, Comparison]
    """By the name of the baseline."""
    arms: dict[str, ArmFigures]
    cases: tuple[CaseFigures, ...]
    judge_cost: float | None
    swapped: int
    """Grades that the order of the answers changed."""
    graded: int
    spent: float
    """US dollars of this call; earlier ones spent more where the evaluation went on."""
    stopped: str
    """Why it ended early; empty when it is complete."""
    errors: tuple[str, ...]

    @property
    def comparison(self) -> Comparison:
        """With the skill beside without."""
        return self.comparisons[BASELINE]

    @property
    def is_setup_suspect(self) -> bool:
        """Whether nothing passed at all, or the skill was never loaded."""
        return bool(self.comparison.pairs) and (
            not self.arms[SKILL_ARM].loaded
            or not (self.comparison.rate or self.comparison.baseline_rate)
        )

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "skill": self.skill,
            "model": self.model,
            "judge": self.judge,
            "verdict": self.comparison.verdict,
            "repeats": self.repeats,
            "planned_pairs": self.planned_pairs,
            "comparisons": {name: value.to_dict() for name, value in self.comparisons.items()},
            "arms": {name: value._asdict() for name, value in self.arms.items()},
            "cases": [
                {**case._asdict(), "failed": [failed._asdict() for failed in case.failed]}
                for case in self.cases
            ],
            "judge_cost": self.judge_cost,
            "judge_swapped": self.swapped,
            "judge_grades": self.graded,
            "spent": round(self.spent, 6),
            "stopped": self.stopped or None,
            "errors": list(self.errors),
            "setup_suspect": self.is_setup_suspect,
        }


class PairOutcome(NamedTuple):
    """The runs of a pair by arm."""

    runs: Mapping[str, RunOutcome]


def case_figures(case: EvalCase, report: Any) -> tuple[CaseFigures, dict[str, PairedScores]]:
    """The figures of one case, and its scores by baseline."""
    rows = [
        row for row in report.cases if row.inputs.case == case.id and not row.evaluator_failures
    ]
    scores: dict[str, list[tuple[float, float]]] = {}
    failed: dict[str, FailedCriterion] = {}
    for row in rows:
        passed: dict[tuple[str, str], list[bool]] = {}
        for name, result in row.assertions.items():
            baseline, arm, _ = name.split("/")
            passed.setdefault((baseline, arm), []).append(bool(result.value))
            if arm == SKILL_ARM and baseline == BASELINE and not result.value:
                text, _, reason = str(result.reason).partition("\0")
                earlier = failed[text].times if text in failed else 0
                path = row.output.runs[SKILL_ARM].transcript
                failed[text] = FailedCriterion(text, reason, earlier + 1, path)
        for baseline in {name for name, _ in passed}:
            pair = (_share(passed[baseline, SKILL_ARM]), _share(passed[baseline, baseline]))
            scores.setdefault(baseline, []).append(pair)
    paired = {
        name: PairedScores(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
        for name, pairs in scores.items()
    }
    main = paired.get(BASELINE, PairedScores((), ()))
    count = max(len(main.skill), 1)
    figures = CaseFigures(
        case.id,
        case.path,
        case.line,
        len(main.skill),
        rate=round(sum(main.skill) / count, 4),
        baseline_rate=round(sum(main.baseline) / count, 4),
        failed=tuple(sorted(failed.values(), key=lambda criterion: -criterion.times)),
    )
    return figures, paired


def _share(passed: Sequence[bool]) -> float:
    return sum(passed) / len(passed)


def arm_figures(report: Any, arms: Sequence[str]) -> dict[str, ArmFigures]:
    """The figures of each arm, over the complete pairs."""
    figures: dict[str, ArmFigures] = {}
    for arm in arms:
        runs: list[RunOutcome] = [
            row.output.runs[arm] for row in report.cases if not row.evaluator_failures
        ]
        count = max(len(runs), 1)
        costs = [run.cost for run in runs]
        figures[arm] = ArmFigures(
            len(runs),
            sum(run.loaded for run in runs),
            input_tokens=sum(run.input_tokens for run in runs) / count,
            output_tokens=sum(run.output_tokens for run in runs) / count,
            cost=None if None in costs else sum(cost or 0.0 for cost in costs),
            seconds=round(sum(run.seconds for run in runs) / count, 3),
        )
    return figures


class JudgeFigures(NamedTuple):
    """What the judge did in the complete pairs."""

    cost: float | None
    graded: int
    swapped: int


def judge_figures(records: Sequence[Mapping[str, Any]]) -> JudgeFigures:
    """The figures of the judge, from the records of the journal."""
    costs = [record["cost"] for record in records]
    statements = [row for record in records for row in record["statements"]]
    return JudgeFigures(
        None if None in costs else sum(costs),
        len(statements),
        sum(bool(row[2]) for row in statements),
    )


def compare_all(
    scores: Sequence[Mapping[str, PairedScores]], baselines: Sequence[str]
) -> dict[str, Comparison]:
    """The comparison with each baseline."""
    return {name: compare([case[name] for case in scores if name in case]) for name in baselines}


# --- files --------------------------------------------------------------------------------


def write_junit(path: str, results: Sequence[EvalResult]) -> None:
    """Write JUnit: a suite for each skill, a test for each case and one for the verdict.

    A case fails when it fares worse with the skill, the verdict when it is `harms`.
    """
    root = ET.Element("testsuites")
    for result in results:
        suite = ET.SubElement(root, "testsuite", name=f"satchel eval {result.skill}")
        failures = 0
        for case in result.cases:
            test = ET.SubElement(suite, "testcase", classname=result.skill, name=case.id)
            lines = [f"{failed.text}: {failed.reason} ({failed.times}×)" for failed in case.failed]
            if case.rate < case.baseline_rate:
                failures += 1
                rates = f"{case.rate:.0%} with the skill, {case.baseline_rate:.0%} without"
                ET.SubElement(test, "failure", message=rates).text = _xml_text("\n".join(lines))
            elif lines:
                ET.SubElement(test, "system-out").text = _xml_text("\n".join(lines))
        test = ET.SubElement(suite, "testcase", classname=result.skill, name="verdict")
        verdict = result.comparison.verdict
        if verdict == "harms":
            failures += 1
            ET.SubElement(test, "failure", message=verdict)
        elif verdict == "not enough runs":
            ET.SubElement(test, "skipped", message=verdict)
        suite.set("tests", str(len(result.cases) + 1))
        suite.set("failures", str(failures))
    data = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    write_atomic(os.path.abspath(path), data)


def _xml_text(text: str) -> str:
    """A text without the control characters that XML refuses."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def write_receipt(folder: str, files: Mapping[str, str], result: EvalResult) -> str:
    """Write the receipt of a complete evaluation into the skill's folder; returns its path."""
    record = {
        "format": FORMAT_VERSION,
        "verdict": result.comparison.verdict,
        "skill": skill_digest(files),
        "cases": cases_digest(files),
        "settings": {"model": result.model, "judge": result.judge, "repeats": result.repeats},
        "figures": result.comparison.to_dict(),
        "arms": {name: figures._asdict() for name, figures in result.arms.items()},
    }
    name = re.sub(r"[^\w.-]+", "-", result.model)
    path = os.path.join(folder, *RECEIPTS.split("/"), f"{name}.json")
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_atomic(path, text.encode())
    return path
