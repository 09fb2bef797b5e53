"""The static pages of a hub: search, publishers, skills, and indexes for other clients.

A page has no inline script or style, and its policy forbids them; all links are relative, so that a
hub works below any path. Text of a skill is escaped, its SKILL.md is rendered by
`presentation/skill_html.py`. The pages are a service to people: no client believes them.

Discovery indexes (agent-skills discovery 0.2) are for other clients. There is one per skill and one
per publisher, since some clients download every entry of an index.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import MissingExtra
from satchel.hub.commits import UNREADABLE
from satchel.i18n import language, say
from satchel.presentation.files import FileContent
from satchel.presentation.skill_html import render, visible
from satchel.skill.file_tree import main_file, read_whole
from satchel.store.hub_client.ed25519 import key_fingerprint
from satchel.store.hub_client.format import content_path
from satchel.store.hub_client.release_name import parse_version
from satchel.tools.framing import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jinja2 import Environment

    from satchel.skill.file_tree import Tree
    from satchel.store.hub_client.format import HubRelease, HubState, Row

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
INDEX = ".well-known/agent-skills/index.json"
_MAX_DESCRIPTION_CHARS = 1024
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_UI_STATIC = os.path.join(os.path.dirname(_FOLDER), "ui", "static")
_STYLES = (
    os.path.join(_UI_STATIC, "satchel.css"),
    os.path.join(_UI_STATIC, "skills.css"),
    os.path.join(_FOLDER, "static", "hub.css"),
)
_MAX_LISTED_COUNT = 200
"""Skills that the first page lists without a search."""
_MAX_FILES_COUNT = 400
_MAX_TEXT_BYTES = 1 << 20
_TONES = {"no findings": "good", "review": "warn", "blocked": "bad"}


class SiteContent(NamedTuple):
    """What the pages show."""

    state: HubState
    listing: Sequence[Row]
    """All rows of the search list, sorted by name."""
    touched: Mapping[str, Sequence[HubRelease]]
    """Name -> all its releases, newest first, for each skill whose page is written."""
    revoked: Mapping[str, str]
    """Digest of a revoked tree -> reason."""
    open_tree: Callable[[HubRelease], Tree]
    """Returns the files of a release."""
    releases_of: Callable[[str], Sequence[HubRelease]]
    """Returns all releases of a name, newest first."""


def site_files(content: SiteContent) -> Iterator[tuple[str, bytes]]:
    """The path and the content of each file to write.

    Raises:
        MissingExtra: the packages for pages are not installed.
    """
    by_publisher: dict[str, list[Row]] = {}
    for row in content.listing:
        by_publisher.setdefault(str(row["name"]).partition("/")[0], []).append(row)
    yield from _assets()
    yield (
        "index.html",
        _page(
            "index.html",
            content.state,
            0,
            rows=content.listing[:_MAX_LISTED_COUNT],
            total=len(content.listing),
            publishers=sorted(by_publisher)[:_MAX_LISTED_COUNT],
        ),
    )
    offered: dict[str, HubRelease | None] = {}
    for name, releases in content.touched.items():
        offered[name] = newest_offered(releases, content.revoked)
        yield f"{name}/index.html", _skill_page(content, name, releases, offered[name])
        one = offered[name]
        yield f"{name}/{INDEX}", discovery_index([one] if one else (), 2)
    for publisher in sorted({name.partition("/")[0] for name in content.touched}):
        rows = by_publisher.get(publisher, [])
        yield (
            f"{publisher}/index.html",
            _page("publisher.html", content.state, 1, publisher=publisher, rows=rows),
        )
        found = (
            offered[name]
            if name in offered
            else newest_offered(content.releases_of(name), content.revoked)
            for name in (str(row["name"]) for row in rows)
        )
        yield f"{publisher}/{INDEX}", discovery_index([one for one in found if one], 1)


def newest_offered(releases: Iterable[HubRelease], revoked: Mapping[str, str]) -> HubRelease | None:
    """The newest release that is neither yanked nor revoked."""
    free = (
        one
        for one in releases
        if not one.yanked and one.tree not in revoked and one.scan != UNREADABLE
    )
    return max(free, key=lambda one: parse_version(one.version) or (0, 0, 0), default=None)


def _skill_page(
    content: SiteContent, name: str, releases: Sequence[HubRelease], newest: HubRelease | None
) -> bytes:
    shown = newest or releases[0]
    reason = content.revoked.get(shown.tree, "")
    files: list[tuple[str, str]] = []
    instructions: Any = None
    if not reason and shown.scan != UNREADABLE:
        tree = content.open_tree(shown)
        files = [(visible(one.path)[0], size_of(one.size)) for one in tree.files]
        instructions = _instructions(tree)
    return _page(
        "skill.html",
        content.state,
        2,
        name=name,
        release=shown,
        offered=newest is not None,
        reason=reason,
        tone=_TONES.get(shown.scan, "warn"),
        versions=[(one, content.revoked.get(one.tree, "")) for one in releases],
        files=files[:_MAX_FILES_COUNT],
        hidden_files=max(0, len(files) - _MAX_FILES_COUNT),
        instructions=instructions,
        signer=key_fingerprint(shown.key),
        blob=content_path("blobs", shown.blob),
        size=size_of(shown.size),
    )


def _instructions(tree: Tree) -> Any:
    """The SKILL.md or skill.yaml of a skill as inert HTML; None when it cannot be shown."""
    file = main_file(one.path for one in tree.files)
    if not file or next(one.size for one in tree.files if one.path == file) > _MAX_TEXT_BYTES:
        return None
    data = read_whole(tree, file, _MAX_TEXT_BYTES)
    text = data.decode("utf-8", "replace")
    # A link to another file of the skill has no page: the archive has the file.
    return render(FileContent(file, file, "text", text, data), lambda _: "#files")


def _assets() -> Iterator[tuple[str, bytes]]:
    parts: list[bytes] = []
    for path in _STYLES:
        with open(path, "rb") as stream:
            parts.append(stream.read())
    yield "assets/hub.css", b"".join(parts)
    for folder, name in ((os.path.join(_FOLDER, "static"), "hub.js"), (_UI_STATIC, "mark.svg")):
        with open(os.path.join(folder, name), "rb") as stream:
            yield f"assets/{name}", stream.read()


def _page(template: str, state: HubState, depth: int, **values: Any) -> bytes:
    found = _templates().get_template(template)
    text = found.render(hub=state.hub, state=state, up="../" * depth, language=language(), **values)
    return text.encode("utf-8", "replace")


@cache
def _templates() -> Environment:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as exc:
        raise MissingExtra(
            say("`{name}` is not installed", name="jinja2"),
            say("Run `{command}`", command="pip install 'satchel[hub]'"),
        ) from exc
    made: Any = Environment(
        loader=FileSystemLoader(os.path.join(_FOLDER, "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["say"] = say
    made.filters["said"] = say
    made.filters["visible"] = _visible_text
    return made


def _visible_text(text: object) -> str:
    return visible(str(text))[0]


# --- indexes for other clients -------------------------------------------------------------


def discovery_index(releases: Iterable[HubRelease], depth: int) -> bytes:
    """Write an index.

    Args:
        releases: The release of each skill to offer.
        depth: Number of folders between the hub's root and the folder that the index describes.
    """
    up = "../" * (depth + INDEX.count("/"))
    skills = [
        {
            "name": release.name.partition("/")[2],
            "type": "archive",
            "description": release.description[:_MAX_DESCRIPTION_CHARS],
            "url": up + content_path("blobs", release.blob),
            "digest": f"sha256:{release.blob}",
        }
        for release in releases
    ]
    text = json.dumps({"$schema": SCHEMA, "skills": skills}, ensure_ascii=False, indent=1)
    return (text + "\n").encode()
