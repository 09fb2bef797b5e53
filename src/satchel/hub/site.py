"""The static pages of a hub: search, publishers, skills, and indexes for other clients.

A page has no inline script or style, and its policy forbids them; all links are relative, so that a
hub works below any path. Text of a skill is escaped, its SKILL.md is rendered by
`presentation/skill_html.py`. The pages are a service to people: no client believes them.

Discovery indexes (agent-skills discovery 0.2) are for other clients. There is one per skill, since
some clients download every entry of an index.

The page of a publisher has no skills itself. Its script reads them from the search list, in which
they are together, so that a release rewrites no page but that of its skill and the first one.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.detect.hybrid import COMMON_NAME_WORDS
from satchel.detect.stop_words import DENSE_STOPWORDS, NEVER_NAMES, STOP_SIGNS, STOPWORDS
from satchel.i18n import language, say
from satchel.presentation.files import FileContent
from satchel.presentation.skill_html import render_file, show_invisible
from satchel.skill.file_tree import main_file, read_whole
from satchel.store.archive import open_packed
from satchel.store.hub_client.format import TABLES, UNREADABLE, content_path
from satchel.store.signing import key_fingerprint
from satchel.store.sources.discovery import INDEX_PATH, SCHEMA
from satchel.tools.framing import size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.hub.ledger import HubLedger
    from satchel.skill.file_tree import Tree
    from satchel.store.hub_client.format import HubRelease, HubState, Row

_PACKAGE = Path(__file__).parents[1]
_ASSETS = {
    "hub.css": ("ui/static/satchel.css", "ui/static/skills.css", "hub/static/hub.css"),
    "hub.js": ("hub/static/ranker.js", "hub/static/hub.js"),
    "mark.svg": ("ui/static/mark.svg",),
}
_MAX_LISTED_COUNT = 200
"""Skills that the first page lists without a search."""
_MAX_FILES_COUNT = 400
_MAX_TEXT_BYTES = 1 << 20
_TONES = {"no findings": "good", "review": "warn", "blocked": "bad"}


def site_files(ledger: HubLedger, state: HubState) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each file to write, for the skills that were touched."""
    parts = ledger.storage.listed(state.search)
    rows: list[Row] = []
    while len(rows) <= _MAX_LISTED_COUNT and (part := next(parts, None)) is not None:
        rows += part
    is_whole = next(parts, None) is None
    rows.sort(key=lambda row: str(row["name"]))
    publishers = sorted({_publisher(row["name"]) for row in rows})
    for name, asset_parts in _ASSETS.items():
        data = b"".join((_PACKAGE / asset_part).read_bytes() for asset_part in asset_parts)
        yield f"assets/{name}", (_search_words() if name == "hub.js" else b"") + data
    values = {
        "rows": rows[:_MAX_LISTED_COUNT],
        "total": len(rows) if is_whole else state.skills,
        "publishers": publishers[:_MAX_LISTED_COUNT],
    }
    yield "index.html", _render_page("index.html", state, 0, **values)
    names = sorted(name for name in ledger.touched if "/" in name)
    for name in names:
        yield f"{name}/index.html", _render_skill_page(ledger, state, name)
        yield f"{name}/{INDEX_PATH}", _write_discovery_index(ledger.newest(name))
    for publisher in sorted(set(map(_publisher, names))):
        bits = TABLES["search"].bits(publisher)[: TABLES["search"].publisher_bits]
        page = _render_page("publisher.html", state, 1, publisher=publisher, bits=bits)
        yield f"{publisher}/index.html", page


def _publisher(name: object) -> str:
    return str(name).partition("/")[0]


def _search_words() -> bytes:
    """Return the script with the stop words of the ranking."""
    words = {
        "stop": sorted(STOPWORDS),
        "linking": sorted(COMMON_NAME_WORDS),
        "never": sorted(NEVER_NAMES),
        "dense": sorted(DENSE_STOPWORDS),
        "signs": sorted(STOP_SIGNS),
    }
    return f"const WORDS = {json.dumps(words)};\n".encode()


def _render_skill_page(ledger: HubLedger, state: HubState, name: str) -> bytes:
    releases = ledger.sorted_releases(name)[::-1]
    newest = ledger.newest(name)
    release = newest or releases[0]
    reason = ledger.revoked.get(release.tree, "")
    files: list[tuple[str, str]] = []
    instructions: Any = None
    if not reason and release.scan != UNREADABLE:
        with open_packed(ledger.storage.content("blobs", release.blob, release.size)) as tree:
            files = [(show_invisible(file.path)[0], size_of(file.size)) for file in tree.files]
            instructions = _render_instructions(tree)
    return _render_page(
        "skill.html",
        state,
        2,
        name=name,
        release=release,
        offered=newest is not None,
        reason=reason,
        tone=_TONES.get(release.scan, "warn"),
        versions=[(version, ledger.revoked.get(version.tree, "")) for version in releases],
        files=files[:_MAX_FILES_COUNT],
        hidden_files=max(0, len(files) - _MAX_FILES_COUNT),
        instructions=instructions,
        signer=key_fingerprint(release.key),
        blob=content_path("blobs", release.blob),
        size=size_of(release.size),
    )


def _render_instructions(tree: Tree) -> Any:
    """Render the SKILL.md or skill.yaml of a skill as inert HTML; None when it cannot be shown."""
    file = main_file(entry.path for entry in tree.files)
    if not file or next(entry.size for entry in tree.files if entry.path == file) > _MAX_TEXT_BYTES:
        return None
    data = read_whole(tree, file, _MAX_TEXT_BYTES)
    text = data.decode("utf-8", "replace")
    # A link to another file of the skill has no page: the archive has the file.
    return render_file(FileContent(file, file, "text", text, data), lambda _: "#files")


def _render_page(template: str, state: HubState, depth: int, **values: Any) -> bytes:
    page = _load_templates().get_template(template)
    text = page.render(hub=state.hub, state=state, up="../" * depth, language=language(), **values)
    return text.encode("utf-8", "replace")


def _visible_text(text: object) -> str:
    return show_invisible(str(text))[0]


@cache
def _load_templates() -> Any:
    jinja: Any = require("jinja2", "hub")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(_PACKAGE / "hub/templates"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["say"] = say
    environment.filters |= {"said": say, "visible": _visible_text}
    return environment


def _write_discovery_index(release: HubRelease | None) -> bytes:
    """Write the index of one skill; empty without a release to install."""
    skill = release and {
        "name": release.name.partition("/")[2],
        "type": "archive",
        "description": release.description,
        "url": "../" * (2 + INDEX_PATH.count("/")) + content_path("blobs", release.blob),
        "digest": f"sha256:{release.blob}",
    }
    record = {"$schema": SCHEMA, "skills": [skill] if skill else []}
    return (json.dumps(record, ensure_ascii=False, indent=1) + "\n").encode()
