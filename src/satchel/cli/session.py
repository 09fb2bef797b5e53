"""What every command shares: the project, the two screens, and how a command is declared."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from satchel._language import listed, render, say
from satchel.cli.helping import Command, Commands, help_text
from satchel.cli.output import Screen, one_line
from satchel.cli.values import AnyPath
from satchel.errors import InternalError, NotFound, SkillBroken
from satchel.settings import find_project

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from click.shell_completion import CompletionItem

    from satchel.envelope import Envelope
    from satchel.facade import Satchel
    from satchel.skill.model import Skill

_EXIT_CODES = {
    "NOT_FOUND": 3,
    "ACCESS_DENIED": 4,
    "PERMISSION_DENIED": 4,
    "INVALID_PARAM": 2,
    "IS_DIRECTORY": 2,
    "BINARY_FILE": 4,
    "INTERNAL_ERROR": 5,
}
"""Error code of an envelope -> exit code; the others are 1. The exceptions carry the same."""
USES_SKILLS = {
    "list": False, "load": False, "mcp install": False, "which": False, "chat": True,
    "search": True, "catalogue": True, "run": True, "tools": True, "try": True, "goal plan": True,
    "goal run": True,
}  # fmt: skip
"""Commands that ask about a folder whose skills are not trusted yet -> whether they print a note
where they cannot ask; the others report it themselves."""
PATIENCE = 3.0
"""Seconds that a command waits for an index: it ends right after, and its work would be lost."""


class Session:
    """One run of the terminal."""

    def __init__(self, chosen: str = "", colour: bool | None = None) -> None:
        self.chosen = chosen
        """The folder of `--project`, taken as it is."""
        self.colour = colour
        self.given: dict[str, Any] = {}
        """Settings that a command decides itself; they win."""
        self.defaults: dict[str, Any] = {}
        """Settings that a command decides where nothing is set."""
        self.warns = True
        """Ignored settings are reported when the project is opened."""
        self.asking = False
        """The line on the screen is a question, and nobody has answered it yet."""
        self.command = ""
        """The command that is run, such as `goal run`."""
        self.as_json = False
        """It prints JSON, and so asks nothing."""
        self.offer_trust: Callable[..., None] | None = None
        """Asks about a folder that is not trusted yet; the commands set it."""
        self._satchel: Satchel | None = None

    @property
    def satchel(self) -> Satchel:
        """The project's skills, found when first asked for."""
        if self._satchel is None:
            from satchel.cli.opening import open_project, warn_of_settings

            self._satchel = open_project(self.project, self.given, self.defaults)
            self._satchel.patience = PATIENCE
            if self.warns:
                self.warns = False
                warn_of_settings(self._satchel.settings, self.colour)
            if self.command in USES_SKILLS and self.offer_trust is not None:
                self.offer_trust(self, note=USES_SKILLS[self.command])
        return self._satchel

    @property
    def project(self) -> str:
        """The project's root: the folder of `--project`, or the one found from here."""
        return os.path.expanduser(self.chosen) if self.chosen else find_project()

    def tell_root(self) -> None:
        """Name the project's root on stderr where it is not the current folder."""
        root = self.satchel.settings.project
        if root != os.getcwd():
            self.err.line(say("Project: {path}", path=one_line(root)), "dim")

    @contextmanager
    def choosing(self) -> Generator[None]:
        """Show how far the search index is, for as long as a choice waits for it."""
        from satchel.cli.progress import Progress

        with Progress(say("Building the search index")) as progress:
            self.satchel.on_wait = lambda done, total: progress("", done, total)
            yield

    def renew(self) -> None:
        """The settings were changed by this very run: make everything anew when asked."""
        if self._satchel is not None:
            self._satchel.library.close()
        self._satchel = None

    @property
    def out(self) -> Screen:
        """For data."""
        return Screen(sys.stdout, self.colour)

    @property
    def err(self) -> Screen:
        """For people."""
        sys.stdout.flush()  # what was printed before stands before
        return Screen(sys.stderr, self.colour)

    def find(self, name: str) -> list[Skill]:
        """The skills called `name` (or by id, ref or path), offered ones first.

        Raises:
            NotFound: there is none; the hint names similar ones.
            SkillBroken: there is a file, but it is not a skill.
        """
        found = self.satchel.library.find(name)
        if found:
            return found
        raise self.nothing(name)

    def nothing(self, name: str) -> NotFound | SkillBroken:
        """Why there is no such skill: its file is broken, or the name is a slip."""
        from satchel.why import names_like, problems_named

        library = self.satchel.library
        snapshot = library.snapshot()
        problems = (*snapshot.problems, *library.tools().problems)
        shown = one_line(name)
        broken = [item for item in problems_named(name, problems) if item.severity == "error"]
        if broken:
            first = broken[0]
            where = short_path(first.path) + (f":{first.line}" if first.line else "")
            return SkillBroken(
                say(
                    "`{name}` is not a skill yet: {problem}",
                    name=shown,
                    problem=one_line(first.message),
                ),
                say("{fix} (`{path}`)", fix=one_line(first.fix), path=one_line(where)),
            )
        near = [f"`{one_line(item)}`" for item in names_like(name, library.every())]
        hint = (
            say("Did you mean {names}?", names=listed(near))
            if near
            else say("Run `satchel list --all` to see what there is")
        )
        return NotFound(say("There is no skill `{name}`", name=shown), hint)


