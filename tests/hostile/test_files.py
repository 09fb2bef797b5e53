"""Hostile files and folders: each a typed Problem within the bound, and the neighbours unharmed."""

from __future__ import annotations

import gc
import os
import socket
import time

import pytest

from satchel import Library, Location
from satchel.library import WalkLimits
from satchel.testing import make_skill

BOUND = 20.0


def scan(root, **options):
    began = time.perf_counter()
    snapshot = Library([Location(str(root), **options)]).snapshot()
    assert time.perf_counter() - began < BOUND
    return snapshot


def codes(snapshot) -> set[str]:
    return {problem.code for problem in snapshot.problems} | {
        problem.code for skill in (*snapshot.skills, *snapshot.hidden) for problem in skill.problems
    }


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "skills"
    make_skill(folder, "good")
    return folder


def put(root, name: str, data: bytes, file: str = "SKILL.md"):
    folder = root / name
    folder.mkdir(parents=True)
    (folder / file).write_bytes(data)
    return folder / file


HEAD = b"---\nname: bad\ndescription: x\n"
BOMBS = {
    "merge keys": b"a: &a {x: 1}\nb: &b {<<: *a}\nc: {<<: *b}\n",
    "billion laughs": b"a: &a [x,x,x,x]\n"
    + b"".join(
        b"%c: &%c [*%c,*%c,*%c]\n" % (98 + i, 98 + i, 97 + i, 97 + i, 97 + i) for i in range(20)
    ),
    "flow nesting": b"deep: " + b"[" * 30_000,
    "closed flow nesting": b"deep: " + b"[" * 15_000 + b"]" * 15_000,
    "map nesting": b"deep: " + b"{a: " * 8_000,
    "block nesting": b"deep:\n" + b"".join(b" " * i + b"- \n" for i in range(1, 300)),
    "dash nesting": b"deep:\n  " + b"- " * 20_000,
    "question marks": b"deep:\n  " + b"? " * 20_000,
    "many keys": b"".join(b"k%d: v\n" % i for i in range(6_000)),
    "long integer": b"n: " + b"9" * 20_000,
    "bad date": b"when: 2024-99-99\n",
    "python tag": b"x: !!python/object/apply:os.system ['true']\n",
    "local tag": b"x: !foo bar\n",
    "anchor on a scalar": b"x: &a b\n",
    "second document": b"x: 1\n... \n--- \ny: 2\n",
    "tabs": b"x:\n\t- a\n",
    "nul bytes": b"x: \x00\x00\x00\n",
    "lone surrogate": b'x: "\\ud800"\n',
    "unhashable key": b"? [a, b]\n: c\n",
    "recursive alias": b"x: &x [*x]\n",
    "colons": b"x: " + b": " * 10_000,
    "quotes": b'x: "' + b'\\"' * 20_000,
    "comment flood": b"# x\n" * 15_000,
    "carriage returns": b"x: a\r" * 5_000,
    "very long key": b"k" * 60_000 + b": v\n",
    "sexagesimal": b"x: 190:20:30\ny: 0x_\nz: 0o9\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_bombs(root, name):
    put(root, "bad", HEAD + BOMBS[name] + b"\n---\nBody\n")
    snapshot = scan(root)
    assert snapshot.get("good")
    bad = snapshot.get("bad")
    assert bad is not None or codes(snapshot), name
    if bad is not None:
        gc.disable()  # the garbage of other tests is not this file's cost, nor is their load
        began = time.thread_time()
        document = bad.read()
        spent = time.thread_time() - began
        gc.enable()
        assert spent < 0.1  # 0.05 on a quiet machine
        assert document.head is not None
        assert document.head.description.startswith("x")


def test_a_name_or_description_inside_the_bomb(root):
    put(root, "bad", b"---\nname: &n bad\ndescription: *n\n---\n")
    snapshot = scan(root)
    assert "yaml-refused" in codes(snapshot)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x00" * 5_000_000, "not-text"),
        (os.urandom(100_000), "not-text"),
        (b"---\n" + b"x: y\n" * 400_000, "frontmatter-too-large"),
        (b"---\n" + b"x" * 3_000_000, "frontmatter-too-large"),
    ],
)
def test_huge_and_binary_files(root, data, code):
    put(root, "bad", data)
    snapshot = scan(root)
    assert snapshot.get("good")
    assert codes(snapshot) & {code, "no-frontmatter", "unclosed-frontmatter"}
    assert snapshot.get("bad") is None


