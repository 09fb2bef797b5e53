"""Uploads of archives and folders, including malformed ones."""

from __future__ import annotations

import io
import os
import socket
import stat
import zipfile

import pytest

from satchel.ui import imports, middleware, state, uploads
from ui_dom import EVIL, check

SKILL = b"---\nname: greet\ndescription: Says hello. Use for greetings.\n---\nSay hello.\n"
ONE = ("greet/SKILL.md", SKILL)
DOABLE = ">Install "
"""Part of the page of a plan that can be applied."""


pytestmark = pytest.mark.usefixtures("spooled")


def packed(*entries: tuple[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return data.getvalue()


def send(visit, data: bytes, name: str = "skills.zip"):
    return visit.post("/skills/import/zip", files={"file": (name, data)})


def send_folder(visit, files: dict[str, bytes], **fields: str):
    rows = [("file", (path, content)) for path, content in files.items()]
    return visit.post("/skills/import/folder", files=rows, data=fields)


@pytest.mark.req("B8")
def test_a_zip_is_shown_first_and_installed_after_a_yes(visit, project, spooled):
    answer = send(visit, packed(ONE, ("greet/run.sh", b"echo hello\n")))
    plan = answer.headers["location"]
    page = visit.get(plan).text
    assert ">Install 1 skill</button>" in page
    assert "no findings" in page
    assert not (project / ".agents/skills/greet").exists()
    assert not list(spooled.iterdir())
    done = visit.post(f"{plan}/yes")
    assert "Installed: <code>greet</code>" in visit.get(done.headers["location"]).text
    assert (project / ".agents/skills/greet/run.sh").is_file()
    entry = visit.satchel.store().lock()["greet"]
    assert (entry.place.kind, entry.place.url) == ("upload", "skills.zip")
    with visit.satchel.store().plan_update() as update:
        assert update.steps == ()


@pytest.mark.req("B8")
def test_a_skill_at_the_top_is_called_after_the_file(visit):
    plan = send(visit, packed(("SKILL.md", SKILL)), "Fill PDF.zip").headers["location"]
    assert ">fill-pdf</h2>" in visit.get(plan).text


@pytest.mark.req("B8")
def test_a_folder_is_taken_with_its_paths_and_what_may_be_executed(visit, project):
    files = {
        "greet/SKILL.md": SKILL,
        "greet/scripts/run.sh": b"#!/bin/sh\necho hi\n",
        "greet/large.txt": b"x" * (uploads.SPOOL_BYTES + 1),
        "greet/.DS_Store": b"x",
        "greet/.git/config": b"x",
    }
    plan = send_folder(visit, files, scope="project").headers["location"]
    page = visit.get(plan).text
    assert "scripts/run.sh" in page
    assert "Ignored: " in page
    visit.post(f"{plan}/yes")
    here = project / ".agents/skills/greet"
    assert sorted(os.listdir(here)) == ["SKILL.md", "large.txt", "scripts"]
    assert (here / "scripts/run.sh").stat().st_mode & stat.S_IXUSR
    assert (here / "large.txt").stat().st_size == uploads.SPOOL_BYTES + 1


ARCHIVES = {
    "a path that goes up": packed(ONE, ("greet/../../evil.txt", b"x")),
    "a name that turns round": packed(ONE, ("greet/\u202egnp.exe", b"x")),
    "a bomb": packed(ONE, ("greet/zeros", b"\0" * (40 << 20))),
    "too many files": packed(ONE, *((f"greet/{at}", b"") for at in range(10_001))),
    "nothing": b"",
    "half an archive": packed(ONE)[:-30],
    "no skill": packed(("readme.txt", b"x")),
    "a web page": b"<script>alert(1)</script>",
}
"""`tests/hostile/test_archives.py` has every kind."""


@pytest.mark.req("B8")
@pytest.mark.timeout(120)
def test_a_hostile_archive_is_refused_and_leaves_nothing(visit, project, tmp_path, spooled):
    for case, data in ARCHIVES.items():
        answer = send(visit, data, "\"'><x-evil>.zip")
        assert answer.status_code in {303, 403, 404, 422}, case
        if answer.status_code == 303:  # the archive is valid, and its skill is refused
            plan = answer.headers["location"]
            answer = visit.get(plan)
            visit.post(f"{plan}/no")
        check(answer.text)
        assert DOABLE not in answer.text, case
        assert not list(spooled.iterdir()), case
        assert not (project / ".agents/skills/greet").exists(), case
    assert not list(tmp_path.rglob("evil*"))


PATHS = (
    "../evil.txt", "greet/../../evil.txt", "/evil.txt", "greet\\evil.txt", "C:evil.txt",
    "greet/con", "greet/evil.txt.", "greet//evil.txt", "./greet/evil.txt", "greet/skill.md",
    "greet/SKILL.md", "greet/SKILL.md/evil", "greet/evil\u202etxt", "greet/" + "a/" * 70 + "b",
    f"greet/{EVIL}", "greet/" + "n" * 500,
)  # fmt: skip


@pytest.mark.req("B8")
def test_a_folder_with_a_path_that_is_not_plain_is_refused(visit, project, tmp_path, spooled):
    for path in PATHS:
        rows = [("file", ("greet/SKILL.md", SKILL)), ("file", (path, b"x"))]
        answer = visit.post("/skills/import/folder", files=rows)
        assert answer.status_code in (403, 422), path
        assert "is refused" in answer.text, path
        check(answer.text)
        assert not list(spooled.iterdir()), path
    assert not list(tmp_path.rglob("evil*"))


PART = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
FORMS = {
    "no boundary": ("multipart/form-data", b"x"),
    "an empty boundary": ("multipart/form-data; boundary=", b"x"),
    "a long boundary": (f"multipart/form-data; boundary={'b' * 5_000}", b"x"),
    "a boundary that never comes": ("", b"x" * 10_000),
    "no form": ("text/plain", b"x"),
    "json": ("application/json", b"{}"),
    "a part without a name": ("", b"--b\r\n\r\nx\r\n--b--\r\n"),
    "no name but a file name": (
        "", b'--b\r\nContent-Disposition: attachment; filename="x"\r\n\r\nx\r\n--b--\r\n',
    ),
    "endless headers": ("", b"--b\r\n" + b"X: y\r\n" * 20_000 + b"\r\nx\r\n--b--"),
    "a long field": ("", PART % (b"x", b"", b"y" * 100_000) + b"--b--"),
    "many fields": ("", PART % (b"x", b"", b"y") * 5_000 + b"--b--\r\n"),
    "many files": ("", PART % (b"file", b'; filename="a"', b"y") * 1_000 + b"--b--\r\n"),
    "nothing chosen": ("", PART % (b"file", b'; filename=""', b"") + b"--b--\r\n"),
    "half a form": ("", (PART % (b"file", b'; filename="a.zip"', b"PK"))[:-2]),
    "two archives": ("", PART % (b"file", b'; filename="a.zip"', b"x") * 2 + b"--b--\r\n"),
}  # fmt: skip


def test_an_invalid_form_is_refused(visit, spooled):
    for case, (kind, body) in FORMS.items():
        for where in ("zip", "folder"):
            if (case, where) == ("two archives", "folder"):
                continue
            headers = {"Content-Type": kind or "multipart/form-data; boundary=b"}
            answer = visit.post(f"/skills/import/{where}", content=body, headers=headers)
            assert answer.status_code in {400, 413, 415, 422}, case
            assert not list(spooled.iterdir()), case
            check(answer.text)


@pytest.mark.req("B8")
def test_an_upload_beyond_the_limit_is_stopped_while_it_arrives(visit, monkeypatch, spooled):
    monkeypatch.setattr(middleware, "MAX_UPLOAD_BODY_BYTES", 1 << 20)
    answer = send(visit, bytes((1 << 20) + 1))
    assert answer.status_code == 413, "by the length it announces"

    def pieces():
        head = PART.partition(b"%s\r\n\r\n")[0] + b'; filename="a.zip"\r\n\r\n'
        yield head % b"file"
        for _ in range(64):
            yield bytes(1 << 16)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = visit.post("/skills/import/zip", content=pieces(), headers=headers)
    assert answer.status_code == 413, "by what was counted"
    assert "The upload is too large" in answer.text
    assert not list(spooled.iterdir())


def test_a_hostile_skill_is_shown_as_text_before_it_is_taken(visit):
    text = SKILL.replace(b"hello.\n", f"hello. {EVIL}\n<script>alert(1)</script>".encode())
    text = text.replace(b"Says hello.", b"Says <x-evil onload=x> hello.")
    answer = send(visit, packed(("greet/SKILL.md", text), ("greet/(x).txt", EVIL.encode())))
    place = answer.headers["location"]
    page = check(visit.get(place).text)
    assert "Install 1 skill" in page.text
    for path in ("SKILL.md", "(x).txt", "../../etc/passwd", EVIL):
        for headers in ({}, {"HX-Request": "true"}):
            shown = visit.get(f"{place}/diff", params={"step": 0, "path": path}, headers=headers)
            assert shown.status_code < 500
            check(shown.text)
    assert visit.get(f"{place}/diff?step=99999&path=x").status_code in {404, 422}
    assert visit.post(f"{place}/no").status_code in {200, 303}


def test_an_invalid_git_address_is_refused(visit):
    for address in (
        "ext::sh -c id", "-oProxyCommand=id", "--upload-pack=id", "file:///etc", "/etc", "../..",
        "http://[", "https://127.0.0.1:1/\r\nx", f"https://127.0.0.1:1/{EVIL}", "\x00",
        "git@-oProxyCommand=id:x", "https://user:secret@127.0.0.1:1/x",
    ):  # fmt: skip
        answer = visit.post("/skills/import/git", data={"source": address})
        assert answer.status_code < 500, address
        if answer.status_code == 303:
            answer = visit.get(answer.headers["location"])
        check(answer.text)
        assert "user:secret" not in answer.text


# --- imports that wait -----------------------------------------------------------------------


@pytest.fixture
def tarpit():
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/o/r"


def test_a_fetch_that_never_ends_holds_up_nothing_and_can_be_cancelled(visit, tarpit):
    def fetch():
        return visit.post("/skills/import/git", data={"source": tarpit})

    pages = [fetch().headers["location"] for _ in range(imports.MAX_FETCHES)]
    full = fetch()
    assert full.status_code == 403
    assert "Too many requests" in full.text
    assert "Fetching <code>" in visit.get(pages[0]).text
    assert visit.post(f"{pages[0]}/cancel").status_code == 303
    assert visit.get(pages[0]).status_code == 404
    assert fetch().status_code == 303
    visit.client.app.state.fetches.clear()


def test_of_too_many_plans_the_oldest_is_dropped_with_its_files(visit, project, monkeypatch):
    pending = visit.client.app.state.plans
    monkeypatch.setattr(pending, "_max_items", 2)
    plans = [send(visit, packed((f"{name}/SKILL.md", SKILL))).headers["location"] for name in "abc"]
    assert [visit.get(plan).status_code for plan in plans] == [404, 200, 200]
    stage = project / ".agents/.satchel/stage"
    assert sum(one.is_dir() for one in stage.iterdir()) == 2
    # A plan whose files are removed while a page reads them has expired.
    state.release(pending.require(plans[1].rpartition("/")[2]))
    answer = visit.get(f"{plans[1]}/diff?step=0&path=SKILL.md")
    assert answer.status_code == 404
    assert "This preview has expired" in answer.text
