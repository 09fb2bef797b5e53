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
from contextlib import contextmanager, nullcontext, suppress
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
from satchel.store.hub_client import format as hub_format
from satchel.store.hub_client.format import UNREADABLE, HubFiles, HubTable, untrusted
from satchel.store.hub_client.signatures import is_signed_successor, signed_by
from satchel.store.hub_client.versions import best_version, parse_version
from satchel.store.signing import key_fingerprint
from satchel.store.sources.base import Bundle, subtree
from satchel.store.sources.parse import recorded_path
from satchel.store.trees import HashedTree

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from satchel.skill.file_tree import Tree
    from satchel.store.hub_client.format import HubRelease, HubState, IndexBin, PublisherKey
    from satchel.store.hub_client.versions import HubName, Version

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


class SeenState(NamedTuple):
    """What a reader remembers of a state; the first two numbers never decrease."""

    repairs: int = 0
    count: int = 0  # pyright: ignore[reportIncompatibleMethodOverride]
    head: str = ""
    key: str = ""


class HubClient(HubFiles):
    """Reads and verifies the files of one hub."""

    def __init__(self, hub: Hub, state_folder: str = "", cache_folder: str = "") -> None:
        super().__init__(hub.name)
        self.hub = hub
        self._reader = FileReader(hub.url, is_hub=True)
        name = hub_format.digest_hex(f"{hub.name}\n{hub.key}".encode())[:32]
        self._memory_path = (
            os.path.join(state_folder, "hubs", f"{name}.json") if state_folder else ""
        )
        self.cache = os.path.join(cache_folder, "hubs", name) if cache_folder else ""
        """Folder of its cached files; empty for none."""
        self._notes: list[str] = []
        self._state: HubState | None = None
        self._read_at = 0.0

    def get(self, path: str, limit: int) -> bytes | None:
        """The content of a file; raises `Refused` when it exceeds the limit."""
        try:
            return self._reader.read(path, limit, has_digest=path != hub_format.STATE)
        except NotFound:
            return None

    def content(self, folder: str, digest: str, limit: int = hub_format.MAX_FILE_BYTES) -> bytes:
        """A file that is named after its content, from the cache or the hub."""
        if not self.cache or folder == "blobs":
            return super().content(folder, digest, limit)
        cached_path = os.path.join(self.cache, digest)
        with suppress(OSError):
            if hub_format.digest_hex(data := read_plain(cached_path, limit)) == digest:
                return data
        data = super().content(folder, digest, limit)
        with suppress(OSError):  # a cache
            write_atomic(cached_path, data, private=True, durable=False)
        return data

    def take_notes(self) -> tuple[str, ...]:
        """What the keeper changed, for the user; each note is returned once."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def prune_cache(self) -> None:
        """Delete cached files that are older than a month."""
        if not self.cache:
            return
        with suppress(OSError):
            for entry in os.scandir(self.cache):
                if time.time() - entry.stat().st_mtime > _CACHE_LIFETIME_S:
                    os.unlink(entry.path)

    # --- state ----------------------------------------------------------------------------

    def state(self, min_count: int = 0) -> HubState:
        """The present state, verified; with at least the number of commits of a lockfile."""
        if self._state is None or time.monotonic() - self._read_at > _STATE_LIFETIME_S:
            data = self.get(hub_format.STATE, hub_format.MAX_STATE_BYTES)
            if data is None:
                text = say("There is no hub at `{url}`", url=shown(self.hub.url))
                raise NotFound(text, say("Check the path"))
            seen = max(_seen(self._state), self.read_seen())
            known_key = seen.key or self.hub.key
            state = hub_format.parse_state(data, known_key)
            self._verify(state, seen)
            if known_key not in ("", state.key):
                self._notes.append(
                    say("The hub `{name}` has the new key {key}, which its old key signed",
                        name=self.name, key=key_fingerprint(state.key))
                )  # fmt: skip
            self._state, self._read_at = state, time.monotonic()
        self._require_count(self._state, min_count)
        return self._state

    def _verify(self, state: HubState, seen: SeenState) -> None:
        """Check a signed state against the settings, the clock and the last state seen."""
        if state.hub != (self.name or state.hub):
            raise untrusted(
                say("The hub at `{url}` is `{found}`, not `{name}`",
                    url=shown(self.hub.url), found=shown(state.hub), name=self.name)
            )  # fmt: skip
        self._require_count(state, seen.count)
        require_fresh(state)
        if seen.count:
            self._require_history(state, seen)
        if self._memory_path and _seen(state) > seen:
            with disk_errors_as_refusal(self._memory_path), locked(f"{self._memory_path}.lock"):
                if self.read_seen() < _seen(state):
                    row = {"hub": state.hub, **_seen(state)._asdict()}
                    write_atomic(self._memory_path, json.dumps(row).encode() + b"\n", private=True)

    def _require_count(self, state: HubState, min_count: int) -> None:
        if state.count < min_count:
            raise hub_format.unusable(
                say("The hub `{name}` has {count} commits; {total} were seen before",
                    name=self.name, count=state.count, total=min_count)
            )  # fmt: skip

    def _require_history(self, state: HubState, seen: SeenState) -> None:
        """Refuse a state whose history does not contain the head that was seen.

        After a repair, which the keeper signed, it may be missing.
        """
        number, digest = state.count, state.head
        while number > seen.count:
            data = self.get(hub_format.commit_path(number), hub_format.MAX_COMMIT_BYTES)
            if hub_format.digest_hex(data or b"") != digest:
                raise hub_format.damaged(hub_format.commit_path(number))
            commit = hub_format.parse_commit(data or b"", number)
            if hub_format.skip_target(number) >= seen.count:
                number, digest = hub_format.skip_target(number), commit.skip
            else:
                number, digest = number - 1, commit.previous
        if digest != seen.head:
            if state.repairs <= seen.repairs:
                raise hub_format.rewritten(self.name)
            self._notes.append(
                say("The keeper of the hub `{name}` replaced commits that could not be read",
                    name=self.name)
            )  # fmt: skip

    def read_seen(self) -> SeenState:
        """Read what is remembered of the last state that this user saw."""
        try:
            row: Any = json.loads(read_plain(self._memory_path, hub_format.MAX_STATE_BYTES))
            return SeenState(
                int(row.get("repairs", 0)),
                int(row["count"]),
                head=str(row["head"]),
                key=str(row.get("key", "")),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return SeenState()

    def forget_seen(self) -> None:
        """Delete what is remembered; the next state is believed as if it were the first one."""
        with disk_errors_as_refusal(self._memory_path), suppress(FileNotFoundError):
            os.unlink(self._memory_path)

    # --- releases ---------------------------------------------------------------------------

    def releases(self, name: str) -> list[HubRelease]:
        """Every release of a skill; empty when the hub has no such skill."""
        return [release for release in self._bin(name).releases if release.name == name]

    def publisher_keys(self, publisher: str) -> list[PublisherKey]:
        """The keys of a publisher."""
        return [key for key in self._bin(publisher).keys if key.publisher == publisher]

    def _bin(self, name: str) -> IndexBin:
        digest = HubTable(self, "index", self.state().index).find(name)
        return hub_format.read_bin(self, digest)

    def revoked(self) -> dict[str, str]:
        """The digests of revoked skills, with the reasons."""
        rows = self.rows("revoked", self.state().revoked)
        return {str(row.get("tree")): str(row.get("reason")) for row in rows}


def _seen(state: HubState | None) -> SeenState:
    return SeenState(state.repairs, state.count, state.head, state.key) if state else SeenState()


def require_fresh(state: HubState) -> None:
    """Refuse a state that is too old, or from the future, which would never be too old."""
    age = datetime.now(UTC) - state.moment
    if age < timedelta(-1):
        text = say("The hub `{name}` was signed on {day}, but today is {today} here",
                   name=shown(state.hub), day=state.time[:10],
                   today=hub_format.timestamp()[:10])  # fmt: skip
        raise Changed(text, say("Check the clock of this machine, and that of the hub's builds"))
    if age > timedelta(hub_format.MAX_STATE_AGE_DAYS):
        raise Changed(
            say("The hub `{name}` was last signed on {day}, today is {today}: {limit} days at most",
                name=shown(state.hub), day=state.time[:10], today=hub_format.timestamp()[:10],
                limit=hub_format.MAX_STATE_AGE_DAYS),
            say("Check the clock of this machine; if it is right, ask the keeper for a new build"),
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
        self,
        clients: Sequence[HubClient],
        name: HubName,
        version_range: str = "",
        *,
        base: str,
        find_kept: Callable[[str], Tree | None] | None = None,
    ) -> None:
        """Name the skill; `find_kept` returns files that are here already, by their digest."""
        self.name = name
        self.version_range = version_range
        self._clients = clients
        self._base = base
        self._find_kept = find_kept

    @property
    def url(self) -> str:
        """The address of the skill; of several hubs, the name alone."""
        return self._url_in(self._clients[0]) if len(self._clients) == 1 else str(self.name)

    def _url_in(self, client: HubClient) -> str:
        hub_url = client.hub.url
        if not is_address(hub_url):
            hub_url = recorded_path(hub_url, self._base)
        return f"{hub_url}/{self.name}"

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Fetch and verify one release: the best of `ref`, or exactly the version `commit`."""
        del progress
        version_range = ref or self.version_range
        client = self._find_hub()
        pins = read_pins(self._base, client.name, self.name)
        state = client.state(pins.seen)
        try:
            release = self._select_release(client, version_range, commit, pins)
            self._verify(client, release, pins)
        except SatchelError as exc:
            for note in client.take_notes():
                exc.add_note(note)
            raise
        kept_tree = self._find_kept(release.tree) if self._find_kept is not None else None
        if kept_tree is not None:
            opened_tree = nullcontext(kept_tree)
        else:
            opened_tree = open_packed(client.content("blobs", release.blob, release.size))
        with opened_tree as tree:
            if HashedTree(subtree(tree)).digest != release.tree:
                raise untrusted(
                    say("The files of `{name}` {version} are not those that were signed",
                        name=self.name, version=release.version)
                )  # fmt: skip
            source = LockedSource(
                kind="hub",
                url=self._url_in(client),
                ref=version_range,
                commit=release.version,
                path="",
                key=release.key,
                seen=str(state.count),
                hub=state.hub,
            )
            notes = _make_notes(release, client.hub, is_new_key=bool(pins.keys - {release.key}))
            news = client.take_notes()
            yield Bundle(source, tree, (*news, *notes), self.name.skill, news)

    def revoked(self) -> dict[str, str]:
        """The digests that the hub has revoked, with the reasons."""
        return self._clients[0].revoked()

    def _find_hub(self) -> HubClient:
        """Return the one hub that has the publisher.

        All must answer, so that no name can be squatted.
        """
        candidates = list(self._clients)
        if len(self._clients) > 1:
            candidates = [client for client in self._clients if self._has_publisher(client)]
        names = join_names(f"`{client.name}`" for client in candidates or self._clients)
        if len(candidates) > 1:
            raise Refused(
                say("Several hubs have `{name}`: {names}", name=self.name.publisher, names=names),
                say("Set `publishers` of the right one in the setting `hubs`"),
            )
        if candidates and candidates[0].releases(str(self.name)):
            return candidates[0]
        raise NotFound(
            say("There is no skill `{name}` in {names}", name=self.name, names=names),
            say("Run `{command}`", command=f"satchel search --hub {self.name.skill}"),
        )

    def _has_publisher(self, client: HubClient) -> bool:
        try:
            return bool(client.publisher_keys(self.name.publisher))
        except SatchelError as exc:
            raise Refused(
                say("It is unknown whether the hub `{hub}` has `{name}` too: {reason}",
                    hub=client.name, name=self.name.publisher, reason=exc.message),
                say("Set `publishers` of the right one in the setting `hubs`"),
            ) from exc  # fmt: skip

    def _select_release(
        self, client: HubClient, version_range: str, commit: str, pins: LockPins
    ) -> HubRelease:
        """Return the best release that is not revoked; one that is yanked only if it is locked."""
        releases = {release.number: release for release in client.releases(str(self.name))}
        revoked = client.revoked()
        requested = commit or version_range
        usable = {
            version: release
            for version, release in releases.items()
            if release.tree not in revoked and (commit or _is_offered(release, pins))
        }
        best_number = best_version(requested, usable)
        locked_version = max(filter(None, map(parse_version, pins.trees)), default=(0, 0, 0))
        refused = releases.get(locked_version)
        is_locked_revoked = _is_revoked(refused, revoked)
        # In place of a revoked release only a newer one, unless one version is requested.
        is_replaceable = not is_locked_revoked or parse_version(version_range) is not None
        if best_number is not None and (is_replaceable or best_number > locked_version):
            return usable[best_number]
        if not is_locked_revoked:
            newest = best_version(requested, releases)
            refused = releases[newest] if newest else None
        if refused is None:
            text = say("`{name}` has no version `{version}`",
                       name=self.name, version=shown(requested))  # fmt: skip
            raise NotFound(text, _version_hint(usable))
        if refused.tree in revoked:
            reason = revoked[refused.tree]
            raise self.revocation_error(refused.version, reason, is_locked=bool(pins.trees))
        raise NotFound(_withdrawal_note(refused), _version_hint(usable))

    def _verify(self, client: HubClient, release: HubRelease, pins: LockPins) -> None:
        """Check the signature of a release, its key, and that its version did not change."""
        if not signed_by({"type": "release", **release._asdict()}, client.name, release.key):
            raise untrusted(
                say("`{name}` {version} is not signed by its publisher",
                    name=self.name, version=release.version)
            )  # fmt: skip
        if pins.keys and release.key not in pins.keys:
            keys = client.publisher_keys(self.name.publisher)
            links = [{"type": "publisher", **key._asdict()} for key in keys]
            # Only from a pinned key: anyone can make a key that claims to be older.
            if not any(
                is_signed_successor(pin, release.key, links, client.name) for pin in pins.keys
            ):
                pinned = join_names(sorted(map(display_key, pins.keys)))
                raise Changed(
                    say("`{name}` is signed with the key {key}; the lockfile pins {pinned}, "
                        "which did not sign the new one",
                        name=self.name, key=display_key(release.key), pinned=pinned),
                    say("Ask the publisher; to accept the new key, remove the skills of "
                        "`{publisher}` and install them again", publisher=self.name.publisher),
                )  # fmt: skip
        if pins.trees.get(release.version, release.tree) != release.tree:
            raise untrusted(
                say("`{name}` is not what was locked: its source differs",
                    name=f"{self.name}@{release.version}")
            )  # fmt: skip

    def revocation_error(self, version: str, reason: str, *, is_locked: bool) -> Refused:
        """The error for a release that the hub revoked."""
        message = say("`{name}` {version} was revoked by the hub: {reason}",
                      name=self.name, version=version, reason=shown(reason))  # fmt: skip
        if not is_locked:
            return untrusted(message)
        return Refused(message, say("Run `{command}`", command=f"satchel remove {self.name.skill}"))


