"""The list of skills: rows, states, filters, search, what opens below a row, files."""

from __future__ import annotations

import os
import re
import threading
from html import unescape
from urllib.parse import quote, unquote, urlencode

import pytest

from satchel.detect import hybrid
from satchel.errors import NotFound
from satchel.facade import Satchel
from satchel.library import Library, Snapshot
from satchel.testing import make_skill, make_tool_skill
from satchel.ui import view
from satchel.ui.views import shelf
from satchel.ui.views.agents import agents_of
from satchel.ui.views.catalogue import show_catalogue
from satchel.ui.views.details import detail_of
from satchel.ui.views.files import read_file
from satchel.ui.views.shelf import shelf_of
from satchel.ui.views.skills import FOUND, ROWS, find_skill, list_skills
from satchel.ui.views.story import tell


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
    """A skill that is called otherwise than its folder."""
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


def test_a_long_description_is_cut_and_whole_in_its_tooltip(visit, skill):
    words = "Reads reports and says what is in them. " * 20
    skill("reports", words.strip())
    text = visit.get("/skills").text
    assert f'title="{words.strip()}"' in text
    assert re.search(r"<bdi>Reads reports [^<]*…</bdi>", text)


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


def test_skills_of_the_project_or_within_another_folder_are_not_changed_here(visit, project):
    make_skill(project / "skills", "shared", description="Of the project.")
    make_skill(project / ".agents" / "skills" / "group", "inner", description="Within a folder.")
    for ref in ("skills/shared", ".agents/skills/group/inner"):
        text = visit.part(f"/skills/row?ref={ref}").text
        assert "/skills/remove" not in text
        assert "/skill?ref=" in text


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


def test_a_broken_skill_of_the_users_own_can_be_removed_and_nobody_elses(visit, project):
    own = project / ".agents" / "skills" / "half"
    put(own, {"SKILL.md": "Only words.\n"})
    put(project / "skills" / "other", {"SKILL.md": "Only words.\n"})
    visit.get("/skills")
    theirs = quote(str(project / "skills" / "other" / "SKILL.md"))
    assert "/skill/edit" not in visit.part(f"/skills/row?ref={theirs}").text
    assert visit.get(f"/skill/edit?ref={theirs}").status_code in {403, 409, 422}
    plan = visit.post(f"/skills/remove?ref={quote(str(own / 'SKILL.md'))}", data={})
    assert plan.status_code == 303
    assert visit.post(f"{plan.headers['location']}/yes", data={}).status_code == 303
    assert not own.exists()


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


def test_the_list_opens_at_one_skill_and_a_search_can_be_cleared(visit, skill):
    for at in range(ROWS + 5):
        skill(f"skill-{at:03}")
    ref = f".agents/skills/skill-{ROWS + 2:03}"
    found = list_skills(visit.satchel, opened=ref)
    assert found.page == 2
    assert found.opened in {row.key for row in found.rows}
    assert list_skills(visit.satchel, opened="no/such").page == 1
    text = visit.get(f"/skills?open={ref}").text
    assert text.count("is-open is-new") == 1
    assert 'data-clears="q"' in text


def test_only_the_very_file_of_a_broken_skill_is_shown(visit, project):
    (project / "secret.txt").write_text("no part of any skill")
    folder = project / ".agents" / "skills" / "half"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("Only some words.\n")
    (folder / "other.txt").write_text("beside it")
    visit.get("/skills")
    path = quote(str(folder / "SKILL.md"))
    assert visit.part(f"/skills/file?ref={path}&path=other.txt").status_code == 403
    assert visit.part(f"/skills/file?ref={quote(str(project / 'secret.txt'))}").status_code == 404


@pytest.mark.req("B11")
def test_an_empty_project_shows_a_first_step_and_makes_no_folder(visit, project):
    text = visit.get("/skills").text
    assert "Your first skill" in text
    assert "Import one you have" in text
    assert not (project / ".agents").exists()
    make_skill(project / ".agents" / "skills", "one", description="One. Use when asked.")
    assert "Your first skill" not in visit.get("/skills").text


