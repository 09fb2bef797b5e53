"""`satchel sandbox check`: table, exit code and JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from needs import needs
from satchel.cli.console import width_of


@pytest.mark.parametrize("columns", ["60", "100"])
def test_table_shows_every_attempt_and_fits(empty, columns):
    needs("bwrap")
    done = empty.run("sandbox", "check", COLUMNS=columns)
    assert done.status == 0, done.err
    head, *rows = done.out.splitlines()
    assert head.split() == ["attempt", "without", "bwrap", "landlock"]
    assert len(rows) >= 10
    assert max(map(width_of, (head, *rows))) <= int(columns)
    assert "GOT OUT" not in done.out
    first, second, *_ = done.err.splitlines()
    assert first == "✓ Tool skills run in the sandbox `bwrap`"
    assert "bwrap holds" in second
    assert "landlock holds" in done.err


def test_one_tier_as_json(empty):
    done = empty.run("sandbox", "check", "--tier", "landlock", "--json")
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert told["chosen"] == "landlock"
    (tier,) = told["tiers"]
    assert tier["holds"] is True
    works = {name for name, said in told["without"].items() if said == "escaped"}
    assert len(works) >= 10
    assert set(tier["attempts"]) == set(told["without"])
    assert "escaped" not in tier["attempts"].values()


_WITHOUT_BWRAP = (
    "import sys, satchel.runners.sandbox as bwrap\n"
    "bwrap._BWRAP_PLACES = ()\n"
    "from satchel.cli.main import run\n"
    "sys.exit(run(['sandbox', 'check']))\n"
)


@pytest.mark.parametrize(
    ("setting", "first"),
    [
        ("required", "✗ No sandbox holds here, so no tool skill runs"),
        ("own", "✗ No sandbox holds here: only your own tool skills run, without one"),
    ],
)
def test_no_sandbox_is_the_first_thing_said(empty, setting, first):
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_BWRAP],
        cwd=empty.project,
        env=empty.env(SATCHEL_SANDBOX_TIER="bwrap", SATCHEL_SANDBOX=setting),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == first
    assert "bwrap: bubblewrap is not installed" in done.stderr
    assert "hint: Install bubblewrap" in done.stderr