def _is_revoked(release: HubRelease | None, revoked: Mapping[str, str]) -> bool:
    return release is not None and release.tree in revoked


def _is_offered(release: HubRelease, pins: LockPins) -> bool:
    """Whether a release is locked, or neither yanked nor without a scan."""
    return release.version in pins.trees or not (release.yanked or release.scan == UNREADABLE)


def _version_hint(versions: Iterable[Version]) -> str:
    """The last of the versions to choose from; empty when there are none."""
    last_versions = sorted(versions)[-_MAX_SHOWN_VERSIONS:]
    if not last_versions:
        return ""
    names = join_names(".".join(map(str, version)) for version in last_versions)
    return say("Choose one of {names}", names=names)


def read_pins(base: str, hub: str, name: HubName) -> LockPins:
    """Read what the lockfile in the folder `base` pins about a publisher and a hub."""
    keys: set[str] = set()
    skill_keys: set[str] = set()
    trees: dict[str, str] = {}
    commit_count = 0
    for entry in read_lock(os.path.join(base, LOCK_FILE)).values():
        source = entry.place
        _, publisher, skill = split_url(source.url)
        if source.kind != "hub" or source.hub != hub:
            continue
        commit_count = max(commit_count, int(source.seen[:15]) if source.seen.isdecimal() else 0)
        if publisher == name.publisher:
            keys.add(source.key)
            if skill == name.skill:
                skill_keys.add(source.key)
                trees[source.commit] = entry.upstream or entry.tree
    return LockPins(frozenset((skill_keys or keys) - {""}), trees, commit_count)


