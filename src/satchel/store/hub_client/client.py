"""`HubClient` reads one hub, `HubSource` one of its skills, and both believe nothing unverified.

`state` must be signed with the pinned key, be at most seven days old, and continue the history that
this user saw last; its count and head are kept in the state folder. Every other file is named by a
digest that leads back to `state`. A missing file is an error, never an empty answer: a hub, mirror
or cache cannot hide a version or a revocation.

A release is used when its publisher signed it, the publisher's key is the one that the lockfile
pins or was signed by it, its tree is not revoked, and its archive, unpacked by the strict reader,
has exactly that tree. What the hub's own scan found is shown; the skill is scanned again here.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import locked, read_plain, write_atomic
from satchel.errors import Changed, InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import join_names, say
from satchel.library.lockfile import LOCK_FILE, LockedSource, read_lock
from satchel.store.archive.open import open_packed
from satchel.store.archive.rules import shown
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.download import FileReader, is_address
from satchel.store.hub_client import format as files
from satchel.store.hub_client.format import UNREADABLE, HubFiles, HubIndex, signed_by, untrusted
from satchel.store.hub_client.release_name import best_version, parse_version
from satchel.store.signing import key_fingerprint
from satchel.store.sources.base import Bundle, subtree
from satchel.store.sources.parse import recorded_path
from satchel.store.trees import HashedTree

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from satchel.store.hub_client.format import HubRelease, HubState, PublisherKey
    from satchel.store.hub_client.release_name import HubName

_STATE_LIFETIME_S = 60.0
"""How long one client uses `state` without reading it again."""
_CACHE_LIFETIME_S = 30 * 86_400
_MAX_SHOWN_VERSIONS = 6


class Hub(NamedTuple):
    """A configured hub; `hub add` reads one whose name and key are still unknown."""

    name: str
    url: str
    """Its address without the last slash, or an absolute folder."""
    key: str
    """Its public key, as in a `.pub` file."""
    publishers: tuple[str, ...] = ()
    """The publishers that it is asked for; all when empty."""
    own: bool = True
    """Whether the user's settings name it, not only the project's."""


class HubClient(HubFiles):
    """Reads and verifies the files of one hub."""

    def __init__(self, hub: Hub, state_folder: str = "", cache_folder: str = "") -> None:
        super().__init__(hub.name)
        self.hub = hub
        self._reader = FileReader(hub.url)
        name = files.digest_hex(f"{hub.name}\n{hub.key}".encode())[:32]
        self._memory = os.path.join(state_folder, "hubs", f"{name}.json") if state_folder else ""
        self.cache = os.path.join(cache_folder, "hubs", name) if cache_folder else ""
        """Folder of its cached files; empty for none."""
        self._state: HubState | None = None
        self._read_at = 0.0

    def get(self, path: str, limit: int) -> bytes | None:
        """The content of a file; raises `Refused` when it exceeds the limit."""
        try:
            return self._reader.read(path, limit)
        except NotFound:
            return None

    def content(self, folder: str, digest: str, limit: int = files.MAX_FILE_BYTES) -> bytes:
        """A file that is named after its content, from the cache or the hub."""
        if not self.cache or folder == "blobs":
            return super().content(folder, digest, limit)
        kept = os.path.join(self.cache, digest)
        with suppress(OSError):
            if files.digest_hex(data := read_plain(kept, limit)) == digest:
                return data
        data = super().content(folder, digest, limit)
        with suppress(OSError):  # a cache
            write_atomic(kept, data, private=True, durable=False)
        return data

    def prune_cache(self) -> None:
        """Delete cached files that are older than a month."""
        with suppress(OSError):
            for entry in os.scandir(self.cache) if self.cache else ():
                if time.time() - entry.stat().st_mtime > _CACHE_LIFETIME_S:
                    os.unlink(entry.path)

    # --- state ----------------------------------------------------------------------------

    def state(self, least: int = 0) -> HubState:
        """The present state, verified; with at least the number of commits of a lockfile."""
        if self._state is None or time.monotonic() - self._read_at > _STATE_LIFETIME_S:
            data = self.get(files.STATE, files.MAX_STATE_BYTES)
            if data is None:
                text = say("There is no hub at `{url}`", url=shown(self.hub.url))
                raise NotFound(text, say("Check the path"))
            state = files.parse_state(data, self.hub.key)
            last = (self._state.count, self._state.head) if self._state else (0, "")
            self._verify(state, *max(last, self._remembered()))
            self._state, self._read_at = state, time.monotonic()
        self._require_count(self._state, least)
        return self._state

    def _verify(self, state: HubState, count: int, head: str) -> None:
        """Check a signed state against the settings, the clock and the last state seen."""
        if state.hub != (self.name or state.hub):
            raise untrusted(
                say("The hub at `{url}` is `{found}`, not `{name}`",
                    url=shown(self.hub.url), found=shown(state.hub), name=self.name)
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
            raise files.unusable(
                say("The hub `{name}` has {count} commits; {total} were seen before",
                    name=self.name, count=state.count, total=least)
            )  # fmt: skip

    def _require_history(self, state: HubState, count: int, head: str) -> None:
        """Refuse a state whose history does not contain the head that was seen."""
        number, digest = state.count, state.head
        while number > count:
            data = self.get(files.commit_path(number), files.MAX_COMMIT_BYTES)
            if files.digest_hex(data or b"") != digest:
                raise files.damaged(files.commit_path(number))
            commit = files.parse_commit(data or b"", number)
            if files.skip_target(number) >= count:
                number, digest = files.skip_target(number), commit.skip
            else:
                number, digest = number - 1, commit.previous
        if digest != head:
            raise files.rewritten(self.name)

    def _remembered(self) -> tuple[int, str]:
        """Count and head of the last state that this user saw."""
        try:
            row: Any = json.loads(read_plain(self._memory, files.MAX_STATE_BYTES))
            return int(row["count"]), str(row["head"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0, ""

    # --- releases ---------------------------------------------------------------------------

    def releases(self, name: str) -> list[HubRelease]:
        """Every release of a skill; empty when the hub has no such skill."""
        return [release for release in self._bin(name)[0] if release.name == name]

    def publisher_keys(self, publisher: str) -> list[PublisherKey]:
        """The keys of a publisher."""
        return [key for key in self._bin(publisher)[1] if key.publisher == publisher]

    def _bin(self, name: str) -> tuple[list[HubRelease], list[PublisherKey]]:
        root = self.state().index
        try:
            index = HubIndex(self, root)
            return index.read(files.bin_number(name, index.bits))
        except (ValueError, TypeError, KeyError, IndexError) as exc:
            raise files.damaged(files.content_path("index", root)) from exc

    def revoked(self) -> dict[str, str]:
        """The digests of revoked skills, with the reasons."""
        rows = self.rows("revoked", self.state().revoked)
        return {str(row.get("tree")): str(row.get("reason")) for row in rows}


def require_fresh(state: HubState) -> None:
    """Refuse a state that is too old, or from the future, which would never be too old."""
    if not timedelta(-1) <= datetime.now(UTC) - state.moment <= timedelta(files.MAX_STATE_AGE_DAYS):
        raise files.unusable(
            say("The hub `{name}` was last signed on {day}, today is {today}: {limit} days at most",
                name=shown(state.hub), day=state.time[:10], today=files.timestamp()[:10],
                limit=files.MAX_STATE_AGE_DAYS)
        )  # fmt: skip


# --- one skill as a source -----------------------------------------------------------------


class LockPins(NamedTuple):
    """What a lockfile pins about a skill's publisher and hub."""

    keys: frozenset[str] = frozenset()
    """The key of the skill; of a new skill, those of its publisher's other skills."""
    trees: Mapping[str, str] = {}
    """Version of the skill -> the digest of its files."""
    seen: int = 0
    """Commits of the hub."""


