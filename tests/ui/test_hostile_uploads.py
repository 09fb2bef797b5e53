"""Hostile uploads: archives that reach out, lie or swell; forms that are none."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from ui_dom import EVIL, check

DOABLE = "It can be undone afterwards."
"""What a plan says that somebody can agree to."""
SKILL = b"---\nname: one\ndescription: Does things. Use when asked.\n---\nDo.\n"


def zipped(*entries) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return body.getvalue()


def linked(target: str) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("one/SKILL.md", SKILL)
        info = zipfile.ZipInfo("one/link")
        info.create_system, info.external_attr = 3, 0o120777 << 16
        archive.writestr(info, target)
    return body.getvalue()


def device() -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("one/SKILL.md", SKILL)
        info = zipfile.ZipInfo("one/zero")
        info.create_system, info.external_attr = 3, 0o020666 << 16
        archive.writestr(info, "")
    return body.getvalue()


def tarred(name: str, kind: bytes, link: str = "") -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        for entry, data in (("one/SKILL.md", SKILL), (name, b"x")):
            info = tarfile.TarInfo(entry)
            info.size = len(data)
            if entry == name:
                info.type, info.linkname = kind, link
                info.size = len(data) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(data))
    return body.getvalue()


def lying() -> bytes:
    """The central directory says another size than the file has."""
    body = bytearray(zipped(("one/SKILL.md", SKILL), ("one/a.txt", b"x" * 100)))
    at = body.rindex(b"PK\x01\x02")
    struct.pack_into("<I", body, at + 24, 5)
    return bytes(body)


ONE = ("one/SKILL.md", SKILL)
ARCHIVES = {
    "a path that goes up": zipped(ONE, ("one/../../escaped.txt", "x")),
    "an absolute path": zipped(ONE, ("/tmp/escaped.txt", "x")),
    "a path with a drive": zipped(ONE, ("C:\\escaped.txt", "x")),
    "backslashes": zipped(ONE, ("one\\..\\..\\escaped.txt", "x")),
    "a link out": linked("/etc/passwd"),
    "a link up": linked("../../../escaped"),
    "a device": device(),
    "two names that are one": zipped(ONE, ("one/a.txt", "x"), ("one/A.TXT", "y")),
    "the same name twice": zipped(ONE, ("one/skill.md", "x")),
    "a name that turns round": zipped(ONE, ("one/\u202egnp.exe", "x")),
    "a name with a control sign": zipped(ONE, ("one/a\x1b[31m.txt", "x")),
    "a device's name": zipped(ONE, ("one/CON", "x"), ("one/aux.txt", "y")),
    "a bomb": zipped(ONE, ("one/zeros", b"\0" * (80 << 20))),
    "a size that is a lie": lying(),
    "an overlap": zipped(ONE)[:60] + zipped(ONE),
    "too many files": zipped(ONE, *((f"one/{at}", b"") for at in range(10_050))),
    "too deep": zipped(ONE, ("one/" + "d/" * 80 + "x", "x")),
    "nothing": b"",
    "no archive": b"not an archive at all",
    "half an archive": zipped(ONE)[:-30],
    "no skill": zipped(("readme.txt", "x")),
    "a tar with a link": tarred("one/link", tarfile.SYMTYPE, "/etc/passwd"),
    "a tar with a hard link": tarred("one/link", tarfile.LNKTYPE, "/etc/passwd"),
    "a tar with a pipe": tarred("one/pipe", tarfile.FIFOTYPE),
    "a tar that goes up": tarred("one/../../escaped", tarfile.REGTYPE),
    "a web page": b"<script>alert(1)</script>",
}


@pytest.fixture
def visit(guest):
    return guest


def _files(visit) -> set[str]:
    """What is there, but for our own folders; of skills those that an agent would see."""
    project = Path(visit.satchel.settings.project)
    root, skills = project.parent, project / ".agents" / "skills"
    return {str(path) for path in skills.rglob("*")} | {
        str(path)
        for path in root.rglob("*")
        if not {"home", ".agents", "cache", "state"} & set(path.relative_to(root).parts)
    }


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_is_refused_and_leaves_nothing(visit, case):
    before = _files(visit)
    name = "<x-evil>.tar" if "tar" in case else "\"'><x-evil>.zip"
    sent = {"file": (name, ARCHIVES[case]), "archive": (name, ARCHIVES[case])}
    for field in ("file", "archive"):
        answer = visit.post("/skills/import/zip", files={field: sent[field]})
        assert answer.status_code in {303, 400, 403, 404, 413, 422}, answer.status_code
        if answer.status_code == 303:
            answer = visit.get(answer.headers["location"])
        if answer.headers["content-type"].startswith("text/html"):
            check(answer.text)
        assert DOABLE not in answer.text, "it may be installed"
    answer = visit.post("/api/plans/zip", content=ARCHIVES[case])
    if answer.status_code == 201:  # read, and its skill refused
        assert {step["action"] for step in answer.json()["steps"]} == {"refused"}
    else:
        assert answer.status_code in {400, 403, 404, 413, 422}, answer.text[:200]
        assert answer.json()["error"]["message"]
    assert _files(visit) == before


FORMS = {
    "no boundary": ("multipart/form-data", b"x"),
    "an empty boundary": ("multipart/form-data; boundary=", b"x"),
    "a long boundary": (f"multipart/form-data; boundary={'b' * 5_000}", b"x"),
    "a boundary that never comes": ("multipart/form-data; boundary=b", b"x" * 10_000),
    "no form": ("text/plain", b"x"),
    "json": ("application/json", b"{}"),
    "a part without a name": (
        "multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n--b--\r\n",
    ),
    "endless headers": (
        "multipart/form-data; boundary=b", b"--b\r\n" + b"X: y\r\n" * 20_000 + b"\r\nx\r\n--b--",
    ),
    "a long field": (
        "multipart/form-data; boundary=b",
        b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n' + b"y" * 100_000 + b"\r\n--b--",
    ),
    "many fields": (
        "multipart/form-data; boundary=b",
        b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n' * 5_000 + b"--b--\r\n",
    ),
    "half a form": (
        "multipart/form-data; boundary=b",
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\nPK',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FORMS)
@pytest.mark.parametrize("where", ["zip", "folder"])
def test_a_form_that_is_none_is_refused(visit, case, where):
    kind, body = FORMS[case]
    headers = {"Content-Type": kind}
    answer = visit.post(f"/skills/import/{where}", content=body, headers=headers)
    assert answer.status_code in {303, 400, 403, 413, 415, 422}, answer.status_code
    if answer.status_code == 303:
        answer = visit.get(answer.headers["location"])
    check(answer.text)


NAMES = {
    "up": "one/../../escaped.txt",
    "absolute": "/tmp/escaped.txt",
    "a drive": "C:\\escaped.txt",
    "markup": f"one/{EVIL}",
    "a control sign": "one/a\x07b",
    "a nul": "one/a%00b",
    "long": "one/" + "n" * 5_000,
    "a device": "one/CON",
    "version control": "one/.git/hooks/post-checkout",
    "line ends": "one/a%0D%0AX-Evil: 1",
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_within_a_folder_is_a_plain_one(visit, case):
    before = _files(visit)
    disposition = f'form-data; name="files"; filename="{NAMES[case]}"'.encode()
    good = b'form-data; name="files"; filename="one/SKILL.md"'
    body = b"".join(
        b"--b\r\nContent-Disposition: " + one + b"\r\n\r\n" + data + b"\r\n"
        for one, data in ((good, SKILL), (disposition, b"x"))
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = visit.post("/skills/import/folder", content=body + b"--b--\r\n", headers=headers)
    assert answer.status_code in {303, 400, 403, 413, 422}
    assert "X-Evil" not in answer.headers
    if answer.status_code == 303:
        shown = visit.get(answer.headers["location"])
        check(shown.text)
    else:
        check(answer.text)
    assert _files(visit) == before


def test_a_hostile_skill_is_shown_as_text_before_it_is_taken(visit):
    text = SKILL.replace(b"Do.", f"Do. {EVIL}\n<script>alert(1)</script>".encode())
    text = text.replace(b"Does things.", b"Does <x-evil onload=x> things.")
    body = zipped(
        ("one/SKILL.md", text), ("one/<x-evil>.txt".replace("<", "(").replace(">", ")"), EVIL)
    )
    answer = visit.post("/skills/import/zip", files={"file": ("<x-evil>.zip", body)})
    assert answer.status_code == 303, answer.text[:400]
    place = answer.headers["location"]
    page = check(visit.get(place).text)
    assert "one" in page.text
    assert DOABLE in page.text
    key = place.split("/")[2].split("?")[0]
    for path in ("SKILL.md", "(x-evil).txt", "../../etc/passwd", EVIL):
        for headers in ({}, {"HX-Request": "true"}):
            shown = visit.get(
                f"/plans/{key}/diff", params={"step": 0, "path": path}, headers=headers
            )
            assert shown.status_code < 500
            check(shown.text)
    assert visit.get(f"/plans/{key}/diff?step=99999&path=x").status_code in {404, 422}
    assert visit.post(f"/plans/{key}/no").status_code in {200, 303}


def test_an_upload_that_is_too_large_is_stopped(visit, monkeypatch):
    monkeypatch.setattr("satchel.ui.api.plans.MOST", 1_000)
    answer = visit.post("/api/plans/zip", content=os.urandom(5_000))
    assert answer.status_code == 413


def _archives(visit) -> list[str]:
    """Uploads that are kept."""
    state = visit.satchel.settings.paths.state
    walk = os.walk(os.path.join(state, "uploads"))
    return sorted(name for _, _, names in walk for name in names if not name.endswith(".alive"))


def test_uploads_leave_nothing_behind(visit):
    before = _archives(visit)  # of plans that still wait
    several = zipped(ONE, ("two/SKILL.md", SKILL.replace(b"one", b"two")))
    answer = visit.post("/skills/import/zip", files={"file": ("x.zip", several)})
    place = answer.headers["location"]
    assert place.startswith("/skills/import/"), "nobody is asked which"
    assert len(_archives(visit)) > len(before), "what is asked about is kept"
    assert visit.post(f"{place}/cancel").status_code == 303
    assert _archives(visit) == before
    for case in ("no archive", "no skill", "half an archive"):
        visit.post("/skills/import/zip", files={"file": ("x.zip", ARCHIVES[case])})
        assert _archives(visit) == before, case


@pytest.mark.parametrize(
    "address",
    ["ext::sh -c id", "-oProxyCommand=id", "--upload-pack=id", "file:///etc", "/etc", "../..",
     "http://[", "https://evil.example/\r\nx", f"https://evil.example/{EVIL}", "\x00",
     "git@-oProxyCommand=id:x", "https://user:secret@127.0.0.1:1/x"],
)  # fmt: skip
def test_a_git_address_that_is_none_is_refused(visit, address):
    if "evil.example/" in address or "127.0.0.1:1" in address:
        address = address.replace("evil.example", "127.0.0.1:1")
    answer = visit.post("/skills/import/git", data={"source": address})
    assert answer.status_code < 500
    if answer.status_code == 303:
        answer = visit.get(answer.headers["location"])
    check(answer.text)
    assert "user:secret" not in answer.text
