"""`satchel eval` killed with SIGKILL at random moments, as its user would see it go on."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import sys
import time

import pytest

from evals_world import WORD, answers_of, grade, is_judge, plain_cases, write_skill
from model_server import ModelServer, Reply
from sizes import sized

KILLS = sized(5, 50)
REPEATS = sized(8, 40)
CASES = 3
WORKERS = 4
REQUESTS_OF_A_PAIR = 3 + 2
_number_of = re.compile(r"number (\d+)\.").search


def numbered(source: random.Random):
    """A model whose every answer is another one, so that a repeated run would be seen."""

    def script(request):
        if is_judge(request):
            return grade(*(WORD in answer for answer in answers_of(request)))._replace(delay=0.01)
        with_skill = "Skill" in request.tools
        if with_skill and request.step == 0:
            return Reply(calls=[("Skill", {"name": "haiku"})], delay=0.01)
        word = WORD if source.random() < (0.8 if with_skill else 0.4) else "."
        return Reply(f"Poem number {request.number}. {word}", delay=0.01)

    return script


def run_command(arguments: list[str], environment: dict[str, str], project: str, out: str) -> None:
    """Run `satchel` in this process, as the program does."""
    os.environ.update(environment)
    os.chdir(project)
    with open(out, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
    sys.argv = ["satchel", *arguments]
    from satchel.cli.main import main

    sys.exit(main())


def read_journal(home) -> list[str]:
    """The complete lines of the journal, in order."""
    files = list(home.glob("state/evals/*/journal.jsonl"))
    assert len(files) <= 1
    lines = files[0].read_text().split("\n") if files else []
    return [line for line in lines[:-1] if line.endswith("}")]


@pytest.mark.timeout(sized(240, 1200))
def test_a_killed_evaluation_repeats_no_finished_run_and_changes_no_figure(tmp_path):
    home, source = tmp_path / "home", random.Random(40)
    project, out = tmp_path / "project", tmp_path / "out.json"
    project.mkdir()
    write_skill(project, plain_cases(CASES)).close()
    # Processes that have the modules already: most of the kills meet work and not the start.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["satchel.cli.main", "satchel.evals.evaluation", "pydantic_ai.models.anthropic"]
    )
    pairs = CASES * REPEATS
    before: list[str] = []
    with ModelServer(numbered(source)) as server:
        environment = {**server.environment(), "SATCHEL_HOME": str(home), "SATCHEL_TRUST": "all"}
        command = ["eval", "haiku", "--yes", "--json", "--model", "anthropic:claude-sonnet-5",
                   "--repeats", str(REPEATS)]  # fmt: skip

        def start():
            process = context.Process(
                target=run_command, args=(command, environment, str(project), str(out))
            )
            process.start()
            return process

        for _ in range(KILLS):
            target = len(server.requests) + source.randint(1, pairs * 5 // KILLS)
            process = start()
            while len(server.requests) < target and process.is_alive():
                time.sleep(0.001)
            time.sleep(source.random() * 0.02)
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL
            after = read_journal(home)
            assert after[: len(before)] == before
            before = after
        results = []
        for _ in range(2):
            process = start()
            process.join()
            assert process.exitcode == 0
            results.append((json.loads(out.read_text())[0], len(server.requests)))
        # A killed client may have sent no more than the head of a request.
        server.failures[:] = [exc for exc in server.failures if not str(exc).endswith(": b''")]
    (first, requests), (second, requests_after) = results
    assert requests_after == requests
    lines = read_journal(home)
    assert lines[: len(before)] == before
    records = [json.loads(line) for line in lines]
    keys = [record["key"] for record in records]
    assert len(keys) == len(set(keys)) == pairs * 3
    numbers = [match[1] for record in records if (match := _number_of(record.get("text", "")))]
    assert len(numbers) == len(set(numbers)) == pairs * 2
    # Each kill loses at most what every worker had begun: a run or the grades of a pair.
    assert requests <= pairs * REQUESTS_OF_A_PAIR + KILLS * WORKERS * 2
    assert {**first, "spent": 0} == {**second, "spent": 0}
    assert second["spent"] == 0
    comparison = first["comparisons"]["without"]
    passes = sum(WORD in record["text"] for record in records if record["key"].endswith("/skill"))
    assert (comparison["pairs"], comparison["rate"]) == (
        pairs,
        pytest.approx(passes / pairs, abs=1e-4),
    )
