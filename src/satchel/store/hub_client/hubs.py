"""The configured hubs, the sources that they serve, and the search in their lists.

The setting `hubs` has a table for each: `url`, `key` and, optionally, `publishers`. A project may
name hubs too, but it changes none of the user's. A publisher is looked up in the hubs that list it,
else in those without a list; a list of a project does not exclude a hub of the user. Two hubs with
the same skill are an error, so that no name can be squatted.

A search reads the compact list of names and descriptions; a new release changes one file of it,
the others stay in the cache. It runs here, as local searches do: a hub never sees a query.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from satchel.errors import InvalidInput, NotFound, Refused, SatchelError, SettingsError
from satchel.i18n import say
from satchel.skill.document import SkillHeader
from satchel.skill.model import Skill, SkillOrigin
from satchel.store.archive.rules import shown
from satchel.store.download import check_address, is_address
from satchel.store.hub_client.client import Hub, HubClient, HubSource, split_url
from satchel.store.hub_client.format import content_path, damaged, digest_hex
from satchel.store.hub_client.versions import (
    HubName,
    best_version,
    is_publisher,
    parse_name,
    split_request,
)
from satchel.store.signing import plain_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from satchel.detect.base import Detection
    from satchel.library.lockfile import LockedSource
    from satchel.settings import Settings
    from satchel.skill.file_tree import Tree

MAX_LISTED_SKILLS = 150_000
_MAX_DESCRIPTION_CHARS = 2_048


class Hubs:
    """The hubs that skills may be installed from."""

    def __init__(self, hubs: Sequence[Hub], state_folder: str = "", cache_folder: str = "") -> None:
        self.clients = [HubClient(hub, state_folder, cache_folder) for hub in hubs]
        self._silent_hubs: set[str] = set()
        """Hubs that did not answer about revocations: each is asked once."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The hubs of the settings; raises `SettingsError` for one that cannot be used."""
        hubs = [
            parse_hub(name, row, settings.project, own=name not in settings.project_hubs)
            for name, row in settings.hubs.items()
        ]
        user_urls = {hub.url for hub in hubs if hub.own}
        used_hubs = [hub for hub in hubs if hub.own or hub.url not in user_urls]
        return cls(used_hubs, settings.paths.state, settings.paths.cache)

    def serving(self, publisher: str) -> list[HubClient]:
        """The hubs to ask for a publisher's skills."""
        listed = [client for client in self.clients if publisher in client.hub.publishers]
        # A project neither adds a hub for a publisher that the user assigned, nor excludes others.
        if user_clients := [client for client in listed if client.hub.own]:
            return user_clients
        unassigned = [client for client in self.clients if not client.hub.publishers]
        return listed + [client for client in unassigned if client.hub.own or not listed]

    def serves(self, text: str) -> bool:
        """Whether a text is a request that some hub could answer."""
        request = split_request(text)
        return request is not None and bool(self.serving(request[0].publisher))

    def search(
        self,
        goal: str,
        limit: int | None = None,
        *,
        patience: float = 0.0,
        on_wait: Callable[[int, int], None] | None = None,
    ) -> tuple[Detection, int, list[str]]:
        """Find skills in all hubs that can be used.

        It waits up to `patience` seconds for the index of new lists, and calls `on_wait` with how
        many are indexed, and of how many. Returns the answer, the number of skills searched, and
        notes about the hubs, such as those that were left out.
        """
        from satchel.detect.hybrid import HybridDetector
        from satchel.detect.pipeline import SelectionPipeline
        from satchel.detect.skill_texts import make_header_row

        if not self.clients:
            raise _no_hub_error()
        skill_lists: dict[str, list[Skill]] = {}
        notes: list[str] = []
        for client in self.clients:
            try:
                skill_lists[client.cache] = listed_skills(client)
                notes += client.take_notes()
            except SatchelError as exc:
                if len(self.clients) == 1:
                    raise
                name, reason = client.name, exc.message
                notes.append(
                    say("The hub `{name}` was left out: {reason}", name=name, reason=reason)
                )
        skills = tuple(chain.from_iterable(skill_lists.values()))
        caches = list(skill_lists) or [""]
        # Each set of hubs has its own index: the rarity of a word depends on all skills.
        name = digest_hex("\n".join(caches).encode())[:16]
        folder = os.path.join(os.path.dirname(caches[0]), f"index-{name}") if caches[0] else None
        hybrid = HybridDetector(
            folder, limit=limit or 10, patience=patience, on_wait=on_wait, rows=make_header_row
        )
        return SelectionPipeline(hybrid).look(goal, skills, limit), len(skills), notes

    def requested(self, text: str, *, base: str) -> HubSource | None:
        """The source that the user requested as `publisher/skill@range`; None for other texts."""
        request = split_request(text)
        if request is None or (not self.clients and "@" not in text):
            return None
        name, version_range = request
        best_version(version_range, ())  # raises when it is not valid
        hubs = self.serving(name.publisher)
        if not hubs:
            raise _no_hub_error()
        return HubSource(hubs, name, version_range, base=base)

    def locked(
        self,
        source: LockedSource,
        *,
        base: str,
        find_kept: Callable[[str], Tree | None] | None = None,
    ) -> HubSource:
        """The source of a lockfile entry; raises `NotFound` when its hub is not configured."""
        address, publisher, skill = split_url(source.url)
        for client in self.serving(publisher):
            if client.name == source.hub:
                name = HubName(publisher, skill)
                return HubSource([client], name, source.ref, base=base, find_kept=find_kept)
        if not is_address(address):
            address = os.path.normpath(os.path.join(base, address))
        raise NotFound(
            say("The lockfile names the hub `{url}`, which is not configured for `{name}`",
                url=shown(address), name=shown(publisher)),
            say("Run `{command}`", command=f"satchel hub add {shown(address)}"),
        )  # fmt: skip

    def refuse_revoked(self, source: LockedSource, tree: str, *, base: str) -> None:
        """Refuse locked content that its hub revoked; a hub that does not answer is passed over."""
        if source.hub in self._silent_hubs:
            return
        try:
            reason = self.revoked(source, base=base).get(tree)
        except SatchelError:
            self._silent_hubs.add(source.hub)
            return
        if reason is not None:
            skill = self.locked(source, base=base)
            raise skill.revocation_error(source.commit, reason, is_locked=True)

    def revoked(self, source: LockedSource, *, base: str) -> Mapping[str, str]:
        """The digests that the hub of a lockfile entry revoked, with the reasons."""
        return self.locked(source, base=base).revoked()


