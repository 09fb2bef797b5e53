"""Does a tool do what it should? `satchel try` makes one call, `satchel test` all of its cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._language import listed, say
from satchel.cli.output import clean, one_line, write_json
from satchel.cli.session import command, completions, exit_code

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from satchel.authoring.examples import Outcome
    from satchel.authoring.trial import Trial
    from satchel.cli.output import Screen
    from satchel.cli.session import Session

INCOMPLETE = 8
"""Exit code of a test that did not fail and did not see everything."""
_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "not-run": ("–", "yellow")}
_KINDS = {"example": "example", "refused": "before the program", "program": "the program itself"}


def _complete(
    context: click.Context, _parameter: click.Parameter, start: str
) -> list[CompletionItem]:
    return completions(
        context, start, lambda satchel, skill: bool(satchel.library.tools().find(skill.name))
    )


# --- try ----------------------------------------------------------------------------------


@command(
    say("Call a tool once, as an agent would, and show everything.")
    + "\n\n"
    + say(
        "TOOL is a tool's name, the name of a skill that has one tool, or `skill.tool`. Shows the "
        "line that the program got, its answer, how long it took and how it was held. Exits with "
        "0 when it answered, 1 when it answered with an error or failed, 2 when the arguments are "
        "wrong, 3 when there is no such tool, 4 when it may not run."
    ),
    "satchel try word_count_count --arg text='to be or not to be'",
    'satchel try word-count --json-args \'{"text": "to be"}\'',
    "satchel try word-count --arg path=README.md --raw",
    name="try",
)
@click.argument("tool", shell_complete=_complete)
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help=say("One argument."))
@click.option("--json-args", "table", default="", metavar="JSON", help=say("All of them at once."))
@click.option("--raw", is_flag=True, help=say("Print the program's answer and nothing else."))
def try_(
    session: Session, tool: str, pairs: tuple[str, ...], table: str, raw: bool, as_json: bool
) -> int:
    """The answer on stdout, the rest on stderr."""
    from satchel.authoring.trial import find_tool, read_arguments, try_tool

    session.given["fork_server"] = False  # one call: nothing is saved by preparing for a second
    satchel = session.satchel
    _show_builds(session)
    try:
        name = find_tool(satchel, tool)
        arguments = read_arguments(satchel, name, pairs, table)
        trial = try_tool(satchel, name, arguments)
    finally:
        satchel.close()
    if as_json:
        write_json(trial.to_dict())
    elif raw:
        session.out.data(trial.response or trial.reply.text)
    else:
        _show_trial(session, trial)
    return exit_code(trial.reply)


def _show_builds(session: Session) -> None:
    """The first use of a skill may build something: say so."""
    engine: Any = session.satchel.engine
    if hasattr(engine, "progress"):

        def tell(line: str) -> None:
            session.err.line(one_line(line), "dim")

        engine.progress = tell


def _show_trial(session: Session, trial: Trial) -> None:
    err, reply = session.err, trial.reply
    if trial.request:
        _row(err, say("request"), trial.request)
    if trial.response:
        _row(err, say("response"), trial.response)
    data, stats = reply.data, reply.stats
    if "tier" in data:
        limits = data["limits"]
        _row(err, say("time"), say(
            "{ran} ms to run, {waited} ms in the queue, {total} ms in all",
            ran=stats.get("ran_ms", 0), waited=stats.get("waited_ms", 0), total=stats["time_ms"],
        ))  # fmt: skip
        ways = {"cold": say("a new process"), "fork": say("forked"), "warm": say("a kept process")}
        _row(err, say("sandbox"), f"{data['tier']} ({ways.get(data['way'], data['way'])})")
        _row(err, say("limits"), say(
            "{seconds} s, {characters} characters, {memory} MB",
            seconds=f"{limits['timeout']:g}", characters=limits["output"],
            memory=limits["memory"] >> 20,
        ))  # fmt: skip
        denied = listed(one_line(str(item)) for item in data["denied"])
        _row(err, say("denied"), denied or say("nothing that was seen"))
        if data.get("stderr"):
            _row(err, "stderr", clean(str(data["stderr"])).strip())
    if reply.error is not None:
        from satchel.cli.output import complain
        from satchel.cli.retelling import retell

        hint = reply.text.removeprefix(reply.error.message).lstrip(". ").rstrip(".")
        framed = hint.startswith("<")
        complain(retell(reply.error.message), "" if framed else retell(hint), session.colour)
        return
    session.out.data(str(data["output"]) if "output" in data else reply.text)


def _row(err: Screen, title: str, text: str) -> None:
    err.line(one_line(text), "", "", "  ", [(title, "dim"), (say(": "), "dim")])


# --- test ---------------------------------------------------------------------------------


@command(
    say("Run the examples of a tool skill, and the calls that it has to refuse.")
    + "\n\n"
    + say(
        "Wrong arguments are tried twice: as an agent sends them, which must not reach the "
        "program, and handed to the program, which must answer with an error. A tool that writes "
        "works on a copy. Exits with 1 when a case fails, and with 8 when none does but an "
        "example could not be run."
    ),
    "satchel test word-count",
    "satchel test word-count --json",
)
@click.argument("name", shell_complete=_complete)
def test(session: Session, name: str, as_json: bool) -> int:
    """One row per case."""
    from satchel.authoring.bench import bench_of
    from satchel.authoring.examples import run_cases
    from satchel.errors import NotFound
    from satchel.tools.script_tool import is_own

    satchel = session.satchel
    found = satchel.library.tools().find(name)
    if not found:
        raise NotFound(
            say("There is no tool skill `{name}`", name=one_line(name)),
            say("Run `satchel tools` to see what there is"),
        )
    _show_builds(session)
    source = found[0]
    try:
        if source.skill.state == "untrusted":
            from satchel.errors import Refused

            raise Refused(
                say("`{name}` is not trusted, so its program is not run", name=source.skill.typed),
                say("Read it with `satchel show {name}`, then run `satchel trust {name}`",
                    name=source.skill.typed),
            )  # fmt: skip
        bench = bench_of(satchel, source.skill.base_dir, own=is_own(satchel.library, source))
        outcomes = list(run_cases(bench))
    finally:
        satchel.close()
    failed = [one for one in outcomes if one.state == "fail"]
    left = [one for one in outcomes if one.state == "not-run"]
    status = 1 if failed else INCOMPLETE if left else 0
    if as_json:
        write_json({
            "name": source.skill.name,
            "ok": status == 0,
            "complete": not left,
            "cases": [one.to_dict() for one in outcomes],
        })  # fmt: skip
        return status
    _show_cases(session.out, outcomes)
    words = say(
        "{passed} passed, {failed} failed, {left} not run",
        passed=len(outcomes) - len(failed) - len(left),
        failed=len(failed),
        left=len(left),
    )
    session.err.line(words)
    return status


def _show_cases(out: Screen, outcomes: list[Outcome]) -> None:
    several = len({one.case.tool for one in outcomes}) > 1
    rows: list[list[str]] = []
    styles: list[list[str]] = []
    states = {"pass": say("passed"), "fail": say("failed"), "not-run": say("not run")}
    for one in outcomes:
        mark, style = _MARKS[one.state]
        title = f"{one.case.tool}: {one.case.title}" if several else one.case.title
        rows.append([
            f"{mark} {states[one.state]}",
            say(_KINDS[one.case.kind]),
            one_line(title),
            f"{one.ms:.0f} ms" if one.state != "not-run" else "",
            one_line(one.said),
        ])  # fmt: skip
        styles.append([style, "dim", "", "dim", "red" if one.state == "fail" else "dim"])
    head = ["", say("checked"), say("case"), say("time"), say("answer")]
    out.table(head, rows, styles)