def split_url(url: str) -> tuple[str, str, str]:
    """Split the address of a skill into those of hub, publisher and skill."""
    hub, publisher, skill = ["", "", *url.rsplit("/", 2)][-3:]
    return hub, publisher, skill


def display_key(key: str) -> str:
    """Return the fingerprint of a key of the lockfile; the text itself when it is no key."""
    try:
        return key_fingerprint(key)
    except InvalidInput:
        return shown(key)


def _make_notes(release: HubRelease, hub: Hub, *, is_new_key: bool) -> list[str]:
    publisher = release.name.partition("/")[0]
    notes = [
        say("Version {version}, signed by `{publisher}` with the key {key}",
            version=release.version, publisher=publisher, key=display_key(release.key)),
        say("Scan of the hub: {verdict} (not a promise)", verdict=say(shown(release.scan)) or "–"),
    ]  # fmt: skip
    if is_new_key:
        notes.append(say("The key of `{name}` is new", name=publisher))
    if not hub.own:
        notes.append(say("The hub `{name}` comes from this project's settings", name=hub.name))
    if release.yanked:
        notes.append(_withdrawal_note(release))
    return notes


def _withdrawal_note(release: HubRelease) -> str:
    name, version, reason = release.name, release.version, shown(release.yanked)
    return say("`{name}` {version} was withdrawn by its publisher: {reason}",
               name=name, version=version, reason=reason)  # fmt: skip
