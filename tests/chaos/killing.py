"""Kill -9 at random moments, and look whether anything was harmed.

The judge knows what was acknowledged. After each kill every skill must be complete, in the state
that was acknowledged last or in the one that was being made; the lockfile must be whole; and after
the recovery both must agree.
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
from typing import Any, NamedTuple, Self

from chaos import works
from satchel.errors import SatchelError
from satchel.library.lockfile import read_lock
from satchel.store.journal import standing
from satchel.store.recovery import recover

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
    """What came of many kills."""

    kills: int
    inside: int
    """Kills that hit an operation and not the moment between two."""
    acknowledged: int
    rolled_forward: int
    """Changes that were not acknowledged and are complete all the same."""
    told: int
    """Recoveries that had something to say."""
    slowest: float
    """Seconds that the slowest recovery took."""
    harm: list[str]


def kill_often(
    server: Server, project: str, count: int, *, way: str = "transactions", seed: int = 1,
    enough: int = 0,
) -> Tally:  # fmt: skip
    """Kill `count` times, or until there was harm `enough` times."""
    chance = random.Random(seed)
    state: dict[str, int] = dict.fromkeys(SKILLS, 0)
    inside = acknowledged = forward = told = version = done = 0
    slowest, harm = 0.0, list[str]()
    while done < count and not (enough and len(harm) >= enough):
        done += 1
        server.send({
            "job": "loop", "way": way, "project": project, "state": state, "seed": chance.random(),
            "version": version,
        })  # fmt: skip
        child = server.read()["child"]
        begun: list[Any] | None = None
        # Some operations pass, then one is hit a few milliseconds after it began.
        spare = chance.randrange(3)
        while True:
            message = server.read()
            if "begin" in message:
                begun = message["begin"]
                version = max(version, message["begin"][2])
                if not spare:
                    time.sleep(chance.uniform(0, 0.03 if chance.random() < 0.5 else 0.008))
                    break
            elif "done" in message:
                _, skill, after = message["done"]
                state[skill] = after
                acknowledged += 1
                spare -= 1
        os.kill(child, signal.SIGKILL)
        while "ended" not in (message := server.read()):
            if "begin" in message:
                begun = message["begin"]
                version = max(version, message["begin"][2])
            else:
                _, skill, after = message["done"]
                state[skill], begun = after, None
                acknowledged += 1
        assert message["ended"] == -signal.SIGKILL, message
        inside += begun is not None
        found, seconds, said = judge(project, state, begun)
        harm += [f"kill {done}: {line}" for line in found]
        slowest = max(slowest, seconds)
        told += bool(said)
        if begun is not None and state[begun[1]] == begun[2]:
            forward += 1
        if found:  # start again from nothing
            subprocess.run(["rm", "-rf", os.path.join(project, ".agents")], check=True)
            state = dict.fromkeys(SKILLS, 0)
    return Tally(done, inside, acknowledged, forward, told, slowest, harm)


def judge(
    project: str, state: dict[str, int], begun: list[Any] | None
) -> tuple[list[str], float, list[str]]:
    """What is wrong, how long the recovery took and what it said; brings `state` up to date."""
    scope = works.scope_of(project)
    legal = {
        skill: {
            works.digest_of(skill, version): version
            for version in (now, *(begun[2:] if begun and begun[1] == skill else ()))
        }
        for skill, now in state.items()
    }
    harm = [
        f"`{skill}` is torn before the recovery"
        for skill in state
        if standing(scope.target(skill)) not in legal[skill]
    ]
    try:
        read_lock(scope.lock)
    except SatchelError as exc:
        return [*harm, exc.message], 0.0, []
    began = time.perf_counter()
    said = [repair.text for repair in recover(scope)]
    seconds = time.perf_counter() - began
    lock = read_lock(scope.lock)
    for skill in state:
        found = standing(scope.target(skill))
        locked = lock[skill].tree if skill in lock else ""
        if found not in legal[skill]:
            harm.append(f"`{skill}` is not what was acknowledged")
        elif found != locked:
            harm.append(f"`{skill}` is not what is locked")
        else:
            state[skill] = legal[skill][found]
    harm += [f"`{name}` is left over" for name in left_over(project)]
    if (
        extra := set(os.listdir(scope.folder)) - set(state)
        if os.path.isdir(scope.folder)
        else set()
    ):
        harm.append(f"{sorted(extra)} came from nowhere")
    return harm, seconds, said


def left_over(project: str) -> list[str]:
    """What a recovery should have cleared away."""
    scope = works.scope_of(project)
    found: list[str] = []
    for folder in ("stage", "trash"):
        path = scope.part(folder)
        found += [f"{folder}/{name}" for name in (os.listdir(path) if os.path.isdir(path) else ())]
    if os.path.isdir(scope.work):
        known = {"stage", "trash", "history", "base", "lock", ".gitignore"}
        found += [
            name for name in os.listdir(scope.work)
            if name not in known and not name.startswith(".gitignore.")
        ]  # fmt: skip
    if os.path.isdir(scope.root):
        found += sorted(set(os.listdir(scope.root)) - {".satchel", "skills", "satchel.lock"})
    return found
