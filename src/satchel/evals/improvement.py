"""Improves the description of a skill, so that requests select it.

The search is that of gepa. Its metric is the detector on trigger tests, so no model decides there:
a model only proposes descriptions, and chooses a skill for the held-out prompts at the end. Half of
the skill's prompts are held out. A description with which another skill loses one of its prompts
scores nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from gepa.core.adapter import EvaluationBatch
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.output import ToolOutput

from satchel._optional import require
from satchel.agent.models import translate
from satchel.agent.subagents import resolve_model
from satchel.authoring.check_skill import check_description
from satchel.authoring.trigger_tests import find_suites, run_prompt, skills_with
from satchel.detect.pipeline import default_detector
from satchel.errors import InvalidInput, NotFound, Refused, SatchelError
from satchel.evals.budget import (
    CostBudget,
    Exchange,
    MeteredModel,
    price,
    tokens_of,
)
from satchel.i18n import say
from satchel.skill.eval_file import trigger_prompts
from satchel.skill.file_tree import FolderTree, read_whole
from satchel.skill.reader import parse_document
from satchel.skill.trigger_file import FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pydantic_ai.models import Model

    from satchel.authoring.trigger_tests import PromptResult, TriggerSuite
    from satchel.satchel import Satchel
    from satchel.skill.model import Skill
    from satchel.skill.trigger_file import TriggerPrompt
    from satchel.store.store import Store

MAX_REQUESTS = 30
_MAX_PROPOSALS = MAX_REQUESTS - 2
MIN_PROMPTS = 4
"""Prompts that should select the skill: half of them are held out."""
_PROPOSAL_TOKENS = 120
_MAX_BODY_CHARS = 4_000
_MAX_DESCRIPTION_CHARS = 1_024
_PARTIAL_SCORE_SHARE = 0.5
"""Of a prompt that does not select the skill, divided by its rank."""
_KEY = "description"
_DESCRIPTION_LINES = re.compile(r"(?m)^description[ \t]*:.*\n(?:(?:[ \t].*|[ \t]*)\n)*")
_PROPOSER = (
    "You write the description of a skill: one or two sentences that state what it does and when to"
    " use it, in the third person, in words that users write in their requests. A search compares"
    " them with each request. Claim nothing that the skill does not do, and leave what belongs to"
    " other skills to them. Answer with the new description alone, at most 1,000 characters."
)
_CHOOSER = (
    "You get skills and numbered requests. For each request, in order, give the name of the skill"
    " that you would load, or an empty text when none fits."
)


class Figures(NamedTuple):
    """How many prompts pass, with the old description and with the new one."""

    before: int
    after: int
    total: int


class Improvement(NamedTuple):
    """The result of a search."""

    skill: str
    description: str
    """The old description."""
    proposal: str
    """The best one; the old one when none is better."""
    seen: Figures
    """The prompts that the search used."""
    held_out: Figures
    neighbours: Figures
    """The prompts of other skills, of which none that passed fails."""
    choices: Figures | None
    """Held-out prompts for which the model itself chooses well; None when it was not asked."""
    requests: int
    cost: float

    @property
    def is_better(self) -> bool:
        """Whether more prompts pass, and neither held-out prompts nor the model's choices lose."""
        choices = self.choices or Figures(0, 0, 0)
        return (
            self.seen.after + self.held_out.after > self.seen.before + self.held_out.before
            and self.held_out.after >= self.held_out.before
            and choices.after >= choices.before
        )

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        record = {
            name: value._asdict() if isinstance(value, Figures) else value
            for name, value in self._asdict().items()
        }
        return {**record, "cost": round(self.cost, 6), "is_better": self.is_better}


