"""`satchel sandbox check`: the table, the exit code, and what a script reads."""

from __future__ import annotations

import json

import pytest

from needs import needs
from satchel.cli.output import width_of


@pytest.mark.parametrize("columns", ["60", "100"])
def test_table_shows_every_attempt_and_fits(empty, columns):
    needs("bwrap")
    done = empty.run("sandbox", "check", COLUMNS=columns)
    assert done.status == 0, done.err
    head, *rows = done.out.splitlines()
    assert head.split() == ["attempt", "without", "bwrap", "landlock"]
    assert len(rows) >= 25
    assert max(map(width_of, (head, *rows))) <= int(columns)
    assert "GOT OUT" not in done.out
    assert "bwrap holds" in done.err
    assert "landlock holds" in done.err


def test_one_tier_as_json(empty):
    done = empty.run("sandbox", "check", "--tier", "landlock", "--json")
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert told["chosen"] == "landlock"
    (tier,) = told["tiers"]
    assert tier["holds"] is True
    works = {name for name, said in told["without"].items() if said == "escaped"}
    assert len(works) >= 25
    assert set(tier["attempts"]) == set(told["without"])
    assert "escaped" not in tier["attempts"].values()


def test_a_sandbox_that_is_switched_off_is_said(empty):
    done = empty.run("sandbox", "check", "--tier", "landlock", SATCHEL_SANDBOX="off")
    assert done.status == 0
    assert "run without it all the same" in done.err
