"""`satchel test --triggers`, and the command `overlap`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from satchel.cli import EXIT_FAILED
from satchel.cli.console import one_line, pad, print_error, width_of, wrap, write_json
from satchel.cli.context import command, short_path, skill_argument
from satchel.cli.options import Share, limit_option
from satchel.cli.progress import ProgressBar
from satchel.errors import NotFound, SkillBroken
from satchel.i18n import listed, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.authoring.overlap import Overlap, OverlapGroup, OverlapPair
    from satchel.authoring.trigger_tests import PromptResult, TriggerResult
    from satchel.cli.console import Screen
    from satchel.cli.context import CliContext
    from satchel.detect import Match
    from satchel.skill.model import Skill
    from satchel.skill.trigger_file import Triggers

_MAX_WORDS_SHOWN = 4
_MAX_NOTES_SHOWN = 3
_MAX_NAMES_SHOWN = 6


class TriggerThresholds(NamedTuple):
    """The lowest recall and precision that pass."""

    recall: float = 1.0
    precision: float = 1.0


def run_trigger_tests(
    context: CliContext,
    names: Sequence[str],
    bounds: TriggerThresholds,
    *,
    everything: bool,
    as_json: bool,
) -> int:
    """Run the trigger tests of some skills; returns the exit code."""
    from satchel.authoring.trigger_tests import run_subjects, with_known_names

    chosen = _subjects(context, names, everything=everything)
    subjects = with_known_names(chosen, context.satchel.library.every())
    broken = [(skill, triggers) for skill, triggers in subjects if triggers.broken]
    if broken and len(subjects) == 1:
        raise _broken_error(*broken[0])
    with ProgressBar(say("Running prompts")) as bar:
        results = run_subjects(context.satchel, [one for one in subjects if not one[1].broken], bar)
    notes = list(dict.fromkeys(note for one in results for row in one.rows for note in row.notes))
    passed = all(one.passes(*bounds) for one in results)
    status = SkillBroken.exit_code if broken else 0 if passed else EXIT_FAILED
    if as_json:
        write_json({**_to_dict(results, broken, bounds, ok=status == 0), "notes": notes})
        return status
    for at, result in enumerate(results):
        if at:
            context.out.line()
        _show(context.out, result, bounds)
    for skill, triggers in broken:
        error = _broken_error(skill, triggers)
        print_error(error.message, error.hint)
    _show_summary(context, results, bounds)
    for note in notes[:_MAX_NOTES_SHOWN]:
        context.err.line(one_line(note), "dim")
    if len(notes) > _MAX_NOTES_SHOWN:
        context.err.line(say("and {count} more", count=len(notes) - _MAX_NOTES_SHOWN), "dim")
    return status


def _to_dict(
    results: list[TriggerResult],
    broken: list[tuple[Skill, Triggers]],
    bounds: TriggerThresholds,
    *,
    ok: bool,
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


def _find_skill(context: CliContext, word: str) -> Skill:
    """Find a skill by name, or by a folder outside the library."""
    folder = os.path.abspath(os.path.expanduser(word))
    if os.path.isfile(folder):
        folder = os.path.dirname(folder)
    known = [one for one in context.satchel.library.every() if one.base_dir == folder]
    if known:
        return known[0]
    if os.path.isdir(folder) and (os.sep in word or not context.satchel.library.find(word)):
        from satchel.authoring.trigger_tests import skill_at

        return skill_at(folder)
    return context.find(word)[0]


def _subjects(
    context: CliContext, names: Sequence[str], *, everything: bool
) -> list[tuple[Skill, Triggers]]:
    """The named skills, or all of the project, with their trigger tests."""
    from satchel.authoring.trigger_tests import subjects
    from satchel.skill.trigger_file import FILE, load_triggers

    hint = say("Write `{file}` beside its SKILL.md, in this form:", file=FILE) + _example()
    if names:
        found: dict[str, tuple[Skill, Triggers]] = {}
        for word in names:
            skill = _find_skill(context, word)
            triggers = load_triggers(skill.base_dir)
            if triggers is None:
                text = say("`{name}` has no trigger tests", name=one_line(skill.name))
                raise NotFound(text, hint)
            found[skill.path] = (skill, triggers)
        return list(found.values())
    chosen = subjects(context.satchel.library.every(), everything=everything)
    if not chosen:
        raise NotFound(say("No skill of this project has trigger tests"), hint)
    return chosen


def _example() -> str:
    """A trigger file to copy, with translated prompts."""
    should, should_not = say("Look over my pull request"), say("Write the release notes")
    return f"\nshould:\n  - {should}\nshould_not:\n  - {should_not}"


def _broken_error(skill: Skill, triggers: Triggers) -> SkillBroken:
    """The first problem of an invalid trigger file; `satchel check` shows all of them."""
    first = triggers.broken[0]
    where = short_path(first.path) + (f":{first.line}" if first.line else "")
    text = say(
        "The trigger tests of `{name}` cannot be run: {problem}",
        name=one_line(skill.name),
        problem=one_line(first.message),
    )
    return SkillBroken(text, say("{fix} (`{path}`)", fix=one_line(first.fix), path=one_line(where)))


def _show(out: Screen, result: TriggerResult, bounds: TriggerThresholds) -> None:
    good = result.passes(*bounds)
    mark, colour = ("✓", "green") if good else ("✗", "red")
    name = out.paint(one_line(result.skill.name), "bold")
    where = out.paint(one_line(short_path(result.path)), "dim")
    out.write(f"{out.paint(mark, colour)} {name}  {where}\n")
    for row in result.rows:
        _show_row(out, row)
    out.line()
    _show_counts(out, result)


def _show_row(out: Screen, row: PromptResult) -> None:
    tick, style = ("✓", "green") if row.ok else ("✗", "red")
    side = say("should") if row.prompt.fires else say("should not")
    width = max(width_of(say("should")), width_of(say("should not")))
    rank = f"#{row.rank}" if row.rank else "–"
    lead = [(tick, style), (f" {pad(side, width)}  ", "dim"), (f"{rank:<4} ", "dim")]
    hang = " " * (4 + width + 2 + 5)
    lines = wrap(one_line(row.prompt.text), max(out.width - len(hang), 20) if out.width else 0)
    out.write("  " + "".join(out.paint(*part) for part in lead) + ("\n" + hang).join(lines) + "\n")
    for line in _explain(row):
        out.line(line, "dim", hang + "→ ", hang + "  ")


def _explain(row: PromptResult) -> list[str]:
    """Why the result of a prompt is wrong; empty when it is right."""
    from satchel.authoring.trigger_tests import is_significant

    reasons: list[str] = []
    if not row.ok and row.prompt.fires:
        reasons.append(_why_missed(row))
        missing = [word for word in row.missing if is_significant(word)]
        if missing:
            words = listed(f"`{one_line(word)}`" for word in missing[:_MAX_WORDS_SHOWN])
            reasons.append(say("the skill lacks {words}", words=words))
    elif not row.ok and row.own is not None:
        reasons.append(say("caught by {words}", words=_evidence(row.own)))
    if not row.instead:
        reasons.append(say("`{name}` was not chosen instead", name=one_line(row.prompt.instead)))
    return reasons


def _why_missed(row: PromptResult) -> str:
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
    """The evidence of a match by field: `its description (pull, request) and its meaning`."""
    fields: dict[str, list[str]] = {}
    for piece in match.evidence:
        field, _, word = piece.partition(": ")
        fields.setdefault(field, []).append(f"`{one_line(word)}`")
    parts: list[str] = []
    for field, words in fields.items():
        shown = listed(words[:_MAX_WORDS_SHOWN])
        if field == "body":
            parts.append(say("its instructions"))
        elif field == "meaning":
            parts.append(say("its meaning"))
        elif field == "name":
            parts.append(say("its name ({words})", words=shown))
        elif field == "description":
            parts.append(say("its description ({words})", words=shown))
        elif field == "goal":
            parts.append(say("its name in the prompt ({words})", words=shown))
        else:
            parts.append(say("its {field} ({words})", field=f"`{one_line(field)}`", words=shown))
    *others, last = parts or [say("its meaning")]
    return say("{these} and {last}", these=listed(others), last=last) if others else last


def _show_counts(out: Screen, result: TriggerResult) -> None:
    """Print the confusion matrix."""
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


def _show_summary(
    context: CliContext, results: list[TriggerResult], bounds: TriggerThresholds
) -> None:
    rows = [row for result in results for row in result.rows]
    passed = sum(row.ok for row in rows)
    context.err.line(
        say("{passed} passed, {failed} failed", passed=passed, failed=len(rows) - passed)
    )
    if bounds != TriggerThresholds():
        for result in results:
            context.err.line(_compare_to_bounds(result, bounds))


def _compare_to_bounds(result: TriggerResult, bounds: TriggerThresholds) -> str:
    """Compare the measures with the thresholds: `code-review passed: recall 67 % ≥ 30 %`."""
    measures = [
        (say("recall"), result.recall, bounds.recall),
        (say("precision"), result.precision, bounds.precision),
    ]
    parts = [
        f"{name} {share * 100:.0f} % {'≥' if share >= least else '<'} {least * 100:.0f} %"
        for name, share, least in measures
        if share is not None and (least < 1 or share < least)
    ]
    wanted = [row for row in result.rows if row.prompt.instead]
    found = sum(row.instead for row in wanted)
    if found < len(wanted):
        parts.append(say("{count} of {of} `instead` chosen", count=found, of=len(wanted)))
    values = {
        "name": f"`{one_line(result.skill.name)}`",
        "measures": listed(parts) or say("nothing to measure"),
    }
    if result.passes(*bounds):
        return say("{name} passed: {measures}", **values)
    return say("{name} failed: {measures}", **values)


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
@skill_argument(required=False)
@click.option(
    "--min",
    "least",
    type=Share(),
    default=0.3,
    metavar="SCORE",
    help=say("Leave out pairs below this score; by default 0.3."),
)
@limit_option(say("How many pairs at most, at least 1; by default 20."), 20)
@click.option(
    "--fail-over",
    type=Share(),
    metavar="SCORE",
    help=say("Exit with 1 when two skills score this or more."),
)
def overlap(
    context: CliContext,
    name: str | None,
    least: float,
    limit: int,
    fail_over: float | None,
    as_json: bool,
) -> int:
    bound = least if fail_over is None else min(least, fail_over)
    found = _compare(context, name, bound, limit)
    bad = fail_over is not None and found.worst >= fail_over
    status = EXIT_FAILED if bad else 0
    if as_json:
        write_json({
            "ok": not bad,
            "skills": found.skills,
            "copies": [group.to_dict() for group in found.groups[:limit]],
            "pairs": [pair.to_dict() for pair in found.pairs],
            "more": found.more or len(found.groups) > limit,
        })  # fmt: skip
        return status
    _show_overlap(context, found, limit)
    return status


def _compare(context: CliContext, name: str | None, least: float, limit: int) -> Overlap:
    from satchel.authoring.overlap import compare, compare_one

    skills = context.satchel.library.snapshot().for_model
    with ProgressBar(say("Comparing skills")) as bar:

        def show(done: int, total: int) -> None:
            bar("", done, total)

        if name is None:
            return compare(skills, least=least, limit=limit, progress=show)
        from satchel.authoring.trigger_tests import skills_with

        skill = _find_skill(context, name)
        among = skills_with(skills, skill)
        return compare_one(skill, among, least=least, limit=limit, progress=show)


def _show_overlap(context: CliContext, found: Overlap, limit: int) -> None:
    from satchel.authoring.overlap import MIN_CONFUSABLE_SCORE

    out = context.out
    if found.groups:
        out.line(say("Near copies"), "bold")
        for group in found.groups[:limit]:
            _show_group(out, group)
    close = [pair for pair in found.pairs if pair.score >= MIN_CONFUSABLE_SCORE]
    titles = (say("Easily mistaken"), say("Some words in common"))
    for title, pairs in zip(titles, (close, found.pairs[len(close) :]), strict=True):
        if not pairs:
            continue
        if found.groups or pairs[0] is not found.pairs[0]:
            out.line()
        out.line(title, "bold")
        for pair in pairs:
            _show_pair(out, pair)
    parts = [say("{count} skills compared", count=found.skills)]
    hidden = len(found.groups) - limit
    if hidden > 0:
        parts.append(say("{count} more groups of near copies", count=hidden))
    if found.more:
        parts.append(say("there are more pairs: `--limit`"))
    if not found.groups and not close:
        parts.append(say("none is easily mistaken for another"))
    context.err.line(say(", ").join(parts))


def _show_group(out: Screen, group: OverlapGroup) -> None:
    several = len({one.name for one in group.skills}) < len(group.skills)
    names = [_label(one, by_folder=several) for one in group.skills[:_MAX_NAMES_SHOWN]]
    left = len(group.skills) - len(names)
    more = say(" and {count} more", count=left) if left else ""
    lead = [(f"{_format_score(group.score)}  ", "yellow")]
    out.line(listed(names) + more, "", "  ", "        ", lead)


def _show_pair(out: Screen, pair: OverlapPair) -> None:
    several = pair.one.name == pair.other.name
    names = [_label(one, by_folder=several) for one in (pair.one, pair.other)]
    lead = [(f"{_format_score(pair.score)}  ", "yellow" if pair.copy else "dim")]
    text = listed(names) + (say(" (near copies)") if pair.copy else "")
    out.line(text, "", "  ", "        ", lead)
    _show_words(out, say("both"), pair.shared)
    for name, only in zip(names, pair.apart, strict=True):
        _show_words(out, say("only {name}", name=name), only)


def _show_words(out: Screen, title: str, words: tuple[str, ...]) -> None:
    shown = listed(one_line(word) for word in words) or say("nothing")
    out.line(shown, "", "        ", "          ", [(title, "dim"), (say(": "), "dim")])


def _label(skill: Skill, *, by_folder: bool) -> str:
    return one_line(short_path(skill.base_dir) if by_folder else skill.name)


def _format_score(score: float) -> str:
    """Two digits, truncated: only equal words show 1.00, only near copies 0.90 and more."""
    return f"{int(score * 100 + 1e-6) / 100:.2f}"
