"""Parses the text of a source that the user typed, and the sources of a lockfile.

    acme/pdf-forms, acme/pdf-forms@^1.2
                                  a skill of a hub            kind `hub`
    owner/repo[/path][@ref]       a repository of GitHub, or of the host that `SATCHEL_GIT_HOST`
                                  names                       kind `git`
    ./skills                      a folder                    kind `folder`
    skills.zip, skills.tar.gz     an archive                  kind `archive`
    https://host/o/r[.git]        a repository                kind `git`
    ssh://…, git@host:o/r.git     the same
    git+PATH, PATH.git, PATH#ref  a repository on this machine
    …#ref  …#ref:sub/path  …#:sub/path
                                  a branch, tag or commit, and a folder within the source
    https://host/o/r/tree/REF/sub/path
                                  as a browser shows it; REF is one part, so write a branch with a
                                  slash as `#feature/x:sub/path`
    https://host[#name], https://host/…/.well-known/agent-skills/index.json[#name]
                                  a discovery index           kind `discovery`

A path that exists is preferred to a hub's skill of that name, and that to a repository. A local
path near the lockfile is recorded relative to it, so that it works in another checkout.
Older lockfiles have `~` for the home folder.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from satchel.errors import InvalidInput, NotFound
from satchel.i18n import say
from satchel.skill.file_tree import main_file
from satchel.store.archive.rules import check_path, refuse, shown
from satchel.store.sources.addresses import parse_address, redact_address
from satchel.store.sources.git import GitSource
from satchel.store.sources.local import ARCHIVE_ENDINGS, ArchiveSource, FolderSource, PathSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.errors import SatchelError
    from satchel.library.lockfile import LockedSource
    from satchel.skill.file_tree import Tree
    from satchel.store.sources.base import HubFinder, Source

_MAX_PARENTS = 3
"""Paths with more `..` are recorded as absolute ones."""
_REMOTE_SCHEME = re.compile(r"(?:https?|ssh|git|file)://", re.IGNORECASE)
_SCP_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?!//)[^\s:]")
_GIT_HOST_VARIABLE = "SATCHEL_GIT_HOST"
_GIT_HOST = "https://github.com"
_REPOSITORY = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.{1,2}(?:[/@]|\Z))[A-Za-z0-9._-]+)"
    r"(?P<path>(?:/[^/@#]+)*)/?(?:@(?P<ref>[^@^~*<>=,]+))?\Z"
)
_HUB_SKILL = re.compile(r"[a-z0-9-]+/[a-z0-9-]+(?:@\S*)?\Z")
_DISCOVERY_INDEX = re.compile(
    r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?"
    r"(?:/?|/(?:[^#?@]+/)?\.well-known/(?:agent-)?skills(?:/|/index\.json)?)\Z",
    re.IGNORECASE,
)
"""A host alone, or an index."""
_OTHER_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:/|:)")
_BROWSER_URL = re.compile(
    r"(?P<url>https?://[^/]+/[^/#?]+/[^#?]+?)(?:/-)?/(?P<kind>tree|blob|src/branch|src/tag|src/commit)"
    r"/(?P<ref>[^/#?]+)(?:/(?P<path>[^#?]*))?/?(?:[#?].*)?\Z"
)


class _RequestedSource(NamedTuple):
    """The parts of `location#ref:path`."""

    location: str
    ref: str = ""
    path: str = ""


def source_of(text: str, *, base: str, hubs: Callable[[], HubFinder] | None = None) -> Source:
    """Parse a source that the user typed. Relative paths start from the current folder.

    Args:
        text: One of the forms above.
        base: The folder of the lockfile.
        hubs: Returns the configured hubs; None uses none.

    Raises:
        Unsafe: it is an address that is never used, such as `ext::…` or one that begins with `-`.
        NotFound: there is nothing of that name on this machine.
        InvalidInput: it is not supported.
    """
    if not text.strip() or text.startswith("-") or not text.isprintable():
        raise refuse("git-address", redact_address(text) or "-")
    address = text.removeprefix("git+")
    if _REMOTE_SCHEME.match(address) or _SCP_ADDRESS.match(address):
        return _remote_source(address, base)
    if address == text and (source := _named_source(text, base, hubs)) is not None:
        return source
    requested = _split_revision(address)
    if os.path.lexists(_absolute_path(requested.location)):
        return _local_source(requested, base, is_git=text.startswith("git+"))
    raise _unknown_source_error(text)


def _named_source(text: str, base: str, hubs: Callable[[], HubFinder] | None) -> Source | None:
    """The source of a path that exists, a hub's skill or a repository; None for other texts."""
    repository = None if ARCHIVE_ENDINGS.search(text) else _REPOSITORY.match(text)
    if os.path.lexists(_absolute_path(text)):
        source = _local_source(_RequestedSource(text), base)
        if isinstance(source, PathSource) and repository is not None:
            note = say("`{path}` is here, so no hub and no git host was asked", path=shown(text))
            source.notes = (note,)
        return source
    hub_finder = hubs() if hubs is not None and _HUB_SKILL.match(text) else None
    if repository is not None and (hub_finder is None or not hub_finder.serves(text)):
        return _repository_source(repository)
    return hub_finder.requested(text, base=base) if hub_finder is not None else None


