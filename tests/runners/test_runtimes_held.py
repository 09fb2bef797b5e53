"""Does a prepared program find all that it needs when a sandbox shows it nothing else?"""

from __future__ import annotations

import os
from functools import partial

import pytest

from needs import builds, needs
from prepared import manifest, write_skill
from satchel.runners.base import RunRequest
from satchel.runners.pool import Pool
from satchel.runners.runtimes import Runtimes

SEED = os.path.join(os.path.dirname(__file__), "seed_templates")
NODE = """
createInterface({ input: process.stdin }).once("line", () => {
  console.log(JSON.stringify({ output: String(isNumber(5)), error: "" }));
  process.exit(0);
});
"""
PACKAGE = '{"dependencies": {"is-number": "7.0.0"}}'
IMPORTS = 'import isNumber from "is-number"; import { createInterface } from "node:readline";'
REQUIRES = 'const isNumber = require("is-number"); const { createInterface } = require("readline");'
PYTHON = 'import json, six; input(); print(json.dumps({"output": six.__version__, "error": ""}))'
KINDS = {
    "python": ("python", {"main.py": PYTHON, "requirements.txt": "six==1.16.0"}, "1.16.0"),
    "commonjs": ("node", {"main.cjs": REQUIRES + NODE, "package.json": PACKAGE}, "true"),
    "module": ("node", {"main.mjs": IMPORTS + NODE, "package.json": PACKAGE}, "true"),
    "typescript": ("node", {"main.ts": IMPORTS + NODE, "package.json": PACKAGE}, "true"),
    "seed-python": ("python", {"main.py": ""}, "结果"),
    "seed-go": ("go", {"main.go": ""}, "结果"),
}


@pytest.fixture
def skill(tmp_path):
    """Write a skill's folder; give its path."""
    return partial(write_skill, str(tmp_path / "thing"))


@pytest.mark.req("E3", "E4")
@pytest.mark.timeout(300)  # the first one builds
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tier", ["bwrap", "landlock"])
def test_a_prepared_program_runs_in_every_tier(skill, kind, tier):
    for name in ("bwrap", "node24", "npm", "go"):
        needs(name)
    runtime, files, output = KINDS[kind]
    folder = f"{SEED}/{kind.removeprefix('seed-')}" if "seed" in kind else skill(files)
    program = Runtimes(builds()).prepare(folder, manifest(runtime, next(iter(files))))
    result = Pool(tier=tier).run(RunRequest("user:thing", "thing_run", {}, program))
    assert (result.fault, result.detail, result.error) == (None, "", ""), result.stderr
    assert result.output == output
    assert result.tier == tier
