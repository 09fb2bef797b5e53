"""The context of a command run, the decorators `command` and `group`, input and progress bars."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from satchel.cli.console import Screen, clean, cut, one_line, print_error, write_json
from satchel.cli.options import AnyPath, HelpCommand, HelpGroup, help_text
from satchel.errors import InternalError, InvalidInput, NotFound, Refused, SatchelError, SkillBroken
from satchel.i18n import did_you_mean, say
from satchel.settings import find_project

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from click.shell_completion import CompletionItem

    from satchel.envelope import Envelope
    from satchel.satchel import Satchel
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
"""Error code of an envelope -> exit code, 1 for the others; as `exit_code` of the exceptions."""
_TRUST_NOTE_BY_COMMAND = {
    "list": False, "mcp install": False, "search": False, "chat": True, "show --as-model": False,
    "catalogue": True, "run": True, "list --tools": True, "try": True, "goal plan": True,
    "goal run": True,
}  # fmt: skip
"""Commands that ask whether to trust an untrusted folder -> whether they print a note where they
cannot ask; the others report it themselves."""
_INDEX_TIMEOUT_S = 3.0
_SKILL_FILES = ("skill.md", "skill.yaml", "skill.yml")
_SKIPPED_FOLDERS = frozenset((".git", "node_modules", ".satchel"))
_PROGRESS_DELAY_S = 1.0
_MAX_NAME_COLUMNS = 24
_STDIN = "-"
_MAX_GOAL_BYTES = 1 << 20
_Item = TypeVar("_Item")


class CliContext:
    """State of one command run."""

    def __init__(self) -> None:
        self.project_option = ""
        """Value of `--project`."""
        self.overrides: dict[str, Any] = {}
        """Settings of the command that override all others."""
        self.defaults: dict[str, Any] = {}
        """Settings of the command that apply where nothing is set."""
        self.reports_settings = True
        """Whether ignored settings are reported when the project is opened."""
        self.is_asking = False
        """Whether the cursor is on the line of an unanswered question."""
        self.command = ""
        """Name of the command, such as `goal run`."""
        self.as_json = False
        self.offer_trust: Callable[..., None] | None = None
        """Asks whether to trust an untrusted folder; set by `app`."""
        self._satchel: Satchel | None = None

    @property
    def satchel(self) -> Satchel:
        """The project, opened on first use."""
        if self._satchel is None:
            from satchel.cli.project import open_project, warn_of_settings

            project = self.project
            start = "" if self.project_option else os.getcwd()
            self._satchel = open_project(project, self.overrides, self.defaults, start=start)
            # The process ends right after the command, so a longer index build would be lost.
            self._satchel.index_wait_s = _INDEX_TIMEOUT_S
            if self.reports_settings:
                self.reports_settings = False
                warn_of_settings(self._satchel.settings)
            if self.command in _TRUST_NOTE_BY_COMMAND and self.offer_trust is not None:
                self.offer_trust(self, note=_TRUST_NOTE_BY_COMMAND[self.command])
        return self._satchel

    @property
    def project(self) -> str:
        """The project's root: `--project`, else found from the current folder."""
        return os.path.expanduser(self.project_option) if self.project_option else find_project()

    def print_root(self) -> None:
        """Print the project's root on stderr unless it is the current folder."""
        root = self.satchel.settings.project
        if root != os.getcwd():
            self.err.line(say("Project: {path}", path=one_line(root)), "dim")

    @contextmanager
    def index_progress(self) -> Generator[None]:
        """Show a progress bar while a search waits for the index."""
        with ProgressBar(say("Building the search index")) as progress:
            self.satchel.on_wait = lambda completed, total: progress("", completed, total)
            yield

    def reopen(self) -> None:
        """Open the project again on next use, after its settings were changed."""
        if self._satchel is not None:
            self._satchel.library.close()
        self._satchel = None

    @property
    def out(self) -> Screen:
        """Stdout, for data."""
        return Screen(sys.stdout)

    @property
    def err(self) -> Screen:
        """Stderr, for messages."""
        sys.stdout.flush()  # keeps the order of data and messages
        return Screen(sys.stderr)

    def find(self, name: str) -> list[Skill]:
        """Find the skills with a name, id, ref or path, offered ones first.

        Raises:
            NotFound: there is none; the hint names similar ones.
            SkillBroken: its file cannot be read as a skill.
        """
        skills = self.satchel.library.find(name)
        if skills:
            return skills
        raise self.not_found(name)

    def not_found(self, name: str) -> NotFound | SkillBroken:
        """Make the error for an unknown skill: its file is broken, or the name is misspelt."""
        from satchel.diagnosis.skill_report import names_like, problems_named

        library = self.satchel.library
        snapshot = library.snapshot()
        problems = (*snapshot.problems, *library.tools().problems)
        display_name = one_line(name)
        related = problems_named(name, problems)
        first = next((problem for problem in related if problem.severity == "error"), None)
        if first is not None:
            location = short_path(first.path) + (f":{first.line}" if first.line else "")
            return SkillBroken(
                say(
                    "`{name}` is not a skill: {problem}",
                    name=display_name,
                    problem=one_line(first.message),
                ),
                say("{fix} (`{path}`)", fix=one_line(first.fix), path=one_line(location)),
            )
        similar = names_like(name, library.every())
        return no_such(say("skill"), name, similar, "satchel list --all")