def test_a_pipe_a_socket_and_a_folder_named_skill_md(root):
    for name in ("pipe", "socket", "folder"):
        (root / name).mkdir()
    os.mkfifo(root / "pipe/SKILL.md")
    os.makedirs(root / "folder/SKILL.md")
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root / "socket")
    try:
        server.bind("SKILL.md")
    finally:
        os.chdir(here)
    snapshot = scan(root)
    server.close()
    assert [skill.name for skill in snapshot.skills] == ["good"]
    broken = [
        problem for problem in snapshot.problems if problem.code in {"not-a-file", "unreadable"}
    ]
    assert {os.path.basename(os.path.dirname(problem.path)) for problem in broken} == {
        "pipe",
        "socket",
        "folder",
    }


def test_unreadable_files_and_folders(root):
    if os.geteuid() == 0:
        # Root reads everything: a dangling link is as unreadable for root.
        (root / "bad").mkdir()
        os.symlink("nowhere", root / "bad/SKILL.md")
    else:
        put(root, "bad", HEAD + b"---\n").chmod(0)
    snapshot = scan(root)
    assert snapshot.get("good")
    assert "unreadable" in codes(snapshot)


def test_link_loops_end(root, tmp_path):
    os.symlink(root, root / "again")
    os.symlink("..", root / "good/up")
    os.symlink("self", root / "self")
    (root / "a").mkdir()
    (root / "b").mkdir()
    os.symlink(root / "b", root / "a/to-b")
    os.symlink(root / "a", root / "b/to-a")
    snapshot = scan(root)
    assert [skill.name for skill in snapshot.skills] == ["good"]
    assert "link-loop" in codes(snapshot)


def test_links_out_of_an_untrusted_place_are_refused(root, tmp_path):
    secret = make_skill(tmp_path / "secret", "outside")
    os.symlink(tmp_path / "secret", root / "link")
    (root / "file").mkdir()
    os.symlink(secret, root / "file/SKILL.md")
    snapshot = scan(root, trusted=None, boundary=str(root.parent / "skills"))
    assert {skill.name for skill in snapshot.hidden} == {"good"}
    assert [problem.code for problem in snapshot.problems].count("outside-root") == 2


def test_depth_and_count_are_limited_and_reported(tmp_path):
    deep = tmp_path / "deep"
    make_skill(deep, "/".join("abcdefgh") + "/skill")
    make_skill(deep, "a/b/fine")
    snapshot = Library([str(deep)], bounds=WalkLimits(depth=4)).snapshot()
    assert [skill.name for skill in snapshot.skills] == ["fine"]
    assert "too-deep" in codes(snapshot)
    wide = tmp_path / "wide"
    for number in range(30):
        make_skill(wide, f"s{number:02d}")
    snapshot = Library([str(wide)], bounds=WalkLimits(folders=10)).snapshot()
    assert len(snapshot) < 30
    assert "too-many" in codes(snapshot)


@pytest.mark.parametrize(
    "name", ["new\nline", "tab\there", "emoji-🎒", "quote'\"", "-rf", "  ", "a" * 200, "\u202erevo"]
)
def test_odd_folder_names(root, name):
    put(root, name, b"---\ndescription: no name given\n---\n")
    snapshot = scan(root)
    assert snapshot.get("good")
    assert len(snapshot.skills) + len(snapshot.problems) >= 2