def _repository_source(match: re.Match[str]) -> GitSource:
    """The source of `owner/repo[/path][@ref]`."""
    host = os.environ.get(_GIT_HOST_VARIABLE) or _GIT_HOST
    url = f"{host.rstrip('/')}/{match['name']}"
    source = GitSource(url, "", _check_subpath(match["path"]), match["ref"] or "")
    source.notes = (say("Read from `{url}`", url=shown(redact_address(url))),)
    return source


def _unknown_source_error(text: str) -> SatchelError:
    """The error for a text that is neither an address nor a path here."""
    if _OTHER_SCHEME.match(text) and not re.match(r"[A-Za-z]:[\\/]", text):
        return refuse("git-address", redact_address(text))
    return NotFound(
        say("There is no `{path}`", path=shown(redact_address(text))),
        say("Give a folder, an archive, a git address, `OWNER/REPO`, `PUBLISHER/SKILL` or "
            "`mcp:SERVER/SKILL`; without any, `satchel install` follows the lockfile"),
    )  # fmt: skip


def source_from(
    place: LockedSource,
    *,
    base: str,
    hubs: Callable[[], HubFinder] | None = None,
    find_kept: Callable[[str], Tree | None] | None = None,
) -> Source:
    """The source of a lockfile entry.

    Args:
        place: The recorded source.
        base: The folder of the lockfile.
        hubs: As in `source_of`.
        find_kept: Returns the files with a digest if they are here; a hub sends only others.

    Raises:
        InvalidInput: its kind cannot be fetched, such as `new`.
        NotFound: its path does not exist here.
    """
    url = place.url
    if place.kind == "git":
        if _REMOTE_SCHEME.match(url) or _SCP_ADDRESS.match(url):
            return GitSource(url, url, place.path, place.ref)
        absolute_path = _resolve_recorded(url, base)
        return GitSource(absolute_path, url, place.path, place.ref)
    if place.kind == "folder":
        return FolderSource(_resolve_recorded(url, base), url, place.path)
    if place.kind == "archive":
        return ArchiveSource(_resolve_recorded(url, base), url, place.path)
    if place.kind == "hub" and hubs is not None:
        return hubs().locked(place, base=base, find_kept=find_kept)
    if place.kind == "discovery":
        return _discovery_source(*url.partition("#")[::2])
    raise InvalidInput(
        say("A skill from `{kind}` cannot be fetched again", kind=shown(place.kind)),
        say("Give a folder, a `.zip`, a `.tar.gz` or the address of a git repository"),
    )


