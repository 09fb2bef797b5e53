"""Whatever a program does on its pipes, the call comes back in time, with its name, and clean."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from lag import Lag
from needs import needs
from runners.catalogue_of_faults import CASES, REPLY
from runners.leftovers import MARK, below, eventually, marked
from satchel.runners.base import Launch, Limits, Program, RunRequest
from satchel.runners.cold import ColdRunner, run_once

if TYPE_CHECKING:
    from runners.catalogue_of_faults import Case
    from satchel.runners.base import RunResult, Tier

RUNTIMES = ("python", "node", "go", "c")
DEADLINE = {"python": 0.3, "node": 0.5, "go": 0.2, "c": 0.2}
"""Seconds for a program that will not answer: it must have begun by then on a busy machine."""

HELD = (
    "silent", "hangs", "a line that never ends", "segfault", "abort", "killed", "stopped",
    "exit status", "deaf to signals", "too much memory", "too many processes",
    "too large a file", "too many files", "a daemon that holds the pipes", "a daemon, and hangs",
    "a process that forks away for ever", "an answer and a daemon", "an answer, then hangs",
    "an answer, then a crash", "an answer without reading",
)  # fmt: skip
"""Faults whose end depends on who is above the program."""

# Building the programs may take long, a call may not.
pytestmark = pytest.mark.timeout(30, func_only=True)


def run(case: Case, argv: tuple[str, ...], runtime: str, starter, cwd: str, tier: Tier = "none"):
    """Run a case; what came of it, how late the runner was, and what it left behind."""
    mark = uuid4().hex
    timeout = DEADLINE[runtime] if case.fault == "timeout" else 5.0
    limits = Limits(timeout=timeout, reply=REPLY, memory=case.memory << 20)
    program = Program(
        (*argv, *case.acts, f"mark:{mark}"), cwd, runtime, read=argv[:1], env=((MARK, mark),)
    )
    arguments = {"text": "x" * case.request}
    request = RunRequest("test", "test", arguments, program, limits=limits)
    runner = ColdRunner(tier, starter)
    began = time.monotonic()
    with Lag() as lag:
        result = runner.run(request)
    return result, time.monotonic() - began - timeout - lag.lost, marked(mark)


def check(case: Case, result: RunResult, late: float, left: list[int]) -> None:
    assert left == [], result
    assert late < 0.25
    if case.fault is None:
        assert (result.fault, result.detail) == (None, "")
        assert (result.output, result.exit_code) == (case.output, case.exit_code)
    else:
        expected = (case.fault,) if isinstance(case.fault, str) else case.fault
        assert result.fault in expected, result
        assert result.detail
        assert not result.detail.endswith(".")
        assert result.output == ""


def name(case: Case) -> str:
    return case.name.replace(" ", "-").replace(",", "")


@pytest.mark.req("E4")
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_every_fault_has_its_name_in_time_and_leaves_nothing(
    case, runtime, faulty, starter, tmp_path
):
    check(case, *run(case, faulty[runtime], runtime, starter, str(tmp_path)))


@pytest.mark.req("E4")
@pytest.mark.parametrize("tier", ["bwrap", "landlock"])
@pytest.mark.parametrize("case", [case for case in CASES if case.name in HELD], ids=name)
def test_faults_are_the_same_in_every_sandbox(case, tier, faulty, starter, tmp_path):
    if tier == "bwrap":
        needs("bwrap")
    check(case, *run(case, faulty["c"], "c", starter, str(tmp_path), tier))


def test_thirty_faults_are_not_fewer():
    assert len([case for case in CASES if case.fault is not None]) >= 30


@pytest.mark.timeout(120)
def test_no_zombie_and_no_descriptor_is_left_over_500_calls(faulty, starter, tmp_path):
    (good,) = (case for case in CASES if case.name == "an answer without a newline")
    (bad,) = (case for case in CASES if case.name == "exit status")
    run(good, faulty["c"], "c", starter, str(tmp_path))
    before, held = descriptors(os.getpid()), descriptors(starter.pid)
    for _ in range(250):
        for case in (good, bad):
            limits = Limits(timeout=5)
            program = Program((*faulty["c"], *case.acts), str(tmp_path), "binary")
            request = RunRequest("test", "test", {}, program, limits=limits)
            launch = Launch(program.argv, (), "/", limits=limits)
            assert run_once(starter, launch, request).fault == case.fault
    assert descriptors(os.getpid()) == before
    assert descriptors(starter.pid) == held
    assert eventually(lambda: "Z" not in below(starter.pid).values())
    assert eventually(lambda: len(below(starter.pid)) <= 4)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