def no_such(kind: str, name: str, similar: Iterable[str] = (), command: str = "") -> NotFound:
    """Return the error for an unknown name; the hint has similar names, else `command`."""
    listing = say("Run `{command}`", command=command) if command else ""
    return NotFound(
        say("There is no {kind} `{name}`", kind=kind, name=one_line(name)),
        did_you_mean(map(one_line, similar)) or listing,
    )


def no_skills() -> NotFound:
    """Return the error for a project without skills."""
    return NotFound(say("There are no skills here"), say("Run `{command}`", command="satchel new"))


def confirm(context: CliContext, question: str) -> bool:
    """Ask a yes-or-no question until it is answered; the end of the input means no."""
    err = context.err
    while True:
        context.is_asking = True  # stays set after Ctrl-C
        err.write(f"{question} [y/N] ")
        err.stream.flush()
        line = sys.stdin.readline()
        context.is_asking = False
        answer = line.strip().lower()
        if answer in {"y", "yes", "是"}:
            return True
        if not line:
            err.line()
        if answer in {"", "n", "no", "否"}:
            return False


def confirm_change(context: CliContext, question: str, *, as_json: bool) -> bool:
    """Ask before a change; refuse it where there is no terminal to ask."""
    if as_json or not sys.stdin.isatty():
        raise Refused(say("Not a terminal; pass `--yes` to confirm"))
    return confirm(context, question)


@contextmanager
def closed_at_exit(satchel: Satchel) -> Generator[Satchel]:
    """End the programs and connections of a server's project, also on SIGTERM."""

    def stop(*_: object) -> None:
        raise SystemExit(0)

    previous_handler = signal.signal(signal.SIGTERM, stop)
    try:
        yield satchel
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
        satchel.close()


def short_path(path: str) -> str:
    """Return a path relative to the current folder, when it lies below it."""
    relative_path = os.path.relpath(path)
    return path if relative_path.startswith("..") else relative_path


def skill_folders(context: CliContext, reference: str) -> list[str]:
    """Return the folders of the skill that a name or a path means, or of all skills below it.

    A skill in the current folder precedes an installed one of the same name.

    A file other than a SKILL.md is returned as it is, and so is a folder without skills.

    Raises:
        NotFound: there is no such skill or folder.
        SkillBroken: its file cannot be read as a skill.
        Refused: the skill lies on a server.
    """
    from satchel.library.locations import local_folder

    path, library = os.path.abspath(os.path.expanduser(reference)), context.satchel.library
    is_local = os.path.isfile(path) or _is_skill_folder(path)
    if not is_local and os.sep not in reference and (skills := library.find(reference)):
        return [local_folder(skills[0])]
    if os.path.isfile(path):
        is_skill = os.path.basename(path).lower() in _SKILL_FILES
        return [os.path.dirname(path) if is_skill else path]
    if os.path.isdir(path):
        return list(_find_skill_folders(path)) or [path]
    if os.sep in reference:
        raise no_such(say("folder"), reference)
    broken = [folder for folder in broken_folders(context) if os.path.basename(folder) == reference]
    if broken:
        return broken[:1]
    tools = library.tools().find(reference)
    return [local_folder(tools[0].skill if tools else context.find(reference)[0])]