def _no_hub_error() -> NotFound:
    command = say("Run `{command}`", command="satchel hub add URL")
    return NotFound(say("No hub is configured"), command)


def listed_skills(client: HubClient) -> list[Skill]:
    """The newest release of every skill of a hub, as a skill without files."""
    state, hub = client.state(), client.hub
    if state.skills > MAX_LISTED_SKILLS:
        raise Refused(
            say("The hub `{name}` has {count} skills, too many to search here",
                name=hub.name, count=state.skills),
            say("Search on its pages: {url}", url=hub.url),
        )  # fmt: skip
    origin = SkillOrigin(f"hub:{hub.name}", "server", hub.name, remote=f"hub {hub.name}")
    skills: list[Skill] = []
    for row in chain.from_iterable(client.listed(state.search)):
        name, description = (
            str(row.get("name")),
            str(row.get("description"))[:_MAX_DESCRIPTION_CHARS],
        )
        description = description.encode(errors="replace").decode()
        if parse_name(name) is None or len(skills) >= MAX_LISTED_SKILLS:
            raise damaged(content_path("search", state.search))
        head = SkillHeader(
            name=name,
            description=description,
            id=name,
            file="SKILL.md",
            mtime_ns=crc32(description.encode()),
            ctime_ns=0,
            size=len(description),
        )
        skills.append(Skill(head, origin))
    client.prune_cache()
    return skills


def parse_hub(name: str, row: Mapping[str, Any], project: str, *, own: bool = True) -> Hub:
    """A hub from its table in the settings; a relative path starts from the project's folder."""
    url, key = (str(row.get(field, "")) for field in ("url", "key"))
    try:
        address, key = hub_address(url, project), plain_key(key)
        publishers = _parse_publishers(row.get("publishers", []))
        return Hub(name, address, key, publishers=publishers, own=own)
    except InvalidInput as exc:
        setting = f"hubs.{shown(name)}"
        raise SettingsError(
            say("`{path}` cannot be used: {reason}", path=setting, reason=exc.message),
            exc.hint or say("Run `{command}`", command="satchel config list"),
        ) from exc


def _parse_publishers(value: object) -> tuple[str, ...]:
    names = [str(name) for name in cast("list[object]", value)] if isinstance(value, list) else [""]
    if not all(map(is_publisher, names)):
        raise InvalidInput(say("`{name}` is not valid", name="publishers"))
    return tuple(names)


def hub_address(text: str, folder: str) -> str:
    """The address of a hub, or its absolute folder; a relative path starts from `folder`."""
    if not text or "://" in text or text.startswith(("git+", "git@")):
        return check_address(text)
    return os.path.normpath(os.path.join(folder, os.path.expanduser(text)))
