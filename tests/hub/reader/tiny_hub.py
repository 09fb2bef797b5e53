"""A hub in a folder that a test may fill with anything, hostile things too, and a web server.

The real writer refuses to build most of it. Keys are made in the process.
"""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import tarfile
from base64 import b64encode
from contextlib import contextmanager
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from http_answers import answering, reply
from satchel.skill.file_tree import MemoryTree
from satchel.store.hub_client.ed25519 import key_text, signed_data
from satchel.store.hub_client.format import (
    CHANGE_NAMESPACE,
    Commit,
    HubState,
    bin_number,
    change_statement,
    commit_path,
    content_path,
    digest_hex,
    low_bits,
    pack_rows,
    render_commit,
    render_state,
    skip_target,
    timestamp,
)
from satchel.store.sources.base import subtree
from satchel.store.trees import HashedTree

NAME = "skills.acme.example"


class Key:
    """An ed25519 key pair."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.public = key_text(self._private.public_key().public_bytes_raw())

    def sign(self, data: bytes, namespace: str) -> str:
        return b64encode(self._private.sign(signed_data(namespace, data))).decode()

    def sign_change(self, change: dict, hub: str = NAME) -> str:
        return self.sign(change_statement(change, hub), CHANGE_NAMESPACE)


def skill_text(name: str, body: str = "Say hello.", about: str = "") -> bytes:
    about = about or f"Greets as {name} does. Use for greetings."
    return f"---\nname: {name}\ndescription: {about}\n---\n{body}\n".encode()


def tree_of(files: dict[str, bytes]) -> str:
    return HashedTree(subtree(MemoryTree(files))).digest


def pack(files: dict[str, bytes]) -> bytes:
    """A tar.gz as the writer makes it; paths are taken as they are."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size = len(files[path])
            archive.addfile(entry, io.BytesIO(files[path]))
    return gzip.compress(stream.getvalue(), mtime=0)


class TinyHub:
    """A hub in a folder; `build` writes everything anew, with a commit for each release."""

    def __init__(self, folder, name: str = NAME) -> None:
        self.folder = str(folder)
        self.name = name
        self.key = Key()
        self.publisher = Key()
        self.releases: list[dict] = []
        self.keys: list[dict] = []
        self.revoked: list[dict] = []
        self.bits = 2
        self.traffic = Traffic()
        self.count = 0
        self.history = "a"
        """Part of every commit: another text is another history."""

    @property
    def settings(self) -> dict:
        """The value of the setting `hubs`."""
        return {self.name: {"url": self.folder, "key": self.key.public}}

    def release(
        self, name: str, version: str = "1.0.0", body: str = "Say hello.", *, key=None, **changes
    ) -> dict:
        """Add a release; `changes` replace fields after signing, `files` the archive's content."""
        signer = key or self.publisher
        files = {"SKILL.md": skill_text(name.partition("/")[2], body)}
        blob = pack(changes.pop("files", files))
        row = {
            "name": name, "version": version, "tree": changes.pop("tree", tree_of(files)),
            "blob": self.put("blobs", blob), "size": len(blob), "count": len(self.releases) + 1,
            "time": timestamp(), "description": f"Greets as {name}.", "license": "MIT",
            "scan": "no findings", "key": signer.public, "yanked": "",
        }  # fmt: skip
        row["signature"] = signer.sign_change({"type": "release", **row}, self.name)
        row.update(changes)
        self.releases.append(row)
        return row

    def new_key(self, publisher: str, old: Key, new: Key, *, signer: Key | None = None) -> None:
        """Replace a publisher's key, signed by the old one or by `signer`."""
        row = {"publisher": publisher, "key": new.public, "previous": old.public}
        signature = (signer or old).sign_change({"type": "publisher", **row}, self.name)
        by = "publisher" if signer is None else "hub"
        self.keys.append({**row, "signature": signature, "by": by, "count": 1})

    def write(self, path: str, data: bytes) -> None:
        full = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)

    def read(self, path: str) -> bytes:
        with open(os.path.join(self.folder, path), "rb") as file:
            return file.read()

    def put(self, folder: str, data: bytes) -> str:
        digest = digest_hex(data)
        self.write(content_path(folder, digest), data)
        return digest

    def build(self, **changes) -> HubState:
        """Write commits, index, lists and `state`; `changes` replace fields of the state."""
        signer = changes.pop("signer", self.key)
        self.count = max(self.count, len(self.releases))
        digests = {0: ""}
        for number in range(1, self.count + 1):
            data = render_commit(Commit(
                number, digests[number - 1], digests[skip_target(number)], "0" * 64, self.history
            ))  # fmt: skip
            self.write(commit_path(number), data)
            digests[number] = digest_hex(data)
        state = HubState(
            self.name, self.key.public, self.count, digests[self.count], self._index(),
            self.put("revoked", pack_rows(self.revoked)), self._search(),
            len({row["name"] for row in self.releases}), timestamp(),
        )._replace(**changes)  # fmt: skip
        self.write("state", render_state(state, signer.sign))
        return state

    def _index(self) -> str:
        low = low_bits(self.bits)
        bins: list[list[dict]] = [[] for _ in range(1 << self.bits)]
        for row in self.releases:
            bins[bin_number(row["name"], self.bits)].append(row)
        for row in self.keys:
            bins[bin_number(row["publisher"], self.bits)].append(row)
        digests = [self.put("index", pack_rows(rows)) for rows in bins]
        middles = [
            self.put("index", pack_rows({"bin": one} for one in digests[at : at + (1 << low)]))
            for at in range(0, len(digests), 1 << low)
        ]
        rows = [{"bits": self.bits}, *({"middle": one} for one in middles)]
        return self.put("index", pack_rows(rows))

    def _search(self) -> str:
        newest = {row["name"]: row for row in self.releases}
        parts: dict[int, list[dict]] = {}
        for name in sorted(newest):
            fields = ("name", "version", "description")
            row = {key: newest[name][key] for key in fields}
            parts.setdefault(bin_number(name, 1), []).append(row)
        rows = [
            {"segment": self.put("search", pack_rows(parts[at])), "skills": len(parts[at])}
            for at in sorted(parts)
        ]
        return self.put("search", pack_rows(rows))


class Traffic:
    """What a web server was asked for, and answers that replace files."""

    def __init__(self) -> None:
        self.url = ""
        self.sent: list[tuple[str, int]] = []
        self.answers: dict[str, Any] = {}
        """Start of a path -> function that answers."""

    def paths(self) -> list[str]:
        return [path for path, _ in self.sent]


@contextmanager
def serving(folder):
    """A web server for a folder, as any static host is."""
    traffic = Traffic()

    def respond(handler) -> None:
        path = posixpath.normpath(handler.path).lstrip("/")
        for start, answer in traffic.answers.items():
            if path.startswith(start):
                traffic.sent.append((path, 0))
                answer(handler)
                return
        try:
            with open(os.path.join(str(folder), path), "rb") as file:
                data = file.read()
        except OSError:
            traffic.sent.append((path, 0))
            reply(handler, 404)
            return
        traffic.sent.append((path, len(data)))
        reply(handler, 200, data)

    with answering(respond) as host:
        traffic.url = f"http://{host}"
        yield traffic
