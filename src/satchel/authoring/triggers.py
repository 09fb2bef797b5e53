"""Is a skill chosen for the prompts it is for, and for no others?

What `satchel test --triggers` runs.

A prompt that should choose the skill passes when it is among the chosen ones; one that should not,
when it is not, and when the one that it names under `instead` is. Nothing is asked of a model: the
detector that picks skills for a request answers.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import say
from satchel.detect.terms import IDLE, IDLE_WORDS
from satchel.errors import InvalidInput, NotFound, SatchelError, SkillBroken
from satchel.skill.load import load_document
from satchel.skill.model import Origin, Skill
from satchel.skill.problems import Problem
from satchel.skill.tree import skill_file
from satchel.skill.triggers import has_triggers, load_triggers

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from satchel.detect import Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.facade import Satchel
    from satchel.skill.triggers import Prompt, Triggers

    Subject = tuple[Skill, Triggers]

OTHERS = ("builtin", "system", "global")
"""Places whose skills are not the project's."""
_NEAR = 0.6
"""How alike two names are, one of which may be a slip for the other."""
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
        }


def run_subjects(
    satchel: Satchel,
    subjects: Sequence[tuple[Skill, Triggers]],
    tell: Callable[[str, int, int], object],
) -> list[Result]:
    """Run the prompts of some skills among all that are offered.

    Args:
        satchel: Whose skills and whose detector.
        subjects: The skills with their prompts.
        tell: Called with a skill's name, and how many of how many prompts were run.

    Raises:
        InvalidInput: one of the skills cannot be chosen by a prompt.
    """
    skills: Sequence[Skill] = satchel.library.snapshot().for_model
    for skill, _ in subjects:
        skills = line_up(skills, skill)
    with suppress(OSError, SatchelError):  # another process indexes, or a model is away
        satchel.prepare()
    total = sum(len(triggers.prompts) for _, triggers in subjects)
    results: list[Result] = []
    done = 0
    for skill, triggers in subjects:
        rows: list[Row] = []
        for row in run_prompts(skill, triggers.prompts, skills, satchel.detector):
            rows.append(row)
            done += 1
            tell(skill.name, done, total)
        results.append(Result(skill, triggers.path, tuple(rows)))
    return results


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


# --- which skills ------------------------------------------------------------------------


def skill_at(folder: str) -> Skill:
    """The skill of a folder that no library knows.

    Raises:
        NotFound: it has no SKILL.md.
        SkillBroken: that is not a skill.
    """
    folder = os.path.abspath(folder)
    try:
        file = skill_file(os.listdir(folder))
    except OSError:
        file = ""
    if not file:
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=folder),
            say("Give the folder of a skill, or write one with `satchel new`"),
        )
    document = load_document(folder, file)
    if document.head is None:
        first = next(one for one in document.problems if one.severity == "error")
        raise SkillBroken(
            say(
                "`{name}` is not a skill yet: {problem}",
                name=os.path.basename(folder),
                problem=first.message,
            ),
            first.fix,
        )
    origin = Origin(os.path.dirname(folder), "extra", os.path.dirname(folder))
    return Skill(document.head, origin)


def line_up(offered: Sequence[Skill], skill: Skill) -> tuple[Skill, ...]:
    """The offered skills with this one among them, instead of those that have its name.

    Raises:
        InvalidInput: no words ever choose it.
    """
    if skill.is_tool:
        raise InvalidInput(
            say("`{name}` has tools and no instructions to choose", name=skill.name),
            say("Run its examples: `satchel test {name}`", name=skill.typed),
        )
    if not skill.for_model:
        raise InvalidInput(
            say("`{name}` is chosen by people alone: `disable-model-invocation`", name=skill.name),
            say("Remove that line from its SKILL.md to have models choose it"),
        )
    if any(one is skill for one in offered):
        return tuple(offered)
    active = skill._replace(state="active", winner="")
    others = (one for one in offered if one.name != skill.name and one.path != skill.path)
    return (*others, active)


def subjects(skills: Iterable[Skill], *, everything: bool = False) -> list[Subject]:
    """The skills that a prompt can choose and that have a file with prompts.

    Args:
        skills: All that is known.
        everything: Also those that are not the project's.
    """
    every = [
        skill
        for skill in skills
        if (everything or skill.source not in OTHERS)
        and skill.for_model
        and not skill.is_tool
        and skill.state in ("active", "untrusted")
        and not skill.origin.remote
        and has_triggers(skill.base_dir)
    ]
    read = [(skill, load_triggers(skill.base_dir)) for skill in every]
    return [(skill, triggers) for skill, triggers in read if triggers is not None]


def with_known_names(found: Sequence[Subject], skills: Iterable[Skill]) -> list[Subject]:
    """The same, where an `instead` that names nobody is a problem of its file.

    Args:
        found: Skills with their prompts.
        skills: All that is known.
    """
    from difflib import get_close_matches

    names = {skill.name for skill in skills}
    names.update(skill.name for skill, _ in found)
    checked: list[Subject] = []
    for skill, triggers in found:
        problems = list(triggers.problems)
        for prompt in strangers(triggers.prompts, names):
            near = get_close_matches(prompt.instead, sorted(names), 1, cutoff=_NEAR)
            better = f"`{near[0]}`" if near else say("a name that `satchel list` shows")
            values = {"name": prompt.instead, "better": better}
            problem = Problem("triggers-instead", triggers.path, prompt.line, values=values)
            problems.append(problem)
        problems.sort(key=lambda problem: problem.line)
        checked.append((skill, triggers._replace(problems=tuple(problems))))
    return checked


DENSE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts that write no spaces."""
_ASKING = frozenset(("add", "check", "look", "new", "stuff", "work"))
"""Words that a person says with any wish."""
_EASTERN = (
    "看下 看一看 看一下 麻烦 好吗 能不能 可不可以 是不是 有没有 里面 东西 事情 这里 那里 怎么样 "
    "不知道 一点 一遍 一次 我的 你的 教えて 見て お願い"
)
_IDLE_EAST = re.compile(
    "|".join(
        (
            r"([\u3400-\u9fff])\1",  # 看看, 试试
            "[这那哪一每某几][份篇段张个些条次种本件套里边样句行页]",
            *sorted((w for w in (*IDLE_WORDS, *_EASTERN.split()) if len(w) > 1), key=len)[::-1],
        )
    )
)
"""Words of asking in Chinese and Japanese."""


def tells(word: str) -> bool:
    """Whether a word says anything about what is wanted."""
    low = word.lower().replace("'", "").replace("’", "")
    if DENSE.search(low):
        return len(low) > 1 and not _IDLE_EAST.fullmatch(low)
    return low not in IDLE and low not in _ASKING and not low.isdigit()
