"""The list of skills: rows, states, filters, search, details, files."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote, unquote

import pytest

from satchel.presentation.skills import list_skills
from satchel.satchel import Satchel
from satchel.testing import make_skill


def rows(text: str) -> dict[str, str]:
    """The rows of a list: the text of each, by its name and state."""
    found: dict[str, str] = {}
    for match in re.finditer(r'<tr id="row-\w+" class="skill is-(\w+)".*?</tr>', text, re.DOTALL):
        words = " ".join(unescape(re.sub(r"<[^>]*>", " ", match[0])).split())
        found[f"{words.removeprefix('› ').split(' ')[0]}/{match[1]}"] = words
    return found


def put(folder, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def named(folder, name: str, description: str) -> None:
    """A skill whose name differs from its folder."""
    put(folder, {"SKILL.md": f"---\nname: {name}\ndescription: {description}\n---\nDo.\n"})


def trusting(visit, **settings) -> Satchel:
    return Satchel.for_project(visit.satchel.settings.project, **settings)


@pytest.mark.req("B5", "B10")
def test_each_row_says_name_description_source_and_state(visit, skill):
    skill("pdf-forms", "Fills in PDF forms. Use when a form is to be filled in.")
    answer = visit.get("/skills")
    assert answer.status_code == 200
    row = rows(answer.text)["pdf-forms/full"]
    assert "Fills in PDF forms. Use when a form is to be filled in." in row
    assert "yours" in row
    assert "listed" in row
    assert 'title="Fills in PDF forms. Use when a form is to be filled in."' in answer.text
    assert 'href="/skills/add"' in answer.text
    assert 'href="/skills/import"' in answer.text


@pytest.mark.req("B5")
def test_the_id_is_shown_where_it_is_not_the_name(visit, project):
    named(project / ".agents" / "skills" / "folder-name", "other-name", "Does things.")
    text = visit.get("/skills").text
    assert 'class="id mono"><bdi>folder-name</bdi>' in text
    assert "<bdi>other-name</bdi></a>" in text


@pytest.mark.req("B12")
def test_system_and_user_of_one_id_are_both_there_and_the_loser_says_by_whom(visit, project, skill):
    skill("deploy", "The user's way. Use when asked.")
    make_skill(project / ".agents" / "sys.skills", "deploy", description="The product's way.")
    for address in ("/skills", "/skills?q=deploy"):
        found = rows(visit.get(address).text)
        assert "system" in found["deploy/full"]
        assert "The product's way." in found["deploy/full"]
        assert "yours" in found["deploy/shadowed"]
        assert "hidden by the one in .agents/sys.skills" in found["deploy/shadowed"]
    both = list(rows(visit.get("/skills").text))
    assert both.index("deploy/shadowed") == both.index("deploy/full") + 1


@pytest.mark.req("B10")
def test_system_rows_have_neither_edit_nor_delete(visit, project, skill):
    skill("mine", "Mine. Use when asked.")
    make_skill(project / ".agents" / "sys.skills", "theirs", description="Theirs.")
    own = visit.part("/skills/row?ref=.agents/skills/mine").text
    assert "/skill/edit?ref=" in own
    assert "/skills/remove?ref=" in own
    for ref in (".agents/sys.skills/theirs", "built-in/write-a-skill"):
        text = visit.part(f"/skills/row?ref={ref}").text
        assert "/skill/edit" not in text
        assert "/skills/remove" not in text
        assert "read-only here" in text
        assert "SKILL.md" in text


@pytest.mark.req("B2")
def test_a_folder_without_frontmatter_is_shown_as_broken_with_its_fix_and_can_be_read(
    visit, project
):
    folder = project / ".agents" / "skills" / "half"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("Only some words.\n")
    text = visit.get("/skills?state=broken").text
    assert "does not begin with a `---` line" in rows(text)["half/broken"]
    path = quote(str(folder / "SKILL.md"))
    opened = visit.part(f"/skills/row?ref={path}").text
    assert "Put `---`, `name:`" in unescape(opened)
    assert "Only some words." in visit.part(f"/skills/file?ref={path}").text
    assert "half" not in visit.satchel.catalogue().text


@pytest.mark.req("B6")
def test_a_broken_skill_is_shown_line_by_line_and_can_be_mended_or_removed(visit, project):
    folder = project / ".agents" / "skills" / "half"
    put(folder, {"SKILL.md": "Of <b>.\n---\nname: half\n---\nDo it.\n"})
    path = quote(str(folder / "SKILL.md"), safe="")
    links = re.findall(r'href="/skills/row[?]ref=([^"]*)"', visit.get("/skills").text)
    assert [unquote(one) for one in links] == [str(folder / "SKILL.md")]
    opened = visit.part(f"/skills/row?ref={path}").text
    bad = re.findall(r'<tr class="bad">.*?</tr>', opened, re.DOTALL)
    assert len(bad) == 1
    assert "The problem is here" in bad[0]
    assert "Do it." in opened
    assert "/skills/remove" in opened
    assert "/skill/edit" in opened
    assert visit.get(f"/skill?ref={path}").headers["location"].startswith("/skills/row?")

    editor = visit.get(f"/skill/edit?ref={path}").text
    digest = re.search(r'name="digest" value="(\w+)"', editor)
    assert digest is not None
    text = "---\nname: half\ndescription: Halves numbers. Use when asked.\n---\nDo it.\n"
    seen = visit.post(f"/skill/edit/check?ref={path}", data={"text": text}).text
    assert "Halves numbers" in seen
    saved = visit.post(f"/skill/edit?ref={path}", data={"digest": digest[1], "text": text})
    assert saved.status_code == 303
    assert visit.get(saved.headers["location"]).status_code == 200
    assert (folder / "SKILL.md").read_text() == text
    assert "half/full" in rows(visit.get("/skills").text)


@pytest.mark.req("B5")
def test_a_search_finds_what_waits_for_trust_by_its_description(visit, project):
    make_skill(project / "skills", "theirs", description="Turns Kumquats into marmalade.")
    make_skill(project / "skills", "others", description="Turns apples into juice.")
    satchel = trusting(visit, trust="ask")
    found = list_skills(satchel, words="marmalade KUMQUATS").rows
    assert [(row.name, row.state) for row in found] == [("theirs", "untrusted")]
    assert not list_skills(satchel, words="kumquats juice").rows
    assert not list_skills(satchel, words="kumquats", state="full").rows
    satchel.close()


@pytest.mark.req("B11")
def test_an_empty_project_shows_a_first_step_and_makes_no_folder(visit, project):
    text = visit.get("/skills").text
    assert "Your first skill" in text
    assert "Import one you have" in text
    assert not (project / ".agents").exists()
    make_skill(project / ".agents" / "skills", "one", description="One. Use when asked.")
    assert "Your first skill" not in visit.get("/skills").text


def test_filters_count_what_they_leave(visit, project, skill):
    skill("mine", "Mine. Use when asked.")
    make_skill(project / ".agents" / "sys.skills", "theirs", description="Theirs.")
    listing = list_skills(visit.satchel)
    assert {chip.key: chip.number for chip in listing.sources} == {
        "user": 1, "system": 1, "builtin": 3,
    }  # fmt: skip
    only = rows(visit.get("/skills?source=system").text)
    assert list(only) == ["theirs/full"]
    assert visit.get("/skills?source=nowhere").status_code == 422
    assert visit.get("/skills?state=odd").status_code == 422


def test_a_search_finds_by_meaning_by_half_a_name_and_what_is_hidden(visit, project, skill):
    skill("pdf-forms", "Fills in forms that are documents. Use when a form is to be filled in.")
    skill("night-watch", "Looks at logs. Use when asked.")
    folder = project / ".agents" / "skills" / "formless"
    folder.mkdir()
    (folder / "SKILL.md").write_text("nothing\n")
    assert "pdf-forms/full" in rows(visit.part("/skills?q=fill in a document").text)
    half = rows(visit.part("/skills?q=nigh").text)
    assert list(half) == ["night-watch/full"]
    assert "formless/broken" in rows(visit.part("/skills?q=formle").text)
    assert rows(visit.part("/skills?q=").text) == rows(visit.part("/skills").text)
    nothing = visit.part("/skills?q=zzzzqqq").text
    assert "Nothing fits “zzzzqqq”" in nothing
    assert not rows(nothing)


def test_what_opens_below_a_row_has_files_facts_and_problems(visit, project, skill):
    skill("pdf-forms", "Fills in forms. Use when asked.", "Do it.",
          allowed_tools="Bash(git log) Read", tags=["pdf", "forms"])  # fmt: skip
    folder = project / ".agents" / "skills" / "pdf-forms"
    put(folder, {"scripts/fill.py": "print(1)\n", "references/deep/guide.md": "# Guide\n"})
    (folder / "scripts" / "fill.py").chmod(0o755)
    text = visit.part("/skills/row?ref=.agents/skills/pdf-forms").text
    for words in ("fill.py", "can be run", "references/", "guide.md", "Bash(git log)", "pdf",
                  ".agents/skills/pdf-forms", "May use unasked"):  # fmt: skip
        assert words in text
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", text)
    file = "/skills/file?ref=.agents%2Fskills%2Fpdf-forms&amp;path=scripts%2Ffill.py"
    assert f'hx-get="{file}"' in text


# --- files ----------------------------------------------------------------------------------


def test_a_skill_at_the_top_of_a_project_does_not_show_the_project(visit, project):
    (project / "SKILL.md").write_text("---\nname: top\ndescription: On top.\n---\nDo.\n")
    (project / "secret.txt").write_text("a secret")
    (project / "scripts").mkdir()
    (project / "scripts" / "run.sh").write_text("echo hello\n")
    (project / "scripts" / "sly.txt").symlink_to("../secret.txt")
    found = [row.ref for row in list_skills(visit.satchel).rows if row.name == "top"]
    ref = quote(found[0])
    text = visit.part(f"/skills/row?ref={ref}").text
    assert "run.sh" in text
    assert "secret.txt</bdi>" not in text
    assert visit.part(f"/skills/file?ref={ref}&path=secret.txt").status_code == 403
    assert visit.part(f"/skills/file?ref={ref}&path=scripts/sly.txt").status_code == 403
    assert "hello" in visit.part(f"/skills/file?ref={ref}&path=scripts/run.sh").text
