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
    for name, text in SKILLS.items():
        empty.skill(
            f".agents/skills/{name}", f"---\nname: {name}\ndescription: {text}\n---\nSteps.\n"
        )
        empty.trust(f".agents/skills/{name}")
    return empty


SNAPSHOTS = {
    "overlap": ("overlap",),
    "overlap-one": ("overlap", "pdf-forms"),
    "overlap-none": ("overlap", "translation"),
}


@pytest.mark.parametrize("language", ["", "zh"])
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_whole_runs(name, language, desk):
    done = desk.run(*SNAPSHOTS[name], SATCHEL_LANG=language or "en")
    desk.check(f"zh-{name}" if language else name, done)


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


def test_a_folder_that_no_library_knows(desk, tmp_path):
    folder = tmp_path / "mine/checker"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: checker\ndescription: Reviews pull requests for style.\n---\nSteps.\n"
    )
    told = json.loads(desk.run("overlap", str(folder), "--json").out)
    names = {one["name"] for pair in told["pairs"] for one in pair["skills"]}
    assert names == {"checker", "code-review", "review-changes"}


def test_a_limit_says_that_there_is_more(desk):
    text = "---\nname: lessons\ndescription: Teaches French and German grammar.\n---\nSteps.\n"
    desk.skill(".agents/skills/lessons", text)
    desk.trust(".agents/skills/lessons")
    done = desk.run("overlap", "--min", "0", "--limit", "1")
    assert done.out.count("both: ") == 1
    assert "there are more pairs: `--limit`" in done.err
    assert json.loads(desk.run("overlap", "--min", "0", "--limit", "1", "--json").out)["more"]


def test_copies_do_not_make_their_own_words_common(empty):
    for at in range(1, 7):
        text = f"Makes invoices for customer number{at} in format f{at}. Use when billing {at}."
        head = f"---\nname: invoice-{at}\ndescription: {text}\n---\nSteps.\n"
        empty.skill(f".agents/skills/invoice-{at}", head)
        empty.trust(f".agents/skills/invoice-{at}")
    done = empty.run("overlap")
    assert done.out.startswith("Easily mistaken\n")
    assert done.out.count("both: billing, customer, format, invoices, makes") == 15


def test_a_heading_fits_the_scores_below_it(desk):
    about = "Teaches German grammar, spelling and pronunciation to beginners."
    text = f"---\nname: lessons\ndescription: {about}\n---\nSteps.\n"
    desk.skill(".agents/skills/lessons", text)
    desk.trust(".agents/skills/lessons")
    done = desk.run("overlap", "--min", "0.01")
    close, _, low = done.out.partition("Some words in common\n")
    assert "code-review, review-changes" in close.partition("Easily mistaken\n")[2]
    assert "lessons, translation" in low
    done = desk.run("overlap", "lessons", "--min", "0.01")
    assert done.out.startswith("Some words in common\n")
    assert "none is easily mistaken for another" in done.err


def test_same_names_are_told_apart_by_their_folders(desk):
    desk.skill(
        ".agents/skills/team/pdf-forms",
        "---\nname: Pdf-forms\ndescription: Fills in PDF forms and their fields.\n---\nSteps.\n",
    )
    desk.trust(".agents/skills/team/pdf-forms")
    assert desk.run("overlap").status == 0


def test_an_empty_library_has_no_pairs(empty):
    done = empty.run("overlap")
    assert (done.status, done.out) == (0, "")
    assert "0 skills compared, none is easily mistaken for another" in done.err
