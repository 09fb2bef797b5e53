"""Evaluates a skill: pairs of runs with and without it, on pydantic-evals.

    evaluation = Evaluation(satchel, skill, EvalOptions("anthropic:claude-sonnet-5"))
    print(evaluation.estimate().cost)
    result = await evaluation.run()
    print(result.comparison.verdict)

A case of the dataset is a pair: one case, one repeat, each arm once, in random order. Finished runs
and grades are in the journal, so that what was finished is never run or paid again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import tarfile
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EvaluationReason, Evaluator

from satchel._optional import require
from satchel.agent.subagents import resolve_model
from satchel.errors import InvalidInput, NotFound, SatchelError
from satchel.evals.budget import (
    ANSWER_TOKENS,
    CALL_TOKENS,
    GRADE_FRAME_TOKENS,
    GRADE_TOKENS,
    CostBudget,
    EvaluationStopped,
    Exchange,
    MeteredModel,
    price,
    tokens_of,
)
from satchel.evals.comparison import default_repeats
from satchel.evals.journal import EvalJournal, PairKey
from satchel.evals.judge import Judge, JudgedPair, JudgedStatement
from satchel.evals.results import (
    EvalResult,
    PairOutcome,
    arm_figures,
    case_figures,
    compare_all,
    judge_figures,
    write_receipt,
)
from satchel.evals.runs import (
    AGAINST,
    BASELINE,
    INSTRUCTIONS,
    SKILL_ARM,
    Arm,
    RunOutcome,
    RunSettings,
    make_workspace,
    open_workspace,
    run_case,
    run_prompt,
)
from satchel.i18n import say
from satchel.skill.eval_file import load_cases
from satchel.skill.eval_receipt import cases_digest, skill_digest
from satchel.skill.file_tree import FolderTree, hash_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai.models import Model
    from pydantic_evals.evaluators import EvaluatorContext

    from satchel.satchel import Satchel
    from satchel.skill.eval_file import EvalCase
    from satchel.skill.model import Skill

WORKERS_COUNT = 4
_FORMAT_VERSION = 1
_EXAMPLE = (
    '\n{"evals": [{"id": "sum", "prompt": "Add 4.00 and 8.00", '
    '"expectations": ["States a total of 12.00"]}]}'
)


class EvalOptions(NamedTuple):
    """How a skill is evaluated."""

    model: Model | str
    judge: Model | str = ""
    """Grades the answers; the evaluated model when empty. One of another family is fairer."""
    repeats: int = 0
    """Runs of each case and arm; enough for a verdict when 0."""
    against: str = ""
    """Another version of the skill to compare with, too: a folder, or a git revision."""
    allow_tools: bool = False
    """Allow all tool calls, not only changes of the copied workspace."""
    workers: int = WORKERS_COUNT


class Estimate(NamedTuple):
    """What remains to be run, and about what it costs."""

    pairs: int
    """Pairs without a complete record in the journal."""
    runs: int
    grades: int
    """Requests to the judge."""
    cost: float | None
    """US dollars; None when a price is unknown."""


class Evaluation:
    """The evaluation of one skill with one model."""

    def __init__(self, satchel: Satchel, skill: Skill, options: EvalOptions) -> None:
        """Read the cases and find earlier work; nothing is run.

        Raises:
            NotFound: the skill has no case that can be judged.
            Refused: the skill is not trusted.
            ModelFailed: a model is unknown, or its key is missing.
        """
        require("pydantic_evals", "eval")
        if skill.is_tool or skill.origin.remote or not skill.for_model:
            raise InvalidInput(
                say("`{name}` cannot be evaluated: a model cannot load its instructions here",
                    name=skill.name),
                say("Choose a skill with a SKILL.md that models may load"),
            )  # fmt: skip
        self.skill, self.options = skill, options
        self.files = satchel.library.integrity.check(skill).tree.files
        self.cases = load_cases(skill.base_dir, skill.name).tasks
        if not self.cases:
            raise NotFound(
                say("`{name}` has no cases to evaluate", name=skill.name),
                say("Write prompts with expectations to `{path}`", path="evals/evals.json")
                + _EXAMPLE,
            )
        self.repeats = options.repeats or default_repeats(len(self.cases))
        self.budget = CostBudget()
        model = resolve_model(options.model)
        judge = resolve_model(options.judge or options.model)
        self.model_name, self.judge_name = (
            _name_of(options.model, model),
            _name_of(options.judge or options.model, judge),
        )
        self._models = (model, judge)
        self._settings = RunSettings(
            skill, MeteredModel(model, self.budget), options.allow_tools, satchel.settings.sandbox
        )
        self._judge = Judge(MeteredModel(judge, self.budget))
        self._stack = ExitStack()
        self.arms = [Arm(SKILL_ARM, skill.base_dir), Arm(BASELINE)]
        against_digest = ""
        if options.against:
            folder = _open_version(self._stack, skill, options.against)
            against_digest = skill_digest(hash_tree(FolderTree(folder)).files)
            self.arms.append(Arm(AGAINST, folder))
        self._journal = EvalJournal(
            satchel.settings,
            {
                "format": _FORMAT_VERSION,
                "skill": skill_digest(self.files),
                "cases": cases_digest(self.files),
                "model": self.model_name,
                "judge": self.judge_name,
                "against": against_digest,
                "allow_tools": options.allow_tools,
            },
        )
        self._stack.enter_context(self._journal)
        self._pairs = [
            PairKey(case.id, repeat) for case in self.cases for repeat in range(1, self.repeats + 1)
        ]
        self._random = random.Random(self._journal.key)  # noqa: S311 - an order, no secret
        self._random.shuffle(self._pairs)
        self._by_id = {case.id: case for case in self.cases}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_pair: Callable[[], object] = lambda: None

    def close(self) -> None:
        """Release the journal, and remove the copy of another version."""
        self._stack.close()

    @property
    def baselines(self) -> list[str]:
        """The names of the arms that the skill is compared with."""
        return [arm.name for arm in self.arms[1:]]

    # --- estimate -------------------------------------------------------------------------

    def estimate(self) -> Estimate:
        """What remains, by the sizes of prompts, or by finished runs where there are any."""
        exchanges: list[tuple[int, Exchange]] = []
        measured = 0.0
        runs = 0
        for arm in self.arms:
            records = [
                record for pair in self._pairs if (record := self._journal.find(pair.key(arm.name)))
            ]
            costs = [record["cost"] for record in records if record["cost"] is not None]
            runs += len(self._pairs) - len(records)
            if costs:
                measured += (len(self._pairs) - len(records)) * sum(costs) / len(costs)
                continue
            sizes = self._measure(arm)
            exchanges += [
                (1, sizes[pair.case])
                for pair in self._pairs
                if self._journal.find(pair.key(arm.name)) is None
            ]
        judged = [
            (2 * len(case.statements), self._measure_grade(case)) for case in self._ungraded_cases()
        ]
        grades = sum(number for number, _ in judged)
        run_cost, judge_cost = price(self._models[0], exchanges), price(self._models[1], judged)
        cost = None
        if run_cost is not None and judge_cost is not None:
            cost = measured + run_cost + judge_cost
        pairs = sum(not self._is_finished(pair) for pair in self._pairs)
        return Estimate(pairs, runs, grades, cost)

    def _ungraded_cases(self) -> list[EvalCase]:
        """The case of each pair and baseline that the judge has not graded."""
        return [
            self._by_id[pair.case]
            for pair in self._pairs
            for baseline in self.baselines
            if self._by_id[pair.case].statements
            and self._journal.find(pair.key(f"grades-{baseline}")) is None
        ]

    def _is_finished(self, pair: PairKey) -> bool:
        parts = [arm.name for arm in self.arms]
        if self._by_id[pair.case].statements:
            parts += [f"grades-{baseline}" for baseline in self.baselines]
        return all(self._journal.find(pair.key(part)) for part in parts)

    def _measure(self, arm: Arm) -> dict[str, Exchange]:
        """The expected requests of a run of each case in an arm."""
        with tempfile.TemporaryDirectory(prefix="satchel-eval-") as parent:
            workspace = make_workspace(parent, None, arm, self._settings)
            satchel = open_workspace(workspace, arm, self._settings)
            try:
                prompt, tools = satchel.session().prompt_and_definitions()
                tail = satchel.session().tail("") if arm.folder else ""
            finally:
                satchel.close()
        head = tokens_of(INSTRUCTIONS, prompt, json.dumps(tools))
        text = sum(os.path.getsize(path) for path in [self.skill.path]) // 4 if arm.folder else 0
        exchanges: dict[str, Exchange] = {}
        for case in self.cases:
            first = head + tokens_of(run_prompt(case, self.skill.base_dir), tail)
            if arm.folder:
                prompts = (first, first + CALL_TOKENS + text)
                exchanges[case.id] = Exchange(prompts, (CALL_TOKENS, ANSWER_TOKENS), head)
            else:
                exchanges[case.id] = Exchange((first,), (ANSWER_TOKENS,), head)
        return exchanges

    def _measure_grade(self, case: EvalCase) -> Exchange:
        statements = "".join(case.statements)
        size = GRADE_FRAME_TOKENS + tokens_of(case.prompt, case.expected) + 2 * ANSWER_TOKENS
        return Exchange((size + tokens_of(statements) // len(case.statements),), (GRADE_TOKENS,))

    # --- run ------------------------------------------------------------------------------

    async def run(
        self,
        max_cost: float | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> EvalResult:
        """Run what is not finished; returns the figures of all finished pairs.

        Args:
            max_cost: US dollars that this call may spend.
            progress: Called with the skill's name, the number of finished pairs, and the total.
        """
        self.budget.max_cost = max_cost
        completed = 0

        def count_pair() -> None:
            nonlocal completed
            completed += 1
            if progress is not None:
                progress(self.skill.name, completed, len(self._pairs))

        self._on_pair = count_pair
        dataset = Dataset[Any, Any, Any](
            name=self.skill.name,
            cases=[Case(name=pair.key("pair"), inputs=pair) for pair in self._pairs],
            evaluators=[CriteriaEvaluator(self)],
        )
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):  # Windows, and other threads
            loop.add_signal_handler(signal.SIGINT, self.interrupt)
        try:
            report = await dataset.evaluate(
                self._run_pair, max_concurrency=self.options.workers, progress=False
            )
        finally:
            with suppress(NotImplementedError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
        return self._summarize(report)

    def interrupt(self) -> None:
        """End with what is finished."""
        self.budget.stop("interrupted")
        for task in self._tasks:
            task.cancel()

    async def _run_pair(self, pair: PairKey) -> PairOutcome:
        """Run each arm once, in random order."""
        arms = list(self.arms)
        random.Random(f"{self._journal.key} {pair}").shuffle(arms)  # noqa: S311 - same
        outcomes: dict[str, RunOutcome] = {}
        for arm in arms:
            outcomes[arm.name] = await self._guard(self._run_arm(pair, arm))
        return PairOutcome(outcomes)

    async def _guard(self, work: Any) -> Any:
        """Await work that `interrupt` may cancel; an error of the provider ends the evaluation."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.budget.stop_reason:
                raise EvaluationStopped(self.budget.stop_reason) from None
            raise
        except SatchelError as exc:
            self.budget.stop(str(exc.message))
            raise
        finally:
            self._tasks.discard(task)

    async def _run_arm(self, pair: PairKey, arm: Arm) -> RunOutcome:
        key = pair.key(arm.name)
        record = self._journal.find(key)
        if record is None:
            self.budget.check()
            outcome = await run_case(
                self._by_id[pair.case], arm, self._settings, self._journal.transcript_path(key)
            )
            record = self._journal.append(key, outcome._asdict())
        return RunOutcome(**{name: record[name] for name in RunOutcome._fields})

    async def grade(self, pair: PairKey, outcome: PairOutcome, baseline: str) -> JudgedPair:
        """The grades of a pair, from the journal or from the judge."""
        key = pair.key(f"grades-{baseline}")
        record = self._journal.find(key)
        if record is None:
            answers = (outcome.runs[SKILL_ARM].text, outcome.runs[baseline].text)
            judged = await self._guard(self._judge.grade(self._by_id[pair.case], *answers))
            record = self._journal.append(key, judged._asdict())
        statements = [JudgedStatement(*row) for row in record["statements"]]
        return JudgedPair(*(record[name] for name in JudgedPair._fields))._replace(
            statements=statements
        )

    def _summarize(self, report: Any) -> EvalResult:
        figures = [case_figures(case, report) for case in self.cases]
        pairs = [row.inputs for row in report.cases if not row.evaluator_failures]
        grades = [
            record
            for pair in pairs
            for baseline in self.baselines
            if (record := self._journal.find(pair.key(f"grades-{baseline}")))
        ]
        judge = judge_figures(grades)
        messages = [failure.error_message for failure in report.failures]
        messages += [
            failure.error_message for row in report.cases for failure in row.evaluator_failures
        ]
        errors = [
            text for text in dict.fromkeys(messages) if EvaluationStopped.__name__ not in text
        ]
        return EvalResult(
            self.skill.name,
            self.model_name,
            self.judge_name,
            repeats=self.repeats,
            planned_pairs=len(self._pairs),
            comparisons=compare_all([scores for _, scores in figures], self.baselines),
            arms=arm_figures(report, [arm.name for arm in self.arms]),
            cases=tuple(case for case, _ in figures),
            judge_cost=judge.cost,
            swapped=judge.swapped,
            graded=judge.graded,
            spent=self.budget.cost,
            stopped=self.budget.stop_reason,
            errors=tuple(errors),
        )

    def write_receipt(self, result: EvalResult) -> str:
        """Write the receipt beside the cases; returns its path."""
        return write_receipt(self.skill.base_dir, self.files, result)

    def case(self, name: str) -> EvalCase:
        """A case by its id."""
        return self._by_id[name]

    def finish_pair(self) -> None:
        """Count a pair for the progress."""
        self._on_pair()


