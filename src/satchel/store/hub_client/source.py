"""`HubSource`: one skill of a hub as a source.

A release is used when its publisher signed it, the publisher's key is the one that the lockfile
pins or was signed by it, its tree is not revoked, and its archive, unpacked by the strict reader,
has exactly that tree. What the hub's own scan found is shown; the skill is scanned again here.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import Changed, InvalidInput, NotFound, Refused
from satchel.i18n import join_names, say
from satchel.library.lockfile import LOCK_FILE, LockedSource, read_lock
from satchel.store.archive.open import open_archive
from satchel.store.archive.rules import shown
from satchel.store.hub_client.ed25519 import key_fingerprint, key_text, public_key
from satchel.store.hub_client.format import release_is_signed, signed_by
from satchel.store.hub_client.release_name import parse_range, parse_version
from satchel.store.plan import verdict_words
from satchel.store.sources.base import Bundle, subtree
from satchel.store.trees import HashedTree

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from satchel.store.hub_client.client import Hub, HubClient
    from satchel.store.hub_client.format import HubRelease, PublisherKey
    from satchel.store.hub_client.release_name import HubName

_MAX_SHOWN = 6
_VERDICTS = frozenset(("blocked", "review", "incomplete", "no findings"))


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
        clients: Sequence[tuple[HubClient, str]],
        name: HubName,
        wanted: str = "",
        *,
        base: str,
    ) -> None:
        """Refer to a skill; nothing is read yet.

        Args:
            clients: The hubs that may have it, with their addresses for the lockfile.
            name: Its name.
            wanted: The requested versions.
            base: The folder of the lockfile.
        """
        self.name = name
        self.wanted = wanted
        self._clients = clients
        self._base = base

    @property
    def url(self) -> str:
        """The address of the skill; of several hubs, the name alone."""
        if len(self._clients) == 1:
            return f"{self._clients[0][1]}/{self.name}"
        return str(self.name)

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Fetch and verify one release.

        Args:
            ref: The range of versions; the source's own when empty.
            commit: Exactly this version; `ref` is then only recorded.
            progress: Not used.

        Raises:
            NotFound: there is no such skill or version.
            Changed: a check fails.
            Unsafe: the archive breaks a rule.
        """
        del progress
        wanted = ref or self.wanted
        client, address = self._find()
        pins = read_pins(self._base, client.hub.name, self.name)
        state = client.state(pins.seen)
        release = self._select(client, wanted, commit, pins)
        key = self._verify(client, release, pins)
        with TemporaryDirectory(prefix="satchel-hub-") as folder:
            path = os.path.join(folder, "skill.tar.gz")
            with open(path, "wb") as stream:
                stream.write(client.blob(release))
            with open_archive(path) as tree:
                if HashedTree(subtree(tree)).digest != release.tree:
                    text = say("The files of `{name}` {version} are not those that were signed",
                               name=self.name, version=release.version)  # fmt: skip
                    raise Changed(text, _distrust())
                url = f"{address}/{self.name}"
                place = LockedSource(
                    "hub", url, wanted, release.version, "", key, str(state.count), state.hub
                )
                notes = _notes(release, client.hub, new_key=bool(pins.keys - {key}))
                yield Bundle(place, tree, notes, self.name.skill)

    def _find(self) -> tuple[HubClient, str]:
        """The one hub that has the skill."""
        found = [pair for pair in self._clients if pair[0].releases(str(self.name))]
        if len(found) == 1:
            return found[0]
        names = join_names(f"`{client.hub.name}`" for client, _ in found or self._clients)
        if found:
            raise Refused(
                say("Several hubs have `{name}`: {names}", name=self.name, names=names),
                say("Set `publishers` of the right one in the setting `hubs`"),
            )
        raise NotFound(
            say("There is no skill `{name}` in {names}", name=self.name, names=names),
            say("Run `{command}`", command=f"satchel search --hub {self.name.skill}"),
        )

    def _select(self, client: HubClient, wanted: str, commit: str, pins: LockPins) -> HubRelease:
        releases, revoked = client.releases(str(self.name)), client.revoked()
        every = {version: one for one in releases if (version := parse_version(one.version))}
        usable = {
            version: one
            for version, one in every.items()
            if (commit or not one.yanked or one.version in pins.trees)
            and (commit or one.tree not in revoked)
        }
        span = parse_range(commit or wanted)
        best = span.best(usable)
        locked = max(filter(None, map(parse_version, pins.trees)), default=(0, 0, 0))
        fallen = locked in every and every[locked].tree in revoked and (best or locked) <= locked
        if fallen and (best is None or not parse_version(wanted)):  # else asked for by its number
            raise self._revoked(every[locked], revoked, pins)
        if best is not None:
            return usable[best]
        text = say("`{name}` has no version `{version}`",
                   name=self.name, version=shown(commit or wanted))  # fmt: skip
        if last := span.best(every):
            if every[last].tree in revoked:
                raise self._revoked(every[last], revoked, pins)
            text = _withdrawn(every[last])
        names = join_names(".".join(map(str, one)) for one in sorted(usable)[-_MAX_SHOWN:])
        raise NotFound(text, say("Choose one of {names}", names=names) if usable else "")

    def _verify(self, client: HubClient, release: HubRelease, pins: LockPins) -> str:
        """Check signature, key and revocation; returns the publisher's key."""
        hub = client.hub.name
        if not release_is_signed(release, hub):
            text = say("`{name}` {version} is not signed by its publisher",
                       name=self.name, version=release.version)  # fmt: skip
            raise Changed(text, _distrust())
        key = _plain(release.key)
        if pins.keys and key not in pins.keys:
            links = client.publisher_keys(self.name.publisher)
            # Only from a pinned key: anyone can make a key that claims to be older.
            if not any(_leads(pin, key, links, hub) for pin in pins.keys):
                pinned = join_names(sorted(map(shown_key, pins.keys)))
                raise Changed(
                    say("`{name}` is signed with the key {key}; the lockfile pins {pinned}, "
                        "which did not sign the new one",
                        name=self.name, key=shown_key(key), pinned=pinned),
                    say("Ask the publisher; to accept the new key, remove the skills of "
                        "`{publisher}` and install them again", publisher=self.name.publisher),
                )  # fmt: skip
        if pins.trees.get(release.version, release.tree) != release.tree:
            text = say("`{name}` is not what was locked: its source differs",
                       name=f"{self.name}@{release.version}")  # fmt: skip
            raise Changed(text, _distrust())
        revoked = client.revoked()
        if release.tree in revoked:
            raise self._revoked(release, revoked, pins)
        return key

    def _revoked(self, release: HubRelease, revoked: Mapping[str, str], pins: LockPins) -> Refused:
        text = say("`{name}` {version} was revoked by the hub: {reason}",
                   name=self.name, version=release.version,
                   reason=shown(revoked[release.tree]))  # fmt: skip
        if not pins.trees:
            return Refused(text, _distrust())
        return Refused(text, say("Run `{command}`", command=f"satchel remove {self.name.skill}"))


