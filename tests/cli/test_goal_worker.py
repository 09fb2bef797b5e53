"""`satchel goal worker`: its log, its health, and what it does without a model."""

from __future__ import annotations

import json
import signal
import time
from http.client import HTTPConnection

import pytest

from ports import free_port
from postgres import Postgres

pytestmark = pytest.mark.timeout(240)
READ = "goal: Read it\nsteps:\n- {id: fetch, tool: week_data_read, arguments: {week: 46}}\n"
BROKEN = (
    "goal: Read it\nretry: {attempts: 2, first: 0.1}\nsteps:\n"
    "- {id: fetch, tool: week_data_read, arguments: {week: 12}}\n"
)
WRITE = "goal: Write it\nsteps:\n- {id: write, prompt: Write a secret word}\n"
DBOS = ("--engine", "dbos")


def test_without_a_model_it_runs_tools_and_leaves_the_rest(weekly):
    weekly.write(read=READ, write=WRITE)
    for name in ("read", "write"):
        done = weekly("goal", "run", f"{name}.yaml", "--id", name, *DBOS, "--detach")
        assert done.status == 0, done.err
    worker = weekly.worker(*DBOS, "--json", SATCHEL_MODEL="")
    weekly.until("read", "done", SATCHEL_ENGINE="dbos")
    line = b""
    while b"step.waits" not in line:
        line = worker.stdout.readline()
        assert line
    waits = json.loads(line)
    assert (waits["goal"], waits["step"]) == ("write", "write")
    assert "has no model" in waits["reason"]
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert b"No model is set: steps that need one are left to other workers" in err
    assert err.count(b"waits for another worker") == 1, "it is said once"
    assert b"secret word" not in out + err


def test_a_failure_is_logged_with_its_code_for_people_and_as_json(weekly):
    weekly.write(broken=BROKEN)
    weekly("goal", "run", "broken.yaml", "--id", "b", *DBOS, "--detach")
    worker = weekly.worker(*DBOS, "--json")
    weekly.until("b", "failed", SATCHEL_ENGINE="dbos")
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    rows = [json.loads(line) for line in out.splitlines()]
    ended = next(row for row in rows if row["event"] == "step.ended")
    assert {name: ended[name] for name in ("goal", "step", "state", "engine")} == {
        "goal": "b", "step": "fetch", "state": "failed", "engine": "dbos",
    }  # fmt: skip
    assert (ended["code"], ended["reason"]) == ("EXECUTION_ERROR", "")
    assert b"No rows" in weekly("goal", "show", "b", *DBOS).out.encode()
    assert b"No rows" not in out + err, "a program's words may be an output"
    assert f"Step `fetch` of goal `b` ended: failed, {ended['seconds']:.1f} s, {ended['code']}" in (
        err.decode()
    )


def health_of(port: int) -> tuple[int, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    return answer.status, json.load(answer)


def test_health_fails_when_the_lease_is_not_renewed(weekly):
    port = free_port()
    with Postgres(fsync=False) as postgres:
        env = {"SATCHEL_ENGINE": f"dbos:{postgres.database()}"}
        words = ("--drain", "1", "--health", str(port), "--at-once", "3")
        worker = weekly.worker(*DBOS, *words, **env)
        assert health_of(port) == (200, {"status": "ok"})
        postgres.stop(kill=True)
        end = time.monotonic() + 30
        status, body = health_of(port)
        while status == 200:
            assert time.monotonic() < end
            time.sleep(0.3)
            status, body = health_of(port)
        assert (status, body["status"]) == (503, "failing")
        assert "lease" in body["reason"]
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)


def test_a_health_address_that_is_no_address_is_refused(weekly):
    done = weekly("goal", "worker", *DBOS, "--health", "everywhere")
    assert done.status == 2
    assert "Write `PORT` or `HOST:PORT`" in done.err
