"""`HubClient`: reads one hub, and believes nothing that is not verified.

`state` must be signed with the pinned key, be at most seven days old, and continue the history that
this user saw last; its count and head are kept in the state folder. Every other file is named by a
digest that leads back to `state`. A missing file is an error, never an empty answer: a hub, mirror
or cache cannot hide a version or a revocation.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import locked, read_plain, write_atomic
from satchel.errors import Changed, NotFound
from satchel.i18n import say
from satchel.store.archive.rules import shown
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.download import FileReader
from satchel.store.hub_client.format import (
    MAX_COMMIT_BYTES,
    MAX_FILE_BYTES,
    MAX_STATE_AGE_DAYS,
    MAX_STATE_BYTES,
    STATE,
    bin_number,
    commit_path,
    content_path,
    damaged,
    digest_hex,
    low_bits,
    parse_commit,
    parse_state,
    read_bin,
    skip_target,
    unpack_rows,
)

if TYPE_CHECKING:
    from satchel.store.hub_client.format import HubRelease, HubState, PublisherKey, Row

_HEX = re.compile(r"[0-9a-f]{64}\Z")
_STATE_LIFETIME_S = 60.0
"""How long one client uses `state` without reading it again."""
_CACHE_LIFETIME_S = 30 * 86_400
_MAX_BITS = 40
_MAX_SEEN_BYTES = 4 << 10


class Hub(NamedTuple):
    """A configured hub."""

    name: str
    url: str
    """Its address without the last slash, or an absolute folder."""
    key: str
    """Its public key, as in a `.pub` file."""
    publishers: tuple[str, ...] = ()
    """The publishers that it is asked for; all when empty."""
    own: bool = True
    """Whether the user's settings name it, not only the project's."""


class HubClient:
    """Reads and verifies the files of one hub."""

    def __init__(self, hub: Hub, state_folder: str = "", cache_folder: str = "") -> None:
        """Create a client; nothing is read yet.

        Args:
            hub: The hub.
            state_folder: Folder of the user that keeps the last state seen; empty to forget it.
            cache_folder: Folder for files that are named by their content; empty to keep none.
        """
        self.hub = hub
        self._reader = FileReader(hub.url)
        name = digest_hex(f"{hub.name}\n{hub.key}".encode())[:32]
        self._memory = os.path.join(state_folder, "hubs", f"{name}.json") if state_folder else ""
        self.cache = os.path.join(cache_folder, "hubs", name) if cache_folder else ""
        """Folder of its cached files; empty for none."""
        self._state: HubState | None = None
        self._read_at = 0.0

    # --- state ----------------------------------------------------------------------------

    def state(self, least: int = 0) -> HubState:
        """The present state, verified.

        Args:
            least: The number of commits that it must have; a lockfile records it.

        Raises:
            Changed: a check fails.
            NotFound: there is no hub.
        """
        if self._state is None or time.monotonic() - self._read_at > _STATE_LIFETIME_S:
            state = read_state(self._reader, self.hub.key)
            last = (self._state.count, self._state.head) if self._state else (0, "")
            self._verify(state, *max(last, self._remembered()))
            self._state, self._read_at = state, time.monotonic()
        self._require_count(self._state, least)
        return self._state

    def _verify(self, state: HubState, count: int, head: str) -> None:
        """Check a signed state against the settings, the clock and the last state seen."""
        if state.hub != self.hub.name:
            raise _untrusted(
                say("The hub at `{url}` is `{found}`, not `{name}`",
                    url=shown(self.hub.url), found=shown(state.hub), name=self.hub.name)
            )  # fmt: skip
        self._require_count(state, count)
        require_fresh(state)
        if count:
            self._require_history(state, count, head)
        if self._memory and state.count > count:
            with disk_errors_as_refusal(self._memory), locked(f"{self._memory}.lock"):
                if self._remembered()[0] < state.count:
                    row = {"hub": state.hub, "count": state.count, "head": state.head}
                    write_atomic(self._memory, json.dumps(row).encode() + b"\n", private=True)

    def _require_count(self, state: HubState, least: int) -> None:
        if state.count < least:
            raise _unusable(
                say("The hub `{name}` has {count} commits; {total} were seen before",
                    name=self.hub.name, count=state.count, total=least)
            )  # fmt: skip

    def _require_history(self, state: HubState, count: int, head: str) -> None:
        """Refuse a state whose history does not contain the head that was seen."""
        if state.count == count and state.head != head:
            raise _untrusted(
                say("The hub `{name}` replaced commit {number}, which was seen before",
                    name=self.hub.name, number=count)
            )  # fmt: skip
        number, digest = state.count, state.head
        while number > count:
            path = commit_path(number)
            data = self._read(path, MAX_COMMIT_BYTES)
            if digest_hex(data) != digest:
                raise damaged(path)
            commit = parse_commit(data, number)
            if skip_target(number) >= count:
                number, digest = skip_target(number), commit.skip
            else:
                number, digest = number - 1, commit.previous
        if digest != head:
            raise _untrusted(
                say("The history of the hub `{name}` was rewritten", name=self.hub.name)
            )

    def _remembered(self) -> tuple[int, str]:
        """Count and head of the last state that this user saw."""
        try:
            row: Any = json.loads(read_plain(self._memory, _MAX_SEEN_BYTES))
            return int(row["count"]), str(row["head"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0, ""

    # --- files named by their content -------------------------------------------------------

    def _read(self, path: str, limit: int) -> bytes:
        try:
            return self._reader.read(path, limit)
        except NotFound as exc:
            text = say("The hub `{name}` has no `{path}`", name=self.hub.name, path=path)
            raise _unusable(text) from exc

    def rows(self, folder: str, digest: str) -> list[Row]:
        """The rows of a file of the index, the search list or the revocation list.

        Raises:
            Changed: it is missing, damaged, or another file.
        """
        path = content_path(folder, digest)
        if not _HEX.match(digest):
            raise damaged(shown(path))
        kept = os.path.join(self.cache, digest)
        try:
            data = read_plain(kept, MAX_FILE_BYTES) if self.cache else b""
        except OSError:
            data = b""
        if digest_hex(data) != digest:
            data = self._read(path, MAX_FILE_BYTES)
            if digest_hex(data) != digest:
                unpack_rows(data, path)  # raises when it is damaged
                raise _unusable(
                    say("`{path}` of the hub `{name}` is another file than its state names",
                        path=path, name=self.hub.name)
                )  # fmt: skip
            if self.cache:
                with suppress(OSError):  # a cache
                    write_atomic(kept, data, private=True, durable=False)
        return unpack_rows(data, path)

    def prune_cache(self) -> None:
        """Delete cached files that are older than a month."""
        with suppress(OSError):
            for entry in os.scandir(self.cache) if self.cache else ():
                if time.time() - entry.stat().st_mtime > _CACHE_LIFETIME_S:
                    os.unlink(entry.path)

    # --- releases ---------------------------------------------------------------------------

    def releases(self, name: str) -> list[HubRelease]:
        """Every release of a skill; empty when the hub has no such skill.

        Raises:
            Changed: the index is damaged or incomplete.
        """
        return [release for release in self._bin(name)[0] if release.name == name]

    def publisher_keys(self, publisher: str) -> list[PublisherKey]:
        """The keys of a publisher."""
        return [key for key in self._bin(publisher)[1] if key.publisher == publisher]

    def _bin(self, name: str) -> tuple[list[HubRelease], list[PublisherKey]]:
        digest = self.state().index
        try:
            head, *middles = self.rows("index", digest)
            bits = min(int(head["bits"]), _MAX_BITS)
            number, low = bin_number(name, bits), low_bits(bits)
            digest = str(middles[number >> low]["middle"])
            digest = str(self.rows("index", digest)[number & (1 << low) - 1]["bin"])
        except (ValueError, TypeError, KeyError, IndexError) as exc:
            raise damaged(content_path("index", digest)) from exc
        return read_bin(self.rows("index", digest), content_path("index", digest))

    def revoked(self) -> dict[str, str]:
        """The digests of revoked skills, with the reasons.

        Raises:
            Changed: the list is missing or damaged.
        """
        digest = self.state().revoked
        try:
            return {str(row["tree"]): str(row["reason"]) for row in self.rows("revoked", digest)}
        except KeyError as exc:
            raise damaged(content_path("revoked", digest)) from exc

    def blob(self, release: HubRelease) -> bytes:
        """The archive of a release.

        Raises:
            Changed: it is missing or damaged.
            Refused: it is larger than announced.
        """
        path = content_path("blobs", release.blob)
        data = self._read(path, release.size)
        if len(data) != release.size or digest_hex(data) != release.blob:
            raise damaged(path)
        return data


def read_state(reader: FileReader, key: str = "") -> HubState:
    """Read `state` and verify its signature.

    Args:
        reader: Reads below the hub's address.
        key: The key that must have signed it; the key in the file itself when empty.

    Raises:
        NotFound: there is no hub.
        Changed: it is damaged, or was signed with another key.
    """
    try:
        return parse_state(reader.read(STATE, MAX_STATE_BYTES), key)
    except NotFound as exc:
        text = say("There is no hub at `{url}`", url=shown(reader.base))
        raise NotFound(text, say("Check the path")) from exc


def require_fresh(state: HubState) -> None:
    """Refuse a state that is too old, or from the future, which would never be too old.

    Raises:
        Changed: it was signed more than seven days ago, or more than a day ahead.
    """
    age = datetime.now(UTC) - state.moment
    if age < timedelta(days=-1):
        raise _unusable(
            say("The hub `{name}` was signed on {day}, which is in the future",
                name=shown(state.hub), day=state.time[:10])
        )  # fmt: skip
    if age > timedelta(days=MAX_STATE_AGE_DAYS):
        raise _unusable(
            say("The hub `{name}` was last signed on {day}, more than {limit} days ago",
                name=shown(state.hub), day=state.time[:10], limit=MAX_STATE_AGE_DAYS)
        )  # fmt: skip


def _untrusted(message: str) -> Changed:
    return Changed(message, say("Do not use it; ask its keeper"))


def _unusable(message: str) -> Changed:
    return Changed(message, say("Try again later; report it to the hub if it stays"))