def test_what_waits_for_trust_is_counted_and_one_click_away(visit, project, skill):
    skill("mine", "Mine. Use when asked.")
    asking = trusting(visit, trust="ask")
    listing = list_skills(asking)
    assert (listing.waiting, listing.waits_as) == (1, "untrusted")
    asking.trust()
    assert list_skills(asking).waiting == 0
    (project / ".agents/skills/mine/SKILL.md").write_text(
        "---\nname: mine\ndescription: Another. Use when asked.\n---\nDo.\n"
    )
    listing = list_skills(asking)
    assert (listing.waiting, listing.waits_as) == (1, "changed")
    assert [row.state for row in listing.rows if row.name == "mine"] == ["changed"]
    assert list_skills(trusting(visit, trust="none")).waiting == 0


def test_what_would_be_refused_when_loaded_is_marked_blocked(visit, project, skill):
    skill("mine", "Mine. Use when asked.")
    put(project / ".agents/skills/mine", {"notes.txt": "as it was"})
    asking = trusting(visit, trust="ask")
    asking.trust()
    assert _state(asking, "mine") == "full"
    (project / ".agents/skills/mine/notes.txt").write_text("another text, and longer")
    assert _state(asking, "mine") == "blocked"
    assert [row.name for row in list_skills(asking, state="blocked").rows] == ["mine"]
    (project / ".agents/skills/mine/notes.txt").write_text("as it was")
    assert _state(asking, "mine") == "full"


def _state(satchel: Satchel, name: str) -> str:
    return next(row.state for row in list_skills(satchel).rows if row.name == name)


def test_every_state_of_the_catalogue_has_its_word(visit, skill):
    for number in range(40):
        skill(f"skill-{number:02}", "Does a thing with care, and says so at some length. " * 4)
    skill("for-people", "Kept from models.", disable_model_invocation=True)
    seen: set[str] = set()
    for budget in (40_000, 4_000, 2_500, 1_300, 1_000):
        satchel = trusting(visit, trust="all", budget=budget)
        seen |= {row.state for row in list_skills(satchel).rows}
    assert seen == {"full", "shortened", "named", "unlisted", "withheld"}
    left_out = list_skills(trusting(visit, trust="all", exclude=["skill-0*"]), state="excluded")
    assert left_out.total == 10


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


def test_pages_are_cut_on_the_server(visit, skill):
    for number in range(ROWS + 10):
        skill(f"skill-{number:03}", "Does a thing. Use when asked.")
    first, second = visit.get("/skills").text, visit.part("/skills?page=2").text
    assert len(rows(first)) == ROWS
    assert len(rows(second)) == 13  # ten, and what ships with Satchel
    assert "Page 1 of 2" in first
    assert not rows(first).keys() & rows(second).keys()
    assert rows(visit.get("/skills?page=999").text) == rows(second)
    assert visit.get("/skills?page=0").status_code == 422


def test_htmx_gets_the_rows_alone_and_the_count_beside_them(visit, skill):
    skill("mine", "Mine. Use when asked.")
    text = visit.part("/skills").text
    assert "<html" not in text
    assert 'id="count" hx-swap-oob="innerHTML"' in text
    back = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    assert "<html" in visit.get("/skills", headers=back).text


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


def test_a_search_keeps_its_filters(visit, project, skill):
    skill("deploy", "Ships it. Use when asked to deploy.")
    make_skill(project / ".agents" / "sys.skills", "deploy-all", description="Ships all, deploy.")
    assert list(rows(visit.part("/skills?q=deploy&source=system").text)) == ["deploy-all/full"]
    text = visit.part("/skills?q=deploy&source=system").text
    assert '<input type="hidden" form="search" name="source" value="system">' in text


def test_many_that_fit_are_said_to_be_the_best(visit, skill):
    for number in range(ROWS + 20):
        # A word that no skill of the package has anywhere.
        skill(f"zebra-{number:03}", "Counts zebra stripes. Use when a zebra is seen.")
    listing = list_skills(visit.satchel, words="zebra")
    assert (listing.total, listing.most, listing.pages) == (ROWS, True, 2)
    last = list_skills(visit.satchel, words="zebra", page=2)
    assert (last.total, last.most, len(last.rows)) == (ROWS + 20, False, 20)
    assert "The best 50 for “zebra”" in visit.part("/skills?q=zebra").text
    assert last.total <= FOUND


def test_a_search_without_a_hit_says_what_else_can_be_done(visit, skill):
    skill("notes")
    text = visit.part("/skills?q=xyzzyqq").text
    assert "or write a skill for it" in text
    assert 'href="/skills/import"' in text
    assert "or fewer filters" in visit.part("/skills?q=xyzzyqq&source=project").text


