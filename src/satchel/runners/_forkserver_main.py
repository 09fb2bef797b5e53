"""How does a Python program get a fresh process without starting Python again? By a fork.

This file runs in the skill's own interpreter, inside the skill's own sandbox. No script of the
skill runs in its first process; what the skill requires may, since Python runs the lines of `.pth`
files when it starts. Standard library only, Python 3.9 and later.

    server    imports what programs commonly need, and forks a program ahead of each call
    program   takes the call and becomes `__main__`, as if Python had been started for it

One call at a time, so everything in the sandbox that is not the server belongs to the call. When
the program has ended, the rest of its process group is killed and the scratch folder is emptied.
What has escaped from the group comes back to the server, which is a subreaper: it cannot be found
from in here, but it can be noticed, and then the server ends, and with it the whole sandbox.

Two sockets that keep messages apart. On the first, a call is one packet with the descriptors of
stdin, stdout and stderr; the program itself takes it. On the second, the server says how a program
ended, and anything it receives means "kill". Nobody trusts the server further than the program:
time, memory and the number of processes are watched from outside.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # this folder, which is not the skill's

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import time
import types
import weakref
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Compiled = tuple[tuple[int, ...], types.CodeType]
    """The state of a file, and what was compiled from it."""

CALLS, REPORTS = 3, 4
"""Where the launcher puts the two sockets."""
READY = b"ready"
"""The first packet on the second socket."""
EXIT = struct.Struct("<iQB")
"""Exit status (negative: signal), most memory held in bytes, what else there is to say."""
ENDED, KILLED, LEFTOVER = range(3)
"""`LEFTOVER`: something of this call is still there, so the server is of no use any more."""
PRELOAD = (
    "json", "argparse", "pathlib", "datetime", "typing", "re", "subprocess", "collections.abc",
    "logging", "dataclasses", "csv", "tempfile", "shutil", "hashlib", "traceback", "enum", "math",
    "urllib.parse", "threading",
)  # fmt: skip
"""What at least one in 25 of 891 scripts in published skills imports, and what breaks in no fork.
More of it makes every program larger, and a call slower."""

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_RIGHTS = socket.CMSG_SPACE(3 * 4)


def _find_prctl() -> Callable[[int, int], None]:
    import ctypes

    function = ctypes.CDLL(None, use_errno=True).prctl

    def prctl(option: int, value: int) -> None:
        if function(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")

    return prctl


class Server:
    """The first process: everything that programs have in common."""

    def __init__(self, script: str, arguments: list[str]) -> None:
        self.calls = socket.socket(fileno=CALLS)
        self.reports = socket.socket(fileno=REPORTS)
        for channel in (self.calls, self.reports):
            channel.set_inheritable(False)
        self.script = script
        self.arguments = arguments
        self.scratch = os.environ.get("SATCHEL_SCRATCH", "")
        self.prctl = _find_prctl()
        self.code: Compiled | None = None
        self.preload = list(reversed(PRELOAD))
        self.program = 0

    def serve(self) -> None:
        """One program after the other, until the host is gone."""
        # A program must not write into the memory that later ones are made of.
        self.prctl(_PR_SET_DUMPABLE, 0)
        self.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        woken = _wakeable()
        poller = select.poll()
        poller.register(self.reports, select.POLLIN)
        poller.register(woken, select.POLLIN)
        self._fork(woken)  # before the imports: a first call does not wait for them
        self.reports.send(READY)
        while True:
            # Programs read the calls themselves; only when there is none, a call is looked for.
            poller.register(self.calls, 0 if self.program else select.POLLIN)
            ready = dict(poller.poll(0 if self.preload and not self.program else None))
            asked = ready.pop(self.calls.fileno(), 0)
            if asked & select.POLLHUP:
                return
            if woken in ready:
                os.read(woken, 4096)
                self._reap(ENDED)
            elif ready:
                if not self.reports.recv(16):
                    return
                self._reap(KILLED)
            elif not self.program and not asked:
                self._import_one()
            if not self.program and (asked or not self.preload):
                self._fork(woken)

    def _import_one(self) -> None:
        """Import the next module, between calls; at the end, keep all out of every collection."""
        with contextlib.suppress(Exception):  # a program that needs it will say so
            __import__(self.preload.pop())
        if not self.preload:
            self._compile()
            gc.collect()
            gc.freeze()  # never looked at again, so its pages stay shared

    def _compile(self) -> None:
        """Have the script compiled; what is wrong with it is for the program to find."""
        try:
            state = _state(self.script)
            if self.code is None or self.code[0] != state:
                self.code = (state, _compiled(self.script))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            self.code = None

    def _fork(self, woken: int) -> None:
        self.program = os.fork()
        if self.program == 0:
            try:
                os.close(woken)
                self._wait_and_run()
            finally:
                os._exit(70)

    def _reap(self, reason: int) -> None:
        """See whether the program has ended; then end what is left of it, and report."""
        status, peak = None, 0
        if reason == KILLED:
            self._kill_group()
        while status is None:
            try:
                pid, ended, usage = os.wait4(-1, 0 if reason == KILLED else os.WNOHANG)
            except ChildProcessError:
                return  # seen before
            if pid == 0:
                return  # it was something else that ended
            if pid == self.program:
                status = os.WEXITSTATUS(ended)
                if os.WIFSIGNALED(ended):
                    status = -os.WTERMSIG(ended)
                peak = usage.ru_maxrss * 1024
        self._kill_group()
        if not _alone() or not _emptied(self.scratch):
            reason = LEFTOVER
        self.program = 0
        if reason == KILLED:
            self._drop_call()
        self.reports.send(EXIT.pack(status, peak, reason))
        if reason == LEFTOVER:
            os._exit(0)  # with its first process the whole sandbox ends
        self._compile()

    def _kill_group(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.program, signal.SIGKILL)

    def _drop_call(self) -> None:
        """Forget a call that was taken back before any program took it."""
        while True:
            data, descriptors = _receive(self.calls, socket.MSG_DONTWAIT)
            for descriptor in descriptors:
                os.close(descriptor)
            if not data:
                return

    def _wait_and_run(self) -> None:
        """Get everything ready, wait for a call, then be the program."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.prctl(_PR_SET_DUMPABLE, 1)
        os.setsid()
        sys.argv[:] = [self.script, *self.arguments]
        newest = next(reversed(sys.modules))
        sys.modules["__main__"] = _main_module(self.script)
        _rehearse()
        data, descriptors = _receive(self.calls)
        if not data or len(descriptors) != 3:
            os._exit(0)  # the host is gone
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 32)
        status = _finish(newest, _run(self.script, self.code))
        if status == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os.closerange(0, 3)  # so that whoever reads need not wait while the memory is given back
        os._exit(status & 0xFF)


