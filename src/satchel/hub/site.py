"""The static pages of a hub: search, publishers, skills, and indexes for other clients.

A page has no inline script or style, and its policy forbids them; all links are relative, so that a
hub works below any path. Text of a skill is escaped, its SKILL.md is rendered by
`presentation/skill_html.py`. The pages are a service to people: no client believes them.

Discovery indexes (agent-skills discovery 0.2) are for other clients. There is one per skill and one
per publisher, since some clients download every entry of an index; that of a publisher whose skills
are on several pages is empty for the same reason.

The skills of a publisher are in one bin of the table `publishers`, or in several that have no other
publisher: each of these is a page, so that a release rewrites one of them.
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
from satchel.store.hub_client.format import TABLES, UNREADABLE, HubTable, content_path
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
    "hub.js": ("hub/static/ranker.js", "hub/static/hub.js"),
    "mark.svg": ("ui/static/mark.svg",),
}
_MAX_LISTED_COUNT = 200
"""Skills that the first page lists without a search: those of the first bin of the search list."""
_MAX_FILES_COUNT = 400
_MAX_TEXT_BYTES = 1 << 20
_TONES = {"no findings": "good", "review": "warn", "blocked": "bad"}


def site_files(ledger: HubLedger, state: HubState) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each file to write, for the skills that were touched."""
    rows = sorted(next(ledger.storage.listed(state.search)), key=lambda row: str(row["name"]))
    publishers = sorted({str(row["name"]).partition("/")[0] for row in rows})
    for name, asset_parts in _ASSETS.items():
        data = b"".join((_PACKAGE / asset_part).read_bytes() for asset_part in asset_parts)
        yield f"assets/{name}", (_search_words() if name == "hub.js" else b"") + data
    bins = list(HubTable(ledger.storage, "search", state.search).bins())
    values = {
        "rows": rows[:_MAX_LISTED_COUNT],
        "total": state.skills if len(bins) > 1 else len(rows),
        "publishers": publishers[:_MAX_LISTED_COUNT],
    }
    yield "index.html", _render_page("index.html", state, 0, **values)
    names = sorted(name for name in ledger.touched if "/" in name)
    for name in names:
        yield f"{name}/index.html", _render_skill_page(ledger, state, name)
        release = ledger.newest(name)
        rows = [release._asdict()] if release else []
        yield f"{name}/{INDEX_PATH}", _write_discovery_index(rows, 2)
    for publisher in sorted({name.partition("/")[0] for name in names}):
        yield from _publisher_files(ledger, state, publisher)


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


def _publisher_files(
    ledger: HubLedger, state: HubState, publisher: str
) -> Iterator[tuple[str, bytes]]:
    """Yield the page and index of a publisher; with several bins, a page for each changed one."""
    storage, old_state = ledger.storage, ledger.state
    kind = TABLES["publishers"]
    within = kind.bits(publisher)[: kind.publisher_bits]
    bins = list(HubTable(storage, "publishers", state.publishers).bins(within))
    old_root = old_state.publishers if old_state else ""
    old_bins = set(HubTable(storage, "publishers", old_root).bins(within))
    touched = [kind.bits(name) for name in ledger.touched if "/" in name]
    values = {"publisher": publisher, "parts": [f"{bits[len(within) :]}.html" for bits, _ in bins]}
    rows: list[Row] = []
    for (bits, digest), file in zip(bins, values["parts"], strict=True):
        # Another build that lost may have replaced the page of a touched name.
        if (bits, digest) in old_bins and not any(name.startswith(bits) for name in touched):
            continue
        rows = [
            row
            for row in storage.rows("publishers", digest)
            if row["name"].startswith(f"{publisher}/") and "version" in row
        ]
        rows.sort(key=lambda row: str(row["name"]))
        if len(bins) > 1:
            yield (
                f"{publisher}/{file}",
                _render_page("publisher.html", state, 1, rows=rows, is_part=True, **values),
            )
    if len(bins) > 1:
        rows = []
    page = _render_page("publisher.html", state, 1, rows=rows, is_part=len(bins) == 1, **values)
    yield f"{publisher}/index.html", page
    yield f"{publisher}/{INDEX_PATH}", _write_discovery_index(rows, 1)


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


def _write_discovery_index(rows: Iterable[Row], depth: int) -> bytes:
    """Write an index of skills, for a folder that is `depth` folders below the hub's root."""
    up = "../" * (depth + INDEX_PATH.count("/"))
    skills = [
        {
            "name": row["name"].partition("/")[2],
            "type": "archive",
            "description": row["description"],
            "url": up + content_path("blobs", row["blob"]),
            "digest": f"sha256:{row['blob']}",
        }
        for row in rows
    ]
    text = json.dumps({"$schema": SCHEMA, "skills": skills}, ensure_ascii=False, indent=1)
    return (text + "\n").encode()
