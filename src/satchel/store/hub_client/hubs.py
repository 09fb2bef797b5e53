"""The configured hubs, the sources that they serve, and the search in their lists.

The setting `hubs` has a table for each: `url`, `key` and, optionally, `publishers`. A project may
name hubs too, but it changes none of the user's. A publisher is looked up in the hubs that list it,
else in those without a list; a list of a project does not exclude a hub of the user. Two hubs with
the same skill are an error, so that no name can be squatted.

A search reads the compact list that hubs publish: names and descriptions, in segments that are
named by their content, so that a new release changes one of them and the others stay in the cache.
It runs here, with the detector of local searches: a hub never sees a query.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from satchel.errors import InvalidInput, NotFound, Refused, SettingsError
from satchel.i18n import say
from satchel.skill.document import SkillHeader
from satchel.skill.model import Skill, SkillOrigin
from satchel.store.archive.rules import shown
from satchel.store.download import check_address, is_address
from satchel.store.hub_client.client import Hub, HubClient
from satchel.store.hub_client.ed25519 import key_text, public_key
from satchel.store.hub_client.format import content_path, damaged, digest_hex
from satchel.store.hub_client.release_name import (
    HubName,
    is_publisher,
    parse_name,
    parse_range,
    split_request,
)
from satchel.store.hub_client.source import HubSource, split_url
from satchel.store.sources.parse import recorded_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from satchel.detect.base import Detection
    from satchel.library.lockfile import LockedSource
    from satchel.settings import Settings

MAX_LISTED_SKILLS = 150_000
_MAX_DESCRIPTION_CHARS = 2_048


class Hubs:
    """The hubs that skills may be installed from."""

    def __init__(self, hubs: Sequence[Hub], state_folder: str = "", cache_folder: str = "") -> None:
        self.all = tuple(hubs)
        self._folders = (state_folder, cache_folder)
        self._clients: dict[Hub, HubClient] = {}

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The hubs of the settings.

        Raises:
            SettingsError: a hub has no usable address or key.
        """
        hubs = [
            parse_hub(name, row, settings.project, own=name not in settings.project_hubs)
            for name, row in settings.hubs.items()
        ]
        own = {hub.url for hub in hubs if hub.own}
        kept = [hub for hub in hubs if hub.own or hub.url not in own]
        return cls(kept, settings.paths.state, settings.paths.cache)

    def client(self, hub: Hub) -> HubClient:
        """The client of a hub; one for all skills, so that its state is read once."""
        if hub not in self._clients:
            self._clients[hub] = HubClient(hub, *self._folders)
        return self._clients[hub]

    def serving(self, publisher: str) -> list[Hub]:
        """The hubs to ask for a publisher's skills."""
        listed = [hub for hub in self.all if publisher in hub.publishers]
        # A project neither adds a hub for a publisher that the user assigned, nor excludes others.
        if own := [hub for hub in listed if hub.own]:
            return own
        return listed + [hub for hub in self.all if not hub.publishers and (hub.own or not listed)]

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
    ) -> tuple[Detection, int]:
        """Find skills in all hubs; returns the answer and the number of skills searched.

        Args:
            goal: The request.
            limit: Maximum number of matches.
            patience: Seconds to wait for the index of new lists.
            on_wait: Called while it waits, with how many are indexed, and of how many.

        Raises:
            NotFound: no hub is configured.
            SatchelError: a hub cannot be read, or a check fails.
        """
        from satchel.detect.hybrid import HybridDetector
        from satchel.detect.pipeline import SelectionPipeline
        from satchel.detect.tokenizer import head_row

        if not self.all:
            raise _no_hub()
        clients = [self.client(hub) for hub in self.all]
        skills = tuple(skill for client in clients for skill in listed_skills(client))
        # Each set of hubs has its own index: the rarity of a word depends on all skills.
        caches = [client.cache for client in clients]
        name = digest_hex("\n".join(caches).encode())[:16]
        folder = os.path.join(os.path.dirname(caches[0]), f"index-{name}") if caches[0] else None
        hybrid = HybridDetector(
            folder, limit=limit or 10, patience=patience, on_wait=on_wait, rows=head_row
        )
        return SelectionPipeline(hybrid).look(goal, skills, limit), len(skills)

    def requested(self, text: str, *, base: str) -> HubSource | None:
        """The source that the user requested as `publisher/skill@range`; None for other texts.

        Args:
            text: The request.
            base: The folder of the lockfile.

        Raises:
            NotFound: no hub is configured for the publisher.
            InvalidInput: the range is not valid.
        """
        request = split_request(text)
        if request is None or (not self.all and "@" not in text):
            return None
        name, wanted = request
        parse_range(wanted)
        hubs = self.serving(name.publisher)
        if not hubs:
            raise _no_hub()
        clients = [(self.client(hub), _recorded(hub, base)) for hub in hubs]
        return HubSource(clients, name, wanted, base=base)

    def locked(self, place: LockedSource, *, base: str) -> HubSource:
        """The source of a lockfile entry.

        Raises:
            NotFound: its hub is not configured.
        """
        address, publisher, skill = split_url(place.url)
        for hub in self.all:
            if hub.name == place.hub:
                pair = (self.client(hub), _recorded(hub, base))
                return HubSource([pair], HubName(publisher, skill), place.ref, base=base)
        if not is_address(address):
            address = os.path.normpath(os.path.join(base, address))
        raise NotFound(
            say("The lockfile names the hub `{url}`, which is not configured", url=shown(address)),
            say("Run `{command}`", command=f"satchel hub add {shown(address)}"),
        )


