"""Commands that start without importing a provider's packages anew.

    python warm_start.py serve DESCRIPTOR       the process that has them; it forks for each command
    python warm_start.py run SOCKET WORD...     one such command, with the streams of this process

Importing them takes seconds, and hundreds of tests run a command that needs them. So one process
imports them, and nothing of Satchel; each command is a fork of it that goes on as `python -m
satchel` would: its own folder, environment, streams and exit code. What Python reads from the
environment when it starts cannot change any more: who gives such a variable gets a process of the
old kind, and so does everybody with `WARM_START=0`.
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
import shlex
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
    from collections.abc import Mapping, Sequence

PACKAGES = (
    "click", "yaml", "rich.live", "rich.markdown", "prompt_toolkit", "pydantic_ai",
    "pydantic_ai.models.anthropic", "pydantic_ai.models.openai", "dbos", "psycopg",
    "temporalio.client", "temporalio.worker",
)  # fmt: skip
AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""How variables begin that only count when a process starts."""
HEAVY = {"goal", "chat", "run"}
"""Commands that import much; the others start in no time."""
_LENGTH = struct.Struct("!I")


@functools.cache
def warm_start() -> WarmStart:
    """One for all tests of this process."""
    started = WarmStart()
    atexit.register(started.close)
    return started


class WarmStart:
    """Gives forks of a process that is warm."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.address = os.path.join(self._folder.name, "socket")
        self._env = dict(os.environ)
        listening = socket.socket(socket.AF_UNIX)
        with listening:
            listening.bind(self.address)
            listening.listen(16)
            number = listening.fileno()
            self._process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "serve", str(number)],
                pass_fds=[number],
                stdin=subprocess.PIPE,  # it ends when this one does
            )

    def takes(self, words: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether a command can run here and gains by it."""
        if not words or words[0] not in HEAVY or os.environ.get("WARM_START") == "0":
            return False
        given = {name: text for name, text in env.items() if name.startswith(AT_START)}
        ours = {name: text for name, text in self._env.items() if name.startswith(AT_START)}
        for name in ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"):
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
        return start(self.address, words, folder, env, streams, terminal=terminal)

    def run(
        self, words: Sequence[str], folder: str, env: Mapping[str, str], said: str
    ) -> tuple[int, str, str]:
        """The same to its end: its exit code, and what it wrote."""
        texts: list[str] = ["", ""]

        def read(number: int, source: int) -> None:
            with open(source, encoding="utf-8") as stream:
                texts[number] = stream.read()

        with tempfile.TemporaryFile() as given:
            given.write(said.encode())
            given.seek(0)
            pipes = [os.pipe(), os.pipe()]
            streams = [given.fileno(), pipes[0][1], pipes[1][1]]
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

    def close(self) -> None:
        """End the process; commands that run go on."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


def start(
    address: str,
    words: Sequence[str],
    folder: str,
    env: Mapping[str, str],
    streams: Sequence[int],
    *,
    terminal: bool = False,
) -> Started:
    """Ask the process that listens at an address for a command.

    Args:
        address: Of its socket.
        words: What follows the command's name.
        folder: Where it runs.
        env: Its environment.
        streams: Descriptors; they stay open here.
        terminal: The first stream is a terminal, and becomes that of a session of its own.
    """
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(address)
    given = {"words": list(words), "folder": folder, "env": dict(env), "terminal": terminal}
    head = json.dumps(given).encode()
    socket.send_fds(talk, [_LENGTH.pack(len(head))], list(streams))
    talk.sendall(head)
    return Started(talk)


def warm_command() -> str:
    """What a shell runs instead of `python -m satchel`."""
    here = os.path.abspath(__file__)
    return shlex.join([sys.executable, "-S", "-E", here, "run", warm_start().address])


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


def serve(listening: socket.socket) -> None:
    """Fork for each command, until nobody is there any more."""
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if any(name.partition(".")[0] == "satchel" for name in sys.modules):
        raise RuntimeError("a package imported Satchel: commands would not start anew")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # or each fork's collector would copy all of it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who watch
    while True:
        talk, _ = listening.accept()
        if os.fork():
            talk.close()
            continue
        listening.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _watch(talk)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(0)


def _watch(talk: socket.socket) -> NoReturn:
    """Start one command, and tell how it ended."""
    first, streams, _, _ = socket.recv_fds(talk, _LENGTH.size, 3)
    (length,) = _LENGTH.unpack(first)
    text = b""
    while len(text) < length:
        text += talk.recv(length - len(text))
    given = json.loads(text)
    child = os.fork()
    if not child:
        talk.close()
        _become(given, streams)
    for number in streams:
        os.close(number)
    talk.send(f"{child}\n".encode())
    threading.Thread(target=_end_with_asker, args=(talk, child), daemon=True).start()
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        talk.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _end_with_asker(talk: socket.socket, child: int) -> None:
    with contextlib.suppress(OSError):
        if not talk.recv(1):
            os.kill(child, signal.SIGKILL)


def _become(given: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Go on as `python -m satchel` does in a process of its own."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
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
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(out, "utf-8")
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
        serve(socket.socket(fileno=int(sys.argv[2])))
    status = start(sys.argv[2], sys.argv[3:], os.getcwd(), os.environ, (0, 1, 2)).wait()
    sys.exit(status if status >= 0 else 128 - status)
