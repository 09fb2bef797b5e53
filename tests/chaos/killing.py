"""Kill -9 at random moments, and look whether anything was harmed.

The judge knows what was acknowledged. After each kill every skill must be complete, in the state
that was acknowledged last or in the one that was being made; the lockfile must be whole; and
after `verify`, which finishes the change, both must agree and every skill must be trusted.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from chaos import commands, works
from satchel.errors import SatchelError
from satchel.library.lockfile import read_lock
from satchel.store.recovery import recover
from satchel.store.trees import digest_at

if TYPE_CHECKING:
    from satchel.store.workdir import Scope

HERE = os.path.dirname(os.path.abspath(__file__))
SKILLS = ("alpha", "beta", "gamma", "delta")


class Server:
    """The process that forks children; see `server.py`."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        source = os.path.join(os.path.dirname(os.path.dirname(HERE)), "src")
        environment = {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "server.py"), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self._wire = ours
        self._wire.settimeout(60)
        self._lines = ours.makefile("rb")
        assert self.read() == {"ready": True}

    def read(self) -> dict[str, Any]:
        line = self._lines.readline()
        assert line, "the server is gone"
        return json.loads(line)

    def send(self, job: dict[str, Any]) -> None:
        self._wire.send(works.dump(job))

    def begin(self, project: str, op: str, changes: works.Changes) -> int:
        """Fork a child for one operation, which it begins when told to go; its process id."""
        self.send({"project": project, "op": op, "changes": changes})
        return self.read()["child"]

    def end(self) -> dict[str, Any]:
        """Wait until the child has ended; everything that it said."""
        said: dict[str, Any] = {}
        while "ended" not in said:
            said.update(self.read())
        return said

    def close(self) -> None:
        # Both ends of the wire: the reader keeps the socket open otherwise.
        self._lines.close()
        self._wire.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Tally(NamedTuple):
    """The result of many kills."""

    kills: int
    inside: int
    """Kills that hit an operation before its end."""
    rolled_forward: int
    """Changes that were not acknowledged and are complete all the same."""
    told: int
    """Recoveries with a message."""
    slowest: float
    """Seconds that the slowest recovery took."""
    harm: list[str]


def kill_often(server: Server, project: str, count: int, *, seed: int = 1) -> Tally:
    """Kill `count` operations, one after the other, on the same skills."""
    chance = random.Random(seed)
    state: works.Changes = dict.fromkeys(SKILLS, "")
    inside = forward = told = 0
    slowest, harm = 0.0, list[str]()
    for number in range(1, count + 1):
        op, changes = commands.choose(chance, state, number)
        commands.ready(project, op, changes)
        child = server.begin(project, op, changes)
        server.send({"go": True})
        # An operation takes a tenth of a second, and half of the kills hit its beginning.
        time.sleep(chance.uniform(0, 0.1 if chance.random() < 0.5 else 0.008))
        with suppress(ProcessLookupError):  # it has ended
            os.kill(child, signal.SIGKILL)
        said = server.end()
        begun = changes
        if "done" in said:
            state.update(changes)
            begun = {}
        else:
            assert said == {"ended": -signal.SIGKILL}, said
            inside += 1
        found, seconds, messages = judge(project, state, begun)
        harm += [f"kill {number}, {op} {changes}: {line}" for line in found]
        slowest = max(slowest, seconds)
        told += bool(messages)
        forward += bool(begun) and all(state[skill] == now for skill, now in begun.items())
    return Tally(count, inside, forward, told, slowest, harm)


def judge(
    project: str, state: works.Changes, begun: works.Changes
) -> tuple[list[str], float, list[str]]:
    """The harm, the seconds and the messages of the recovery; updates `state`."""
    scope = commands.scope_of(project)
    legal = {
        skill: {
            commands.digest_of(skill, version): version
            for version in (now, *([begun[skill]] if skill in begun else []))
        }
        for skill, now in state.items()
    }
    harm = [
        f"`{skill}` is torn before the recovery"
        for skill in state
        if digest_at(scope.target(skill)) not in legal[skill]
    ]
    try:
        read_lock(scope.lock)
    except SatchelError as exc:
        return [*harm, exc.message], 0.0, []
    began = time.perf_counter()
    store = commands.store_of(project)
    differing = [item for item in store.verify() if item.state not in ("intact", "unlocked")]
    harm += [f"`verify` says that `{item.id}` is {item.state}" for item in differing]
    said = [*store.repaired, *recover(scope)]
    seconds = time.perf_counter() - began
    lock = read_lock(scope.lock)
    for skill in state:
        found = digest_at(scope.target(skill))
        if found not in legal[skill]:
            harm.append(f"`{skill}` is not what was acknowledged")
            continue
        state[skill] = legal[skill][found]
        if (lock[skill].tree if skill in lock else "") != commands.locked(skill, state[skill]):
            harm.append(f"`{skill}` is not what is locked")
    moved = {state[skill] == now for skill, now in begun.items()}
    if len(moved) > 1 and not harm:
        harm.append(f"only one half happened: {begun}")
    harm += [f"`{name}` is left over" for name in left_over(scope)]
    if (
        extra := set(os.listdir(scope.folder)) - set(state)
        if os.path.isdir(scope.folder)
        else set()
    ):
        harm.append(f"{sorted(extra)} came from nowhere")
    return harm + commands.look(project, state), seconds, said


def left_over(scope: Scope) -> list[str]:
    """What a recovery should have cleared away."""
    found: list[str] = []
    for folder in ("stage", "trash"):
        path = scope.part(folder)
        found += [f"{folder}/{name}" for name in (os.listdir(path) if os.path.isdir(path) else ())]
    if os.path.isdir(scope.work):
        known = {"stage", "trash", "history", "base", "lock", "owner", ".gitignore"}
        # These two are made without the lock, and cleared away later.
        found += [
            name for name in os.listdir(scope.work)
            if name not in known and not name.startswith(("..gitignore.", ".owner."))
        ]  # fmt: skip
    if os.path.isdir(scope.root):
        found += sorted(set(os.listdir(scope.root)) - {".satchel", "skills", "satchel.lock"})
    return found
