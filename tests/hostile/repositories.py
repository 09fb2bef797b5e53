"""Hostile git repositories and folders. `GITS` and `FOLDERS` name each with its rule.

Trees are written object by object: `git add` would refuse most of what is in them.
"""

from __future__ import annotations

import hashlib
import os
import socket
import zlib
from typing import TYPE_CHECKING

from hostile.archives import SKILL, Case

if TYPE_CHECKING:
    from collections.abc import Callable

Row = tuple[str, str | bytes, str]
"""Mode, name, object."""


class Repository:
    """A bare repository, made of unchecked loose objects."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "r.git")
        for part in ("objects", "refs/heads"):
            os.makedirs(os.path.join(self.path, part))
        self._write("HEAD", b"ref: refs/heads/main\n")
        self._write("config", b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n")

    def _write(self, name: str, data: bytes) -> None:
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(data)

    def object(self, kind: str, data: bytes, *, as_if: bytes | None = None) -> str:
        """Write an object; `as_if` gives it the name of another content."""
        head = f"{kind} {len(data)}\0".encode()
        named = data if as_if is None else as_if
        name = hashlib.sha1(f"{kind} {len(named)}\0".encode() + named).hexdigest()
        self._write(f"objects/{name[:2]}/{name[2:]}", zlib.compress(head + data, 1))
        return name

    def blob(self, data: bytes) -> str:
        return self.object("blob", data)

    def tree(self, *rows: Row, sort: bool = True) -> str:
        raw = [
            (mode, name.encode() if isinstance(name, str) else name, obj)
            for mode, name, obj in rows
        ]
        if sort:
            raw.sort(key=lambda row: row[1] + (b"/" if row[0] == "40000" else b""))
        data = b"".join(
            mode.encode() + b" " + name + b"\0" + bytes.fromhex(obj) for mode, name, obj in raw
        )
        return self.object("tree", data)

    def commit(self, tree: str) -> str:
        who = "A <a@example.com> 0 +0000"
        text = f"tree {tree}\nauthor {who}\ncommitter {who}\n\nx\n"
        name = self.object("commit", text.encode())
        self._write("refs/heads/main", f"{name}\n".encode())
        return name

    def skill(self, *rows: Row, sort: bool = True) -> str:
        """A commit whose top is a skill with these rows beside its SKILL.md."""
        return self.commit(self.tree(("100644", "SKILL.md", self.blob(SKILL)), *rows, sort=sort))


def _rows(*rows: tuple[str, str | bytes, bytes]) -> Callable[[str], str]:
    """A skill with entries of these modes, names and contents."""

    def make(folder: str) -> str:
        made = Repository(folder)
        made.skill(*((mode, name, made.blob(data)) for mode, name, data in rows))
        return f"git+{made.path}"

    return make


def _submodule(folder: str) -> str:
    made = Repository(folder)
    made.skill(("160000", "evil", "1" * 40))
    return f"git+{made.path}"


def _folder_link_bomb(folder: str) -> str:
    """Each folder holds two links to the one before: a million files from sixty objects."""
    made = Repository(folder)
    rows: list[Row] = [("40000", "d00", made.tree(("100644", "x", made.blob(b"x"))))]
    for level in range(1, 21):
        link = made.blob(f"../d{level - 1:02}".encode())
        rows.append(
            ("40000", f"d{level:02}", made.tree(("120000", "a", link), ("120000", "b", link)))
        )
    made.skill(*rows)
    return f"git+{made.path}"


def _tree_bomb(folder: str) -> str:
    """Ten folders in each of ten folders, ten deep: one object for each level."""
    made = Repository(folder)
    inner = made.tree(*(("100644", f"f{at}", made.blob(b"x")) for at in range(10)))
    for _ in range(9):
        inner = made.tree(*(("40000", f"d{at}", inner) for at in range(10)))
    made.commit(inner)
    return f"git+{made.path}"


def _large_blob(folder: str) -> str:
    made = Repository(folder)
    made.skill(("100644", "zeros", made.blob(bytes(66 << 20))))
    return f"git+{made.path}"


def _deep_tree(folder: str) -> str:
    made = Repository(folder)
    inner = made.tree(("100644", "x", made.blob(b"x")))
    for _ in range(70):
        inner = made.tree(("40000", "d", inner))
    made.skill(("40000", "d", inner))
    return f"git+{made.path}"


def _odd_tree(*rows: Row) -> Callable[[str], str]:
    def make(folder: str) -> str:
        made = Repository(folder)
        made.blob(b"x")
        made.skill(*rows, sort=False)
        return f"git+{made.path}"

    return make


def _nested(name: str) -> Callable[[str], str]:
    def make(folder: str) -> str:
        made = Repository(folder)
        made.skill(("40000", name, made.tree(("100644", "config", made.blob(b"x")))))
        return f"git+{made.path}"

    return make


def _gitmodules(folder: str) -> str:
    made = Repository(folder)
    text = b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=./evil\n'
    made.skill(("100644", ".gitmodules", made.blob(text)))
    return f"git+{made.path}"


def _replaced_blob(folder: str) -> str:
    """The object's content is not what its name says."""
    made = Repository(folder)
    name = made.object("blob", b"evil text", as_if=b"good text")
    made.skill(("100644", "a.md", name))
    return f"git+{made.path}"


