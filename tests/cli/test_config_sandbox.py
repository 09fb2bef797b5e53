"""`satchel config sandbox`: table, exit code and JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from needs import needs


def test_the_tiers_that_hold_are_named(empty):
    needs("bwrap")
    done = empty.run("config", "sandbox")
    assert done.status == 0, done.err
    assert done.err.splitlines()[0] == "✓ Tool skills run in the sandbox `bwrap`"
    assert "● bwrap" in done.err
    assert "● landlock" in done.err


def test_the_result_as_json(empty):
    needs("bwrap")
    done = empty.run("config", "sandbox", "--json")
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert told["chosen"] == "bwrap"
    tier = told["tiers"][0]
    assert tier["holds"] is True
    assert len(tier["attempts"]) >= 10
    assert "escaped" not in tier["attempts"].values()


_WITHOUT_BWRAP = (
    "import sys, satchel.runners.sandbox as bwrap\n"
    "bwrap._BWRAP_PLACES = ()\n"
    "import satchel.runners.tiers as tiers\n"
    "tiers.TIERS = ('bwrap',)\n"
    "from satchel.cli.main import run\n"
    "sys.exit(run(['config', 'sandbox']))\n"
)


@pytest.mark.parametrize(
    ("setting", "first"),
    [
        ("required", "✗ No sandbox holds here; the setting `sandbox` is `required`"),
        ("own", "✗ No sandbox holds here; the setting `sandbox` is `own`"),
    ],
)
def test_no_sandbox_is_the_first_thing_said(empty, setting, first):
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_BWRAP],
        cwd=empty.project,
        env=empty.env(SATCHEL_SANDBOX=setting),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == first
    assert "bwrap: `bubblewrap` is not installed" in done.stderr
    assert "hint: Install bubblewrap" in done.stderr
