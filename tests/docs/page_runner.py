"""Runs the blocks of one page, in order, in one empty folder, and compares what they print.

- `python` runs in one namespace for the whole page
- `console` runs each line after `$ ` in bash; the lines below it are what it must print, where
  `…` stands for any text in a line and a line of only `…` for any lines; a command whose shown
  output has a line that begins with `error:` must fail, every other must succeed; the folder and
  what was exported as `SATCHEL_…` last until the end of the page
- `terminal` runs each command of `satchel` in a terminal; what follows a prompt (`[y/N] `,
  `n no: `, `> `) is typed, and every line must be shown, in that order; a line that begins with
  `error:` means the same as above
- `yaml`, `toml` and `json` must parse
- `pyi` is a signature, which scripts/reference.py writes from the code
- a block with a title is a file of that name: it is written, and not run
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from typing import TYPE_CHECKING, Any

import yaml

import fixtures
from typing_at import Typing
from warm_start import warm_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from page_blocks import Block

FREE = frozenset({"markdown", "pyi", "text"})
"""Languages that are shown and not run: `pyi` is a signature, made from the code. Add one only with
a reason."""

_MARK = "@@satchel-docs@@"
_PROMPT = re.compile(r"(> |.*\[y/N\] |  y yes, .*n no: |  y 是，.*n 否：)(.+)").fullmatch
_WAITING = re.compile(r"  still running \(.*|  仍在运行（.*")
"""What a busy machine adds, on stderr."""
_EXPORTED = f"echo '{_MARK} exported'; env | grep '^SATCHEL_'"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class PageError(AssertionError):
    """A page says something that is not so."""


class PageRunner:
    """Runs the blocks of one page."""

    def __init__(self, page: str, folder: str) -> None:
        """`page` names the page in messages; `folder` is empty and becomes its project."""
        self.page = page
        self.folder = os.path.join(folder, "project")
        self.home = os.path.join(folder, "home")
        self.here = self.folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.services: list[fixtures.Service] = []
        self._before: dict[str, str | None] = {}
        os.makedirs(self.folder)
        os.makedirs(self.home)
        self.environment = self._environment(os.path.join(folder, "bin"))
        _close_event_loop()

    def _environment(self, bin_folder: str) -> dict[str, str]:
        """A terminal in which `satchel` and `python` are the ones under test."""
        os.makedirs(bin_folder)
        python = shlex.quote(sys.executable)
        # The packages of the tests have skills, and a server that is added does not get variables.
        export = f"export VIRTUAL_ENV={shlex.quote(self.home)}/no-environment\n"
        for name, command in {"satchel": f"{python} -m satchel", "python": python}.items():
            path = os.path.join(bin_folder, name)
            # Commands are started by a process that has imported what they need.
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n" + export + (warm_command() if name == "satchel" else ""))
                file.write(f'exec {command} "$@"\n')
            os.chmod(path, 0o755)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SATCHEL_", "SKILLS_", "XDG_", "LC_"))
        }
        return kept | {
            "HOME": self.home,
            "XDG_CONFIG_HOME": os.path.join(self.home, ".config"),
            "XDG_CACHE_HOME": os.path.join(self.home, ".cache"),
            "XDG_STATE_HOME": os.path.join(self.home, ".local", "state"),
            "XDG_DATA_HOME": os.path.join(self.home, ".local", "share"),
            "PATH": bin_folder + os.pathsep + os.environ.get("PATH", ""),
            "PYTHONPATH": os.path.join(_ROOT, "src"),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "COLUMNS": "80",
        }

    def run(self, block: Block) -> None:
        """Run one block, or raise a `PageError` that says what is wrong."""
        if block.not_run:
            return
        try:
            self._run(block)
        except PageError as error:
            raise PageError(f"{self.page}:{block.line}: {error}") from None
        except Exception as error:
            raise PageError(f"{self.page}:{block.line}: {type(error).__name__}: {error}") from error

    def _run(self, block: Block) -> None:
        if block.language == "fixture":
            self._set_up(block.text)
            return
        parser = _PARSERS.get(block.language)
        if parser:
            parser(block.text)
        if block.title:
            self._write(block.title, block.text + "\n")
        elif block.language == "python":
            self._python(block)
        elif block.language == "console":
            self._console(block.text)
        elif block.language == "terminal":
            self._terminal(block.text)
        elif not parser and block.language not in FREE:
            known = ", ".join(sorted({"python", "console", "terminal", *_PARSERS, *FREE}))
            raise PageError(f"no rule for a block of `{block.language}`; known are {known}")

    def _set_up(self, name: str) -> None:
        if name not in fixtures.FIXTURES:
            raise PageError(f"no fixture `{name}`; known are {', '.join(fixtures.FIXTURES)}")
        service = fixtures.FIXTURES[name](self.folder)
        if service is not None:
            self.services.append(service)
            # Pages with a model do not ask their readers to install Excel.
            for key, value in {**service.environment(), "SATCHEL_PACKAGED": "false"}.items():
                self.environment[key] = value
                self._before.setdefault(key, os.environ.get(key))
                os.environ[key] = value

    def close(self) -> None:
        """End what runs beside the page, and what its program would end by exiting."""
        _close_event_loop()
        for service in self.services:
            service.close()
        for key, value in self._before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value

    def _write(self, title: str, text: str) -> None:
        path = os.path.normpath(os.path.join(self.folder, os.path.expanduser(title)))
        if not path.startswith((self.folder + os.sep, self.home + os.sep)):
            raise PageError(f"the title `{title}` leads out of the page's folder")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def _python(self, block: Block) -> None:
        # Empty lines in front give tracebacks the line numbers of the page.
        source = "\n" * block.line + block.text
        os.chdir(self.here)
        exec(compile(source, self.page, "exec"), self.names)

    def _console(self, text: str) -> None:
        steps = parse_console(text)
        script = "\n".join(
            f"{command}\nprintf '\\n%s %s %s\\n' '{_MARK}' \"$?\" \"$PWD\"" for command, _ in steps
        )
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{script}\n{_EXPORTED}"],
            cwd=self.here,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
        output, _, exported = done.stdout.partition(f"{_MARK} exported\n")
        self.environment |= dict(line.split("=", 1) for line in exported.splitlines())
        parts = re.split(rf"\n{_MARK} (\d+) (.*)\n", output)
        results = list(zip(parts[0::3], parts[1::3], parts[2::3], strict=False))
        if len(results) != len(steps):
            raise PageError(f"the shell ended early:\n{done.stdout}")
        for (command, shown), (output, status, here) in zip(steps, results, strict=True):
            self.here = here
            check_output(command, shown, output, int(status))

    def _terminal(self, text: str) -> None:
        for command, shown in parse_console(text):
            with Typing(shlex.split(command), self.here, self.environment) as terminal:
                for line in shown:
                    asked = _PROMPT(line)
                    for piece in (asked[1] if asked else line).split("…"):
                        terminal.sees(piece.strip(), 30)
                    if asked:
                        terminal.type(f"{asked[2]}\r")
                terminal.ends()
                status = terminal.program.wait()
                if _should_fail(shown) != (status != 0):
                    raise PageError(f"`{command}` exited with {status}:\n{terminal.text}")


def _close_event_loop() -> None:
    """Close the event loop that `run_sync` of pydantic-ai keeps for the next call.

    Afterwards it creates a new one. Without a loop ever set, asyncio warns about that, and a
    warning is an error here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = asyncio.get_event_loop()
        except RuntimeError:  # a call of `asyncio.run` has ended, and no loop is set
            return
    loop.close()
    asyncio.set_event_loop(None)


