"""Stop one operation at each of its system calls, or let the call fail.

`strace` does it, from outside: the program under test is not changed and knows nothing. First the
calls of one operation are counted; then it is run again for each of them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos import commands
from chaos.killing import judge
from satchel.store.trees import digest_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos import works
    from chaos.killing import Server

CHANGING = (
    "write", "pwrite64", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink",
    "unlinkat", "rmdir", "symlink", "symlinkat", "link", "linkat", "chmod", "fchmod", "fchmodat",
    "ftruncate", "fsync", "fdatasync", "syncfs",
)  # fmt: skip
"""Calls that change files or make them durable. Between two of them nothing changes but a new,
empty file, and a kill at the next one finds that."""
OTHERS = ("openat", "openat2", "flock", "read", "getdents64", "newfstatat", "readlink")
"""Calls that can fail, too."""
ERRORS = ("ENOSPC", "EIO", "EACCES", "EROFS")


class Operation(NamedTuple):
    """One operation to disturb."""

    title: str
    op: str
    before: works.Changes
    """The skills that it is about, as they are."""
    after: works.Changes
    past: int = 22
    """How many changes there were: enough for old ones to be let go."""

    @property
    def state(self) -> works.Changes:
        """Everything that is there."""
        return {**({"alpha": _now(self.past)} if self.past else {}), **self.before}


def _now(version: int) -> str:
    return commands.imported("alpha", version)


OPERATIONS = (
    Operation("add, the first use", "add", {"beta": ""}, {"beta": "add beta 1"}, past=0),
    Operation("import a skill", "import", {"beta": ""}, {"beta": commands.imported("beta", 500)}),
    Operation("update it", "update", {"alpha": _now(22)}, {"alpha": _now(500)}),
    Operation("remove it", "remove", {"alpha": _now(22)}, {"alpha": ""}),
    Operation("rename it", "rename", {"alpha": _now(22), "beta": ""},
              {"alpha": "", "beta": commands.renamed(_now(22), "beta")}),
    Operation("undo the update", "undo", {"alpha": _now(22)}, {"alpha": _now(21)}),
)  # fmt: skip
"""As the commands do it: with a source, a scan, bases and trust."""


class Fault(NamedTuple):
    """What happens at which call."""

    call: str
    number: int
    error: str = ""
    """Empty: the process is killed."""
    lasting: bool = False
    """The call fails from then on: a disk that is full stays full."""

    def __str__(self) -> str:
        return f"{self.error or 'kill'} at {self.call} {self.number}{' +' * self.lasting}"

    @property
    def rule(self) -> str:
        what = f"error={self.error}" if self.error else "signal=KILL"
        return f"inject={self.call}:{what}:when={self.number}{'+' * self.lasting}"


class Bench:
    """Projects to disturb, made once for each operation."""

    def __init__(self, server: Server, folder: str) -> None:
        self._server = server
        self._folder = folder
        if not shutil.which("strace"):
            raise RuntimeError("`strace` is not installed, and nothing else stops at every call")

    def _project(self, operation: Operation) -> str:
        """The project as it is before the operation, always in the same place."""
        model = os.path.join(self._folder, f"model-{operation.past}")
        project = os.path.join(self._folder, "project")
        if os.path.isdir(project):
            shutil.rmtree(project)
        if not os.path.isdir(model):
            os.mkdir(project)
            for version in range(1, operation.past + 1):
                changes = {"alpha": _now(version)}
                op = "update" if version > 1 else "import"
                commands.ready(project, op, changes)
                commands.do(project, op, changes)
            commands.make_key(project)  # a user has a key for life
            os.rename(project, model)
        # Linked, which is quicker: no file is ever changed in place.
        shutil.copytree(model, project, symlinks=True, copy_function=os.link)
        commands.ready(project, operation.op, operation.after)
        return project

    def run(self, operation: Operation, *rules: str) -> tuple[str, dict[str, Any], str]:
        """Do it once under `strace`; returns the project, the output of the child, and the log."""
        project = self._project(operation)
        log = os.path.join(self._folder, "strace.log")
        child = self._server.begin(project, operation.op, operation.after)
        words = [word for rule in rules for word in ("-e", rule)]
        tracer = subprocess.Popen(
            ["strace", "-o", log, *words, "-p", str(child)], stderr=subprocess.PIPE, text=True
        )
        try:
            assert tracer.stderr is not None
            line = tracer.stderr.readline()
            assert "attached" in line, f"strace cannot attach: {line}"
            self._server.send({"go": True})
            said = self._server.end()
            tracer.communicate(timeout=30)
        except BaseException:
            # What hangs must not go on after the test, with a log that fills the disk.
            os.kill(child, signal.SIGKILL)
            tracer.kill()
            tracer.communicate()
            raise
        with open(log, encoding="utf-8", errors="replace") as stream:
            return project, said, stream.read()

    def calls(self, operation: Operation, names: tuple[str, ...]) -> Counter[str]:
        """How often an operation makes each call."""
        _, said, log = self.run(operation, f"trace={','.join(names)}")
        assert said["ended"] == 0, said
        found = re.findall(r"^(\w+)\(", log, re.MULTILINE)
        return Counter(call for call in found if call in names)

    def kills(self, operation: Operation) -> Iterator[Fault]:
        """A kill at every call that changes something."""
        for call, times in sorted(self.calls(operation, CHANGING).items()):
            for number in range(1, times + 1):
                yield Fault(call, number)

    def failures(self, operation: Operation, every: int, others: int) -> Iterator[Fault]:
        """A failure of every call that changes something, and of each nth of the others.

        Args:
            operation: What is disturbed.
            every: 1 for every error at every call; 4 for one error at each, in turn.
            others: Each nth of the calls that only read, with one error in turn.
        """
        count = 0
        for call, times in sorted(self.calls(operation, CHANGING + OTHERS).items()):
            for number in range(1, times + 1):
                count += 1
                if call in CHANGING:
                    for shift, error in enumerate(ERRORS):
                        if (count + shift) % every == 0:
                            yield Fault(call, number, error)
                elif count % others == 0:
                    yield Fault(call, number, ERRORS[count // others % len(ERRORS)])

    def outages(self, operation: Operation) -> Iterator[Fault]:
        """Failures that last, one error in turn at each call that changes something."""
        for fault in self.failures(operation, every=4, others=40):
            if fault.call != "flock":  # a lock that cannot be had is waited for, a minute long
                yield fault._replace(lasting=True)

    def disturb(self, operation: Operation, fault: Fault) -> tuple[list[str], str, float]:
        """What is wrong afterwards, how it ended, and how long the recovery took."""
        names = ",".join(CHANGING + OTHERS)
        project, said, log = self.run(operation, f"trace={names}", fault.rule)
        state, begun = operation.state, operation.after
        harm: list[str] = []
        error = said.get("error")
        if fault.error:
            hit = "INJECTED" in log
            ended = "done" if "done" in said else "failed" if error else "crashed"
            if not hit and ended != "done":
                harm.append(f"it failed without a fault: {said}")
            if ended == "crashed":
                harm.append(f"it ended without a typed error: {said}")
            harm += _honest(project, operation, error)
        else:
            ended = "done" if "done" in said else "killed"
            if ended == "killed" and said["ended"] != -9:
                harm.append(f"it was not killed: {said}")
        if ended == "done":
            state, begun = {**state, **operation.after}, {}
        found, seconds, _ = judge(project, state, begun)
        harm += found
        # Whatever happened, the next command works.
        harm += _go_on(project, state) if not harm else []
        return [f"{operation.title}, {fault}: {line}" for line in harm], ended, seconds


def _go_on(project: str, state: works.Changes) -> list[str]:
    changes = {"alpha": _now(900)}
    op = "update" if state.get("alpha") else "import"
    commands.ready(project, op, changes)
    commands.do(project, op, changes)
    found = judge(project, {**state, **changes}, {})[0]
    return [f"the next command: {line}" for line in found]


def _honest(project: str, operation: Operation, error: list[Any] | None) -> list[str]:
    """Whether the message of a failed operation is true."""
    if error is None:
        return []
    kind, message, hint, code = error
    scope = commands.scope_of(project)
    harm: list[str] = []
    if not (message and hint and code):
        harm.append(f"{kind} says too little: {error}")
    now = {skill: digest_at(scope.target(skill)) for skill in operation.after}
    old = now == {
        skill: commands.digest_of(skill, version) for skill, version in operation.before.items()
    }
    new = now == {
        skill: commands.digest_of(skill, version) for skill, version in operation.after.items()
    }
    waiting = os.path.exists(scope.part("journal.json"))
    if "nothing was changed" in message:
        if not old or waiting:
            harm.append(f"it says that nothing was changed: {message}")
    elif "the next command will finish it" in message:
        if not waiting:
            harm.append(f"nothing is left for the next command: {message}")
    elif "was made" in message:
        if not new:
            harm.append(f"it was not made: {message}")
    elif not old or waiting:
        harm.append(f"it changed something and does not say so: {kind} {message}")
    return harm
