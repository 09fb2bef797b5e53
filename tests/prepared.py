"""A skill's folder, prepared and called without a sandbox: what tests of runtimes share."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

from satchel.runners.runtimes import Runtimes
from satchel.settings import load_settings
from satchel.skill.manifest import ToolManifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.runners.base import Program


def write_skill(folder: str, files: Mapping[str, str]) -> str:
    """Write files into a skill's folder, and give its path back."""
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def manifest(runtime: Any, entry: str) -> ToolManifest:
    """The part of a manifest that a runtime reads."""
    return ToolManifest((), runtime, entry)


def in_tier(tier: Any, tmp_path: Any, env: Mapping[str, str]) -> Runtimes:
    """Runtimes with a cache of their own that build in one tier of sandbox."""
    settings = load_settings(env={"HOME": str(tmp_path)})
    return Runtimes(str(tmp_path / "cache"), env, settings, tier)


def call(program: Program, arguments: Mapping[str, Any] | None = None, **env: str) -> Any:
    """One call, without a sandbox; what the program answered."""
    line = json.dumps({"arguments": arguments or {}}, ensure_ascii=False) + "\n"
    done = subprocess.run(
        program.argv,
        input=line.encode(),
        capture_output=True,
        env={**dict(program.env), **env},
        cwd="/",
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.decode())
