"""A provider's limit holds for all workers together, as the provider itself sees it."""

from __future__ import annotations

import json
import random
import subprocess
import time

import pytest

from model_server import ModelServer, Reply
from postgres import Postgres

pytestmark = pytest.mark.timeout(240)
MODEL = "anthropic:claude-sonnet-5"
PER_SECOND, AT_ONCE, STEPS = 5, 3, 12
PLAN = "goal: Ask often\nsteps:\n" + "".join(
    f"  - {{id: s{number}, prompt: Say {number}}}\n" for number in range(STEPS)
)


def busiest(server: ModelServer, seconds: float = 1.0) -> int:
    """The most requests that arrived within any so many seconds."""
    times = sorted(request.at for request in server.requests)
    return max(sum(begin <= at < begin + seconds for at in times) for begin in times)


def slow(request):
    return Reply("said", delay=random.uniform(0.05, 1.5))


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_two_workers_keep_to_the_limit_of_a_provider(empty, warm, database):
    (empty.project / "plan.yaml").write_text(PLAN, "utf-8")
    limits = {"anthropic": {"per_second": PER_SECOND, "at_once": AT_ONCE}}
    with Postgres(fsync=False) as postgres, ModelServer(slow) as server:
        where = (
            postgres.database()
            if database == "postgres"
            else f"sqlite:///{empty.home / 'goals.db'}"
        )
        known = {
            **warm, **server.environment(), "SATCHEL_MODEL": MODEL, "SATCHEL_ENGINE": "dbos",
            "SATCHEL_DATABASE": where, "SATCHEL_LIMITS": json.dumps(limits),
        }  # fmt: skip
        workers: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(2):
                workers.append(
                    subprocess.Popen(
                        empty.command("worker", "--yes", "--json"),
                        cwd=empty.project,
                        env=empty.env(**known),
                        stdout=subprocess.PIPE,
                    )
                )
                stdout = workers[-1].stdout
                assert stdout is not None
                assert b"{" in stdout.readline()
            for name in ("one", "two"):
                words = ("goal", "run", "plan.yaml", "--id", name, "--detach", "--yes")
                assert empty.run(*words, **known).status == 0
            for name in ("one", "two"):
                state = "queued"
                while state in {"queued", "running"}:
                    time.sleep(1.5)  # asking takes more of the processor than the work does
                    shown = empty.run("goal", "show", name, "--json", **known)
                    state = json.loads(shown.out)["state"]
                assert state == "done"
        finally:
            for worker in workers:
                worker.terminate()
                assert worker.wait(60) == 0
                assert worker.stdout is not None
                worker.stdout.close()
    assert len(server.requests) == 2 * STEPS
    assert server.most_at_once == AT_ONCE
    assert 3 <= busiest(server) <= PER_SECOND
