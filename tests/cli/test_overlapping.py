"""`satchel overlap`: near copies, close pairs, and an exit code for a pipeline."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.timeout(60)

SKILLS = {
    "code-review": "Reviews pull requests for bugs, security and style.",
    "review-changes": "Reviews pull requests: bugs, tests and style.",
    "pdf-forms": "Fills in PDF forms and extracts their fields.",
    "pdf-forms-2": "Fills in PDF forms and extracts their fields.",
    "translation": "Translates text between German, French and Spanish.",
}


@pytest.fixture
def desk(empty):
    empty.skills(SKILLS)
    return empty


SNAPSHOTS = {
    "overlap": ("overlap",),
    "overlap-one": ("overlap", "pdf-forms"),
    "overlap-none": ("overlap", "translation"),
}


def test_whole_runs(desk):
    for name, words in SNAPSHOTS.items():
        desk.check(name, desk.run(*words))
    desk.check("zh-overlap", desk.run("overlap", SATCHEL_LANG="zh"))


def test_exit_codes_for_a_pipeline(desk):
    assert desk.run("overlap").status == 0
    assert desk.run("overlap", "--fail-over", "0.9").status == 1
    assert desk.run("overlap", "code-review", "--fail-over", "90%").status == 0
    assert desk.run("overlap", "code-review", "--fail-over", "0.5").status == 1
    assert desk.run("overlap", "translation", "--fail-over", "0.2").status == 0
    assert desk.run("overlap", "no-such-skill").status == 3
    assert desk.run("overlap", "--min", "2").status == 2


def test_json_has_everything(desk):
    told = json.loads(desk.run("overlap", "--json").out)
    assert (told["skills"], told["ok"], told["more"]) == (5, True, False)
    (copies,) = told["copies"]
    assert [one["name"] for one in copies["skills"]] == ["pdf-forms", "pdf-forms-2"]
    (pair,) = told["pairs"]
    assert [one["name"] for one in pair["skills"]] == ["code-review", "review-changes"]
    assert {"bugs", "pull"} <= set(pair["shared"])
    assert pair["copy"] is False
    assert json.loads(desk.run("overlap", "--json", "--fail-over", "0.9").out)["ok"] is False
