"""A hub in a folder that a test may fill with anything, hostile things too, and a web server.

The real writer refuses to build most of it. Keys are made in the process.
"""

from __future__ import annotations

import os
import posixpath
from base64 import b64encode
from contextlib import contextmanager
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from http_answers import answering, reply
from satchel.hub.publish import pack_blob
from satchel.skill.file_tree import MemoryTree
from satchel.store.hub_client import format as files
from satchel.store.hub_client.format import Commit, HubFiles, HubState
from satchel.store.hub_client.signatures import CHANGE_NAMESPACE, change_statement, signed_data
from satchel.store.sources.base import subtree
from satchel.store.trees import HashedTree

NAME = "skills.acme.example"


class Key:
    """An ed25519 key pair."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        raw = b"\0\0\0\x0bssh-ed25519\0\0\0 " + self._private.public_key().public_bytes_raw()
        self.public = f"ssh-ed25519 {b64encode(raw).decode()}"

    def sign(self, data: bytes, namespace: str) -> str:
        return b64encode(self._private.sign(signed_data(namespace, data))).decode()

    def sign_change(self, change: dict, hub: str = NAME) -> str:
        return self.sign(change_statement(change, hub), CHANGE_NAMESPACE)


def skill_text(name: str, body: str = "Say hello.", about: str = "") -> bytes:
    about = about or f"Greets as {name} does. Use for greetings."
    return f"---\nname: {name}\ndescription: {about}\n---\n{body}\n".encode()


def tree_of(content: dict[str, bytes]) -> str:
    return HashedTree(subtree(MemoryTree(content))).digest


def pack(content: dict[str, bytes]) -> bytes:
    """A tar.gz as the writer makes it; paths are taken as they are."""
    return pack_blob(MemoryTree(content))


def pack_rows(rows) -> bytes:
    """Gzipped JSON lines."""
    return files.pack(b"".join(map(files.render_row, rows)))


class TinyHub(HubFiles):
    """A hub in a folder; `build` writes everything anew, with a commit for each release."""

    def __init__(self, folder, name: str = NAME) -> None:
        super().__init__(name)
        self.folder = str(folder)
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
        content = {"SKILL.md": skill_text(name.partition("/")[2], body)}
        blob = pack(changes.pop("files", content))
        row = {
            "name": name, "version": version, "tree": changes.pop("tree", tree_of(content)),
            "blob": self.put("blobs", blob), "size": len(blob),
            "time": files.timestamp(), "description": f"Greets as {name}.", "license": "MIT",
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
        self.keys.append({**row, "signature": signature})

    def write(self, path: str, data: bytes) -> None:
        full = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)

    def get(self, path: str, limit: int = 0) -> bytes:
        with open(os.path.join(self.folder, path), "rb") as file:
            return file.read()

    def put(self, folder: str, data: bytes) -> str:
        digest = files.digest_hex(data)
        self.write(files.content_path(folder, digest), data)
        return digest

    def build(self, **changes) -> HubState:
        """Write commits, index, lists and `state`; `changes` replace fields of the state."""
        signer = changes.pop("signer", self.key)
        self.count = max(self.count, len(self.releases))
        digests = {0: ""}
        for number in range(1, self.count + 1):
            skip = digests[files.skip_target(number)]
            commit = Commit(number, digests[number - 1], skip, "0" * 64, self.history)
            data = files.render_row(commit._asdict())
            self.write(files.commit_path(number), data)
            digests[number] = files.digest_hex(data)
        state = HubState(
            self.name, self.key.public, self.count, digests[self.count],
            self.index(self.releases + self.keys + self._first_keys()),
            self.put("revoked", pack_rows(self.revoked)), self._search(),
            len({row["name"] for row in self.releases}), files.timestamp(),
        )._replace(**changes)  # fmt: skip
        self.write("state", files.render_state(state, signer.sign))
        return state

    def _first_keys(self) -> list[dict]:
        names = {row["name"].partition("/")[0] for row in self.releases}
        first = {"key": self.publisher.public, "previous": "", "signature": ""}
        return [{"publisher": name, **first} for name in sorted(names)]

    def _bins(self, folder: str, rows: list[dict], bits: int) -> list[dict]:
        """Write the bins of a table with prefixes of some length; returns their entries."""
        bins: dict[str, list[dict]] = {}
        for number in range(1 << bits):
            bins[f"{number:b}".zfill(bits) if bits else ""] = []
        for row in rows:
            bins[files.TABLES[folder].bits(row.get("name") or str(row["publisher"]))[:bits]].append(
                row
            )
        return [
            {"prefix": prefix, "bin": self.put(folder, pack_rows(rows))}
            for prefix, rows in bins.items()
        ]

    def index(self, rows: list[dict]) -> str:
        """Write an index of a root, nodes and bins; returns its digest."""
        bins = self._bins("index", rows, self.bits)
        if not self.bits:
            return self.put("index", pack_rows(bins))
        nodes = [{"prefix": first} for first in "01"]
        for node in nodes:
            part = [
                {**one, "prefix": one["prefix"][1:]}
                for one in bins
                if one["prefix"][0] == node["prefix"]
            ]
            node["node"] = self.put("index", pack_rows(part))
        return self.put("index", pack_rows(nodes))

    def _search(self) -> str:
        fields = ("name", "version", "description")
        newest = {row["name"]: {key: row[key] for key in fields} for row in self.releases}
        bins = self._bins("search", list(newest.values()), 1)
        return self.put("search", pack_rows(bins))


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