def parse_console(text: str) -> list[tuple[str, list[str]]]:
    """Pairs of a command and the lines shown below it."""
    steps: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif not steps:
            raise PageError("a console block begins with `$ ` and a command")
        elif steps[-1][0].endswith("\\") and not steps[-1][1]:
            steps[-1] = (f"{steps[-1][0]}\n{line.removeprefix('> ')}", [])
        else:
            steps[-1][1].append(line)
    return steps


def check_output(command: str, shown: list[str], output: str, status: int) -> None:
    """Compare what a page shows with what happened."""
    if _should_fail(shown) != (status != 0):
        raise PageError(f"`{command}` exited with {status}:\n{output}")
    lines = [line.rstrip() for line in shown]
    if any(lines) and not _pattern(lines).fullmatch(_trimmed(output)):
        wanted = "\n".join(lines)
        raise PageError(f"`{command}` printed\n{_trimmed(output)}\n\nand the page shows\n{wanted}")


def _should_fail(shown: list[str]) -> bool:
    return any(line.startswith(("error:", "错误：")) for line in shown)


def _trimmed(output: str) -> str:
    lines = (line.rstrip() for line in output.rstrip().splitlines())
    return "\n".join(line for line in lines if not _WAITING.fullmatch(line))


def _pattern(lines: list[str]) -> re.Pattern[str]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    parts: list[str] = []
    for line in lines:
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(piece) for piece in line.split("…")) + r"\n")
    whole = "".join(parts)
    # The last line has no newline after it.
    return re.compile(whole[: -len(r"\n")] if whole.endswith(r"\n") else rf"{whole}[^\n]*")


def _parse_yaml(text: str) -> None:
    list(yaml.safe_load_all(text))


_PARSERS: dict[str, Callable[[str], object]] = {
    "yaml": _parse_yaml,
    "toml": tomllib.loads,
    "json": json.loads,
}