def _word(text: str) -> Callable[[str], str]:
    def make(folder: str) -> str:
        made = Repository(folder)
        made.skill()
        return text.replace("REPO", made.path).replace("FOLDER", folder)

    return make


X = hashlib.sha1(b"blob 1\0x").hexdigest()

GITS = [
    Case(f"git: {name}", rule, make)
    for name, rule, make in (
        ("a link to the root", "link-escapes", _rows(("120000", "a", b"/etc/passwd"))),
        ("a link that climbs out", "link-escapes", _rows(("120000", "a", b"../../etc/passwd"))),
        ("a link to a drive", "link-escapes", _rows(("120000", "a", b"C:\\Windows"))),
        ("a link to itself", "link-escapes", _rows(("120000", "a", b"a"))),
        ("a link to its own folder", "link-escapes", _rows(("120000", "a", b"."))),
        ("a link to nowhere", "link-escapes", _rows(("120000", "a", b"nowhere"))),
        ("an endless link", "link-escapes", _rows(("120000", "a", b"x/" * 4000))),
        ("a submodule", "submodule", _submodule),
        ("folders of links", "link-escapes", _folder_link_bomb),
        ("a tree bomb", "too-many-files", _tree_bomb),
        ("a large file", "too-large", _large_blob),
        ("a deep tree", "path-too-deep", _deep_tree),
        ("another case", "case-conflict", _rows(("100644", "skill.md", b"x"))),
        ("a device's name", "windows-name", _rows(("100644", "aux.md", b"x"))),
        ("a backslash", "path-backslash", _rows(("100644", "..\\evil", b"x"))),
        ("text direction", "path-characters", _rows(("100644", "a\u202eb", b"x"))),
        ("broken UTF-8", "path-encoding", _rows(("100644", b"a\xff", b"x"))),
        ("two dots", "git-objects", _nested("..")),
        ("a .git folder", "git-objects", _nested(".git")),
        ("a .GIT folder", "git-objects", _nested(".GIT")),
        ("a slash in a name", "git-objects", _rows(("100644", "a/../../b", b"x"))),
        ("a name twice", "git-objects", _odd_tree(("100644", "a", X), ("100644", "a", X))),
        ("an unsorted tree", "git-objects", _odd_tree(("100644", "b", X), ("100644", "a", X))),
        ("a submodule that is an option", "git-objects", _gitmodules),
        ("an object under another name", "git-objects", _replaced_blob),
        ("a program as transport", "git-address", _word("ext::sh -c 'touch FOLDER/pwned'")),
        ("a program behind git+", "git-address", _word("git+ext::sh -c 'touch FOLDER/pwned'")),
        ("an option as address", "git-address", _word("--upload-pack=touch FOLDER/pwned")),
        ("an option as host", "git-address", _word("ssh://-oProxyCommand=touch%20pwned/x")),
        ("an option as user", "git-address", _word("ssh://-oProxyCommand=x@host/x")),
        ("another transport", "git-address", _word("ftp://host/r.git")),
        ("an option as ref", "git-ref", _word("git+REPO#--upload-pack=evil")),
        ("a refspec as ref", "git-ref", _word("git+REPO#main^{tree}")),
        ("a path that climbs out", "path-escapes", _word("git+REPO#main:../x")),
    )
]


def _folder(build: Callable[[str], None]) -> Callable[[str], str]:
    def make(folder: str) -> str:
        path = os.path.join(folder, "skill")
        os.makedirs(path)
        with open(os.path.join(path, "SKILL.md"), "wb") as stream:
            stream.write(SKILL)
        build(path)
        return path

    return make


def _put(*names: str | bytes) -> Callable[[str], None]:
    def build(path: str) -> None:
        for name in names:
            full = os.path.join(os.fsencode(path), os.fsencode(name))
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as stream:
                stream.write(b"x")

    return build


def _link(target: str) -> Callable[[str], None]:
    return lambda path: os.symlink(target, os.path.join(path, "a"))


def _socket(path: str) -> None:
    here = os.getcwd()
    os.chdir(path)  # a socket's path may not be long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")
    finally:
        os.chdir(here)


def _holes(path: str) -> None:
    with open(os.path.join(path, "a"), "wb") as stream:
        stream.truncate(1 << 40)


FOLDERS = [
    Case(f"folder: {name}", rule, _folder(build))
    for name, rule, build in (
        ("a link to the root", "link-escapes", _link("/etc/passwd")),
        ("a link that climbs out", "link-escapes", _link("../../etc")),
        ("a link to itself", "link-escapes", _link("a")),
        ("a link to nowhere", "link-escapes", _link("nowhere")),
        ("a named pipe", "special-file", lambda path: os.mkfifo(os.path.join(path, "a"))),
        ("a socket", "special-file", _socket),
        ("another case", "case-conflict", _put("a.md", "A.md")),
        ("a device's name", "windows-name", _put("nul")),
        ("a backslash", "path-backslash", _put("a\\b")),
        ("an escape sequence", "path-characters", _put("\x1b[2J")),
        ("broken UTF-8", "path-encoding", _put(b"\xff")),
        ("a deep path", "path-too-deep", _put("d/" * 66 + "x")),
        ("too many files", "too-many-files", _put(*(str(at) for at in range(10_001)))),
        ("a terabyte of nothing", "too-large", _holes),
    )
]
