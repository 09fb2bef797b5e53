"""The pool: many concurrent calls, bounded processes, no starvation."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from needs import needs
from runners.leftovers import MARK, eventually, marked
from satchel.runners.base import Program, ProgramLimits, RunRequest
from satchel.runners.launcher import launcher
from satchel.runners.pool import CallQueue, Pool, Ticket

if TYPE_CHECKING:
    from satchel.runners.base import RunResult

FLAGS = ("-E", "-s", "-B", "-X", "utf8")
ONCE = """import json, sys, time
arguments = json.loads(sys.stdin.readline())["arguments"]
time.sleep(arguments.get("sleep", 0))
print(json.dumps({"output": arguments["token"], "error": ""}))
"""
HANG = "import time\ntime.sleep(600)\n"
CRASH = "import os\nos.abort()\n"


@pytest.fixture
def make(tmp_path):
    """Writes a skill's script and gives its program."""

    def write(name: str, source: str, *, mark: str = "") -> Program:
        folder = tmp_path / name
        folder.mkdir()
        path = folder / "main.py"
        path.write_text(source)
        argv = (sys.executable, *FLAGS, str(path))
        env = ((MARK, mark),) if mark else ()
        read = (sys.prefix, sys.base_prefix)
        return Program(argv, str(folder), "python", read, env, "1")

    return write


@pytest.fixture
def pool():
    made = Pool(tier="none", processes=4)
    yield made
    made.close()


# --- one call -----------------------------------------------------------------------------


@pytest.mark.parametrize("tier", ["none", "bwrap"])
def test_a_missing_program_is_an_error(make, tier):
    if tier == "bwrap":
        needs("bwrap")
    pool = Pool(tier=tier, processes=2)
    program = make("a", ONCE)._replace(argv=("/nowhere/python", "x"))
    result = pool.run(RunRequest("a", "a", {}, program))
    pool.close()
    assert (result.fault, result.exit_code) == ("cannot-start", None), result
    assert "/nowhere/python" in result.detail
    assert result.detail.startswith("bwrap: ") is (tier == "bwrap")