def _discovery_source(url: str, name: str) -> Source:
    from satchel.store.sources.discovery import DiscoverySource

    return DiscoverySource(url, name)


def _remote_source(address: str, base: str) -> Source:
    """Return the source of an address: a discovery index or a repository."""
    if _DISCOVERY_INDEX.match(address.partition("#")[0]):
        requested = _split_revision(address)
        return _discovery_source(requested.location, requested.ref or requested.path)
    if browser_url := _BROWSER_URL.match(address):
        path = unquote(browser_url["path"] or "").strip("/")
        if browser_url["kind"] == "blob":
            path = path.rpartition("/")[0]
        url = browser_url["url"]
        parse_address(url, address)
        return GitSource(url, "", _check_subpath(path), unquote(browser_url["ref"]))
    is_file_url = address.lower().startswith("file://")
    if not is_file_url:
        parse_address(address.partition("#")[0], address)
    location, ref, path = _split_revision(address)
    if is_file_url:
        absolute_path = unquote(urlsplit(location).path)
        return GitSource(absolute_path, recorded_path(absolute_path, base), path, ref)
    if ARCHIVE_ENDINGS.search(urlsplit(location).path) and "@" not in location.partition("://")[0]:
        raise InvalidInput(
            say("`{url}` is an archive on another machine", url=shown(redact_address(location))),
            say("Give a folder, a `.zip`, a `.tar.gz` or the address of a git repository"),
        )
    return GitSource(location, "", path, ref)


def _local_source(requested: _RequestedSource, base: str, *, is_git: bool = False) -> Source:
    """Return the source of a path that exists: a folder, an archive or a repository."""
    location, ref, path = requested
    absolute_path = _absolute_path(location)
    url = recorded_path(absolute_path, base)
    if not os.path.isdir(absolute_path):
        if ref or is_git:
            raise InvalidInput(
                say("`{path}` has no branches or tags", path=shown(location)),
                say("Give a branch, a tag or a whole commit id"),
            )
        return ArchiveSource(absolute_path, url, path)
    if is_git or ref or _is_bare_repository(absolute_path):
        return GitSource(absolute_path, url, path, ref)
    return FolderSource(absolute_path, url, path)


def _is_bare_repository(folder: str) -> bool:
    has_git_files = all(
        os.path.exists(os.path.join(folder, name)) for name in ("HEAD", "objects", "refs")
    )
    return has_git_files and not main_file(os.listdir(folder))


def _split_revision(text: str) -> _RequestedSource:
    """Split `address#ref:path`."""
    location, _, revision = text.partition("#")
    ref, _, path = revision.partition(":")
    return _RequestedSource(location, ref, _check_subpath(path))


def _check_subpath(path: str) -> str:
    """Return a path within a source without slashes around it; refuse one that leads elsewhere."""
    path = path.strip("/")
    if path:
        check_path(path)
    return path


def _absolute_path(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _resolve_recorded(url: str, base: str) -> str:
    absolute_path = os.path.normpath(os.path.join(base, os.path.expanduser(url)))
    if not os.path.lexists(absolute_path):
        raise NotFound(
            say(
                "There is no `{path}`, which the lockfile names as the source",
                path=shown(absolute_path),
            ),
            say("Put it there, or install the skill from another source"),
        )
    return absolute_path


def recorded_path(path: str, base: str) -> str:
    """A local path as recorded in the lockfile of the folder `base`: relative when it is near."""
    absolute_path = os.path.abspath(path)
    with suppress(ValueError):  # another drive
        relative_path = os.path.relpath(absolute_path, base).replace(os.sep, "/")
        if relative_path.split("/").count("..") <= _MAX_PARENTS:
            looks_like_address = (
                relative_path[0] == "~"
                or _REMOTE_SCHEME.match(relative_path)
                or _SCP_ADDRESS.match(relative_path)
            )
            return f"./{relative_path}" if looks_like_address else relative_path
    return absolute_path.replace(os.sep, "/")
