"""Is a skill chosen for the prompts it is for, and for no others?

What `satchel test --triggers` runs.

A prompt that should choose the skill passes when it is among the chosen ones; one that should not,
when it is not, and when the one that it names under `instead` is. Nothing is asked of a model: the
detector that picks skills for a request answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.authoring.telling import tells

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from satchel.authoring.advice import Advice
    from satchel.detect import Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.skill import Skill
    from satchel.skill.triggers import Prompt

_SHOWN = 5


class Row(NamedTuple):
    """What became of one prompt."""

    prompt: Prompt
    chosen: bool
    rank: int
    """The place of the skill among all; 0 when nothing of it matched."""
    rivals: tuple[Match, ...]
    """Others that were chosen, best first."""
    own: Match | None
    """How the skill itself matched."""
    missing: tuple[str, ...]
    """Words of the prompt that the skill has nowhere."""
    sure: tuple[float, float]
    """How well the best one fits, and how well it has to."""
    stand_in: str = ""
    """The near copy that was chosen in its place."""
    notes: tuple[str, ...] = ()
    """What the detector had to say about this look."""

    @property
    def ok(self) -> bool:
        """Whether the skill did what it should, and whoever is named under `instead` too."""
        return self.chosen == self.prompt.fires and self.instead

    @property
    def instead(self) -> bool:
        """Whether the skill that should be chosen instead was, where one is named."""
        wanted = self.prompt.instead
        return not wanted or any(one.name == wanted for one in self.rivals)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "prompt": self.prompt.text,
            "line": self.prompt.line,
            "should": self.prompt.fires,
            "chosen": self.chosen,
            "ok": self.ok,
            "rank": self.rank or None,
            "fit": round(self.sure[0], 4),
            "threshold": round(self.sure[1], 4),
            "evidence": list(self.own.evidence) if self.own is not None else [],
            "rivals": [
                {"name": one.name, "ref": one.skill.ref, "evidence": list(one.evidence)}
                for one in self.rivals
            ],
            "missing": [word for word in self.missing if tells(word)][:_SHOWN],
            "stand_in": self.stand_in or None,
            "instead": self.prompt.instead or None,
            "instead_chosen": self.instead if self.prompt.instead else None,
            "note": self.prompt.note or None,
            "detector_notes": list(self.notes),
        }


class Result(NamedTuple):
    """What became of the prompts of one skill."""

    skill: Skill
    path: str
    """The file with the prompts."""
    rows: tuple[Row, ...]
    advice: tuple[Advice, ...] = ()
    """Changes of the description that were tried and help."""

    def cell(self, *, fires: bool, chosen: bool) -> int:
        """One cell of the table."""
        return sum(row.prompt.fires is fires and row.chosen is chosen for row in self.rows)

    @property
    def recall(self) -> float | None:
        """Of the prompts that should choose it, the share that do; None without any."""
        hits, missed = (self.cell(fires=True, chosen=yes) for yes in (True, False))
        return hits / (hits + missed) if hits + missed else None

    @property
    def precision(self) -> float | None:
        """Of the prompts that chose it, the share that should; None without any."""
        hits, wrong = (self.cell(fires=yes, chosen=True) for yes in (True, False))
        return hits / (hits + wrong) if hits + wrong else None

    def passes(self, least_recall: float = 1.0, least_precision: float = 1.0) -> bool:
        """Whether both measures are good enough, and every `instead` was chosen.

        That one is no measure of this skill: no bound makes up for it.
        """
        recall, precision = self.recall, self.precision
        return (
            (recall is None or recall >= least_recall)
            and (precision is None or precision >= least_precision)
            and all(row.instead for row in self.rows)
        )

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "name": self.skill.name,
            "ref": self.skill.ref,
            "path": self.path,
            "recall": _rounded(self.recall),
            "precision": _rounded(self.precision),
            "should": {
                "chosen": self.cell(fires=True, chosen=True),
                "missed": self.cell(fires=True, chosen=False),
            },
            "should_not": {
                "quiet": self.cell(fires=False, chosen=False),
                "fired": self.cell(fires=False, chosen=True),
            },
            "prompts": [row.to_dict() for row in self.rows],
            "advice": [one.to_dict() for one in self.advice],
        }


def run_prompts(
    skill: Skill, prompts: Sequence[Prompt], skills: Sequence[Skill], detector: SelectionPipeline
) -> Iterator[Row]:
    """Ask the detector for each prompt.

    Args:
        skill: The one that is tested; it is among `skills`.
        prompts: Of its file.
        skills: The line-up.
        detector: Who chooses.
    """
    for prompt in prompts:
        yield _run(skill, prompt, skills, detector)


def does_right(
    skill: Skill, prompt: Prompt, skills: Sequence[Skill], detector: SelectionPipeline
) -> bool:
    """Whether a prompt passes, and no more: `ok` of its row."""
    matches = detector.look(prompt.text, skills).matches
    if (_own(matches, skill) is not None) is not prompt.fires:
        return False
    return not prompt.instead or any(one.name == prompt.instead for one in matches)


def strangers(prompts: Sequence[Prompt], known: Container[str]) -> list[Prompt]:
    """The prompts whose `instead` names a skill that there is not."""
    return [one for one in prompts if one.instead and one.instead not in known]


def _run(skill: Skill, prompt: Prompt, skills: Sequence[Skill], detector: SelectionPipeline) -> Row:
    answer = detector.look(prompt.text, skills)
    own = _own(answer.matches, skill)
    others = tuple(one for one in answer.matches if one.skill.path != skill.path)
    sure = (answer.fit, answer.threshold)
    if own is not None:
        rank = answer.matches.index(own) + 1
        return Row(prompt, True, rank, others, own, (), sure, notes=answer.notes)  # noqa: FBT003
    where = detector.place(prompt.text, skills, skill)
    return Row(
        prompt,
        chosen=False,
        rank=where.rank,
        rivals=others,
        own=where.match,
        missing=where.missing,
        sure=sure,
        stand_in=next((other for copy, other in answer.collapsed if copy == skill.name), ""),
        notes=answer.notes,
    )


def _own(matches: Sequence[Match], skill: Skill) -> Match | None:
    return next((one for one in matches if one.skill.path == skill.path), None)


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