def test_a_search_that_is_too_long_is_refused_in_our_words(visit):
    assert "at most 400 characters" in visit.part(f"/skills?q={'x' * 500}").text


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


def test_a_skill_that_is_not_there_is_said_so(visit):
    answer = visit.part("/skills/row?ref=.agents/skills/gone")
    assert answer.status_code == 404
    assert "There is no skill <code>.agents/skills/gone</code>" in answer.text
    assert visit.get("/skills/file?ref=nothing").status_code == 404


def test_a_skill_cannot_pose_as_another_by_its_name(visit, project, skill):
    skill("victim", "The real one. Use when asked.")
    named(project / ".agents" / "skills" / "thief", ".agents/skills/victim", "Poses as another.")
    assert find_skill(visit.satchel, ".agents/skills/victim").description.startswith("The real")


def test_a_skill_is_found_by_whatever_it_is_called(project, skill, monkeypatch):
    file = skill("team/demo")
    make_skill(project / "skills", "demo", "Hidden.")
    make_tool_skill(project / ".agents" / "skills", "excel", tool="excel_read")
    satchel = Satchel.for_project(project, trust="all", builtin=False)
    satchel.library.tools()
    # A table of everything a skill can be called takes seconds where there are many.
    monkeypatch.delattr(Snapshot, "find")
    folder = os.path.dirname(file)
    for word in ("demo", "team/demo", ".agents/skills/team/demo", file, folder, f"{folder}/"):
        assert find_skill(satchel, word).path == file, word
    assert find_skill(satchel, "skills/demo").description == "Hidden."
    assert find_skill(satchel, str(project / "skills" / "demo")).state == "shadowed"
    assert find_skill(satchel, "excel").is_tool
    for word in ("", "other", "a/b", "/", "/etc", "../x", "\ud800"):
        with pytest.raises(NotFound):
            find_skill(satchel, word)


def test_no_view_looks_at_a_large_library_itself(project, skill, monkeypatch):
    skill("demo")
    satchel = Satchel.for_project(project, trust="all")
    satchel.library.tools()
    monkeypatch.setattr(shelf, "_SMALL", -1)  # from here on it counts as large
    monkeypatch.delattr(Library, "refresh")
    demo = find_skill(satchel, "demo")
    assert list_skills(satchel).total > 1
    assert list_skills(satchel, words="demo").rows[0].name == "demo"
    assert detail_of(satchel, demo.ref).row.name == "demo"
    assert read_file(satchel, demo.ref, "").is_own
    assert tell(satchel, demo).row.name == "demo"
    assert agents_of(satchel, demo).offered
    assert show_catalogue(satchel).total > 1


# --- files ----------------------------------------------------------------------------------


@pytest.fixture
def own(project, skill):
    """A skill's folder."""
    skill("mine", "Mine. Use when asked.", "# Title\n\nSee [guide](references/guide.md).\n")
    folder = project / ".agents" / "skills" / "mine"
    put(folder, {"references/guide.md": "Back to [it](../SKILL.md)."})
    return folder


REF = "/skills/file?ref=.agents/skills/mine"


def test_the_own_file_shows_its_fields_as_a_table_and_its_text_rendered(visit, own):
    text = visit.part(REF).text
    assert '<th scope="row"><bdi class="mono">description</bdi></th>' in text
    assert "<h3>Title</h3>" in text
    assert "---" not in text
    assert 'href="/skills/file?ref=.agents%2Fskills%2Fmine&amp;path=references%2Fguide.md"' in text
    guide = visit.get(f"{REF}&path=references/guide.md").text
    assert "<html" in guide
    assert "path=SKILL.md" in guide


def test_code_is_coloured_by_its_name_and_long_code_is_not(visit, own):
    (own / "run.py").write_text("def f():\n    return '<b>'  # why\n")
    text = visit.part(f"{REF}&path=run.py").text
    assert '<span class="t-key">def</span>' in text
    assert "&lt;b&gt;" in text
    (own / "long.py").write_text("x = 1\n" * 20_000)
    assert "t-num" not in visit.part(f"{REF}&path=long.py").text


