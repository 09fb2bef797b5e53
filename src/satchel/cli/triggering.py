"""Is a skill chosen for the right prompts? What `satchel test --triggers` shows."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import listed, say
from satchel.cli.output import one_line, pad, width_of, wrap, write_json
from satchel.cli.session import short_path
from satchel.errors import NotFound, SkillBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.authoring.advice import Advice
    from satchel.authoring.triggers import Result, Row
    from satchel.cli.output import Screen
    from satchel.cli.progress import Progress
    from satchel.cli.session import Session
    from satchel.detect import Match
    from satchel.skill.model import Skill
    from satchel.skill.triggers import Triggers

FAILED = 1
_WORDS = 4
_NOTES = 3
_EXPLICIT = "explicit"


class Bounds(NamedTuple):
    """How good the measures must be."""

    recall: float = 1.0
    precision: float = 1.0


def run_trigger_tests(
    session: Session, names: Sequence[str], bounds: Bounds, *, everything: bool, as_json: bool
) -> int:
    """Run the prompts of some skills, and say who passed; returns the exit code."""
    from satchel.authoring.subjects import with_known_names

    chosen = _subjects(session, names, everything=everything)
    subjects = with_known_names(chosen, session.satchel.library.every())
    broken = [(skill, triggers) for skill, triggers in subjects if triggers.broken]
    if broken and len(subjects) == 1:
        raise _broken(*broken[0])
    results, notes = _run(session, [one for one in subjects if not one[1].broken])
    told = (note for one in results for row in one.rows for note in row.notes)
    notes = list(dict.fromkeys((*notes, *told)))
    passed = all(one.passes(*bounds) for one in results)
    status = SkillBroken.exit_code if broken else 0 if passed else FAILED
    if as_json:
        write_json({**_to_dict(results, broken, bounds, ok=status == 0), "notes": notes})
        return status
    for at, result in enumerate(results):
        if at:
            session.out.line()
        _show(session.out, result, bounds)
    for skill, triggers in broken:
        _complain(session, skill, triggers)
    _conclude(session, results, bounds)
    for note in notes[:_NOTES]:
        session.err.line(one_line(note), "dim")
    if len(notes) > _NOTES:
        session.err.line(say("and {count} more", count=len(notes) - _NOTES), "dim")
    return status


def _to_dict(
    results: list[Result], broken: list[tuple[Skill, Triggers]], bounds: Bounds, *, ok: bool
) -> dict[str, Any]:
    return {
        "ok": ok,
        "min_recall": bounds.recall,
        "min_precision": bounds.precision,
        "results": [{**one.to_dict(), "ok": one.passes(*bounds)} for one in results],
        "broken": [
            {
                "name": skill.name,
                "path": triggers.path,
                "problems": [problem.to_dict() for problem in triggers.problems],
            }
            for skill, triggers in broken
        ],
    }


# --- which ones ---------------------------------------------------------------------------


def named(session: Session, word: str) -> Skill:
    """The skill of a name, or of a folder that may be in no library.

    Raises:
        NotFound: there is none.
        SkillBroken: there is a file, but it is not a skill.
    """
    folder = os.path.abspath(os.path.expanduser(word))
    if os.path.isfile(folder):
        folder = os.path.dirname(folder)
    known = [one for one in session.satchel.library.every() if one.base_dir == folder]
    if known:
        return known[0]
    if os.path.isdir(folder) and (os.sep in word or not session.satchel.library.find(word)):
        from satchel.authoring.lineup import skill_at

        return skill_at(folder)
    return session.find(word)[0]


def _subjects(
    session: Session, names: Sequence[str], *, everything: bool
) -> list[tuple[Skill, Triggers]]:
    """Skills with their prompts.

    Raises:
        NotFound: there is no such skill, or nothing to run.
    """
    from satchel.authoring.subjects import subjects
    from satchel.skill.triggers import FILE, load_triggers

    hint = say("Write `{file}` beside its SKILL.md, in this form:", file=FILE) + _example()
    if names:
        found: dict[str, tuple[Skill, Triggers]] = {}
        for word in names:
            skill = named(session, word)
            triggers = load_triggers(skill.base_dir)
            if triggers is None:
                text = say("`{name}` has no trigger tests", name=one_line(skill.name))
                raise NotFound(text, hint)
            found[skill.path] = (skill, triggers)
        return list(found.values())
    chosen = subjects(session.satchel.library.every(), everything=everything)
    if not chosen:
        raise NotFound(say("No skill of this project has trigger tests"), hint)
    return chosen


def _example() -> str:
    """A file to copy, with prompts in the reader's language."""
    should, should_not = say("Look over my pull request"), say("Write the release notes")
    return f"\nshould:\n  - {should}\nshould_not:\n  - {should_not}"


