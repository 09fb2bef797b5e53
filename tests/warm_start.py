"""Runs commands of tests as forks of a process that has imported what they need.

    python warm_start.py serve SOCKET           the process that forks
    python warm_start.py run FOLDER WORD...     one command, with the streams of this process

Importing takes a tenth of a second to some seconds, and thousands of tests run a command. Each
command is a fork that goes on as `python -m satchel` would: its own folder, environment, streams
and exit code. There are two such processes, one with the packages of models and engines and one
without, and each starts with the first command that needs it. Neither has imported `satchel.cli`,
whose help is in the language that it is imported in.

A variable that Python reads when it starts cannot be changed in a fork. A command with such a
variable starts cold, and so do all commands with `WARM_START=0`. Servers and workers start cold,
so that a missing import shows.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PACKAGES = {
    "small": ("click", "rjieba"),
    "large": (
        "click", "rjieba", "rich.live", "rich.markdown", "prompt_toolkit", "pydantic_ai",
        "pydantic_ai.models.anthropic", "pydantic_ai.models.openai", "dbos", "psycopg",
        "temporalio.client", "temporalio.worker", "mcp", "mcp.server", "mcp.client.stdio", "httpx",
    ),
}  # fmt: skip
"""Process -> packages that it imports."""
PARTS = ("authoring", "catalogue", "detect", "library", "runners", "security", "skill", "store",
         "tools")  # fmt: skip
"""Parts of Satchel that both import."""
LARGE_PARTS = ("agent", "goals", "integrations/mcp")
LARGE_COMMANDS = ("chat", "goal", "mcp", "run")
AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""How variables begin that only count when a process starts."""
HARMLESS = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Those that change nothing here, or are handled."""
COLD = ("serve", "ui", "worker")
"""Commands that keep running: they start once."""
SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
START_SECONDS = 120
LENGTH_BYTES = 4
STARTED: list[subprocess.Popen[bytes]] = []
"""Processes that this one started."""


@functools.cache
def warm_start() -> WarmStart:
    """The processes of this test run; those of pytest-xdist share them."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return WarmStart(tempfile.mkdtemp(prefix="warm-", suffix=f"-{os.getpid()}"))
    keeper = os.environ["WARM_KEEPER"]  # see conftest.py
    return WarmStart(os.path.join(tempfile.gettempdir(), f"warm-{run}-{keeper}"))


