"""Evaluations over HTTP, in a home of their own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from evals_world import write_skill
from model_server import ModelServer, model_of
from satchel.evals.evaluation import EvalOptions, Evaluation

if TYPE_CHECKING:
    from satchel.evals.results import EvalResult


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


@pytest.fixture
def evaluate(tmp_path):
    """Evaluates the skill `haiku`; returns the result, the estimate and the server."""

    def run(script, cases, *, body="End with FROG.\n", max_cost=None, **options):
        (tmp_path / "project").mkdir(exist_ok=True)
        satchel = write_skill(tmp_path / "project", cases, body)
        with ModelServer(script) as server:
            model = model_of(server, "anthropic", "claude-sonnet-5")
            skill = satchel.get_skill("haiku")
            assert skill is not None
            evaluation = Evaluation(satchel, skill, EvalOptions(model, **options))
            try:
                estimate = evaluation.estimate()
                result: EvalResult = asyncio.run(evaluation.run(max_cost))
            finally:
                evaluation.close()
        satchel.close()
        return result, estimate, server

    return run
