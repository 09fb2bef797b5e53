"""Every fault of a program has its name, in time, and leaves nothing: see `catalogue_of_faults`."""

from __future__ import annotations

import gc
import os
import time
from uuid import uuid4

import pytest

from needs import needs
from runners.catalogue_of_faults import CASES, REPLY
from runners.leftovers import MARK, below, eventually, marked
from runners.once import run_once
from satchel.runners.base import Launch, Program, ProgramLimits, RunRequest
from satchel.runners.pool import Pool

DEADLINE = 0.2
"""Seconds for a program that will not answer: it must have begun by then on a busy machine."""
HELD = (
    "silent", "hangs", "a line that never ends", "segfault", "abort", "killed", "stopped",
    "exit status", "deaf to signals", "too much memory", "too many processes",
    "too large a file", "too many files", "a daemon that holds the pipes", "a daemon, and hangs",
    "a process that forks away for ever", "an answer and a daemon", "an answer, then hangs",
    "an answer, then a crash", "an answer without reading",
)  # fmt: skip
"""Faults whose end depends on what is above the program."""
TRIED = [
    (case, tier)
    for case in CASES
    for tier in (("none", "bwrap", "landlock") if case.name in HELD else ("none",))
]


@pytest.mark.req("E4")
@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize(("case", "tier"), TRIED, ids=lambda value: getattr(value, "name", value))
def test_every_fault_has_its_name_in_time_and_leaves_nothing(case, tier, faulty, tmp_path):
    if tier == "bwrap":
        needs("bwrap")
    mark = uuid4().hex
    timeout = DEADLINE if case.fault == "timeout" else 5.0
    limits = ProgramLimits(timeout=timeout, reply=REPLY, memory=case.memory << 20)
    argv = (faulty, *case.acts, f"mark:{mark}")
    program = Program(argv, str(tmp_path), "binary", read=argv[:1], env=((MARK, mark),))
    request = RunRequest("test", "test", {"text": "x" * case.request}, program, limits=limits)
    pool = Pool(tier=tier)
    began = time.monotonic()
    result = pool.run(request)
    assert marked(mark) == [], result
    assert time.monotonic() - began < timeout + 20
    if case.fault is None:
        assert (result.fault, result.detail) == (None, "")
        assert (result.output, result.exit_code) == (case.output, case.exit_code)
    else:
        assert result.fault in ((case.fault,) if isinstance(case.fault, str) else case.fault)
        assert result.detail
        assert not result.detail.endswith(".")
        assert result.output == ""


@pytest.mark.timeout(120)
def test_no_zombie_and_no_descriptor_is_left_over_500_calls(faulty, starter, tmp_path):
    cases = [case for case in CASES if case.name in {"an answer without a newline", "exit status"}]
    held: list[int] = []
    gc.collect()  # what other tests left is not counted
    for number in range(501):
        case = cases[number % 2]
        limits = ProgramLimits(timeout=5)
        launch = Launch((faulty, *case.acts), (), "/", limits=limits)
        program = Program(launch.argv, str(tmp_path), "binary")
        request = RunRequest("test", "test", {}, program, limits=limits)
        assert run_once(starter, launch, request).fault == case.fault
        held = held or [descriptors(os.getpid()), descriptors(starter.pid)]
    gc.collect()
    assert descriptors(os.getpid()) <= held[0]
    assert descriptors(starter.pid) <= held[1]
    assert eventually(lambda: "Z" not in below(starter.pid).values())
    assert eventually(lambda: len(below(starter.pid)) <= 4)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