def read_pins(base: str, hub: str, name: HubName) -> LockPins:
    """What the lockfile in the folder `base` pins about a publisher and a hub.

    Raises:
        LockBroken: the lockfile is damaged.
    """
    keys: set[str] = set()
    own: set[str] = set()
    trees: dict[str, str] = {}
    seen = 0
    for entry in read_lock(os.path.join(base, LOCK_FILE)).values():
        place = entry.place
        _, publisher, skill = split_url(place.url)
        if place.kind != "hub" or place.hub != hub:
            continue
        seen = max(seen, int(place.seen) if place.seen.isdecimal() else 0)
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
    known = {old}
    while new not in known:
        added = {
            _plain(link.key)
            for link in links
            if _plain(link.previous) in known
            and _plain(link.key) not in known
            and signed_by({"type": "publisher", **link._asdict()}, hub, link.previous)
        }
        if not added:
            return False
        known |= added
    return True


def _plain(key: str) -> str:
    """A key without its comment; empty when it is not valid."""
    try:
        return key_text(public_key(key))
    except InvalidInput:
        return ""


def shown_key(key: str) -> str:
    """The fingerprint of a key of the lockfile; the text itself when it is no key."""
    return key_fingerprint(key) if _plain(key) else shown(key)


def _notes(release: HubRelease, hub: Hub, *, new_key: bool) -> tuple[str, ...]:
    scan, publisher = release.scan, release.name.partition("/")[0]
    verdict = verdict_words(scan) if scan in _VERDICTS else shown(scan) or "–"
    notes = [
        say("Version {version}, signed by `{publisher}` with the key {key}",
            version=release.version, publisher=publisher, key=shown_key(release.key)),
        say("Scan of the hub: {verdict} (not a promise)", verdict=verdict),
    ]  # fmt: skip
    if new_key:
        notes.append(say("The key of `{name}` is new", name=publisher))
    if not hub.own:
        notes.append(say("The hub `{name}` comes from this project's settings", name=hub.name))
    if release.yanked:
        notes.append(_withdrawn(release))
    return tuple(notes)


def _withdrawn(release: HubRelease) -> str:
    name, version, reason = release.name, release.version, shown(release.yanked)
    return say("`{name}` {version} was withdrawn by its publisher: {reason}",
               name=name, version=version, reason=reason)  # fmt: skip


def _distrust() -> str:
    return say("Do not use it; ask its keeper")
