"""Commands that start without importing everything anew.

    python warm_start.py serve PID DESCRIPTOR...   the processes that have it, and fork
    python warm_start.py run FOLDER WORD...        one command, with the streams of this process

Importing takes a tenth of a second to some seconds, and thousands of tests run a command. So a
process imports the packages and Satchel's modules, and runs nothing of them; each command is a fork
of it that goes on as `python -m satchel` would: its own folder, environment, streams and exit code.
A fork costs as much as its parent is large, so there are four of them, each made when first asked:
with or without what models and engines need, with or without the commands in English.

What Python reads from the environment when it starts cannot change any more: who gives such a
variable gets a process of the old kind, and so does everybody with `WARM_START=0`. Servers,
workers and the snapshots of commands start cold, so that an import that is missing shows.
"""

from __future__ import annotations

import atexit
import contextlib
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
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PACKAGES = {
    "small": ("rjieba",),
    "large": (
        "rich.live", "rich.markdown", "prompt_toolkit", "pydantic_ai",
        "pydantic_ai.models.anthropic", "pydantic_ai.models.openai", "dbos", "psycopg",
        "temporalio.client", "temporalio.worker", "mcp", "mcp.server", "mcp.client.stdio", "httpx",
    ),
}  # fmt: skip
"""Process -> packages that it imports."""
LARGE = ("chat", "goal", "mcp", "run")
"""Commands that need the large ones."""
AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""How variables begin that only count when a process starts."""
HARMLESS = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Those that change nothing here, or are taken care of."""
PARTS = {
    "small": ("authoring", "catalogue", "detect", "library", "runners", "security", "skill",
              "store", "tools"),
    "small-english": ("cli",),
    "large": ("agent", "goals", "integrations/mcp", "remote"),
    "large-english": ("cli",),
}  # fmt: skip
"""Process -> parts of Satchel that it imports. Commands are imported in one language alone, since
their help speaks the language that they are imported in."""
BELOW = {
    "small": {"small-english": ("small-english",), "large": ("large", "large-english")},
    "large": {"large-english": ("large-english",)},
}
"""Process -> those that are forks of it, and whose requests begin each of them."""
COLD = ("serve", "ui", "worker")
"""Commands that stay: they start once, as people start them."""
SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
_LENGTH = struct.Struct("!I")


