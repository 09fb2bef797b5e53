"""Workflows, issue forms and hooks for other programs are valid and say what is so."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
EVERY_FILE = sorted([*GITHUB.rglob("*.yml"), ROOT / ".pre-commit-hooks.yaml"])


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = read(path)["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def stem(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", EVERY_FILE, ids=stem)
def test_the_file_is_valid_yaml(path):
    assert read(path)


def test_there_is_a_workflow_for_each_purpose():
    assert [path.stem for path in WORKFLOWS] == ["ci", "docs", "release"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=stem)
def test_a_workflow_may_only_read_unless_a_job_says_why(path):
    flow = read(path)
    assert flow["permissions"] == {"contents": "read"}
    for job in flow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for right, access in job.get("permissions", {}).items():
            reasoned = rf"{right}: write +# \w+"
            assert access == "read" or re.search(reasoned, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=stem)
def test_every_action_is_pinned_by_its_major_version(path):
    uses = [step["uses"] for step in steps(path) if "uses" in step]
    foreign = [name for name in uses if not name.startswith("./")]
    assert [name for name in foreign if not re.search(r"@(release/)?v\d+$", name)] == []
    own = [name for name in uses if name.startswith("./")]
    assert [name for name in own if not (ROOT / name / "action.yml").is_file()] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=stem)
def test_a_checkout_keeps_no_credentials(path):
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=stem)
def test_scripts_of_a_workflow_are_shell_and_name_files_that_exist(path):
    for script in (step["run"] for step in steps(path) if "run" in step):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        named = re.findall(r"(?:scripts|requirements|\.ci)/[\w./-]*\w", script)
        assert [name for name in named if not (ROOT / name).exists()] == []


def test_linux_runs_the_whole_check_and_other_systems_the_wheel():
    jobs = read(GITHUB / "workflows" / "ci.yml")["jobs"]
    assert jobs["linux"]["steps"][-1]["run"] == ".ci/run --without-corpus"
    systems = {name.partition("-")[0] for name in jobs["smoke"]["strategy"]["matrix"]["os"]}
    assert systems == {"macos", "windows"}
    last = jobs["smoke"]["steps"][-1]["run"]
    for command in ("satchel --version", "satchel list", "satchel new", "from satchel import"):
        assert command in last


def test_a_release_needs_no_stored_secret_and_is_attested():
    path = GITHUB / "workflows" / "release.yml"
    assert "secrets." not in path.read_text(encoding="utf-8")
    jobs = read(path)["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    uses = [step.get("uses", "").partition("@")[0] for step in steps(path)]
    assert "actions/attest-build-provenance" in uses
    assert steps(path)[-1]["with"]["attestations"] is True


def test_updates_cover_every_kind_of_pinned_package():
    updates = read(GITHUB / "dependabot.yml")["updates"]
    assert [one["package-ecosystem"] for one in updates] == ["github-actions", "pip", "npm"]
    folders = [folder for one in updates for folder in one.get("directories", [])]
    locks = {f"/{path.parent.relative_to(ROOT)}" for path in ROOT.glob("tests/*/package-lock.json")}
    assert {folder.replace("/", os.sep) for folder in folders} == locks


def test_the_hook_for_commits_needs_no_extra_that_is_gone():
    (hook,) = read(ROOT / ".pre-commit-hooks.yaml")
    assert hook["entry"] == "satchel scan --all"
    assert "additional_dependencies" not in hook