class _Trial:
    """The trigger tests with one description; those of other skills are run when needed."""

    def __init__(self, search: DescriptionSearch, skill: Skill, skills: Sequence[Skill]) -> None:
        self._search, self._skills = search, skills
        tests = [(skill, prompt) for prompt in (*search.seen, *search.held_out)]
        self.results = {result.prompt: result for result in self._run(tests)}

    @cached_property
    def neighbours(self) -> list[tuple[str, bool]]:
        """Of each prompt of another skill: the skill, and whether it passes."""
        tests = [
            (suite.skill, prompt)
            for suite in self._search.neighbours
            for prompt in suite.triggers.prompts
        ]
        results = self._run(tests)
        return [(test[0].name, result.ok) for test, result in zip(tests, results, strict=True)]

    def _run(self, tests: Iterable[tuple[Skill, TriggerPrompt]]) -> list[PromptResult]:
        """Run prompts, with a complete index: another description may have been tried since."""
        detector = self._search.detector
        detector.prepare(self._skills)
        return [run_prompt(skill, prompt, self._skills, detector) for skill, prompt in tests]


class DescriptionSearch:
    """Searches a better description; the adapter that gepa asks for scores and failures."""

    propose_new_texts = None

    def __init__(self, satchel: Satchel, skill: Skill, model: Model | str) -> None:
        """Read the prompts of the skill and of the others; no model is asked.

        Raises:
            NotFound: the skill has too few prompts.
            InvalidInput: it cannot be selected by a prompt.
            Refused: its SKILL.md is not the user's to change.
        """
        if not skill.origin.writable or satchel.library.integrity.is_locked(skill):
            raise Refused(
                say("The description of `{name}` belongs to its source", name=skill.name),
                say("Improve it there, or make a skill of your own"),
            )
        triggers = trigger_prompts(skill.base_dir, skill.name)
        prompts = triggers.prompts if triggers is not None and not triggers.problems else ()
        if sum(prompt.fires for prompt in prompts) < MIN_PROMPTS:
            raise NotFound(
                say("`{name}` has too few trigger tests to improve its description",
                    name=skill.name),
                say("Write at least {count} prompts under `should` in `{path}`",
                    count=MIN_PROMPTS, path=FILE),
            )  # fmt: skip
        self.skill = skill
        self.seen, self.held_out = _split(prompts)
        snapshot = satchel.library.snapshot()
        self._skills = skills_with(snapshot.for_model, skill)
        self.neighbours: list[TriggerSuite] = [
            suite
            for suite in find_suites(snapshot.for_model, everything=True)
            if suite.skill.path != skill.path and not suite.triggers.problems
        ]
        # An index of its own: descriptions that are tried must not get into that of the library.
        memory = satchel.settings.paths._replace(cache="")
        self.detector = default_detector(satchel.settings._replace(paths=memory))
        self._tried: dict[str, _Trial] = {}
        self.original = self.trial(skill.description)
        """The trigger tests with the description of today."""
        self.budget = CostBudget()
        self._model = MeteredModel(resolve_model(model), self.budget)

    # --- metric ---------------------------------------------------------------------------

    def trial(self, description: str) -> _Trial:
        """The trigger tests with a description."""
        if description not in self._tried:
            # The stamp differs, so that the index takes the skill as changed.
            head = self.skill.head._replace(
                description=description, mtime_ns=self.skill.head.mtime_ns + 1 + len(self._tried)
            )
            changed = self.skill._replace(head=head, state="active", shadowed_by="")
            skills = tuple(
                changed if skill.path == changed.path else skill for skill in self._skills
            )
            self._tried[description] = _Trial(self, changed, skills)
        return self._tried[description]

    def losers(self, trial: _Trial) -> tuple[str, ...]:
        """The other skills that lose a prompt with a description."""
        pairs = zip(self.original.neighbours, trial.neighbours, strict=True)
        return tuple(
            dict.fromkeys(name for (name, before), (_, after) in pairs if before and not after)
        )

    def evaluate(
        self,
        batch: list[TriggerPrompt],
        candidate: Mapping[str, str],
        capture_traces: bool = False,  # noqa: FBT001, FBT002 - as gepa calls it
    ) -> EvaluationBatch[Any, Any]:
        """Score prompts with a description, as gepa calls it."""
        trial = self.trial(candidate[_KEY])
        results = [trial.results[prompt] for prompt in batch]
        scores = [_score(result) for result in results]
        limit = sum(_score(self.original.results[prompt]) for prompt in batch)
        if sum(scores) > limit and self.losers(trial):
            scores = [0.0] * len(scores)
        return EvaluationBatch(results, scores, results if capture_traces else None)

    def make_reflective_dataset(
        self,
        candidate: Mapping[str, str],
        eval_batch: EvaluationBatch[Any, Any],
        components_to_update: Iterable[str],
    ) -> dict[str, list[dict[str, Any]]]:
        """The failures of a description, as gepa calls it."""
        losers = self.losers(self.trial(candidate[_KEY]))
        rows = [_failure_of(result) for result in eval_batch.trajectories or () if not result.ok]
        rows += [{"other_skill_loses_its_requests": name} for name in losers]
        return dict.fromkeys(components_to_update, rows)

    # --- search ---------------------------------------------------------------------------

    def estimate(self) -> float | None:
        """What the search costs at most, in US dollars; None when the price is unknown."""
        prompts = [prompt.text for prompt in (*self.seen, *self.held_out)]
        size = tokens_of(_PROPOSER, self._describe(), *prompts) + 40 * len(prompts)
        catalogue = tokens_of(_CHOOSER, self._catalogue(self.skill.description), *prompts)
        return price(
            self._model.wrapped,
            [
                (_MAX_PROPOSALS, Exchange((size,), (_PROPOSAL_TOKENS,))),
                (2, Exchange((catalogue,), (10 * len(prompts),))),
            ],
        )

    def run(self, progress: Callable[[str, int, int], object] | None = None) -> Improvement:
        """Search, and have the model choose for the held-out prompts.

        Raises:
            ModelFailed: the provider cannot be reached or refuses.
        """
        with asyncio.Runner() as self._runner:  # one event loop for all requests
            return self._search(progress)

    def _search(self, progress: Callable[[str, int, int], object] | None) -> Improvement:
        failures: list[SatchelError] = []

        def propose(
            candidate: Mapping[str, str], rows: Mapping[str, Any], _keys: Iterable[str]
        ) -> dict[str, str]:
            if progress is not None:
                progress(self.skill.name, self.budget.requests, MAX_REQUESTS)
            try:
                return {_KEY: self._propose(candidate[_KEY], rows[_KEY])}
            except SatchelError as exc:  # gepa would ask again
                failures.append(exc)
            return dict(candidate)

        def must_stop(_state: object) -> bool:
            is_spent = self.budget.requests >= _MAX_PROPOSALS
            return is_spent or bool(failures) or any(map(self._is_perfect, self._tried.values()))

        result = require("gepa", "eval").optimize(
            {_KEY: self.skill.description},
            list(self.seen),
            adapter=self,
            custom_candidate_proposer=propose,
            reflection_minibatch_size=len(self.seen),
            stop_callbacks=must_stop,
            logger=_SilentLogger(),
            track_best_outputs=False,
        )
        if failures:
            raise failures[0]
        candidates = [str(candidate[_KEY]) for candidate in result.candidates]
        scores = [sum(self.evaluate([*self.seen], {_KEY: text}).scores) for text in candidates]
        return self._summarize(candidates[scores.index(max(scores))])

    def _is_perfect(self, trial: _Trial) -> bool:
        return all(trial.results[prompt].ok for prompt in self.seen) and not self.losers(trial)

    def _summarize(self, proposal: str) -> Improvement:
        trials = self.original, self.trial(proposal)

        def figures(prompts: Sequence[TriggerPrompt]) -> Figures:
            before, after = (
                sum(trial.results[prompt].ok for prompt in prompts) for trial in trials
            )
            return Figures(before, after, len(prompts))

        improvement = Improvement(
            self.skill.name,
            self.skill.description,
            proposal,
            seen=figures(self.seen),
            held_out=figures(self.held_out),
            neighbours=Figures(
                sum(ok for _, ok in self.original.neighbours),
                sum(ok for _, ok in trials[1].neighbours),
                len(self.original.neighbours),
            ),
            choices=None,
            requests=self.budget.requests,
            cost=self.budget.cost,
        )
        if not improvement.is_better:
            return improvement
        choices = Figures(
            self._count_choices(self.skill.description),
            self._count_choices(proposal),
            len(self.held_out),
        )
        return improvement._replace(
            choices=choices, requests=self.budget.requests, cost=self.budget.cost
        )

    # --- model ----------------------------------------------------------------------------

    def _describe(self) -> str:
        return f"Skill `{self.skill.name}`:\n{self.skill.read().body[:_MAX_BODY_CHARS]}"

    def _propose(self, description: str, failed: Any) -> str:
        """Ask for another description; the old one when the answer is none."""
        text = "\n\n".join([
            self._describe(),
            f"Its description now:\n{description}",
            "What fails with it:\n" + json.dumps(failed, ensure_ascii=False, indent=1),
        ])  # fmt: skip
        answer = " ".join(str(self._ask(_PROPOSER, text, str)).split()).strip("\"'`")
        known = {result.rule for result in check_description(self.skill.description)}
        faults = {result.rule for result in check_description(answer)} - known
        return description if faults or len(answer) > _MAX_DESCRIPTION_CHARS else answer

    def _count_choices(self, description: str) -> int:
        """For how many held-out prompts the model chooses well from the catalogue."""
        requests = "\n".join(
            f"{number}. {prompt.text}" for number, prompt in enumerate(self.held_out, 1)
        )
        text = f"Skills:\n{self._catalogue(description)}\n\nRequests:\n{requests}"
        names: list[str] = self._ask(_CHOOSER, text, ToolOutput(list[str]))
        pairs = zip(self.held_out, names, strict=False)
        return sum((name == self.skill.name) == prompt.fires for prompt, name in pairs)

    def _catalogue(self, description: str) -> str:
        others = [suite.skill for suite in self.neighbours]
        lines = [f"- {skill.name}: {skill.description}" for skill in others]
        return "\n".join([f"- {self.skill.name}: {description}", *lines])

    def _ask(self, instructions: str, text: str, output: Any) -> Any:
        agent: ModelAgent[None, Any] = ModelAgent(
            self._model, output_type=output, instructions=instructions, retries=0
        )
        try:
            return self._runner.run(agent.run(text, infer_name=False)).output
        except AgentRunError as exc:
            raise translate(exc, self._model.wrapped) from exc


