"""The terminal's entry: which lane answers, and how every failure leaves.

Importing click alone takes longer than listing a hundred skills. So the two things people run most,
`satchel --version` and a plain `satchel list`, are answered before click is imported. All lanes
share `guarded`: one place decides what an error looks like and which exit code it has.

Exit codes: 0 done, 1 problems found, 2 wrong usage, 3 not found, 4 refused, 5 broken skill,
6 an extra or a runtime is missing, 7 a program cannot be built, 8 not everything was tried, 70 a
bug in Satchel, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys

from satchel.cli import COMPLETE, Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FAST_OPTIONS = frozenset(("--json", "--all"))


def main() -> None:
    """Run `satchel` with the words of the command line, then exit."""
    status = run(sys.argv[1:])
    if status:
        sys.exit(status)


def run(words: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not end the program.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    options = words[: words.index("--")] if "--" in words else words
    as_json = "--json" in options or "--format json" in " ".join(options).replace("=", " ")
    switches = [word for word in options if word in ("--color", "--no-color")]
    # Read here too: an error may come before click has looked at its options.
    Run.colour = switches[-1] == "--color" if switches else None
    if words == ["--version"]:
        return guarded(_version)
    plain = bool(words) and words[0] == "list" and _FAST_OPTIONS.issuperset(words[1:])
    if plain and COMPLETE not in os.environ:
        return guarded(lambda: _list(words[1:]), as_json=as_json)
    return guarded(lambda: _click(words), as_json=as_json)


def _version() -> int:
    from satchel import __version__

    sys.stdout.write(f"satchel {__version__}\n")
    return 0


def _list(options: Sequence[str]) -> int:
    from satchel.cli.listing import show_list
    from satchel.cli.opening import open_project, warn_of_settings
    from satchel.settings import find_project

    satchel = open_project(find_project(), {}, {})
    if (sys.stdin.isatty() or "--json" in options) and satchel.library.waiting():
        return _click(["list", *options])  # which asks about the folder, or says what waits
    warn_of_settings(satchel.settings, None)
    return show_list(satchel, everything="--all" in options, as_json="--json" in options)


def _click(words: Sequence[str]) -> int:
    from satchel.cli.app import run_click

    return run_click(list(words))


def guarded(call: Callable[[], int], *, as_json: bool = False) -> int:
    """Run `call`; whatever goes wrong becomes words on stderr and an exit code.

    Who asked for JSON gets the failure on stdout too, unless the command has answered already.
    """
    from satchel.errors import SatchelError

    Run.answered = False
    try:
        status = call()
        sys.stdout.flush()
        return status
    except SatchelError as exc:
        from satchel.cli.output import complain, one_line, told_error

        told = told_error(exc)
        _leave(told, as_json=as_json)
        for note in getattr(exc, "__notes__", ()):  # what was done before it failed
            sys.stderr.write(f"{one_line(note)}\n")
        complain(told["message"], told["hint"])
        return exc.exit_code
    except BrokenPipeError:
        # The reader has seen enough, as `head` does. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # the shell's next line begins on a line of its own
        _leave(_stopped(), as_json=as_json)
        return 130
    except Exception as exc:  # noqa: BLE001 - the border: nothing leaves as a bare traceback
        return _bug(exc, as_json=as_json)


def _stopped() -> dict[str, str]:
    from satchel._language import say

    return {"code": "STOPPED", "message": say("Stopped"), "hint": ""}


def _leave(error: dict[str, str], *, as_json: bool) -> None:
    """What was printed before an error comes before it; then the error, for a script."""
    try:
        if as_json and not Run.answered:
            from satchel.cli.output import write_json

            write_json({"error": error})
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bug(exc: Exception, *, as_json: bool) -> int:
    """An error nobody foresaw: show where it happened and ask for a report."""
    import traceback

    from satchel._language import say
    from satchel.cli.output import clean, complain
    from satchel.errors import InternalError

    message = say("Satchel failed: {reason}", reason=f"{type(exc).__name__}: {exc}")
    hint = say("This is a bug in Satchel: please report it with the lines above")
    told = {"code": InternalError.code, "message": message, "hint": hint}
    _leave(told, as_json=as_json)
    sys.stderr.write(clean("".join(traceback.format_exception(exc))))
    complain(message, hint)
    return InternalError.exit_code
