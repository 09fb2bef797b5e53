"""What an answer says about skills that nobody trusted yet, in the note and in the trace."""

from __future__ import annotations

import pytest

from satchel import Satchel
from satchel.testing import make_skill

LANGUAGES = ("Go", "Java", "Rust")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project/skills"
    for name in LANGUAGES:
        make_skill(folder, f"{name.lower()}-review", f"Reviews {name} code for bugs.")
    make_skill(folder, "pdf-forms", "Fills in PDF forms.")
    return tmp_path / "project"


def _opened(project, *trusted, **settings) -> Satchel:
    satchel = Satchel.for_project(project, builtin=False, **settings)
    for name in trusted:
        satchel.trust(name)
    satchel.refresh()
    return satchel


STEP = "see `satchel show rust-review`, then `satchel trust rust-review`"


@pytest.mark.req("C3")
@pytest.mark.parametrize("words", ["use skill rust-review", "/rust-review", "$rust-review look"])
def test_who_is_called_and_not_trusted_is_there(project, words):
    satchel = _opened(project, "pdf-forms")
    note = f"`rust-review` is not trusted yet: {STEP}"
    answer = satchel.which(words)
    assert not answer
    assert answer.notes == (note,)
    assert satchel.trace.events[-1].values["notes"] == [note]
    made = satchel.shortlist(words)
    assert (made.text, made.answer is not None and made.answer.notes) == ("", (note,))
    assert satchel.trace.events[-1].values["notes"] == [note]


def test_one_that_changed_says_so(project):
    satchel = _opened(project, "go-review", "rust-review", "pdf-forms")
    path = project / "skills/rust-review/SKILL.md"
    path.write_text(path.read_text() + "\nMore.\n")
    text = path.read_text().replace("for bugs", "for bugs and races")
    path.write_text(text)
    satchel.refresh()
    assert satchel.which("review my rust code").notes == ()
    told = satchel.which("use skill rust-review").notes
    assert told == (f"`rust-review` changed since it was approved: {STEP}",)
