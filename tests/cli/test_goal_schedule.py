"""`satchel goal schedule`: makes, lists and removes schedules of an engine."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(120)
ASK = """\
goal: Ask somebody
steps:
  - {id: ask, action_type: human, prompt: "Well?"}
"""
MONDAYS = "0 7 * * 1"
DBOS = ("--engine", "dbos")


@pytest.fixture
def place(empty):
    (empty.project / "ask.yaml").write_text(ASK, encoding="utf-8")
    return empty


def rows(place) -> list[dict[str, Any]]:
    return json.loads(place.run("goal", "schedule", *DBOS, "--json").out)


def test_a_schedule_is_made_replaced_listed_and_removed(place):
    made = place.run("goal", "schedule", "ask.yaml", "--cron", "5 6 * * *", *DBOS)
    assert (made.status, made.out) == (0, "ask\n"), made.err
    assert "`satchel goal schedule` lists them" in made.err
    words = ("ask.yaml", "--cron", MONDAYS, "--json", *DBOS)
    assert json.loads(place.run("goal", "schedule", *words).out) == {"scheduled": "ask"}
    place.run("goal", "schedule", *words, "--id", "other")
    asked, other = rows(place)
    assert (asked["name"], asked["cron"], other["name"]) == ("ask", MONDAYS, "other")
    assert time.time() < asked["next"] < time.time() + 7 * 86_400
    assert time.gmtime(asked["next"])[3:7] == (7, 0, 0, 0)
    shown = place.run("goal", "schedule", *DBOS).out.splitlines()
    assert [line.split()[0] for line in shown] == ["schedule", "ask", "other"]
    assert MONDAYS in shown[1]
    gone = place.run("goal", "schedule", "--remove", "other", *DBOS)
    assert (gone.status, gone.out, gone.err) == (0, "other\n", "✓ Removed: other\n")
    assert [row["name"] for row in rows(place)] == ["ask"]
    missing = place.run("goal", "schedule", "--remove", "other", *DBOS)
    assert missing.status == 3
    assert "There is no schedule `other`" in missing.err


def test_local_refuses_with_a_line_for_cron(place):
    done = place.run("goal", "schedule", "ask.yaml", "--cron", MONDAYS)
    assert done.status == place.run("goal", "schedule").status != 0
    assert "The engine `local` has no schedules" in done.err
    line = f'{MONDAYS}  satchel goal run PLAN.yaml --id "ask-$(date +\\%FT\\%H\\%M)" --detach'
    assert line in " ".join(done.err.split("\n")).replace("  ", " ").replace(MONDAYS, f"{MONDAYS} ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ask.yaml",), "`PLAN` needs `--cron`"),
        (("--cron", MONDAYS), "`--cron` needs `PLAN`"),
        (("--id", "x"), "`--id` needs `PLAN`"),
        (("ask.yaml", "--remove", "x"), "Give one of"),
        (("ask.yaml", "--cron", "@daily", *DBOS), "`@daily` is not valid"),
        (("ask.yaml", "--cron", "0 25 * * 1", *DBOS), "`0 25 * * 1` is not valid"),
        (("ask.yaml", "--cron", MONDAYS, "--id", "a b", *DBOS), "`a b` is not a valid name"),
    ],
)
def test_wrong_words_are_refused(words, message, place):
    done = place.run("goal", "schedule", *words)
    assert done.status == 2
    assert message in done.err