def _no_hub() -> NotFound:
    command = say("Run `{command}`", command="satchel hub add URL")
    return NotFound(say("No hub is configured"), command)


def listed_skills(client: HubClient) -> list[Skill]:
    """The newest release of every skill of a hub, as a skill without files.

    Raises:
        Changed: the list is missing or damaged.
        Refused: the hub has more skills than a list is meant for.
    """
    state, hub = client.state(), client.hub
    if state.skills > MAX_LISTED_SKILLS:
        raise Refused(
            say("The hub `{name}` has {count} skills, too many to search here",
                name=hub.name, count=state.skills),
            say("Search on its pages: {url}", url=hub.url),
        )  # fmt: skip
    origin = SkillOrigin(f"hub:{hub.name}", "server", hub.name, remote=f"hub {hub.name}")
    skills: list[Skill] = []
    try:
        for row in client.rows("search", state.search):
            segment = str(row["segment"])
            for one in client.rows("search", segment):
                name, about = str(one["name"]), str(one["description"])[:_MAX_DESCRIPTION_CHARS]
                if parse_name(name) is None or len(skills) >= MAX_LISTED_SKILLS:
                    raise damaged(content_path("search", segment))
                stamp = crc32(about.encode())
                head = SkillHeader(name, about, name, "SKILL.md", stamp, 0, len(about))
                skills.append(Skill(head, origin))
    except KeyError as exc:
        raise damaged(content_path("search", state.search)) from exc
    client.prune_cache()
    return skills


def parse_hub(name: str, row: Mapping[str, Any], project: str, *, own: bool = True) -> Hub:
    """A hub from its table in the settings.

    Args:
        name: The hub's name.
        row: `url`, `key` and `publishers`.
        project: The folder that a relative path starts from.
        own: Whether it is in the user's settings.

    Raises:
        SettingsError: a value cannot be used.
    """
    url, key = (str(row.get(one, "")) for one in ("url", "key"))
    try:
        address, key = hub_address(url, project), key_text(public_key(key))
        return Hub(name, address, key, _publishers(row.get("publishers", [])), own)
    except InvalidInput as exc:
        where = f"hubs.{shown(name)}"
        raise SettingsError(
            say("`{path}` cannot be used: {reason}", path=where, reason=exc.message),
            exc.hint or say("See the settings reference"),
        ) from exc


def _publishers(value: object) -> tuple[str, ...]:
    names = [str(one) for one in cast("list[object]", value)] if isinstance(value, list) else [""]
    if not all(map(is_publisher, names)):
        raise InvalidInput(say("`{name}` is not valid", name="publishers"))
    return tuple(names)


def hub_address(text: str, folder: str) -> str:
    """The address of a hub, or its absolute folder; a relative path starts from `folder`.

    Raises:
        InvalidInput: it is neither.
    """
    if not text or "://" in text:
        return check_address(text)
    return os.path.normpath(os.path.join(folder, os.path.expanduser(text)))


def _recorded(hub: Hub, base: str) -> str:
    """The address of a hub for the lockfile."""
    return hub.url if is_address(hub.url) else recorded_path(hub.url, base)