def _find_skill_folders(path: str) -> Iterator[str]:
    """Yield the folders of skills in a folder, and links to such folders."""
    for root, folders, files in os.walk(path):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        if any(name.lower() in _SKILL_FILES for name in files):
            yield root
            folders.clear()
        for folder in [os.path.join(root, name) for name in folders]:
            if os.path.islink(folder) and _is_skill_folder(folder):
                yield folder


def _is_skill_folder(path: str) -> bool:
    try:
        return any(name.lower() in _SKILL_FILES for name in os.listdir(path))
    except OSError:
        return False


def broken_folders(context: CliContext) -> list[str]:
    """Return the folders whose file cannot be read as a skill."""
    library = context.satchel.library
    return [
        os.path.dirname(problem.path)
        for problem in (*library.snapshot().problems, *library.tools().problems)
        if problem.severity == "error" and os.path.basename(problem.path).lower() in _SKILL_FILES
    ]


def print_reply(context: CliContext, reply: Envelope, *, as_json: bool) -> int:
    """Print a tool's reply; returns the exit code."""
    if as_json:
        write_json(reply.to_dict())
    elif reply.error is not None:
        print_error(reply.error.message, reply.error.hint)
    else:
        context.out.data(clean(reply.text))  # also in a pipe: its end is often a terminal
    return exit_code(reply)


def exit_code(reply: Envelope) -> int:
    """Return the exit code for a tool's reply."""
    if reply.error is None:
        return 0
    return InternalError.exit_code if reply.error.bug else _EXIT_CODES.get(reply.error.code, 1)


def command(
    purpose: str,
    *examples: str,
    name: str | None = None,
    json: bool = True,
) -> Callable[[Callable[..., int]], click.Command]:
    """Declare a command: a function of the context and its options that returns the exit code.

    Args:
        purpose: Its help; the first line is also shown in the list of commands.
        examples: Command lines that can be run.
        name: Its name, if not that of the function.
        json: Whether it has the option `--json`.
    """
    text, summary = help_text(purpose, *examples), purpose.partition("\n")[0]

    def declare(function: Callable[..., int]) -> click.Command:
        @click.pass_obj
        @wraps(function)
        def run(context: CliContext, **options: Any) -> int:
            path = click.get_current_context().command_path.partition(" ")[2]
            context.command, context.as_json = path, bool(options.get("as_json"))
            return function(context, **options)

        click_command = click.command(name, cls=HelpCommand, help=text, short_help=summary)(run)
        if json:
            message = say("Print {format}.", format="JSON")
            click_command.params.append(
                click.Option(["--json", "as_json"], is_flag=True, help=message)
            )
        click_command.params += global_options(hidden=True)
        return click_command

    return declare


def group(
    name: str, purpose: str, *examples: str, modules: Mapping[str, str], synonyms: Mapping[str, str]
) -> HelpGroup:
    """Declare a group of commands, which prints its help when none of them is named.

    Args:
        name: Its name.
        purpose: As in `command`.
        examples: As in `command`.
        modules: Command name -> `module:variable` below `satchel.cli`.
        synonyms: Name of a command in other programs -> its name here.
    """
    text, summary = help_text(purpose, *examples), purpose.partition("\n")[0]

    @click.group(name, cls=HelpGroup, help=text, short_help=summary, invoke_without_command=True)
    @click.pass_context
    def show_help(ctx: click.Context) -> int:
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
        return 0

    show_help.modules, show_help.synonyms = modules, synonyms
    show_help.params += global_options(hidden=True)
    return show_help


