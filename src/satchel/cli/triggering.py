"""Is a skill chosen for the right prompts? What `satchel test --triggers` shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from satchel._language import listed, say
from satchel.cli.output import one_line, pad, width_of, wrap, write_json
from satchel.cli.session import command, complete_names, short_path
from satchel.cli.values import Share, WholeNumber
from satchel.errors import NotFound, SkillBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.overlap import Group, Overlap, Pair
    from satchel.authoring.triggers import Result, Row
    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.detect import Match
    from satchel.skill.model import Skill
    from satchel.skill.triggers import Triggers

FAILED = 1
_WORDS = 4
_NOTES = 3


class Bounds(NamedTuple):
    """How good the measures must be."""

    recall: float = 1.0
    precision: float = 1.0


def run_trigger_tests(
    session: Session, names: Sequence[str], bounds: Bounds, *, everything: bool, as_json: bool
) -> int:
    """Run the prompts of some skills, and say who passed; returns the exit code."""
    from satchel.authoring.triggers import run_subjects, with_known_names
    from satchel.cli.progress import Progress

    chosen = _subjects(session, names, everything=everything)
    subjects = with_known_names(chosen, session.satchel.library.every())
    broken = [(skill, triggers) for skill, triggers in subjects if triggers.broken]
    if broken and len(subjects) == 1:
        raise _broken(*broken[0])
    with Progress(say("Running prompts")) as bar:
        results = run_subjects(session.satchel, [one for one in subjects if not one[1].broken], bar)
    notes = list(dict.fromkeys(note for one in results for row in one.rows for note in row.notes))
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
        from satchel.authoring.triggers import skill_at

        return skill_at(folder)
    return session.find(word)[0]


def _subjects(
    session: Session, names: Sequence[str], *, everything: bool
) -> list[tuple[Skill, Triggers]]:
    """Skills with their prompts.

    Raises:
        NotFound: there is no such skill, or nothing to run.
    """
    from satchel.authoring.triggers import subjects
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
    for row in result.rows:
        _show_row(out, row)
    out.line()
    _show_counts(out, result)


def _show_row(out: Screen, row: Row) -> None:
    tick, style = ("✓", "green") if row.ok else ("✗", "red")
    side = say("should") if row.prompt.fires else say("should not")
    width = max(width_of(say("should")), width_of(say("should not")))
    rank = f"#{row.rank}" if row.rank else "–"
    lead = [(tick, style), (f" {pad(side, width)}  ", "dim"), (f"{rank:<4} ", "dim")]
    hang = " " * (4 + width + 2 + 5)
    lines = wrap(one_line(row.prompt.text), max(out.width - len(hang), 20) if out.width else 0)
    out.write("  " + "".join(out.paint(*part) for part in lead) + ("\n" + hang).join(lines) + "\n")
    for line in _story(row):
        out.line(line, "dim", hang + "→ ", hang + "  ")


def _story(row: Row) -> list[str]:
    """Why a prompt went where it went, where that is not as it should be."""
    from satchel.authoring.triggers import tells

    told: list[str] = []
    if not row.ok and row.prompt.fires:
        told.append(_why_missed(row))
        missing = [word for word in row.missing if tells(word)]
        if missing:
            words = listed(f"`{one_line(word)}`" for word in missing[:_WORDS])
            told.append(say("the skill lacks {words}", words=words))
    elif not row.ok and row.own is not None:
        told.append(say("caught by {words}", words=_evidence(row.own)))
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


def _conclude(session: Session, results: list[Result], bounds: Bounds) -> None:
    rows = [row for result in results for row in result.rows]
    passed = sum(row.ok for row in rows)
    session.err.line(
        say("{passed} passed, {failed} failed", passed=passed, failed=len(rows) - passed)
    )
    if bounds != Bounds():
        for result in results:
            session.err.line(_against(result, bounds))


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


_OVERLAPS = 1
_NAMES = 6


@command(
    say("Show which skills are easily mistaken for each other, and by which words.")
    + "\n\n"
    + say(
        "With NAME, a name or a folder: those that this one is mistaken for. The score is 1 for "
        "the same words and 0 for none in common; a rare word weighs more. From 0.9 on they are "
        "near copies. Exits with 1 when a pair reaches `--fail-over`."
    ),
    "satchel overlap",
    "satchel overlap code-review --limit 5",
    "satchel overlap --fail-over 0.9",
)
@click.argument("name", required=False, shell_complete=complete_names)
@click.option(
    "--min",
    "least",
    type=Share(),
    default=0.3,
    metavar="SCORE",
    help=say("Leave out pairs below this score; by default 0.3."),
)
@click.option(
    "--limit",
    type=WholeNumber(1),
    default=20,
    metavar="N",
    help=say("How many pairs at most, at least 1; by default 20."),
)
@click.option(
    "--fail-over",
    type=Share(),
    metavar="SCORE",
    help=say("Exit with 1 when two skills score this or more."),
)
def overlap(
    session: Session,
    name: str | None,
    least: float,
    limit: int,
    fail_over: float | None,
    as_json: bool,
) -> int:
    """Near copies first, then the closest pairs."""
    bound = least if fail_over is None else min(least, fail_over)
    found = _compare(session, name, bound, limit)
    bad = fail_over is not None and found.worst >= fail_over
    if as_json:
        write_json({
            "ok": not bad,
            "skills": found.skills,
            "copies": [group.to_dict() for group in found.groups[:limit]],
            "pairs": [pair.to_dict() for pair in found.pairs],
            "more": found.more or len(found.groups) > limit,
        })  # fmt: skip
        return _OVERLAPS if bad else 0
    _show_overlap(session, found, limit)
    return _OVERLAPS if bad else 0


def _compare(session: Session, name: str | None, least: float, limit: int) -> Overlap:
    from satchel.authoring.overlap import compare, compare_one
    from satchel.cli.progress import Progress

    skills = session.satchel.library.snapshot().for_model
    with Progress(say("Comparing skills")) as bar:

        def tell(done: int, total: int) -> None:
            bar("", done, total)

        if name is None:
            return compare(skills, least=least, limit=limit, progress=tell)
        from satchel.authoring.triggers import line_up

        skill = named(session, name)
        among = line_up(skills, skill)
        return compare_one(skill, among, least=least, limit=limit, progress=tell)


def _show_overlap(session: Session, found: Overlap, limit: int) -> None:
    from satchel.authoring.overlap import CONFUSABLE

    out = session.out
    if found.groups:
        out.line(say("Near copies"), "bold")
        for group in found.groups[:limit]:
            _show_group(out, group)
    close = [pair for pair in found.pairs if pair.score >= CONFUSABLE]
    titles = (say("Easily mistaken"), say("Some words in common"))
    for title, pairs in zip(titles, (close, found.pairs[len(close) :]), strict=True):
        if not pairs:
            continue
        if found.groups or pairs[0] is not found.pairs[0]:
            out.line()
        out.line(title, "bold")
        for pair in pairs:
            _show_pair(out, pair)
    told = [say("{count} skills compared", count=found.skills)]
    hidden = len(found.groups) - limit
    if hidden > 0:
        told.append(say("{count} more groups of near copies", count=hidden))
    if found.more:
        told.append(say("there are more pairs: `--limit`"))
    if not found.groups and not close:
        told.append(say("none is easily mistaken for another"))
    session.err.line(say(", ").join(told))


def _show_group(out: Screen, group: Group) -> None:
    several = len({one.name for one in group.skills}) < len(group.skills)
    names = [_called(one, apart=several) for one in group.skills[:_NAMES]]
    left = len(group.skills) - len(names)
    more = say(" and {count} more", count=left) if left else ""
    out.line(listed(names) + more, "", "  ", "        ", [(f"{_shown(group.score)}  ", "yellow")])


def _show_pair(out: Screen, pair: Pair) -> None:
    several = pair.one.name == pair.other.name
    names = [_called(one, apart=several) for one in (pair.one, pair.other)]
    lead = [(f"{_shown(pair.score)}  ", "yellow" if pair.copy else "dim")]
    text = listed(names) + (say(" (near copies)") if pair.copy else "")
    out.line(text, "", "  ", "        ", lead)
    _words(out, say("both"), pair.shared)
    for name, only in zip(names, pair.apart, strict=True):
        _words(out, say("only {name}", name=name), only)


def _words(out: Screen, title: str, words: tuple[str, ...]) -> None:
    shown = listed(one_line(word) for word in words) or say("nothing")
    out.line(shown, "", "        ", "          ", [(title, "dim"), (say(": "), "dim")])


def _called(skill: Skill, *, apart: bool) -> str:
    """A name, or where two have the same, the folder."""
    return one_line(short_path(skill.base_dir) if apart else skill.name)


def _shown(score: float) -> str:
    """Two digits, cut and not rounded: only the same words are 1, only near copies 0.9."""
    return f"{int(score * 100 + 1e-6) / 100:.2f}"
