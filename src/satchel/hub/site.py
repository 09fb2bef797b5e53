"""The static pages of a hub: search, publishers, skills, and indexes for other clients.

A page has no inline script or style, and its policy forbids them; all links are relative, so that a
hub works below any path. Text of a skill is escaped, its SKILL.md is rendered by
`presentation/skill_html.py`. The pages are a service to people: no client believes them.

Discovery indexes (agent-skills discovery 0.2) are for other clients. There is one per skill and one
per publisher, since some clients download every entry of an index.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.i18n import language, say
from satchel.presentation.files import FileContent
from satchel.presentation.skill_html import render, visible
from satchel.skill.file_tree import main_file, read_whole
from satchel.store.archive import open_packed
from satchel.store.hub_client.format import UNREADABLE, content_path
from satchel.store.signing import key_fingerprint
from satchel.store.sources.discovery import INDEX_PATH, SCHEMA
from satchel.tools.framing import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.hub.ledger import HubLedger
    from satchel.skill.file_tree import Tree
    from satchel.store.hub_client.format import HubState, Row

_PACKAGE = Path(__file__).parents[1]
_ASSETS = {
    "hub.css": ("ui/static/satchel.css", "ui/static/skills.css", "hub/static/hub.css"),
    "hub.js": ("hub/static/hub.js",),
    "mark.svg": ("ui/static/mark.svg",),
}
_MAX_LISTED_COUNT = 200
"""Skills that the first page lists without a search."""
_MAX_FILES_COUNT = 400
_MAX_TEXT_BYTES = 1 << 20
_TONES = {"no findings": "good", "review": "warn", "blocked": "bad"}


def site_files(ledger: HubLedger, state: HubState) -> Iterator[tuple[str, bytes]]:
    """The path and the content of each file to write, for the skills that were touched."""
    segments = ledger.storage.segments(state.search)
    listing = sorted((row for rows in segments for row in rows), key=lambda row: str(row["name"]))
    by_publisher: dict[str, list[Row]] = {}
    for row in listing:
        by_publisher.setdefault(str(row["name"]).partition("/")[0], []).append(row)
    for name, parts in _ASSETS.items():
        yield f"assets/{name}", b"".join((_PACKAGE / part).read_bytes() for part in parts)
    shown, publishers = listing[:_MAX_LISTED_COUNT], sorted(by_publisher)[:_MAX_LISTED_COUNT]
    values = {"rows": shown, "total": len(listing), "publishers": publishers}
    yield "index.html", _page("index.html", state, 0, **values)
    names = sorted(name for name in ledger.touched if "/" in name)
    for name in names:
        yield f"{name}/index.html", _skill_page(ledger, state, name)
        yield f"{name}/{INDEX_PATH}", _discovery_index(ledger, [name], 2)
    for publisher in sorted({name.partition("/")[0] for name in names}):
        rows = by_publisher.get(publisher, [])
        page = _page("publisher.html", state, 1, publisher=publisher, rows=rows)
        yield f"{publisher}/index.html", page
        index = _discovery_index(ledger, [str(row["name"]) for row in rows], 1)
        yield f"{publisher}/{INDEX_PATH}", index


def _skill_page(ledger: HubLedger, state: HubState, name: str) -> bytes:
    releases = ledger.sorted_releases(name)[::-1]
    newest = ledger.newest(name)
    shown = newest or releases[0]
    reason = ledger.revoked.get(shown.tree, "")
    files: list[tuple[str, str]] = []
    instructions: Any = None
    if not reason and shown.scan != UNREADABLE:
        with open_packed(ledger.storage.content("blobs", shown.blob, shown.size)) as tree:
            files = [(visible(one.path)[0], size_of(one.size)) for one in tree.files]
            instructions = _instructions(tree)
    return _page(
        "skill.html",
        state,
        2,
        name=name,
        release=shown,
        offered=newest is not None,
        reason=reason,
        tone=_TONES.get(shown.scan, "warn"),
        versions=[(one, ledger.revoked.get(one.tree, "")) for one in releases],
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


def _page(template: str, state: HubState, depth: int, **values: Any) -> bytes:
    found = _templates().get_template(template)
    text = found.render(hub=state.hub, state=state, up="../" * depth, language=language(), **values)
    return text.encode("utf-8", "replace")


def _visible(text: object) -> str:
    return visible(str(text))[0]


@cache
def _templates() -> Any:
    jinja: Any = require("jinja2", "hub")
    made = jinja.Environment(
        loader=jinja.FileSystemLoader(_PACKAGE / "hub/templates"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["say"] = say
    made.filters |= {"said": say, "visible": _visible}
    return made


def _discovery_index(ledger: HubLedger, names: Iterable[str], depth: int) -> bytes:
    """Write an index of skills, for a folder that is `depth` folders below the hub's root."""
    up = "../" * (depth + INDEX_PATH.count("/"))
    skills = [
        {
            "name": release.name.partition("/")[2],
            "type": "archive",
            "description": release.description,
            "url": up + content_path("blobs", release.blob),
            "digest": f"sha256:{release.blob}",
        }
        for release in map(ledger.newest, names)
        if release is not None
    ]
    text = json.dumps({"$schema": SCHEMA, "skills": skills}, ensure_ascii=False, indent=1)
    return (text + "\n").encode()