def yes_or_no(session: Session, question: str) -> bool:
    """Ask on the terminal, until the answer is one; the end of the input is a no."""
    err = session.err
    while True:
        session.asking = True  # it stays so when somebody leaves by Ctrl-C
        with _interruptible():
            err.write(f"{question} [y/N] ")
            err.stream.flush()
            line = sys.stdin.readline()
        session.asking = False
        answer = line.strip().lower()
        if answer in {"y", "yes", "是"}:
            return True
        if not line:
            err.line()  # the input ended, and with it the line of the question
        if answer in {"", "n", "no", "否"}:
            return False
        err.line(say("Please answer `y` for yes or `n` for no"))


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C end a read at once: an event loop would only note it, and read on."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def short_path(path: str) -> str:
    """A path as short as it can be from here."""
    near = os.path.relpath(path)
    return path if near.startswith("..") else near


def answer_with(session: Session, reply: Envelope, *, as_json: bool) -> int:
    """Print a tool's answer as a person or a script wants it; returns the exit code."""
    from satchel.cli.output import complain, write_json

    if as_json:
        write_json(reply.to_dict())
    elif reply.error is not None:
        complain(render(reply.error.message), render(reply.error.hint), session.colour)
    else:
        session.out.data(reply.text)
    return exit_code(reply)


def exit_code(reply: Envelope) -> int:
    """What the terminal exits with after a tool's answer."""
    if reply.error is None:
        return 0
    return InternalError.exit_code if reply.error.bug else _EXIT_CODES.get(reply.error.code, 1)


def command(
    purpose: str,
    *examples: str,
    name: str | None = None,
    more: str = "",
    json: bool = True,
) -> Callable[[Callable[..., int]], click.Command]:
    """Declare a command that takes the session and returns its exit code.

    `--project` and `--color` may be given before or after its name.

    Args:
        purpose: What it is for; the first line is its place in the list of commands.
        examples: Lines that can be run.
        name: What it is called, if not as the function is.
        more: What there is to say after the examples.
        json: Whether `--json` is one of its options, as it is wherever there is data.
    """
    text = help_text(purpose, *examples, more=more)
    first = purpose.split("\n", 1)[0]

    def declare(function: Callable[..., int]) -> click.Command:
        @wraps(function)
        def begin(session: Session, **options: Any) -> int:
            path = click.get_current_context().command_path.partition(" ")[2]
            session.command, session.as_json = path, bool(options.get("as_json"))
            return function(session, **options)

        function_with_session = click.pass_obj(begin)
        # The text after the first sentence is for `--help`, not for the list of commands.
        made = click.command(name, cls=Command, help=text, short_help=first)(function_with_session)
        if json:
            words = say("Print JSON, for scripts.")
            made.params.append(click.Option(["--json", "as_json"], is_flag=True, help=words))
        made.params += global_options(hidden=True)
        return made

    return declare


def group(
    purpose: str,
    *examples: str,
    places: Mapping[str, str],
    headings: Mapping[str, str],
    more: str = "",
) -> Callable[[Callable[..., int]], Commands]:
    """Declare a command that has commands of its own; the function runs when none is named.

    Args:
        purpose: What they are for; the first line is its place in the list of commands.
        examples: Lines that can be run.
        places: Name of each command -> `module:variable` of this package.
        headings: First command of a section -> the section's title.
        more: What there is to say after the examples.
    """
    text = help_text(purpose, *examples, more=more)
    first = purpose.split("\n", 1)[0]

    def declare(function: Callable[..., int]) -> Commands:
        function = click.pass_obj(function)
        made = click.group(cls=Commands, help=text, short_help=first, invoke_without_command=True)(
            function
        )
        made.places, made.headings = places, headings
        made.params += global_options(hidden=True)
        return made

    return declare


def global_options(*, hidden: bool) -> list[click.Option]:
    """The options that every command understands."""

    def set_project(context: click.Context, _option: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.ensure_object(Session).chosen = value

    def set_colour(context: click.Context, _option: click.Parameter, value: bool | None) -> None:
        if value is not None:
            context.ensure_object(Session).colour = value

    return [
        click.Option(
            ["--project"],
            metavar="DIR",
            type=AnyPath(file_okay=False),
            expose_value=False,
            is_eager=True,
            callback=set_project,
            hidden=hidden,
            help=say("The project's folder; by default the root found from the current one."),
        ),
        click.Option(
            ["--color/--no-color", "colour"],
            default=None,
            expose_value=False,
            is_eager=True,
            callback=set_colour,
            hidden=hidden,
            help=say(
                "Colours always or never; by default on a terminal, unless `NO_COLOR` is set."
            ),
        ),
    ]


def complete_names(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of skills for the shell."""
    return completions(context, incomplete, lambda _satchel, _skill: True)


def completions(
    context: click.Context, incomplete: str, wanted: Callable[[Satchel, Skill], bool]
) -> list[CompletionItem]:
    """Names of the skills that are wanted; a project that cannot be read completes nothing."""
    from click.shell_completion import CompletionItem

    from satchel.errors import SatchelError

    session = context.find_object(Session) or Session()
    try:
        satchel = session.satchel
        skills = satchel.library.every()
        named = {
            skill.name: skill
            for skill in skills
            if skill.name.startswith(incomplete) and wanted(satchel, skill)
        }
    except SatchelError:
        return []
    return [
        CompletionItem(name, help=one_line(skill.description)[:60])
        for name, skill in sorted(named.items())
        if name == skill.typed
    ]
