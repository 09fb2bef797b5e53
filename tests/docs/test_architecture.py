"""Every path on the page for maintainers exists."""

from __future__ import annotations

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATH = re.compile(r"`([\w./-]+)`")


def test_every_path_exists():
    with open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8") as file:
        words = PATH.findall(file.read())
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