def global_options(*, hidden: bool) -> list[click.Option]:
    """Return the options of every command, which may also be given before its name."""

    def set_project(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.ensure_object(CliContext).project_option = value

    return [
        click.Option(
            ["--project"],
            metavar="DIR",
            type=AnyPath(file_okay=False),
            expose_value=False,
            is_eager=True,
            callback=set_project,
            hidden=hidden,
            help=say("The project's folder; default: found from here."),
        ),
        click.Option(  # `main` has parsed it already
            ["--color/--no-color", "colour"],
            default=None,
            expose_value=False,
            hidden=hidden,
            help=say("Always or never use colours."),
        ),
    ]


def skill_argument(name: str = "name", **options: Any) -> Callable[..., Any]:
    """Return an argument that takes names of skills, which shells complete."""
    return click.argument(name, shell_complete=complete_names, **options)


def complete_names(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete names of skills; none when the project cannot be read."""
    from click.shell_completion import CompletionItem

    context = ctx.find_object(CliContext) or CliContext()
    try:
        skills = context.satchel.library.every()
    except SatchelError:
        return []
    by_name = {skill.name: skill for skill in skills if skill.name.startswith(incomplete)}
    return [
        CompletionItem(name, help=one_line(skill.description)[:60])
        for name, skill in sorted(by_name.items())
        if name == skill.reference
    ]


class ProgressBar:
    """A bar that is called with progress: `bar(name, completed, total)`."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._bar: Any = None
        self._completed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)
            self._bar = None

    def __call__(self, name: str, completed: int, total: int) -> None:
        """Show that `completed` of `total` are done, and that `name` is next."""
        if not self._is_terminal or time.monotonic() - self._began < _PROGRESS_DELAY_S:
            return
        if self._bar is None:
            if completed >= total:
                return
            self._bar = click.progressbar(
                length=total,
                label=self._label,
                file=sys.stderr,
                item_show_func=lambda name: cut(one_line(str(name or "")), _MAX_NAME_COLUMNS),
            ).__enter__()
        self._bar.update(max(completed - self._completed, 0), name)
        self._completed = completed


def with_progress(items: Sequence[_Item], label: str) -> Iterator[_Item]:
    """Yield the items one by one under a progress bar."""
    with ProgressBar(label) as progress:
        for index, item in enumerate(items):
            progress("", index, len(items))
            yield item
        progress("", len(items), len(items))


def read_goal(context: CliContext, words: Sequence[str], example_command: str) -> str:
    """Read the goal from arguments, or from stdin for `-`; `example_command` is for the hint."""
    argument = " ".join(words).strip()
    text = _read_stdin(context) if argument == _STDIN else argument
    if not text.strip():
        raise InvalidInput(
            say("`{name}` is missing", name="TEXT"),
            say("Run `{command}`", command=f'{example_command} "review this pull request"'),
        )
    return text


def _read_stdin(context: CliContext) -> str:
    if sys.stdin.isatty():
        context.err.line(say("{key} ends it", key="Ctrl-D"), "dim")
    data = read_bytes(_STDIN, _MAX_GOAL_BYTES, "")
    if b"\0" in data:
        raise InvalidInput(say("stdin is not text"))
    if len(data) > _MAX_GOAL_BYTES:
        raise too_large("stdin", _MAX_GOAL_BYTES)
    return data.decode("utf-8-sig", "replace")


def too_large(path: str, limit: int) -> InvalidInput:
    """Return the error for an input beyond its limit."""
    return InvalidInput(
        say("`{path}` has more than {count} bytes", path=one_line(path), count=limit)
    )


def read_bytes(path: str, max_bytes: int, hint: str) -> bytes:
    """Read a file, or stdin for `-`, up to one byte beyond the limit; `hint` if it is missing."""
    try:
        if path == _STDIN:
            return sys.stdin.buffer.read(max_bytes + 1)
        with open(os.path.expanduser(path), "rb") as stream:
            return stream.read(max_bytes + 1)
    except FileNotFoundError as exc:
        raise NotFound(say("There is no `{path}`", path=one_line(path)), hint) from exc
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise Refused(
            say("`{path}` cannot be read: {reason}", path=one_line(path), reason=reason),
            say("Check the permissions"),
        ) from exc
