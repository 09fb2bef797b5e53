"""The editor: checks, preview, undo, concurrent changes."""

from __future__ import annotations

import html
import re

import pytest

from satchel.presentation.drafts import encode_text

TEXT = "---\nname: notes\ndescription: Writes notes. Use when notes are wanted.\n---\nDo it.\n"


@pytest.fixture
def notes(skill, project):
    """A skill of the user."""
    skill("notes", "Writes notes. Use when notes are wanted.", "Do it.")
    path = project / ".agents/skills/notes/SKILL.md"
    path.write_text(TEXT)
    return path


EDIT = "/skill/edit?ref=.agents/skills/notes"
CHECK = "/skill/edit/check?ref=.agents/skills/notes"


def loaded(page: str) -> dict[str, str]:
    """The form of a page."""
    text = re.search(r"<textarea[^>]*data-save>\n(.*?)</textarea>", page, re.DOTALL)
    digest = re.search(r'name="digest" value="(\w+)"', page)
    assert text is not None
    assert digest is not None
    return {"text": html.unescape(text[1]), "digest": digest[1]}


@pytest.mark.req("B6")
def test_saving_is_one_change_that_can_be_undone(visit, notes):
    form = loaded(visit.get(EDIT).text)
    form["text"] = form["text"].replace("Do it.", "Do it well.").replace("\n", "\r\n")
    answer = visit.post(EDIT, data=form)
    assert answer.status_code == 303
    assert "Saved: <code>notes</code>" in visit.get(answer.headers["location"]).text
    assert notes.read_text() == TEXT.replace("Do it.", "Do it well.")
    assert "Editing" in visit.get("/history").text
    number = visit.satchel.store().history()[0].number
    visit.post("/undo", data={"number": number})
    assert notes.read_text() == TEXT


def test_an_update_of_another_user_is_never_lost(visit, notes):
    form = loaded(visit.get(EDIT).text)
    notes.write_text(TEXT.replace("Do it.", "Theirs <b>."))
    form["text"] = TEXT.replace("Do it.", "Mine.")
    answer = visit.post(EDIT, data=form)
    assert answer.status_code == 409
    assert "Theirs" in notes.read_text()
    for words in ("The file was changed meanwhile", "Theirs &lt;b&gt;.", "Mine."):
        assert words in answer.text
    mine = loaded(answer.text)
    assert mine["text"] == form["text"]
    assert visit.post(EDIT, data=mine).status_code == 303
    assert "Mine." in notes.read_text()


def test_an_invalid_skill_is_not_saved_and_its_text_is_kept(visit, notes):
    form = loaded(visit.get(EDIT).text)
    form["text"] = "no frontmatter & <nothing>"
    answer = visit.post(EDIT, data=form)
    assert answer.status_code == 422
    assert "is not a skill" in answer.text
    assert "no frontmatter &amp; &lt;nothing&gt;" in answer.text
    assert notes.read_text() == TEXT


def test_problems_and_the_catalogue_entry_are_shown_while_one_types(visit, notes):
    bad = "---\nname: notes\ndescription: Notes\nmodle: x\n---\nSee [more](more.md).\n"
    part = visit.post(CHECK, data={"text": bad}).text
    assert "<html" not in part
    assert 'data-line="3"' in part
    assert 'data-line="6"' in part
    assert "more.md" in part
    assert "badge good" in part  # advice and notes leave a skill valid
    broken = visit.post(CHECK, data={"text": "---\nname: [\n---\n"}).text
    assert "badge bad" in broken
    assert "It is not a valid skill" in broken
    entry = '<skill name="notes">Writes notes. Use when notes are wanted.</skill>'
    assert entry in visit.satchel.preview().text
    assert entry in html.unescape(visit.post(CHECK, data={"text": TEXT}).text)
    assert notes.read_text() == TEXT


def test_binary_and_large_files_are_not_edited(visit, notes):
    notes.write_bytes(TEXT.encode() + b"\xff\xfe")
    assert visit.get(EDIT).status_code == 403
    notes.write_text(TEXT + "x" * (1 << 20))
    answer = visit.get(EDIT)
    assert answer.status_code == 403
    assert "larger than" in answer.text


# --- unsaved text -------------------------------------------------------------------------


@pytest.mark.req("B6")
@pytest.mark.parametrize("how", ["gone", "no text", "elsewhere"])
def test_typed_text_is_kept_when_the_file_is_gone(visit, notes, how, tmp_path, project):
    form = loaded(visit.get(EDIT).text)
    if how == "gone":
        notes.unlink()
        notes.parent.rmdir()
    elif how == "no text":
        notes.write_bytes(b"\xff\xfe")
    else:
        (project / ".agents/skills").rename(tmp_path / "moved")
        (project / ".agents/skills").symlink_to(tmp_path / "moved")
    answer = visit.post(EDIT, data={**form, "text": "hours of </textarea><b>work"})
    assert answer.status_code in (403, 404)
    assert "Your text was not saved" in answer.text
    assert "hours of &lt;/textarea&gt;&lt;b&gt;work</textarea>" in answer.text


@pytest.mark.parametrize(
    ("before", "typed", "after"),
    [
        (b"a\r\nb\r\n", "a\r\nb\r\nc\r\n", b"a\r\nb\r\nc\r\n"),
        (b"a\nb\n", "a\r\nb\r\nc\r\n", b"a\nb\nc\n"),
        (b"\xef\xbb\xbfa\n", "b\r\n", b"\xef\xbb\xbfb\n"),
        (b"\xef\xbb\xbfa\nb\r\nc\n", "a\r\nb\r\nc\r\n", b"\xef\xbb\xbfa\nb\r\nc\n"),
        (b"a\nb\r\nc\n", "a\r\nB\r\nc\r\n", b"a\nB\nc\n"),
        (b"", "a\r\nb", b"a\nb"),
    ],
)
def test_a_file_keeps_its_line_ends_and_an_unchanged_one_all_its_bytes(before, typed, after):
    assert encode_text(typed, before) == after