@dataclass(repr=False)
class CriteriaEvaluator(Evaluator[Any, Any, Any]):
    """Makes an assertion of each check and statement, for each arm beside each baseline."""

    evaluation: Evaluation

    def build_serialization_arguments(self) -> dict[str, Any]:
        """No arguments: it is made for one evaluation."""
        return {}

    async def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> dict[str, EvaluationReason]:
        """Checks by program first, then the grades of the judge."""
        evaluation, pair = self.evaluation, ctx.inputs
        case = evaluation.case(pair.case)
        assertions: dict[str, EvaluationReason] = {}
        for baseline in evaluation.baselines:
            for arm in (SKILL_ARM, baseline):
                checks = zip(case.checks, ctx.output.runs[arm].checks, strict=True)
                for number, (check, (passed, reason)) in enumerate(checks):
                    text = f"{check}\0{reason}"
                    assertions[f"{baseline}/{arm}/{number}"] = EvaluationReason(passed, text)
            if not case.statements:
                continue
            judged = await evaluation.grade(pair, ctx.output, baseline)
            for number, row in enumerate(judged.statements, len(case.checks)):
                text = f"{case.statements[number - len(case.checks)]}\0{row.reason}"
                for arm, passed in ((SKILL_ARM, row.skill), (baseline, row.baseline)):
                    assertions[f"{baseline}/{arm}/{number}"] = EvaluationReason(passed, text)
        evaluation.finish_pair()
        return assertions


def _name_of(name: Model | str, model: Model) -> str:
    return name if isinstance(name, str) else f"{model.system}:{model.model_name}"


def _open_version(stack: ExitStack, skill: Skill, reference: str) -> str:
    """The folder of another version: a folder, or a revision of the skill's repository.

    Raises:
        NotFound: there is neither.
    """
    if os.path.isfile(os.path.join(reference, "SKILL.md")):
        return os.path.abspath(reference)
    data = b""
    if not reference.startswith("-"):
        command = ["git", "archive", "--format=tar", f"{reference}:./"]
        with suppress(OSError):
            data = subprocess.run(  # noqa: S603 - the user's own revision, as one argument
                command, cwd=skill.base_dir, capture_output=True, check=False
            ).stdout
    if not data:
        raise NotFound(
            say("There is no version `{name}` of this skill", name=reference),
            say("Give a folder with a SKILL.md, or a git revision such as `{name}`", name="HEAD~1"),
        )
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="satchel-eval-"))
    target = os.path.join(folder, os.path.basename(skill.base_dir))
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        archive.extractall(target, filter="data")
    return target