class HubSource:
    """A skill of a hub."""

    kind = "hub"

    def __init__(
        self, clients: Sequence[HubClient], name: HubName, wanted: str = "", *, base: str
    ) -> None:
        self.name = name
        self.wanted = wanted
        self._clients = clients
        self._base = base

    @property
    def url(self) -> str:
        """The address of the skill; of several hubs, the name alone."""
        return self._url_in(self._clients[0]) if len(self._clients) == 1 else str(self.name)

    def _url_in(self, client: HubClient) -> str:
        hub = client.hub.url
        return f"{hub if is_address(hub) else recorded_path(hub, self._base)}/{self.name}"

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Fetch and verify one release: the best of `ref`, or exactly the version `commit`."""
        del progress
        wanted = ref or self.wanted
        client = self._find()
        pins = read_pins(self._base, client.name, self.name)
        state = client.state(pins.seen)
        release = self._select(client, wanted, commit, pins)
        self._verify(client, release, pins)
        with open_packed(client.content("blobs", release.blob, release.size)) as tree:
            if HashedTree(subtree(tree)).digest != release.tree:
                raise untrusted(
                    say("The files of `{name}` {version} are not those that were signed",
                        name=self.name, version=release.version)
                )  # fmt: skip
            place = LockedSource(
                "hub", self._url_in(client), wanted, release.version, "", release.key,
                str(state.count), state.hub,
            )  # fmt: skip
            notes = _notes(release, client.hub, new_key=bool(pins.keys - {release.key}))
            yield Bundle(place, tree, tuple(notes), self.name.skill)

    def _find(self) -> HubClient:
        """The one hub that has the publisher; all must answer, so that no name can be squatted."""
        found = list(self._clients)
        for client in self._clients if len(found) > 1 else ():
            try:
                if not client.publisher_keys(self.name.publisher):
                    found.remove(client)
            except SatchelError as exc:
                raise Refused(
                    say("It is unknown whether the hub `{hub}` has `{name}` too: {reason}",
                        hub=client.name, name=self.name.publisher, reason=exc.message),
                    say("Set `publishers` of the right one in the setting `hubs`"),
                ) from exc  # fmt: skip
        names = join_names(f"`{one.name}`" for one in found or self._clients)
        if len(found) > 1:
            raise Refused(
                say("Several hubs have `{name}`: {names}", name=self.name.publisher, names=names),
                say("Set `publishers` of the right one in the setting `hubs`"),
            )
        if found and found[0].releases(str(self.name)):
            return found[0]
        raise NotFound(
            say("There is no skill `{name}` in {names}", name=self.name, names=names),
            say("Run `{command}`", command=f"satchel search --hub {self.name.skill}"),
        )

    def _select(self, client: HubClient, wanted: str, commit: str, pins: LockPins) -> HubRelease:
        """The best release that is not revoked; one that is yanked only if it is locked."""
        releases, revoked = client.releases(str(self.name)), client.revoked()
        every = {one.number: one for one in releases}
        usable = {
            version: one
            for version, one in every.items()
            if one.tree not in revoked
            and (commit or one.version in pins.trees or not (one.yanked or one.scan == UNREADABLE))
        }
        best = best_version(commit or wanted, usable)
        locked = max(filter(None, map(parse_version, pins.trees)), default=(0, 0, 0))
        lost = every[locked] if locked in every and every[locked].tree in revoked else None
        if best is not None and not (lost and best <= locked and not parse_version(wanted)):
            return usable[best]
        if lost is not None:
            raise self._revoked(lost, revoked[lost.tree], pins)
        text = say("`{name}` has no version `{version}`",
                   name=self.name, version=shown(commit or wanted))  # fmt: skip
        if last := best_version(commit or wanted, every):
            if every[last].tree in revoked:
                raise self._revoked(every[last], revoked[every[last].tree], pins)
            text = _withdrawn(every[last])
        names = join_names(".".join(map(str, one)) for one in sorted(usable)[-_MAX_SHOWN_VERSIONS:])
        raise NotFound(text, say("Choose one of {names}", names=names) if usable else "")

    def _verify(self, client: HubClient, release: HubRelease, pins: LockPins) -> None:
        """Check the signature of a release, its key, and that its version did not change."""
        if not signed_by({"type": "release", **release._asdict()}, client.name, release.key):
            raise untrusted(
                say("`{name}` {version} is not signed by its publisher",
                    name=self.name, version=release.version)
            )  # fmt: skip
        if pins.keys and release.key not in pins.keys:
            links = client.publisher_keys(self.name.publisher)
            # Only from a pinned key: anyone can make a key that claims to be older.
            if not any(_leads(pin, release.key, links, client.name) for pin in pins.keys):
                pinned = join_names(sorted(map(shown_key, pins.keys)))
                raise Changed(
                    say("`{name}` is signed with the key {key}; the lockfile pins {pinned}, "
                        "which did not sign the new one",
                        name=self.name, key=shown_key(release.key), pinned=pinned),
                    say("Ask the publisher; to accept the new key, remove the skills of "
                        "`{publisher}` and install them again", publisher=self.name.publisher),
                )  # fmt: skip
        if pins.trees.get(release.version, release.tree) != release.tree:
            raise untrusted(
                say("`{name}` is not what was locked: its source differs",
                    name=f"{self.name}@{release.version}")
            )  # fmt: skip

    def _revoked(self, release: HubRelease, reason: str, pins: LockPins) -> Refused:
        text = say("`{name}` {version} was revoked by the hub: {reason}",
                   name=self.name, version=release.version, reason=shown(reason))  # fmt: skip
        if not pins.trees:
            return untrusted(text)
        return Refused(text, say("Run `{command}`", command=f"satchel remove {self.name.skill}"))


def read_pins(base: str, hub: str, name: HubName) -> LockPins:
    """What the lockfile in the folder `base` pins about a publisher and a hub."""
    keys: set[str] = set()
    own: set[str] = set()
    trees: dict[str, str] = {}
    seen = 0
    for entry in read_lock(os.path.join(base, LOCK_FILE)).values():
        place = entry.place
        _, publisher, skill = split_url(place.url)
        if place.kind != "hub" or place.hub != hub:
            continue
        seen = max(seen, int(place.seen[:15]) if place.seen.isdecimal() else 0)
        if publisher == name.publisher:
            keys.add(place.key)
            if skill == name.skill:
                own.add(place.key)
                trees[place.commit] = entry.upstream or entry.tree
    return LockPins(frozenset((own or keys) - {""}), trees, seen)


def split_url(url: str) -> tuple[str, str, str]:
    """Split the address of a skill into those of hub, publisher and skill."""
    hub, publisher, skill = ["", "", *url.rsplit("/", 2)][-3:]
    return hub, publisher, skill


def _leads(old: str, new: str, links: Sequence[PublisherKey], hub: str) -> bool:
    """Whether each key from `old` to `new` was signed by the one before it."""
    known, before = {old}, 0
    while new not in known and len(known) > before:
        before = len(known)
        known |= {
            link.key
            for link in links
            if link.previous in known
            and link.key not in known
            and signed_by({"type": "publisher", **link._asdict()}, hub, link.previous)
        }
    return new in known


def shown_key(key: str) -> str:
    """The fingerprint of a key of the lockfile; the text itself when it is no key."""
    try:
        return key_fingerprint(key)
    except InvalidInput:
        return shown(key)


def _notes(release: HubRelease, hub: Hub, *, new_key: bool) -> list[str]:
    publisher = release.name.partition("/")[0]
    notes = [
        say("Version {version}, signed by `{publisher}` with the key {key}",
            version=release.version, publisher=publisher, key=shown_key(release.key)),
        say("Scan of the hub: {verdict} (not a promise)", verdict=say(shown(release.scan)) or "–"),
    ]  # fmt: skip
    if new_key:
        notes.append(say("The key of `{name}` is new", name=publisher))
    if not hub.own:
        notes.append(say("The hub `{name}` comes from this project's settings", name=hub.name))
    if release.yanked:
        notes.append(_withdrawn(release))
    return notes


def _withdrawn(release: HubRelease) -> str:
    name, version, reason = release.name, release.version, shown(release.yanked)
    return say("`{name}` {version} was withdrawn by its publisher: {reason}",
               name=name, version=version, reason=reason)  # fmt: skip
