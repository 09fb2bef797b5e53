"""Files that a browser sends: whatever is in them, and however they come."""

from __future__ import annotations

import asyncio
import io
import os
import re
import stat
import tarfile
import zipfile
from contextlib import suppress
from typing import NamedTuple

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from satchel.errors import InvalidInput, SatchelError, Unsafe
from satchel.ui import uploads
from satchel.ui.uploads import Folder, OneFile, Spools, receive

SKILL = b"---\nname: greet\ndescription: Says hello. Use for greetings.\n---\nSay hello.\n"


def packed(files: dict[str, bytes]) -> bytes:
    """A zip."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def send(visit, data: bytes, name: str = "skills.zip"):
    return visit.post("/skills/import/zip", files={"file": (name, data)})


def send_folder(visit, files: dict[str, bytes], **fields: str):
    rows = [("file", (path, content)) for path, content in files.items()]
    return visit.post("/skills/import/folder", files=rows, data=fields)


def left_over(tmp_path) -> list[str]:
    """What uploads left on the disk."""
    base = tmp_path / "home/state/uploads"
    return [str(path) for path in base.glob("*/*")] if base.exists() else []


@pytest.mark.req("B8")
def test_a_zip_is_shown_first_and_installed_after_a_yes(visit, project, tmp_path):
    answer = send(visit, packed({"greet/SKILL.md": SKILL, "greet/run.sh": b"echo hello\n"}))
    assert answer.status_code == 303
    plan = answer.headers["location"]
    page = visit.get(plan).text
    assert "Install <code>greet</code>?" in page
    assert "no findings" in page
    assert not (project / ".agents/skills/greet").exists()
    assert left_over(tmp_path)
    done = visit.post(f"{plan}/yes")
    assert "Imported: <code>greet</code>" in visit.get(done.headers["location"]).text
    assert (project / ".agents/skills/greet/run.sh").is_file()
    assert left_over(tmp_path) == []
    entry = visit.satchel.store().lock()["greet"]
    assert (entry.place.kind, entry.place.url) == ("upload", "skills.zip")
    with visit.satchel.store().plan_update() as update:
        assert update.steps == ()


@pytest.mark.req("B8")
def test_a_skill_at_the_top_of_a_zip_is_called_after_the_file(visit):
    plan = send(visit, packed({"SKILL.md": SKILL}), "Fill PDF.zip").headers["location"]
    assert "<code>fill-pdf</code>" in visit.get(plan).text


@pytest.mark.req("B8")
def test_a_tar_works_as_well(visit):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        info = tarfile.TarInfo("greet/SKILL.md")
        info.size = len(SKILL)
        archive.addfile(info, io.BytesIO(SKILL))
    answer = send(visit, data.getvalue(), "skills.tar.gz")
    assert answer.headers["location"].startswith("/plans/")


@pytest.mark.req("B8")
def test_a_folder_is_taken_with_its_paths_and_what_may_be_executed(visit, project):
    files = {
        "greet/SKILL.md": SKILL,
        "greet/scripts/run.sh": b"#!/bin/sh\necho hi\n",
        "greet/.DS_Store": b"x",
        "greet/.git/config": b"x",
    }
    plan = send_folder(visit, files, scope="project").headers["location"]
    page = visit.get(plan).text
    assert "scripts/run.sh" in page
    assert "Left out" in page
    visit.post(f"{plan}/yes")
    here = project / ".agents/skills/greet"
    assert sorted(os.listdir(here)) == ["SKILL.md", "scripts"]
    assert (here / "scripts/run.sh").stat().st_mode & stat.S_IXUSR


def zip_with(name: str) -> bytes:
    """A zip with an entry that python's own module would not write so."""
    data = packed({"greet/SKILL.md": SKILL, "x" * len(name): b"x"})
    return data.replace(b"x" * len(name), name.encode())


def zip_with_link() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("greet/SKILL.md", SKILL)
        info = zipfile.ZipInfo("greet/link")
        info.create_system = 3
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return data.getvalue()