@functools.cache
def warm_start() -> WarmStart:
    """One for all tests of a run: importing everything takes seconds, and all cores wait for it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return WarmStart(tempfile.mkdtemp(prefix="warm-"), os.getpid())
    folder = os.path.join(tempfile.gettempdir(), f"warm-{run}")
    return WarmStart(folder, int(os.environ["WARM_KEEPER"]))  # see conftest.py


class WarmStart:
    """Gives forks of a process that is warm."""

    def __init__(self, folder: str, keeper: int) -> None:
        """Start it, unless another of this run's processes did; it ends with the keeper."""
        self.folder = folder
        self._env = dict(os.environ)
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(os.path.join(folder, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(os.path.join(folder, "small")):
                return
            with contextlib.ExitStack() as stack:
                numbers: list[int] = []
                for name in PARTS:
                    listening = stack.enter_context(socket.socket(socket.AF_UNIX))
                    listening.bind(os.path.join(folder, name))
                    listening.listen(16)
                    numbers.append(listening.fileno())
                command = [sys.executable, os.path.abspath(__file__), "serve", str(keeper)]
                self._process = subprocess.Popen(
                    [*command, *map(str, numbers)], pass_fds=numbers, stdin=subprocess.DEVNULL
                )

    def takes(self, words: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether a command can run here."""
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
        """`python -m satchel WORDS` with these as its three streams, which stay open here."""
        return start(self.folder, words, folder, env, streams, terminal=terminal)

    def run(
        self,
        words: Sequence[str],
        folder: str,
        env: Mapping[str, str],
        said: str,
        *,
        merged: bool = False,
    ) -> tuple[int, str, str]:
        """The same to its end: its exit code, and what it wrote, on one stream or on two."""
        texts: list[str] = ["", ""]

        def read(number: int, source: int) -> None:
            with open(source, encoding="utf-8") as stream:
                texts[number] = stream.read()

        with tempfile.TemporaryFile() as given:
            given.write(said.encode())
            given.seek(0)
            pipes = [os.pipe(), os.pipe()]
            streams = [given.fileno(), pipes[0][1], pipes[0 if merged else 1][1]]
            started = self.start(words, folder, env, streams)
        threads = [
            threading.Thread(target=read, args=(number, pipe[0]))
            for number, pipe in enumerate(pipes)
        ]
        for thread, (_, writing) in zip(threads, pipes, strict=True):
            os.close(writing)
            thread.start()
        try:
            status = started.wait()
        finally:
            started.close()
            for thread in threads:
                thread.join()
        return status, texts[0], texts[1]


def start(
    place: str,
    words: Sequence[str],
    folder: str,
    env: Mapping[str, str],
    streams: Sequence[int],
    *,
    terminal: bool = False,
) -> Started:
    """Ask the process that is made for a command.

    Args:
        place: The folder of their sockets.
        words: What follows the command's name.
        folder: Where it runs.
        env: Its environment.
        streams: Descriptors; they stay open here.
        terminal: The first stream is a terminal, and becomes that of a session of its own.
    """
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(os.path.join(place, _made_for(words, env)))
    given = {"words": list(words), "folder": folder, "env": dict(env), "terminal": terminal}
    head = json.dumps(given).encode()
    socket.send_fds(talk, [_LENGTH.pack(len(head))], list(streams))
    talk.sendall(head)
    return Started(talk)


def _made_for(words: Sequence[str], env: Mapping[str, str]) -> str:
    """The process that has what a command needs, and little else."""
    size = "small" if set(LARGE).isdisjoint(words) else "large"
    told = (env.get(name) for name in ("SATCHEL_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    chinese = next((text for text in told if text), "").lower().startswith("zh")
    return size if chinese else f"{size}-english"


def warm_command() -> str:
    """What a shell does before `python -m satchel`: go on warm, where that is possible."""
    here = os.path.abspath(__file__)
    warm = shlex.join([sys.executable, "-S", "-E", here, "run", warm_start().folder])
    cold = "|".join(f"*' {name} '*" for name in COLD)
    return f'case " $* " in {cold}|*\' mcp \') ;; *) exec {warm} "$@";; esac\n'


class Started:
    """A command that runs: what tests need of `subprocess.Popen`."""

    def __init__(self, talk: socket.socket) -> None:
        self._talk = talk
        self._heard = b""
        self.pid = self._number(None) or 0
        self.returncode: int | None = None

    def _number(self, seconds: float | None) -> int | None:
        """The next line that comes within a time."""
        self._talk.settimeout(seconds)
        while b"\n" not in self._heard:
            try:
                piece = self._talk.recv(64)
            except (TimeoutError, BlockingIOError):
                return None
            self._heard += piece or b"-9\n"
        line, _, self._heard = self._heard.partition(b"\n")
        return int(line)

    def _ended(self, seconds: float | None) -> int | None:
        status = self._number(seconds)
        if status is not None:
            self._talk.close()
        return status

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._ended(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has one.

        Raises:
            TimeoutError: it goes on.
        """
        if self.returncode is None:
            self.returncode = self._ended(timeout)
        if self.returncode is None:
            raise TimeoutError(f"it runs after {timeout} seconds")
        return self.returncode

    def send_signal(self, sign: int) -> None:
        """Send it one, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, sign)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Be done with it; whoever gives up ends the command with it."""
        self._talk.close()


class Process:
    """One that forks for each command, until nobody is there any more."""

    def __init__(self, name: str, keeper: int, sockets: Mapping[str, socket.socket]) -> None:
        """Import what it is for; `sockets` are its own and those of the processes below it."""
        self.keeper = keeper
        self.sockets = dict(sockets)
        self.asked = {sockets[name]: ""}
        """Listening socket -> the process that begins when it is asked; empty for this one."""
        for below, names in BELOW.get(name, {}).items():
            self.asked |= {sockets[one]: below for one in names}
        self.below = BELOW.get(name, {})
        self.running: dict[int, tuple[socket.socket, int]] = {}
        """Number of a command -> who asked for it, and a descriptor that tells of its end."""
        _prepare(name)

    def serve(self) -> NoReturn:
        """Wait for whatever comes."""
        while True:
            ends = {end: pid for pid, (_, end) in self.running.items()}
            askers = {talk: pid for pid, (talk, _) in self.running.items()}
            ready, _, _ = select.select([*self.asked, *askers, *ends], (), (), 1)
            if not ready:
                self._look()
            for one in ready:
                if isinstance(one, int):
                    self._ended(ends[one])
                elif one in askers:
                    self._given_up(askers[one])
                elif below := self.asked.get(one):
                    self._divide(below)
                    break
                elif one in self.asked:
                    self._start(one.accept()[0])

    def _look(self) -> None:
        """End when the keeper has; commands that run go on."""
        try:
            os.kill(self.keeper, 0)
        except ProcessLookupError:
            folder = os.path.dirname(next(iter(self.sockets.values())).getsockname())
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)

    def _divide(self, name: str) -> None:
        """Leave what was asked to a process that is made for it."""
        given = {one: self.sockets.pop(one) for one in self.below[name]}
        if not os.fork():
            for talk, end in self.running.values():
                talk.close()
                os.close(end)
            for listening in self.sockets.values():
                listening.close()
            Process(name, self.keeper, given).serve()
        for listening in given.values():
            del self.asked[listening]
            listening.close()

    def _start(self, talk: socket.socket) -> None:
        """Start one command."""
        try:
            given, streams = _asked(talk)
        except (OSError, struct.error, ValueError):  # whoever began to ask is gone
            talk.close()
            return
        child = os.fork()
        if not child:
            _become(given, streams)
        for number in streams:
            os.close(number)
        self.running[child] = (talk, os.pidfd_open(child))
        with contextlib.suppress(OSError):
            talk.send(f"{child}\n".encode())

    def _ended(self, pid: int) -> None:
        """Tell how a command ended."""
        if pid not in self.running:
            return
        talk, end = self.running.pop(pid)
        os.close(end)
        _, status = os.waitpid(pid, 0)
        with talk, contextlib.suppress(OSError):
            talk.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def _given_up(self, pid: int) -> None:
        """Whoever asked is gone, and the command goes with them."""
        if pid in self.running:
            os.kill(pid, signal.SIGKILL)
            self._ended(pid)


def _asked(talk: socket.socket) -> tuple[Mapping[str, Any], list[int]]:
    """What is asked for, and its streams.

    Raises:
        OSError: it does not come.
        struct.error: hardly any of it came.
        ValueError: only a part of it came.
    """
    talk.settimeout(10)
    first, streams, _, _ = socket.recv_fds(talk, _LENGTH.size, 3)
    try:
        (length,) = _LENGTH.unpack(first)
        text = b""
        while len(text) < length and (piece := talk.recv(length - len(text))):
            text += piece
        return json.loads(text), streams
    except BaseException:
        for number in streams:
            os.close(number)
        raise


def _prepare(name: str) -> None:
    """Import what is the same for every command."""
    for package in PACKAGES.get(name, ()):
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    before = os.environ.get("SATCHEL_LANG")
    os.environ["SATCHEL_LANG"] = "en"
    for module in _modules(PARTS[name]):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    del os.environ["SATCHEL_LANG"]
    if before is not None:
        os.environ["SATCHEL_LANG"] = before
    if name == "small":
        _compile_rules()
    gc.freeze()  # or each fork's collector would copy all of it


def _modules(parts: Sequence[str]) -> Iterator[str]:
    """Names of Satchel's modules, but for those that are programs."""
    for part in parts:
        for folder, folders, files in os.walk(os.path.join(SOURCES, "satchel", part)):
            folders[:] = [name for name in folders if name.isidentifier()]
            below = os.path.relpath(folder, SOURCES).replace(os.sep, ".")
            yield below
            yield from (
                f"{below}.{name[:-3]}"
                for name in files
                if name.endswith(".py") and not name.startswith("_")
            )


def _compile_rules() -> None:
    """The one thing that is done before: it is the same for every command, and takes long."""
    from satchel.security.rules import compiled_pattern, text_rules

    for rule in text_rules():
        for text in (*rule.any, *rule.all, *rule.unless):
            compiled_pattern(text)


def _become(given: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Go on as `python -m satchel` does in a process of its own."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)  # the parent's
    if given["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal
    os.environ.clear()
    os.environ.update(given["env"])
    os.chdir(given["folder"])
    sys.path[0] = given["folder"]
    for folder in reversed(given["env"].get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(1, folder)
    sys.argv = ["satchel", *given["words"]]
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0), "utf-8")
    out = io.BufferedWriter(io.FileIO(1, "w"))
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(out, "utf-8", line_buffering=os.isatty(1))
    wrong = io.BufferedWriter(io.FileIO(2, "w"))
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(
        wrong, "utf-8", "backslashreplace", line_buffering=True
    )
    status = 0
    try:
        runpy.run_module("satchel", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        status = 1
    # What ends an interpreter, but for taking down all that the parent had imported.
    cast("Any", threading)._shutdown()  # noqa: SLF001
    cast("Any", atexit)._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        sys.path.insert(1, SOURCES)
        keeper, *numbers = map(int, sys.argv[2:])
        sockets = (socket.socket(fileno=number) for number in numbers)
        Process("small", keeper, dict(zip(PARTS, sockets, strict=True))).serve()
    status = start(sys.argv[2], sys.argv[3:], os.getcwd(), os.environ, (0, 1, 2)).wait()
    sys.exit(status if status >= 0 else 128 - status)