def _run(
    session: Session, subjects: Sequence[tuple[Skill, Triggers]]
) -> tuple[list[Result], tuple[str, ...]]:
    """Run them all, then look for words that would help: no advice for one may harm another."""
    from satchel.authoring.lineup import line_up
    from satchel.authoring.rehearsal import rehearsal
    from satchel.authoring.triggers import Result, run_prompts
    from satchel.authoring.wording import advise
    from satchel.cli.progress import Progress

    satchel = session.satchel
    skills = satchel.library.snapshot().for_model
    for skill, _ in subjects:
        skills = line_up(skills, skill)
    skills = tuple(skills)
    steps = sum(len(triggers.prompts) for _, triggers in subjects) + len(subjects)
    results: list[Result] = []
    with ExitStack() as stack:
        with Progress(say("Reading skills")) as bar:
            tell = _telling(bar)
            stage = stack.enter_context(rehearsal(satchel, skills, tell))
        done = 0
        with Progress(say("Running prompts")) as bar:
            for skill, triggers in subjects:
                rows: list[Row] = []
                for row in run_prompts(skill, triggers.prompts, skills, stage.detector):
                    rows.append(row)
                    done += 1
                    bar(skill.name, done, steps)
                results.append(Result(skill, triggers.path, tuple(rows)))
            for at, result in enumerate(results):
                advice = advise(result, skills, stage, results)
                results[at] = result._replace(advice=advice)
                done += 1
                bar(result.skill.name, done, steps)
    return results, stage.notes


def _telling(bar: Progress) -> Callable[[int, int], None]:
    return lambda done, total: bar("", done, total)


def _broken(skill: Skill, triggers: Triggers) -> SkillBroken:
    """What is wrong with a file that cannot be run; every slip is told by `check`."""
    first = triggers.broken[0]
    where = short_path(first.path) + (f":{first.line}" if first.line else "")
    text = say(
        "The trigger tests of `{name}` cannot be run: {problem}",
        name=one_line(skill.name),
        problem=one_line(first.message),
    )
    return SkillBroken(text, say("{fix} (`{path}`)", fix=one_line(first.fix), path=one_line(where)))


def _complain(session: Session, skill: Skill, triggers: Triggers) -> None:
    from satchel.cli.output import complain

    exc = _broken(skill, triggers)
    complain(exc.message, exc.hint, session.colour)


# --- showing ------------------------------------------------------------------------------


def _show(out: Screen, result: Result, bounds: Bounds) -> None:
    good = result.passes(*bounds)
    mark, colour = ("✓", "green") if good else ("✗", "red")
    name = out.paint(one_line(result.skill.name), "bold")
    where = out.paint(one_line(short_path(result.path)), "dim")
    out.write(f"{out.paint(mark, colour)} {name}  {where}\n")
    helped = {prompt for one in result.advice for prompt in one.prompts}
    for row in result.rows:
        _show_row(out, row, result.skill, row.prompt.text in helped)
    out.line()
    _show_counts(out, result)
    if result.advice:
        out.line()
        out.line(say("In the description"), "bold", "  ")
        for one in result.advice:
            _show_advice(out, one)


def _show_row(out: Screen, row: Row, skill: Skill, helped: bool) -> None:
    tick, style = ("✓", "green") if row.ok else ("✗", "red")
    side = say("should") if row.prompt.fires else say("should not")
    width = max(width_of(say("should")), width_of(say("should not")))
    rank = f"#{row.rank}" if row.rank else "–"
    lead = [(tick, style), (f" {pad(side, width)}  ", "dim"), (f"{rank:<4} ", "dim")]
    hang = " " * (4 + width + 2 + 5)
    lines = wrap(one_line(row.prompt.text), max(out.width - len(hang), 20) if out.width else 0)
    out.write("  " + "".join(out.paint(*part) for part in lead) + ("\n" + hang).join(lines) + "\n")
    for line in _story(row, skill, helped=helped):
        out.line(line, "dim", hang + "→ ", hang + "  ")


def _story(row: Row, skill: Skill, *, helped: bool) -> list[str]:
    """Why a prompt went where it went, where that is not as it should be.

    Args:
        row: The prompt.
        skill: Whose it is.
        helped: A change of the description makes it pass, and is told.
    """
    from satchel.authoring.candidates import tells

    told: list[str] = []
    if not row.ok and row.prompt.fires:
        told.append(_why_missed(row))
        missing = [word for word in row.missing if tells(word)]
        if missing:
            words = listed(f"`{one_line(word)}`" for word in missing[:_WORDS])
            told.append(say("the skill lacks {words}", words=words))
    elif not row.ok and row.own is not None:
        told.append(say("caught by {words}", words=_evidence(row.own)))
        if not helped:
            told.append(_narrowing(row, skill))
    if not row.instead:
        told.append(say("`{name}` was not chosen instead", name=one_line(row.prompt.instead)))
    return told


def _why_missed(row: Row) -> str:
    if row.stand_in:
        return say("`{name}` stands for it: they are near copies", name=one_line(row.stand_in))
    if not row.rivals and row.own is None:
        return say("no skill was chosen, and no word of it is in this one")
    if not row.rivals:
        return say(
            "no skill fits well enough: {fit} % sure of the first, and {threshold} % is needed",
            fit=round(row.sure[0] * 100),
            threshold=round(row.sure[1] * 100),
        )
    first = row.rivals[0]
    return say("`{name}` took it, by {words}", name=one_line(first.name), words=_evidence(first))


