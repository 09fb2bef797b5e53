"""Hostile paths: nothing outside a skill's folder is shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ui_dom import check

SECRET = "the-secret-of-somebody-else"
ESCAPES = {
    "up": "../../../../secret.txt",
    "up, then down": "notes/../../../../../secret.txt",
    "encoded": "%2e%2e/%2e%2e/secret.txt",
    "encoded twice": "%252e%252e%252fsecret.txt",
    "encoded slash": "..%2f..%2fsecret.txt",
    "backslashes": "..\\..\\secret.txt",
    "absolute": "ABSOLUTE",
    "absolute, slashes": "//ABSOLUTE",
    "file address": "file://ABSOLUTE",
    "overlong dots": "..\u2025/..\uff0fsecret.txt",
    "overlong utf-8": "%c0%ae%c0%ae/secret.txt",
    "nul": "SKILL.md\x00.txt",
    "nul before": "\x00../secret.txt",
    "long": "a/" * 4_000 + "x",
    "long name": "x" * 4_000,
    "dots": "....//....//secret.txt",
    "only dots": "..",
    "one dot": ".",
    "root": "/",
    "proc": "/proc/self/environ",
    "a link out": "link-out",
    "a link to a folder out": "folder-out/secret.txt",
    "a link through a link": "link-link",
    "a link to proc": "link-proc",
    "a link to itself": "loop",
    "a pipe": "pipe",
    "a socket": "socket",
    "a folder": "notes",
    "a device": "device",
    "version control": ".git/config",
    "another drive": "C:\\secret.txt",
    "a stream": "SKILL.md::$DATA",
    "home": "~/secret.txt",
    "a variable": "$HOME/secret.txt",
    "wildcards": "*/../*",
}


@pytest.fixture(scope="module")
def hostile_server(shared):
    import socket

    project = Path(shared.satchel.settings.project)
    folder = project / ".agents" / "skills" / "one"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: one\ndescription: Does things.\n---\nDo.\n")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text("inside")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text(SECRET)
    secret = project.parent / "secret.txt"
    secret.write_text(SECRET)
    (project / "secret.txt").write_text(SECRET)
    (folder / "link-out").symlink_to(secret)
    (folder / "link-link").symlink_to("link-out")
    (folder / "folder-out").symlink_to(project.parent)
    (folder / "link-proc").symlink_to("/proc/self/environ")
    (folder / "link-in").symlink_to("notes/a.txt")
    (folder / "loop").symlink_to("loop")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    here = os.getcwd()
    os.chdir(folder)  # the name of a socket has at most 107 characters
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    os.chdir(here)
    shared.satchel.library.invalidate()
    shared.satchel.refresh()
    return shared


@pytest.fixture
def visit(hostile_server, guest):
    return guest


def _asked(visit, path: str):
    path = path.replace("ABSOLUTE", str(Path(visit.satchel.settings.project) / "secret.txt"))
    yield visit.get("/skill", params={"ref": "one", "path": path})
    yield visit.part("/skill/file", params={"ref": "one", "path": path})
    yield visit.get("/skill/edit", params={"ref": "one", "path": path})


def test_a_path_stays_in_its_folder(visit):
    for case, path in ESCAPES.items():
        for answer in _asked(visit, path):
            assert answer.status_code in {400, 403, 404, 422}, case
            assert SECRET not in answer.text, case
            check(answer.text)


def test_a_ref_names_a_skill_and_nothing_else(visit):
    secret = str(Path(visit.satchel.settings.project) / "secret.txt")
    for ref in ("../../secret.txt", secret, "/etc", "/", "..", ".", "", "\x00"):
        for address in ("/skill", "/skill/edit"):
            answer = visit.get(address, params={"ref": ref, "path": ""})
            assert answer.status_code in {403, 404, 422}, (address, ref)
            assert SECRET not in answer.text


def test_a_link_within_the_folder_is_followed(visit):
    for answer in _asked(visit, "link-in"):
        assert answer.status_code == 200
        assert "inside" in answer.text


def test_the_list_of_files_names_what_is_odd_and_opens_nothing(visit):
    text = visit.get("/skill?ref=one").text
    check(text)
    for words in ("a named pipe", "a socket", "→ "):
        assert words in text
    assert SECRET not in text
    assert ".git" not in text


def test_a_skill_that_is_a_link_out_of_the_project_is_not_edited_elsewhere(visit):
    outside = Path(visit.satchel.settings.project).parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "SKILL.md").write_text("---\nname: linked\ndescription: Elsewhere.\n---\nDo.\n")
    link = Path(visit.satchel.settings.project) / ".agents" / "skills" / "linked"
    link.symlink_to(outside)
    before = (outside / "SKILL.md").read_text()
    visit.satchel.library.invalidate()
    visit.satchel.refresh()
    text = before.replace("Elsewhere", "Changed")
    visit.post("/skill/edit?ref=linked", data={"text": text, "was": "", "digest": ""})
    assert (outside / "SKILL.md").read_text() == before
    link.unlink()
    visit.satchel.library.invalidate()
    visit.satchel.refresh()
