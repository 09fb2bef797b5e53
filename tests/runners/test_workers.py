"""Warm workers: reuse and replacement."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing

import pytest

from needs import needs
from runners.leftovers import eventually
from satchel.runners.base import Program, ProgramLimits, ProgramPermissions, RunRequest
from satchel.runners.pool import Pool
from satchel.trace import Trace

FLAGS = ("-E", "-s", "-B", "-X", "utf8")
LOOP = """import json, os, sys, time
asked = 0
for line in sys.stdin:
    arguments = json.loads(line)["arguments"]
    asked += 1
    out = [os.getpid(), asked, arguments.get("token"), os.environ.get("KEY")]
    exec(arguments.get("do", ""))
    print(json.dumps({"output": json.dumps(out), "error": ""}), flush=True)
    exec(arguments.get("then", ""))
"""


@pytest.fixture(params=["bwrap"])
def tier(request) -> str:
    if request.param == "bwrap":
        needs("bwrap")
    return request.param


@pytest.fixture
def trace() -> Trace:
    return Trace()


@pytest.fixture
def pool(tier, trace):
    made = Pool(tier=tier, processes=8, trace=trace)
    yield made
    made.close()


@pytest.fixture
def program(tmp_path) -> Program:
    folder = tmp_path / "skill"
    folder.mkdir()
    script = folder / "main.py"
    script.write_text(LOOP)
    argv = (sys.executable, *FLAGS, str(script))
    read = (sys.prefix, sys.base_prefix)
    return Program(argv, str(folder), "python", read, key="1")


def request(program: Program, *, count: int = 1, limits: ProgramLimits | None = None, **arguments):
    asked = RunRequest("warm", "t", arguments, program, workers=count)
    return asked._replace(limits=limits) if limits else asked


def ask(pool: Pool, asked: RunRequest):
    result = pool.run(asked)
    assert result.fault is None, result
    assert result.way == "warm"
    return json.loads(result.output)


def test_one_process_answers_many_calls(pool, program):
    said = [ask(pool, request(program, token=number)) for number in range(20)]
    assert len({pid for pid, *_ in said}) == 1
    assert [asked for _, asked, _, _ in said] == list(range(1, 21))
    assert [token for *_, token, _ in said] == list(range(20))
    assert pool.counts()["kept"] == 1


@pytest.mark.parametrize("tier", ["none"], indirect=True)
def test_few_idle_workers_are_kept(tier, program):
    with closing(Pool(tier=tier, processes=1)) as pool:
        for number in range(6):
            ask(pool, request(program)._replace(skill=f"s{number}"))
        assert pool.counts()["kept"] == 4


@pytest.mark.parametrize("tier", ["none"], indirect=True)
def test_answers_in_pieces_long_requests_and_words_on_standard_error(pool, program):
    limits = ProgramLimits(output=1_000_000)
    assert ask(pool, request(program, token="x" * 300_000, limits=limits))[2] == "x" * 300_000
    write = "os.write(2, {!r})"
    later = "time.sleep(0.05); " + write.format(b"after")
    said = pool.run(request(program, do=write.format(b"before"), then=later))
    assert said.stderr == "before"
    time.sleep(0.3)
    assert pool.run(request(program)).stderr == "after"
    assert pool.counts()["kept"] == 1


FAULTS = {
    "hangs": ("time.sleep(60)", "timeout"),
    "ends": ("sys.exit(0)", "no-reply"),
    "ends with a status": ("sys.exit(3)", "exit-code"),
    "crashes": ("os.kill(os.getpid(), 11)", "crashed"),
    "two replies": ('print(\'{"output": "", "error": ""}\')', "two-replies"),
    "not JSON": ("print('words', flush=True); time.sleep(0.2)", "not-json"),
    "too long": ("print('x' * 5000000, flush=True)", "too-long"),
    "closes its output": ("os.close(1); time.sleep(60)", "no-reply"),
    "memory": ("kept = bytearray(300 << 20); time.sleep(60)", "memory"),
}


@pytest.mark.req("E4")
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("tier", ["bwrap", "none"], indirect=True)
def test_after_a_fault_there_is_a_new_worker(name, pool, program, tier):
    do, fault = FAULTS[name]
    if name == "closes its output" and tier == "bwrap":
        fault = "timeout"  # bwrap itself holds the pipe open
    assert ask(pool, request(program))[1] == 1
    limits = ProgramLimits(timeout=0.5 if fault == "timeout" else 5.0, memory=128 << 20)
    began = time.monotonic()
    result = pool.run(request(program, do=do, limits=limits))
    assert (result.fault, result.way) == (fault, "warm"), result
    assert time.monotonic() - began < 30  # its program would take a minute
    assert result.detail
    second = ask(pool, request(program))
    assert second[1] == 1
    assert pool.counts()["kept"] == 1


def test_what_a_worker_writes_unasked_is_nobodys_answer(pool, program, trace):
    late = 'time.sleep(0.05)\nprint(\'{"output": "stale", "error": ""}\', flush=True)'
    ask(pool, request(program, then=late))
    time.sleep(0.3)
    assert ask(pool, request(program, token="mine"))[1:3] == [1, "mine"]
    (event,) = trace.events
    assert event.values == {"what": "worker", "reason": "it wrote more after a reply"}


def test_a_worker_that_died_while_idle_costs_no_call(pool, program, trace):
    ask(pool, request(program, then="os._exit(0)"))
    (worker,) = pool.kept()
    assert eventually(lambda: not worker.is_well())
    assert ask(pool, request(program))[1] == 1
    assert [event.values["reason"] for event in trace.events] == ["it ended while it was idle"]


@pytest.mark.parametrize("tier", ["none"], indirect=True)
def test_changed_programs_powers_and_limits_get_new_workers(pool, program):
    ask(pool, request(program))
    other = program._replace(key="2")
    assert ask(pool, request(other))[1] == 1
    assert ask(pool, request(other))[1] == 2
    secret = request(other)._replace(permissions=ProgramPermissions(secrets=(("KEY", "one"),)))
    assert ask(pool, secret)[1:] == [1, None, "one"]
    changed = secret._replace(permissions=ProgramPermissions(secrets=(("KEY", "two"),)))
    assert ask(pool, changed)[1:] == [1, None, "two"]
    assert ask(pool, changed._replace(limits=ProgramLimits(memory=1 << 30)))[1] == 1
    # How long it may take is the host's business alone.
    assert ask(pool, changed._replace(limits=ProgramLimits(memory=1 << 30, timeout=3)))[1] == 2
    assert pool.counts()["kept"] == 1