def test_a_large_file_is_cut_with_a_word_about_it(visit, own):
    (own / "large.txt").write_text("0123456789" * 50_000)
    text = visit.part(f"{REF}&path=large.txt").text
    assert "This is the first 200.0 kB of 500.0 kB" in text
    assert len(text) < 210_000


def test_pictures_and_what_is_no_text_are_named_and_not_sent(visit, own):
    (own / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n<script>alert(1)</script>")
    (own / "data.bin").write_bytes(b"\0\1\2<script>")
    (own / "vector.svg").write_text("<svg onload=alert(1)></svg>")
    for name, words in (("logo.png", "A picture (PNG"), ("data.bin", "Not text")):
        text = visit.part(f"{REF}&path={name}").text
        assert words in text
        assert "<script" not in text
    assert "<svg" not in visit.part(f"{REF}&path=vector.svg").text


OUTSIDE = (
    "../../../secret.txt", "references/../../../../secret.txt", "/etc/passwd", "//etc/passwd",
    "link-out.txt", "link-folder/secret.txt", "..", ".", "references", "pipe", "gone.txt",
    "%00", "a%00b", ".git/config", "link-git", "%2e%2e/%2e%2e/%2e%2e/secret.txt", "..%5csecret",
    "SKILL.md/", "x" * 5_000,
)  # fmt: skip


def test_no_path_leads_out_of_a_skill_or_into_what_is_no_file(visit, project, own):
    (project / "secret.txt").write_text("a secret of the project")
    (own / "link-out.txt").symlink_to(project / "secret.txt")
    (own / "link-folder").symlink_to(project)
    (own / ".git").mkdir()
    (own / ".git" / "config").write_text("a secret of git")
    (own / "link-git").symlink_to(".git/config")
    os.mkfifo(own / "pipe")
    codes: dict[str, int] = {}

    def ask() -> None:
        for path in OUTSIDE:
            answer = visit.part(f"{REF}&path={path}")
            told = "secret of" in answer.text or "Traceback" in answer.text
            codes[path] = 0 if told else answer.status_code

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(20)  # a pipe must not make anybody wait
    assert {path: code for path, code in codes.items() if code not in {403, 404}} == {}
    assert len(codes) == len(OUTSIDE)


def test_links_pipes_and_odd_names_are_named_in_the_tree(visit, project, own):
    (own / "link-out.txt").symlink_to(project / "secret.txt")
    os.mkfifo(own / "pipe")
    (own / "<img src=x onerror=alert(1)>.md").write_text("x")
    (own / os.fsdecode(b"half-\xff.txt")).write_text("x")
    text = visit.part("/skills/row?ref=.agents/skills/mine").text
    assert "a link to" in text
    assert "a named pipe" in text
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;.md" in text
    assert "half-\\udcff.txt" in text


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


def test_a_list_is_worked_out_once_while_nothing_changes(visit, skill):
    skill("one", "One. Use when asked.")
    first = shelf_of(visit.satchel)
    assert shelf_of(visit.satchel) is first
    skill("two", "Two. Use when asked.")
    assert shelf_of(visit.satchel) is not first
    assert "two/full" in rows(visit.get("/skills").text)


def test_an_address_says_whatever_a_skill_is_called():
    ref = "project/a b&c=d?#/%2F+é写"
    path, _, query = view.address("/skill", ref=ref, page=2, state="", q=None).partition("?")
    assert path == "/skill"
    assert query == urlencode({"ref": ref, "page": 2})
    assert view.address("/skill", ref="") == "/skill"


def test_nobody_looks_for_reasons_that_no_row_shows(visit, skill, monkeypatch):
    skill("pdf-forms", "Fills in PDF forms. Use when a form is to be filled in.")
    skill("other", "Something else. Use when asked.", body="A form may be a PDF.")
    visit.satchel.refresh()
    reasons = {one.name: one.reason for one in visit.satchel.search("pdf form")}
    assert "instructions have" in reasons["other"]

    def explain(*_, **__):
        raise AssertionError("somebody looks for reasons")

    monkeypatch.setattr(hybrid, "explain", explain)
    found = visit.satchel.search("pdf form", reasons=False)
    assert {one.name: one.reason for one in found} == dict.fromkeys(reasons, "")
    assert set(rows(visit.part("/skills?q=pdf+form").text)) >= {"pdf-forms/full", "other/full"}