def _rehearse() -> None:
    """Do what most programs do: the pages that this writes to are its own before the call comes."""
    if "json" in sys.modules:
        json = sys.modules["json"]
        with open(os.devnull, "w", encoding="utf-8") as nowhere, open(os.devnull, "rb") as nothing:
            nothing.readline()
            print(json.dumps(json.loads('{"arguments": {"a": ["b", 1, 2.5, true]}}')), file=nowhere)
    gc.collect()


def _main_module(script: str) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=script,
        __loader__=SourceFileLoader("__main__", script),
        __builtins__=__builtins__,
        __cached__=None,
    )
    return main


def _run(script: str, code: Compiled | None) -> int:
    """Run the script as `__main__`; the exit status, negative when it was interrupted."""
    try:
        if code is None or code[0] != _state(script):
            code = (_state(script), _compiled(script))
        exec(code[1], sys.modules["__main__"].__dict__)  # noqa: S102 - the program, in its sandbox
    except SystemExit as stop:
        return _status_of(stop)
    except BaseException as problem:  # noqa: BLE001 - whatever it is, Python would show it
        _show(problem)
        return -signal.SIGINT if isinstance(problem, KeyboardInterrupt) else 1
    return 0


def _status_of(stop: SystemExit) -> int:
    code: object = stop.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{code}\n")
    return 1


def _show(problem: BaseException) -> None:
    """The traceback, from the script's own first line on."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    problem = problem.with_traceback(trace)
    try:
        sys.excepthook(type(problem), problem, trace)
    except BaseException:  # noqa: BLE001 - the program's own hook may fail
        sys.__excepthook__(type(problem), problem, trace)


def _finish(newest: str, status: int) -> int:
    """What Python does at its end: threads, exit functions, and files that nobody closed.

    Args:
        newest: the module that was imported last before the program ran: those after it are its.
        status: how it ended so far.
    """
    for module, step in (("threading", "_shutdown"), ("atexit", "_run_exitfuncs")):
        try:
            if module in sys.modules:
                getattr(sys.modules[module], step)()
        except BaseException as problem:  # noqa: BLE001 - shown, as Python shows it
            _show(problem)
    status = _flush(status)
    its = ["__main__"]
    for name in reversed(sys.modules):  # a touched object is a copied page: only the new ones
        if name == newest:
            break
        its.append(name)
    # A file that was written and not closed is written out when the last name for it goes.
    alive: list[weakref.ref[types.ModuleType]] = []
    for name in its:
        with contextlib.suppress(TypeError):  # anything may be put there, even None
            alive.append(weakref.ref(sys.modules[name]))
        del sys.modules[name]
    gc.collect()
    for found in alive:
        module = found()
        if module is not None:
            for name in [name for name in module.__dict__ if name != "__builtins__"]:
                module.__dict__[name] = None
    gc.collect()
    return _flush(status)


def _flush(status: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException as problem:  # noqa: BLE001 - Python says 120 for this
            status = status or 120
            with contextlib.suppress(Exception):
                sys.stderr.write(f"Exception ignored while flushing: {problem!r}\n")
    return status


def _state(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _compiled(path: str) -> types.CodeType:
    with open(path, "rb") as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


# --- small things -------------------------------------------------------------------------


def _wakeable() -> int:
    """A descriptor that becomes readable whenever a child has ended."""
    woken, waker = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, _ignore)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    return woken


def _ignore(_number: int, _frame: object) -> None:
    """A handler, since a signal that is ignored wakes nobody."""


def _alone() -> bool:
    """Whether this process has no child any more; what is being killed gets a moment."""
    for _ in range(20):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(0.0005)
    return False


def _receive(channel: socket.socket, flags: int = 0) -> tuple[bytes, tuple[int, ...]]:
    """One packet and its descriptors; nothing when there is none."""
    try:
        data, extra, _, _ = channel.recvmsg(16, _RIGHTS, flags)
    except OSError:
        return b"", ()
    for level, kind, content in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            count = len(content) // 4
            return data, struct.unpack(f"{count}i", content[: count * 4])
    return data, ()


def _emptied(folder: str) -> bool:
    """Remove all that is in the scratch folder, where nothing is mounted; whether it went well."""
    try:
        for name in os.listdir(folder) if folder else ():
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                import shutil

                shutil.rmtree(path)
            else:
                os.unlink(path)
    except Exception:  # noqa: BLE001 - a stranger filled it, perhaps deeper than can be walked
        return False
    return True


def main() -> None:
    """`_forkserver_main.py SCRIPT [ARGUMENT ...]`."""
    script, *arguments = sys.argv[1:]
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    Server(script, arguments).serve()


if __name__ == "__main__":
    main()
