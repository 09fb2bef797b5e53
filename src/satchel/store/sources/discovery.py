"""Installs from a discovery index: `https://HOST/…/.well-known/agent-skills/index.json`, v0.2.

An index lists skills with the digest of each archive or SKILL.md. One is chosen with
`…/index.json#NAME`, and read from the index's own host. Nothing is signed: the lockfile pins what
was installed.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urljoin, urlsplit

from satchel.errors import Changed, InvalidInput, NotFound, ServerFailed
from satchel.i18n import join_names, say
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import MemoryTree, main_file
from satchel.store.archive.open import open_packed
from satchel.store.archive.rules import shown
from satchel.store.download import FileReader, check_address
from satchel.store.sources.base import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

INDEX_PATH = ".well-known/agent-skills/index.json"
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
_MAX_INDEX_BYTES = 4 << 20
_MAX_SKILL_BYTES = 64 << 20
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*\Z")


class IndexedSkill(NamedTuple):
    """One skill of an index."""

    name: str
    type: str
    path: str
    """On the index's host."""
    digest: str


class DiscoverySource:
    """One skill of a discovery index."""

    kind = "discovery"

    def __init__(self, url: str, name: str = "") -> None:
        """Refer to a skill of an index; the name may be left out when there is only one."""
        self._index = check_address(url)
        self.name = name
        parts = urlsplit(self._index)
        self._reader = FileReader(f"{parts.scheme}://{parts.netloc}")

    @property
    def url(self) -> str:
        """The address, with the name of a single skill."""
        return f"{self._index}#{self.name}" if self.name else self._index

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Fetch the skill."""
        del progress
        if ref or commit:
            raise InvalidInput(
                say("`{path}` has no branches or tags", path=shown(self.url)),
                say("Write `{value}`", value=f"{self._index}#NAME"),
            )
        skill = self._choose()
        data = self._reader.read(skill.path, _MAX_SKILL_BYTES)
        if skill.digest != f"sha256:{sha256(data).hexdigest()}":
            raise Changed(
                say("`{file}` is not what the server `{server}` listed: {reason}",
                    file=skill.name, server=self._reader.base, reason=say("digest")),
                say("Report it to the operator of the server"),
            )  # fmt: skip
        place = LockedSource(self.kind, f"{self._index}#{skill.name}")
        if skill.type == "skill-md":
            yield Bundle(place, MemoryTree({"SKILL.md": data}), name=skill.name)
            return
        with open_packed(data) as tree:
            if not main_file(file.path for file in tree.files):
                raise NotFound(say("There is no SKILL.md in `{path}`", path=skill.name))
            yield Bundle(place, tree, name=skill.name)

    def _choose(self) -> IndexedSkill:
        data = self._reader.read(urlsplit(self._index).path.lstrip("/"), _MAX_INDEX_BYTES)
        try:
            table = json.loads(data)
            _require("$schema", table["$schema"], table["$schema"] == SCHEMA)
            listed = [self._listed(row) for row in cast("list[Any]", table["skills"])]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            reason = shown(str(exc) or type(exc).__name__)
            raise ServerFailed(
                say("`{path}` cannot be used: {reason}", path=shown(self._index), reason=reason),
                say("Report it to the operator of the server"),
            ) from exc
        found = [skill for skill in listed if self.name in ("", skill.name)]
        if len(found) == 1:
            return found[0]
        if not listed:
            raise NotFound(say("There are no skills here"))
        names = join_names(f"`{skill.name}`" for skill in listed[:12])
        if self.name:
            raise NotFound(
                say("There is no skill `{name}`", name=shown(self.name)),
                say("Did you mean {names}?", names=names),
            )
        raise InvalidInput(
            say("There are {count} skills in it: {names}", count=len(listed), names=names),
            say("Write `{value}`", value=f"{self._index}#NAME"),
        )

    def _listed(self, row: Mapping[str, Any]) -> IndexedSkill:
        name, kind, url, digest = (str(row[key]) for key in ("name", "type", "url", "digest"))
        full = urlsplit(urljoin(self._index, url))
        _require("name", name, _NAME.match(name))
        _require("type", kind, kind in ("skill-md", "archive"))
        is_here = f"{full.scheme}://{full.netloc}" == self._reader.base
        _require("url", url, is_here and not full.query)
        return IndexedSkill(name, kind, full.path.lstrip("/"), digest)


def _require(key: str, value: str, condition: object) -> None:
    if not condition:
        raise ValueError(f"{key}: {value}")