class _SilentLogger:
    """A logger for gepa that prints nothing."""

    def log(self, message: str) -> None:
        """Ignore a message."""


def _split(
    prompts: Iterable[TriggerPrompt],
) -> tuple[tuple[TriggerPrompt, ...], tuple[TriggerPrompt, ...]]:
    """Every second prompt of both kinds, and the others."""
    ordered = sorted(dict.fromkeys(prompts), key=lambda prompt: not prompt.fires)
    return tuple(ordered[::2]), tuple(ordered[1::2])


def _score(result: PromptResult) -> float:
    if result.ok or not result.prompt.fires:
        return float(result.ok)
    return _PARTIAL_SCORE_SHARE / max(result.rank, 2) if result.rank else 0.0


def _failure_of(result: PromptResult) -> dict[str, Any]:
    """What a proposer gets of a prompt that failed."""
    return {
        "request": result.prompt.text,
        "should_select_this_skill": result.prompt.fires,
        "words_that_the_skill_lacks": list(result.missing),
        "selected_instead": [match.name for match in result.rivals],
    }


def accept(store: Store, skill: Skill, description: str) -> None:
    """Write a description into the SKILL.md, as a change that `satchel undo` takes back.

    Raises:
        Conflict: the file was changed meanwhile.
        InvalidInput: the lines of the description cannot be separated from the others.
    """
    file = skill.head.file
    data = read_whole(FolderTree(skill.base_dir), file)
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    line = f"description: {json.dumps(description, ensure_ascii=False)}\n"
    changed = _DESCRIPTION_LINES.sub(lambda _: line, text, count=1)
    if b"\r\n" in data:
        changed = changed.replace("\n", "\r\n")
    stamp = (0, 0, 0)
    old = parse_document(data, skill.id, file, stamp)
    new = parse_document(changed.encode(), skill.id, file, stamp)
    if new.fields != {**old.fields, _KEY: description} or new.body != old.body:
        raise InvalidInput(
            say("The description in `{path}` cannot be replaced", path=skill.path),
            say("Write it there yourself"),
        )
    expect = {file: sha256(data).hexdigest()}
    with store.plan_edit(skill.id, {file: changed.encode()}, expect=expect) as plan:
        store.apply(plan)
