"""The entry point: runs a command and converts every failure to a message and an exit code.

Importing click takes longer than listing a hundred skills, so `satchel --version` and a plain
`satchel list` run without it.

Exit codes: 0 done, 1 problems found, 2 wrong usage, 3 not found, 4 refused, 5 broken skill,
6 an extra or a runtime is missing, 7 a program cannot be built, 8 not everything was tried, 70 a
bug in Satchel, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import codecs
import os
import sys

from satchel import __version__
from satchel.cli import COMPLETION_VARIABLE, EXIT_INTERRUPTED, CommandRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FAST_OPTIONS = frozenset(("--json", "--all"))
_ASCII_MARKS = {
    "●": "*", "○": "o", "◐": "~", "✗": "x", "✓": "+", "▲": "!", "·": "-", "→": "->", "…": "...",
    "–": "-", "—": "-", "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip


def main() -> None:
    """Run `satchel` with the arguments of this process, then exit."""
    status = run(sys.argv[1:])
    if status:
        sys.exit(status)


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot encode must not raise.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            codecs.register_error("satchel", _encode_marks)
            reconfigure(errors="satchel")
    options = args[: args.index("--")] if "--" in args else args
    as_json = "--json" in options
    switches = [word for word in options if word in ("--color", "--no-color")]
    # Parsed here too, because an error may occur before click has parsed its options.
    CommandRun.colour = switches[-1] == "--color" if switches else None
    if args in (["--version"], ["-V"]):
        return guarded(_print_version)
    needs_no_click = bool(args) and args[0] == "list" and _FAST_OPTIONS.issuperset(args[1:])
    if needs_no_click and COMPLETION_VARIABLE not in os.environ:
        return guarded(lambda: _run_list(args[1:]), as_json=as_json)
    return guarded(lambda: _run_click(args), as_json=as_json)


def _encode_marks(exc: UnicodeError) -> tuple[str | bytes, int]:
    """Write marks as ASCII where the terminal cannot encode them, and the rest as escapes."""
    if not isinstance(exc, UnicodeEncodeError):
        raise exc
    text = exc.object[exc.start : exc.end]
    replacement = "".join(
        _ASCII_MARKS.get(char) or char.encode("ascii", "backslashreplace").decode() for char in text
    )
    return replacement, exc.end


def _print_version() -> int:
    sys.stdout.write(f"satchel {__version__}\n")
    return 0


def _run_list(options: Sequence[str]) -> int:
    from satchel.cli.commands.list_skills import show_list
    from satchel.cli.project import open_project, warn_of_settings
    from satchel.settings import find_project

    satchel = open_project(find_project(), {}, {}, start=os.getcwd())
    if (sys.stdin.isatty() or "--json" in options) and satchel.library.untrusted_skills():
        return _run_click(["list", *options])  # asks whether to trust the folder, or reports it
    warn_of_settings(satchel.settings)
    return show_list(satchel, everything="--all" in options, as_json="--json" in options)


def _run_click(args: Sequence[str]) -> int:
    from satchel.cli.app import run_click

    return run_click(list(args))


def guarded(call: Callable[[], int], *, as_json: bool = False) -> int:
    """Run `call`; a failure becomes a message on stderr and an exit code.

    With `as_json` it is printed on stdout too, unless the command has printed JSON already.
    """
    from satchel.errors import SatchelError

    CommandRun.answered = False
    try:
        status = call()
        sys.stdout.flush()
        return status
    except SatchelError as exc:
        from satchel.cli.console import error_dict, one_line, print_error

        error = error_dict(exc)
        _write_error(error, as_json=as_json)
        for note in getattr(exc, "__notes__", ()):  # what was done before it failed
            sys.stderr.write(f"{one_line(note)}\n")
        print_error(error["message"], error["hint"])
        return exc.exit_code
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does. Python would raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        from satchel.i18n import say

        error = {"code": "STOPPED", "message": say("Stopped"), "hint": ""}
        _write_error(error, as_json=as_json)
        # On a terminal `^C` stands at the beginning of the line.
        sys.stderr.write("\n" * sys.stderr.isatty() + error["message"] + "\n")
        return EXIT_INTERRUPTED
    except Exception as exc:  # noqa: BLE001 - every failure gets a message
        return _report_bug(exc, as_json=as_json)


def _write_error(error: dict[str, str], *, as_json: bool) -> None:
    """Write the error as JSON if wanted, and flush stdout before anything goes to stderr."""
    try:
        if as_json and not CommandRun.answered:
            from satchel.cli.console import write_json

            write_json({"error": error})
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_bug(exc: Exception, *, as_json: bool) -> int:
    import traceback

    from satchel.cli.console import clean, print_error
    from satchel.errors import InternalError
    from satchel.i18n import say

    message = say("Satchel failed: {reason}", reason=f"{type(exc).__name__}: {exc}")
    hint = say("This is a bug in Satchel: please report it with the lines above")
    error = {"code": InternalError.code, "message": message, "hint": hint}
    _write_error(error, as_json=as_json)
    sys.stderr.write(clean("".join(traceback.format_exception(exc))))
    print_error(message, hint)
    return InternalError.exit_code
