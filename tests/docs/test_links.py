"""Links of the pages outside docs/ and paths on the page for maintainers lead somewhere.

Zensical checks the links inside docs/.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = sorted(name for name in os.listdir(ROOT) if name.endswith(".md"))
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s#]+)(?:#[^)\s]*)?\)|src=\"(?P<image>[^\"]+)\"")


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = file.read()
    targets = [match["target"] or match["image"] for match in LINK.finditer(text)]
    local = [target for target in targets if "://" not in target and ":" not in target]
    assert [target for target in local if not os.path.exists(os.path.join(ROOT, target))] == []


def _listed(nav: object) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    inner = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else []
    return set().union(*(_listed(entry) for entry in inner))


def test_every_page_is_in_the_navigation():
    with open(os.path.join(ROOT, "zensical.toml"), "rb") as file:
        listed = _listed(tomllib.load(file)["project"]["nav"])
    docs = os.path.join(ROOT, "docs")
    found = glob.glob("**/*.md", root_dir=docs, recursive=True)
    pages = {entry for entry in listed if "://" not in entry}
    assert {path.replace(os.sep, "/") for path in found} == pages


@pytest.mark.parametrize(
    ("archive", "folder"), [("example-project", "guide"), ("weekly-report", "weekly_report")]
)
def test_the_archives_for_readers_hold_the_examples(archive, folder, tmp_path):
    shutil.unpack_archive(os.path.join(ROOT, "docs/assets", f"{archive}.zip"), tmp_path)
    wanted = _files(os.path.join(ROOT, "examples", folder))
    assert _files(str(tmp_path / archive)) == wanted


def _files(folder: str) -> dict[str, str]:
    names = glob.glob("**/*.*", root_dir=folder, recursive=True)
    kept = [name for name in names if not name.startswith("reports") and "__pycache__" not in name]
    return {name: Path(folder, name).read_text(encoding="utf-8") for name in kept}


def test_every_path_exists():
    with open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8") as file:
        words = re.findall(r"`([\w./-]+)`", file.read())
    paths = {word for word in words if "/" in word or word.endswith((".py", ".toml", ".json"))}
    assert len(paths) > 50
    homes = (ROOT, os.path.join(ROOT, "src", "satchel"))
    missing = {
        path
        for path in paths
        if not any(os.path.exists(os.path.join(home, path)) for home in homes)
    }
    assert missing == set()


def test_every_layer_is_drawn():
    with open(os.path.join(ROOT, "scripts", "drawings.toml"), encoding="utf-8") as file:
        drawing = file.read().partition("[layers]")[2].partition("arrows")[0]
    with os.scandir(os.path.join(ROOT, "src", "satchel")) as entries:
        folders = {one.name for one in entries if os.path.exists(os.path.join(one, "__init__.py"))}
    assert {name for name in folders if f'["{name}"' not in drawing} == set()


DECISIONS = sorted(Path(ROOT, "docs", "decisions").glob("*.md"))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_at_most_350_words_beside_its_tables(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert sum(len(line.split()) for line in lines if not line.startswith("|")) <= 350