def test_waiting_is_bounded_and_reported(pool, make):
    program = make("slow", ONCE)
    results: list[RunResult] = []

    def call(sleep: float, timeout: float) -> None:
        arguments = {"token": "x", "sleep": sleep}
        request = RunRequest("slow", "t", arguments, program, limits=ProgramLimits(timeout=timeout))
        results.append(pool.run(request))

    threads = [threading.Thread(target=call, args=(0.8, 5.0)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: pool.counts()["running"] == 2)
    late = threading.Thread(target=call, args=(0.0, 0.3))
    patient = threading.Thread(target=call, args=(0.0, 5.0))
    for thread in (late, patient):
        thread.start()
    for thread in (*threads, late, patient):
        thread.join()
    first, *rest = results
    assert (first.fault, first.output) == ("timeout", "")
    assert "turn" in first.detail
    assert all(result.fault is None for result in rest)
    assert max(result.waited_ms for result in rest) > 200


def test_a_waiting_call_can_be_cancelled(pool, make, cancel):
    request = RunRequest("hangs", "t", {}, make("hangs", HANG), cancel=cancel)
    results: list[RunResult] = []
    threads = [threading.Thread(target=lambda: results.append(pool.run(request))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: pool.counts() == {"running": 2, "waiting": 1})
    cancel.set()
    for thread in threads:
        thread.join()
    assert [result.fault for result in results] == ["cancelled"] * 3
    assert pool.counts() == {"running": 0, "waiting": 0}


@pytest.mark.parametrize("turn_came", [False, True])
def test_an_interrupt_while_waiting_gives_the_place_back(turn_came):
    queue = CallQueue(2)
    held = queue.enter("a", 5.0)
    assert isinstance(held, Ticket)

    def interrupt(*_given):
        if turn_came:
            queue.leave(held)  # the turn comes, and with it the interrupt
        raise KeyboardInterrupt

    main = threading.get_ident()

    def send():
        assert eventually(lambda: queue.counts()[1])
        signal.pthread_kill(main, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            queue.enter("a", 5.0)
    finally:
        sender.join()
        signal.signal(signal.SIGALRM, before)
    if not turn_came:
        queue.leave(held)
    assert queue.counts() == (0, 0)


# --- closing and forking ------------------------------------------------------------------


def test_closing_ends_what_runs(make):
    mark = f"close-{os.getpid()}"
    pool = Pool(tier="none", processes=8)
    results = []
    asked = [RunRequest(name, "t", {}, make(name, HANG, mark=mark)) for name in ("one", "two")]
    threads = [
        threading.Thread(target=lambda one=one: results.append(pool.run(one))) for one in asked
    ]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(marked(mark)) >= 2)
    pool.close()
    for thread in threads:
        thread.join(5)
    assert [result.fault is not None for result in results] == [True] * 2
    assert eventually(lambda: marked(mark) == [])
    assert pool.run(asked[0]).fault == "cancelled"
    pool.close()


def test_a_fork_of_the_host_has_a_pool_of_its_own(make):
    pool = Pool(tier="none", processes=4)
    request = RunRequest("a", "t", {"token": "x"}, make("a", ONCE))
    assert pool.run(request).output == "x"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: the very point
        child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(pool.run(request).output != "x")
            pool.close()
            launcher().close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.run(request).output == "x"
    pool.close()


# --- many at once -------------------------------------------------------------------------


@pytest.mark.req("E4")
@pytest.mark.timeout(60)
def test_200_calls_of_20_skills_at_once(make):
    """No answer reaches another caller, and processes are bounded, also beside faulty skills."""
    mark = f"crowd-{os.getpid()}"
    slots = 6
    needs("bwrap")
    pool = Pool(tier="bwrap", processes=slots)
    programs = {f"plain{number}": make(f"plain{number}", ONCE, mark=mark) for number in range(18)}
    programs["hangs"] = make("hangs", HANG, mark=mark)
    programs["crashes"] = make("crashes", CRASH, mark=mark)
    requests = [
        RunRequest(
            skill,
            skill,
            {"token": f"{skill}-{number}-{turn}"},
            programs[skill],
            limits=ProgramLimits(timeout=1.0 if skill == "hangs" else 50.0),
        )
        for turn in range(10)
        for number, skill in enumerate(programs)
    ]
    results: dict[int, RunResult] = {}
    most = 0

    def call(number: int) -> None:
        results[number] = pool.run(requests[number])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        most = max(most, len(marked(mark)))
        thread.join()
    pool.close()
    for number, request in enumerate(requests):
        result = results[number]
        if request.skill == "hangs":
            assert result.fault == "timeout"
        elif request.skill == "crashes":
            assert result.fault == "crashed"
        else:
            assert (result.fault, result.output) == (None, request.arguments["token"]), result
    # bubblewrap and its program both carry the mark.
    assert 0 < most <= 2 * slots * len({request.skill for request in requests})
    assert eventually(lambda: marked(mark) == [])


@pytest.mark.req("E4")
@pytest.mark.timeout(60)
def test_a_hung_skill_leaves_half_of_the_slots_to_others(make):
    pool = Pool(tier="none", processes=4)
    request = RunRequest("hangs", "t", {}, make("hangs", HANG), limits=ProgramLimits(timeout=50))
    threads = [threading.Thread(target=pool.run, args=(request,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: pool.counts() == {"running": 2, "waiting": 6}, 10)
    for name in "abcde":
        program = make(name, ONCE)
        for number in range(4):
            token = f"{name}-{number}"
            assert pool.run(RunRequest(name, name, {"token": token}, program)).output == token
    assert pool.counts()["running"] == 2  # none of the hung ones had to end for that
    pool.close()
    for thread in threads:
        thread.join()
