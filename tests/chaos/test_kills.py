"""A process that is killed harms nothing, and loses nothing that was acknowledged."""

from __future__ import annotations

import pytest

from chaos.faults import COMMANDS, OPERATIONS, Bench
from chaos.killing import kill_often
from sizes import sample, sized

pytestmark = pytest.mark.timeout(300)

KILLS = sized(20, 60)


@pytest.mark.parametrize("way", ["store", "transactions"])
def test_kills_at_random_moments(server, tmp_path, way):
    tally = kill_often(server, str(tmp_path), KILLS, way=way)
    assert tally.harm == []
    assert tally.kills == KILLS
    assert tally.inside > KILLS / 2, "the kills hit operations"
    # They hit every phase: before the journal, and after. That needs more than twenty.
    assert sized(-1, 0) < tally.rolled_forward < tally.inside
    assert tally.told > 0


def test_writing_in_place_fails_the_same_test(server, tmp_path):
    """The negative control: a test that cannot fail shows nothing."""
    tally = kill_often(server, str(tmp_path), 60, way="in_place", enough=1)
    assert tally.harm


@pytest.mark.parametrize(
    "operation", [OPERATIONS[0], COMMANDS[2]], ids=lambda operation: operation.title
)
def test_a_kill_at_every_call_that_changes_something(server, tmp_path, operation):
    bench = Bench(server, str(tmp_path))
    harm: list[str] = []
    ends = {"killed": 0, "done": 0}
    for fault in sample(list(bench.kills(operation)), 10):
        found, ended, _ = bench.disturb(operation, fault)
        harm += found
        ends[ended] += 1
    assert harm == []
    assert ends["killed"] >= sized(2, 20), ends