class WarmStart:
    """Starts commands as forks."""

    def __init__(self, folder: str) -> None:
        """Use the processes of this folder, whose name ends with the process that keeps them."""
        self.folder = folder
        self._env = dict(os.environ)
        os.makedirs(folder, 0o700, exist_ok=True)

    def takes(self, words: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether a command can run as a fork."""
        stays = "mcp" in words[-1:] or not set(COLD).isdisjoint(words)
        if stays or os.environ.get("WARM_START") == "0":
            return False
        if env.get("PYTHONPATH", "").split(os.pathsep)[0] != SOURCES:
            return False
        given = {name: text for name, text in env.items() if name.startswith(AT_START)}
        ours = {name: text for name, text in self._env.items() if name.startswith(AT_START)}
        for name in HARMLESS:
            given.pop(name, None)
            ours.pop(name, None)
        return given == ours

    def start(
        self,
        words: Sequence[str],
        folder: str,
        env: Mapping[str, str],
        streams: Sequence[int],
        *,
        terminal: bool = False,
    ) -> Started:
        """Start `python -m satchel WORDS` with these three streams, which stay open here.

        With `terminal`, the first stream becomes the terminal of a session of its own.
        """
        request = {"words": list(words), "folder": folder, "env": dict(env), "terminal": terminal}
        return start(self.folder, request, streams)

    def run(
        self,
        words: Sequence[str],
        folder: str,
        env: Mapping[str, str],
        stdin: str,
        *,
        merged: bool = False,
    ) -> tuple[int, str, str]:
        """Run a command to its end: its exit code, and its output on one stream or on two."""
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin.encode())
            given.seek(0)
            streams = [given.fileno(), out.fileno(), (out if merged else err).fileno()]
            with closing(self.start(words, folder, env, streams)) as started:
                status = started.wait()
            out.seek(0)
            err.seek(0)
            return status, out.read().decode(), err.read().decode()


def start(folder: str, request: Mapping[str, Any], streams: Sequence[int]) -> Started:
    """Send a request to the process that has what the command needs; `folder` has its socket."""
    name = "small" if set(LARGE_COMMANDS).isdisjoint(request["words"]) else "large"
    path = os.path.join(folder, name)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            command = [sys.executable, os.path.abspath(__file__), "serve", path]
            # It outlives the command, whose reader waits until all writers of its pipe have ended.
            null = subprocess.DEVNULL
            STARTED.append(subprocess.Popen(command, stdin=null, stdout=null, stderr=null))
            end = time.monotonic() + START_SECONDS
            while not os.path.exists(path) and time.monotonic() < end:
                time.sleep(0.01)
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(path)
    data = json.dumps(request).encode()
    socket.send_fds(talk, [len(data).to_bytes(LENGTH_BYTES, "big")], list(streams))
    talk.sendall(data)
    return Started(talk)


def warm_command(cold: str = "|".join(f"*' {name} '*" for name in COLD)) -> str:
    """The line of a shell script that runs its arguments as a fork, where that is possible."""
    here = os.path.abspath(__file__)
    warm = shlex.join([sys.executable, "-S", "-E", here, "run", warm_start().folder])
    return f'case " $* " in {cold}|*\' mcp \') ;; *) exec {warm} "$@";; esac\n'


class Started:
    """A running command, with what tests need of `subprocess.Popen`."""

    def __init__(self, talk: socket.socket) -> None:
        self._talk = talk
        self._received = b""
        self.pid = self._number(None) or 0
        self.returncode: int | None = None

    def _number(self, seconds: float | None) -> int | None:
        """The next line, if it comes in time."""
        self._talk.settimeout(seconds)
        while b"\n" not in self._received:
            try:
                piece = self._talk.recv(64)
            except (TimeoutError, BlockingIOError):
                return None
            self._received += piece or b"-9\n"
        line, _, self._received = self._received.partition(b"\n")
        return int(line)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self.returncode = self._number(seconds)
            if self.returncode is not None:
                self._talk.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code.

        Raises:
            TimeoutError: it still runs.
        """
        status = self._ended(timeout)
        if status is None:
            raise TimeoutError(f"it runs after {timeout} seconds")
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the connection, which ends the command."""
        self._talk.close()


def serve(path: str) -> NoReturn:
    """Import what commands need, and fork for each request until the keeper is gone."""
    keeper = int(os.path.dirname(path).rpartition("-")[2])
    _prepare(os.path.basename(path))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for those that attend a command
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.new")
        listening.listen(16)
        os.rename(f"{path}.new", path)
        while True:
            if not select.select([listening], (), (), 1)[0]:
                try:
                    os.kill(keeper, 0)
                except ProcessLookupError:
                    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
                    os._exit(0)
                continue
            talk, _ = listening.accept()
            if not os.fork():
                listening.close()
                with suppress(OSError, ValueError):  # the other side is gone
                    _attend(talk)
                os._exit(0)
            talk.close()


def _attend(talk: socket.socket) -> None:
    """Start one command, and report its process id and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    talk.settimeout(10)
    length, streams, _, _ = socket.recv_fds(talk, LENGTH_BYTES, 3)
    with talk.makefile("rb") as reading:
        request = json.loads(reading.read(int.from_bytes(length, "big")))
    command = os.fork()
    if not command:
        _become(request, streams)
    for number in streams:
        os.close(number)
    talk.sendall(f"{command}\n".encode())
    end = os.pidfd_open(command)
    if talk in select.select([talk, end], (), ())[0]:  # closed: nothing else is ever sent
        os.kill(command, signal.SIGKILL)
    _, status = os.waitpid(command, 0)
    talk.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _prepare(name: str) -> None:
    parts = PARTS if name == "small" else (*PARTS, *LARGE_PARTS)
    for module in (*PACKAGES[name], *_modules(parts)):
        with suppress(ImportError):
            importlib.import_module(module)
    from satchel.security.rules import compile_pattern, list_text_rules

    for rule in list_text_rules():  # the same for every command, and slow to compile
        for text in (*rule.any, *rule.all, *rule.unless):
            compile_pattern(text)
    gc.freeze()  # otherwise each fork's collector would copy everything


def _modules(parts: Sequence[str]) -> Iterator[str]:
    """Names of Satchel's modules, without those that are programs."""
    for part in parts:
        for folder, folders, files in os.walk(os.path.join(SOURCES, "satchel", part)):
            folders[:] = [name for name in folders if name.isidentifier()]
            package = os.path.relpath(folder, SOURCES).replace(os.sep, ".")
            yield package
            yield from (
                f"{package}.{name[:-3]}"
                for name in files
                if name.endswith(".py") and not name.startswith("_")
            )


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Go on as `python -m satchel` does in a process of its own."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)  # those of the parent
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    for folder in reversed(request["env"].get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(1, folder)
    sys.argv = ["satchel", *request["words"]]
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0), "utf-8")
    out = io.BufferedWriter(io.FileIO(1, "w"))
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(out, "utf-8", line_buffering=os.isatty(1))
    err = io.BufferedWriter(io.FileIO(2, "w"))
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(
        err, "utf-8", "backslashreplace", line_buffering=True
    )
    status = 0
    try:
        runpy.run_module("satchel", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        status = 1
    # What ends an interpreter, except for tearing down everything that was imported.
    cast("Any", threading)._shutdown()  # noqa: SLF001
    cast("Any", atexit)._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        sys.path.insert(1, SOURCES)
        serve(sys.argv[2])
    request = {
        "words": sys.argv[3:],
        "folder": os.getcwd(),
        "env": {**os.environ},
        "terminal": False,
    }
    status = start(sys.argv[2], request, (0, 1, 2)).wait()
    sys.exit(status if status >= 0 else 128 - status)