ARCHIVES = {
    "slip": (lambda: zip_with("../../evil.txt"), "must not contain .."),
    "inner slip": (lambda: zip_with("greet/../../e.txt"), "must not contain .."),
    "absolute": (lambda: zip_with("/etc/cron.d/evil"), "must be relative"),
    "backslash": (lambda: zip_with("greet\\..\\evil.t"), "not with a backslash"),
    "device": (lambda: zip_with("greet/aux.txt"), "usable on Windows"),
    "case": (lambda: zip_with("greet/SKILL.MD"), "must not differ only in case"),
    "link": (zip_with_link, "must not contain links"),
    "bomb": (
        lambda: packed({"greet/SKILL.md": SKILL, "greet/b": bytes(40 << 20)}),
        "100 times as large",
    ),
    "too many files": (
        lambda: packed({f"greet/{n}": b"" for n in range(10_001)} | {"greet/SKILL.md": SKILL}),
        "more files than the limit",
    ),
    "no skill": (lambda: packed({"greet/readme.txt": b"x"}), "There is no SKILL.md"),
    "empty": (lambda: packed({}), "There is no SKILL.md"),
    "program": (lambda: b"MZ this is a program", "must be a zip or a tar"),
    "nothing": (lambda: b"", "must be a zip or a tar"),
    "rar": (lambda: b"Rar!\x1a\x07\x00", "only zip, tar"),
    "cut": (lambda: packed({"greet/SKILL.md": SKILL})[:-30], "is refused"),
}


@pytest.mark.req("B8")
def test_a_hostile_archive_is_refused_and_leaves_nothing(visit, project, tmp_path):
    for kind, (made, words) in ARCHIVES.items():
        answer = send(visit, made())
        text = answer.text
        if answer.status_code == 303:  # the archive as such is sound: its skill is what is refused
            text = visit.get(answer.headers["location"]).text
            assert "There is nothing to do" in text
            visit.post(f"{answer.headers['location']}/no")
        else:
            assert answer.status_code in (403, 404, 422), kind
        assert words in re.sub("`|</?code>", "", text), kind
        assert left_over(tmp_path) == [], kind
        assert not (project / ".agents/skills/greet").exists(), kind
    assert not list(tmp_path.rglob("evil*"))


PATHS = (
    "../evil.txt", "greet/../../evil.txt", "/evil.txt", "greet\\evil.txt", "C:evil.txt",
    "greet/con", "greet/evil.txt.", "greet//evil.txt", "./greet/evil.txt", "greet/skill.md",
    "greet/SKILL.md", "greet/SKILL.md/evil", "greet/evil\u202etxt", "greet/" + "a/" * 70 + "b",
)  # fmt: skip


@pytest.mark.req("B8")
def test_a_folder_with_a_path_that_leads_elsewhere_is_refused(visit, tmp_path):
    for path in PATHS:
        rows = [("file", ("greet/SKILL.md", SKILL)), ("file", (path, b"x"))]
        answer = visit.post("/skills/import/folder", files=rows)
        assert answer.status_code in (403, 422), path
        assert "is refused" in answer.text, path
        assert left_over(tmp_path) == [], path
    assert not list(tmp_path.rglob("evil*"))


def test_nothing_chosen_or_another_kind_of_form_is_said_plainly(visit, tmp_path):
    assert "No file was chosen" in visit.post("/skills/import/zip", files={"x": ("", b"")}).text
    assert visit.post("/skills/import/zip", data={"file": "x"}).status_code == 415
    assert visit.post("/skills/import/folder", json={}).status_code == 415
    two = [("file", ("a.zip", b"x")), ("file", ("b.zip", b"x"))]
    assert visit.post("/skills/import/zip", files=two).status_code == 422
    assert left_over(tmp_path) == []


@pytest.mark.req("B8")
def test_an_upload_beyond_the_limit_is_413_in_our_words(visit, monkeypatch, tmp_path):
    monkeypatch.setattr(OneFile.__init__, "__defaults__", (1 << 20,))
    answer = send(visit, bytes((1 << 20) + 1))
    assert answer.status_code == 413
    assert "The upload is larger than 1 MiB, which is the limit" in answer.text
    assert left_over(tmp_path) == []


# --- the reader itself ----------------------------------------------------------------------


class Told(NamedTuple):
    """What became of an upload that was driven by hand."""

    error: BaseException | None
    taken: int
    """Pieces that were asked for."""
    fields: dict[str, str]


