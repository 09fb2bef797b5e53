"""The store under kills, errors of the disk and a crowd: what was acknowledged holds."""

from __future__ import annotations

from collections import Counter

import pytest

from chaos.crowd import gather
from chaos.faults import OPERATIONS, Bench
from chaos.killing import Server, kill_often
from sizes import sample, sized

pytestmark = pytest.mark.timeout(sized(300, 900))

KILLS = sized(20, 500)


@pytest.fixture(scope="module")
def server():
    """One process that forks the children which are killed."""
    with Server() as ready:
        yield ready


def disturbed(bench, operation, faults, part=10):
    """How often the operation ended in which way, none of them harmful."""
    harm: list[str] = []
    ends: Counter[str] = Counter()
    for fault in sample(list(faults), part):
        found, ended, _ = bench.disturb(operation, fault)
        harm += found
        ends[ended] += 1
    assert harm == []
    return ends


def test_kills_at_random_moments(server, tmp_path):
    tally = kill_often(server, str(tmp_path), KILLS)
    assert tally.harm == []
    assert tally.kills == KILLS
    assert tally.inside > KILLS / 2, "the kills hit operations"
    # They hit every phase: before the journal, and after. That needs more than twenty.
    assert sized(-1, 0) < tally.rolled_forward < tally.inside
    assert tally.told > 0


@pytest.mark.parametrize("operation", [OPERATIONS[0], OPERATIONS[2]], ids=lambda one: one.title)
def test_a_kill_at_every_call_that_changes_something(server, tmp_path, operation):
    bench = Bench(server, str(tmp_path))
    ends = disturbed(bench, operation, bench.kills(operation))
    assert ends["killed"] >= sized(2, 20), ends


def test_an_error_that_lasts(server, tmp_path):
    bench = Bench(server, str(tmp_path))
    disturbed(bench, OPERATIONS[2], bench.outages(OPERATIONS[2]), part=30)


@pytest.mark.parametrize("operation", [OPERATIONS[0], OPERATIONS[1]], ids=lambda one: one.title)
def test_an_error_at_every_call_that_changes_something_and_at_some_others(
    server, tmp_path, operation
):
    bench = Bench(server, str(tmp_path))
    ends = disturbed(bench, operation, bench.failures(operation, every=8, others=60), part=20)
    # Some errors do no harm at all: what cannot be tidied up now is tidied up later. How many do
    # can only be judged when there are more than a handful.
    assert ends["failed"] > sized(-1, ends["done"] / 4), ends


def test_writers_and_readers_at_once(tmp_path):
    writers, operations = sized((3, 10), (8, 25))
    outcome = gather(str(tmp_path), writers=writers, operations=operations, readers=2, limit=240)
    assert outcome.harm == []
    assert outcome.operations + outcome.conflicts == writers * operations
    assert outcome.operations > writers * operations / 3
    assert outcome.reads > sized(20, 300)