def _narrowing(row: Row, skill: Skill) -> str:
    """What to do about a prompt that no tried change of the description keeps away."""
    from satchel.authoring.candidates import akin, caught_by
    from satchel.detect.terms import spelt_out

    if row.own is not None and row.own.detector == _EXPLICIT:
        return say("a skill that is called by its name is always chosen")
    caught = caught_by(skill.description, row)
    if not caught:
        return say("no word of the description caught it: other words there cannot help")
    in_name = caught_by(spelt_out(skill.name), row)
    named = [word for word in caught if any(akin(word, one) for one in in_name)]
    words = listed(f"`{one_line(word)}`" for word in (named or caught)[:_WORDS])
    if named:
        return say("its name says {words}: a description alone cannot keep it away", words=words)
    return say("narrow the description where it says {words}", words=words)


def _evidence(match: Match) -> str:
    """What a detector saw, field by field: `its description (pull, request) and its meaning`."""
    fields: dict[str, list[str]] = {}
    for piece in match.evidence:
        field, _, word = piece.partition(": ")
        fields.setdefault(field, []).append(f"`{one_line(word)}`")
    told: list[str] = []
    for field, words in fields.items():
        shown = listed(words[:_WORDS])
        if field == "body":
            told.append(say("its instructions"))
        elif field == "meaning":
            told.append(say("its meaning"))
        elif field == "name":
            told.append(say("its name ({words})", words=shown))
        elif field == "description":
            told.append(say("its description ({words})", words=shown))
        elif field == "goal":
            told.append(say("its name in the prompt ({words})", words=shown))
        else:
            told.append(say("its {field} ({words})", field=f"`{one_line(field)}`", words=shown))
    *others, last = told or [say("its meaning")]
    return say("{these} and {last}", these=listed(others), last=last) if others else last


def _show_counts(out: Screen, result: Result) -> None:
    """The confusion table."""
    rows = [
        (say("should"), True, say("recall"), result.recall),
        (say("should not"), False, say("precision"), result.precision),
    ]
    heads = ["", say("chosen"), say("not chosen"), ""]
    cells = [
        [
            side,
            str(result.cell(fires=fires, chosen=True)),
            str(result.cell(fires=fires, chosen=False)),
            f"{measure} {'–' if share is None else f'{share * 100:.0f} %'}",
        ]
        for side, fires, measure, share in rows
    ]
    widths = [max(width_of(row[at]) for row in (heads, *cells)) for at in range(3)]
    for at, row in enumerate((heads, *cells)):
        line = "  ".join([
            pad(row[0], widths[0]),
            *(" " * (widths[n] - width_of(row[n])) + row[n] for n in (1, 2)),
            row[3],
        ])  # fmt: skip
        out.write("  " + out.paint(line.rstrip(), "" if at else "dim") + "\n")


def _show_advice(out: Screen, advice: Advice) -> None:
    words = one_line(advice.change.words)
    counts = {"passed": advice.after, "of": advice.of, "before": advice.before, "words": words}
    if advice.change.kind == "add":
        told = say("with `{words}`: {passed} of {of} pass, not {before}", **counts)
        out.line(told, "", "  ", "    ", [("+", "green"), (" ", "")])
    else:
        told = say("without `{words}`: {passed} of {of} pass, not {before}", **counts)
        out.line(told, "", "  ", "    ", [("-", "red"), (" ", "")])


def _conclude(session: Session, results: list[Result], bounds: Bounds) -> None:
    rows = [row for result in results for row in result.rows]
    passed = sum(row.ok for row in rows)
    session.err.line(
        say("{passed} passed, {failed} failed", passed=passed, failed=len(rows) - passed)
    )
    if bounds != Bounds():
        for result in results:
            session.err.line(_against(result, bounds))
    bad = [one for one in results if not one.passes(*bounds)]
    stuck = [one for one in bad if not one.advice]
    if stuck:
        names = listed(f"`{one_line(one.skill.name)}`" for one in stuck[:3])
        words = say(
            "No word that was tried helps {names}: see `satchel overlap {name}`",
            names=names,
            name=stuck[0].skill.typed,
        )
        session.err.line(words, "dim")


def _against(result: Result, bounds: Bounds) -> str:
    """A skill's measures beside what was asked for: `code-review passed: recall 67 % ≥ 30 %`."""
    measures = [
        (say("recall"), result.recall, bounds.recall),
        (say("precision"), result.precision, bounds.precision),
    ]
    told = [
        f"{name} {share * 100:.0f} % {'≥' if share >= least else '<'} {least * 100:.0f} %"
        for name, share, least in measures
        if share is not None and (least < 1 or share < least)
    ]
    wanted = [row for row in result.rows if row.prompt.instead]
    found = sum(row.instead for row in wanted)
    if found < len(wanted):
        told.append(say("{count} of {of} `instead` chosen", count=found, of=len(wanted)))
    values = {
        "name": f"`{one_line(result.skill.name)}`",
        "measures": listed(told) or say("nothing to measure"),
    }
    if result.passes(*bounds):
        return say("{name} passed: {measures}", **values)
    return say("{name} failed: {measures}", **values)
