"""Environments, `node_modules` and plugins with skills, laid out as their installers do."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING

from satchel.testing import make_skill

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BODY = "Do the thing.\n"


def environment(folder: Path) -> Path:
    """A virtual environment; returns its `site-packages`."""
    site = folder / "lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return site


def python_package(
    site: Path,
    name: str,
    *skills: str,
    version: str = "1.0",
    rows: Iterable[str] = (),
    body: str = BODY,
) -> Path:
    """Install a package; returns its folder of skills."""
    folder = site / name / ".agents/skills"
    for skill in skills:
        make_skill(folder, skill, body=body)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    paths = [f"{name}/.agents/skills/{skill}/SKILL.md" for skill in skills]
    lines = [f"{path},sha256=x,1\n" for path in (f"{name}/__init__.py", *paths, *rows)]
    (info / "RECORD").write_text("".join(lines))
    return folder


def remove_package(site: Path, name: str) -> None:
    """Uninstall a package."""
    for path in (site / name, *site.glob(f"{name}-*.dist-info")):
        shutil.rmtree(path)


def node_package(
    modules: Path, name: str, *skills: str, version: str = "1.0.0", inside: str = "skills"
) -> Path:
    """Install a package of Node; returns its folder of skills."""
    folder = modules / name / inside
    for skill in skills:
        make_skill(folder, skill)
    (modules / name).mkdir(parents=True, exist_ok=True)
    manifest = {"name": name, "version": version}
    (modules / name / "package.json").write_text(json.dumps(manifest))
    return folder


def settle() -> None:
    """Wait until a change is sure to alter the stamps of files."""
    time.sleep(0.06)


def plugin(
    plugins: Path,
    name: str,
    *skills: str,
    market: str = "market",
    version: str = "1.0.0",
    inside: str = "skills",
    **entry: object,
) -> Path:
    """Install a plugin as Claude Code does; returns its folder in the cache."""
    folder = plugins / "cache" / market / name / version
    for skill in skills:
        make_skill(folder / inside, skill)
    manifest = folder / ".claude-plugin/plugin.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"name": name, "version": version}))
    path = plugins / "installed_plugins.json"
    table = json.loads(path.read_text()) if path.exists() else {"version": 2, "plugins": {}}
    row = {"scope": "user", "installPath": os.fspath(folder), "version": version, **entry}
    table["plugins"].setdefault(f"{name}@{market}", []).append(row)
    path.write_text(json.dumps(table))
    return folder