def drive(sink, pieces, headers=(), *, ends=True) -> Told:
    """Send pieces as a server would, and count how many are taken."""
    taken = 0
    rows = iter(pieces)

    async def given():
        nonlocal taken
        piece = next(rows, None)
        if piece is None:
            if ends:
                return {"type": "http.request", "body": b"", "more_body": False}
            return {"type": "http.disconnect"}
        taken += 1
        return {"type": "http.request", "body": piece, "more_body": True}

    kind = (b"content-type", b"multipart/form-data; boundary=XX")
    scope = {"type": "http", "method": "POST", "headers": [kind, *headers]}
    error: BaseException | None = None
    fields: dict[str, str] = {}
    try:
        fields = asyncio.run(receive(Request(scope, given), sink)).fields
    except (HTTPException, SatchelError) as exc:
        error = exc
    return Told(error, taken, fields)


HEAD = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\n'
MEGABYTE = bytes(1 << 20)


def test_a_stream_without_an_end_is_cut_while_it_arrives(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "DRAIN", 4 << 20)
    endless = (HEAD if at == 0 else MEGABYTE for at in range(10_000))
    told = drive(OneFile(str(tmp_path), 8 << 20), endless)
    assert isinstance(told.error, HTTPException)
    assert told.error.status_code == 413
    assert told.taken <= 15  # eight are kept, one is too much, four are thrown away
    assert os.path.getsize(tmp_path / "archive") <= 8 << 20


@pytest.mark.parametrize("said", [b"5", b"0", b"-1", b"abc"])
def test_what_a_content_length_says_is_not_believed(tmp_path, said):
    pieces = [HEAD, *[MEGABYTE] * 12]
    told = drive(OneFile(str(tmp_path), 8 << 20), pieces, [(b"content-length", said)])
    assert isinstance(told.error, HTTPException)
    assert told.error.status_code == 413


def test_a_content_length_beyond_everything_is_refused_unread(tmp_path):
    told = drive(OneFile(str(tmp_path), 8 << 20), [HEAD], [(b"content-length", b"9" * 12)])
    assert isinstance(told.error, HTTPException)
    assert (told.error.status_code, told.taken) == (413, 0)


def test_an_upload_that_breaks_off_is_none(tmp_path):
    told = drive(OneFile(str(tmp_path)), [HEAD, b"half"], ends=False)
    assert isinstance(told.error, HTTPException)
    assert told.error.status_code == 400
    os.unlink(tmp_path / "archive")
    assert isinstance(drive(OneFile(str(tmp_path)), [HEAD, b"half"]).error, InvalidInput)


@pytest.mark.parametrize(
    "about",
    [
        b'form-data; name="file"; filename="a"b"', b"form-data", b'attachment; filename="x"',
        b"form-data; name=file; filename*=UTF-8''x", b"",
    ],
)  # fmt: skip
def test_a_header_that_could_be_read_in_two_ways_is_refused(tmp_path, about):
    head = b"--XX\r\nContent-Disposition: " + about + b"\r\n\r\nx\r\n--XX--\r\n"
    assert isinstance(drive(OneFile(str(tmp_path)), [head]).error, InvalidInput)


def test_fields_are_short_and_few(tmp_path):
    field = b'--XX\r\nContent-Disposition: form-data; name="%d"\r\n\r\n%s\r\n'
    long = field % (1, b"x" * 5_000) + b"--XX--\r\n"
    assert isinstance(drive(OneFile(str(tmp_path)), [long]).error, InvalidInput)
    many = b"".join(field % (at, b"x") for at in range(40)) + b"--XX--\r\n"
    assert isinstance(drive(OneFile(str(tmp_path)), [many]).error, InvalidInput)
    few = field % (1, "ü".encode()) + b"--XX--\r\n"
    assert drive(OneFile(str(tmp_path)), [few]).fields == {"1": "ü"}


def test_a_folder_has_at_most_so_many_files(tmp_path):
    head = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a/%d"\r\n\r\nx\r\n'
    pieces = [head % at for at in range(20)]
    told = drive(Folder(str(tmp_path), files=10), pieces)
    assert isinstance(told.error, Unsafe)
    assert told.error.rule == "too-many-files"


def test_spools_are_private_and_a_dead_servers_are_swept(tmp_path):
    state = str(tmp_path / "state")
    spools = Spools(state)
    folder = spools.new()
    for path in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    dead = tmp_path / "state/uploads/dead-1"
    dead.mkdir()
    (dead / "archive").write_bytes(b"x")
    other = Spools(state)
    other.new()
    assert not dead.exists()
    assert os.path.isdir(folder)  # its server lives
    other.close()
    spools.close()
    with suppress(FileNotFoundError):
        assert os.listdir(tmp_path / "state/uploads") == []
