"""The official checks of MCP against our server, as a process, over real HTTP.

`@modelcontextprotocol/conformance` asks for each requirement of the protocol and of the Skills
extension.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from mcp_talk import node, official

pytestmark = pytest.mark.timeout(300)

SKILLS = {
    "sep-2640-skills-enumeration": 32,
    "sep-2640-skills-manifest": 6,
    "sep-2640-skills-directory": 7,
}
"""Scenarios of the extension, and how many checks each has."""
BASE = (
    "server-initialize", "server-session-lifecycle", "ping", "tools-list", "resources-list",
    "resources-subscribe", "resources-unsubscribe", "prompts-list", "dns-rebinding-protection",
    "caching", "http-header-validation", "sep-2164-resource-not-found",
    "server-sse-multiple-streams", "input-required-result-unsupported-methods",
)  # fmt: skip
"""Scenarios of the protocol that ask for nothing of the suite's own."""
NOT_TESTABLE = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
    "sep-2575-server-sends-prompts-list-changed-on-subscription",
    "sep-2575-server-sends-tools-list-changed-on-subscription",
}
"""Checks of `server-stateless` that call a tool of the suite's example server."""


def run(url: str, scenario: str, folder: str) -> list[dict[str, str]]:
    """The checks of one scenario."""
    command = [node(), official("conformance", "dist", "index.js"), "server", "--url", url]
    done = subprocess.run(
        [*command, "--scenario", scenario, "--output-dir", folder],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    for at, _, names in os.walk(folder):
        if "checks.json" in names:
            with open(os.path.join(at, "checks.json"), encoding="utf-8") as file:
                return json.load(file)
    raise AssertionError(done.stdout + done.stderr)


def faults(checks: list[dict[str, str]]) -> dict[str, str]:
    """Whatever is not a plain success: failures, warnings, what was skipped."""
    return {
        check["id"]: f"{check['status']} {check.get('errorMessage', '')}"
        for check in checks
        if check["status"] not in {"SUCCESS", "INFO"}
    }


@pytest.mark.parametrize("scenario", SKILLS)
def test_the_skills_extension_is_complete(url, scenario, tmp_path):
    checks = run(url, scenario, str(tmp_path))
    assert faults(checks) == {}
    assert len(checks) == SKILLS[scenario]


@pytest.mark.parametrize("scenario", BASE)
def test_the_protocol_is_kept(url, scenario, tmp_path):
    checks = run(url, scenario, str(tmp_path))
    assert faults(checks) == {}
    assert checks


def test_requests_need_no_session(url, tmp_path):
    checks = run(url, "server-stateless", str(tmp_path))
    found = faults(checks)
    assert set(found) == NOT_TESTABLE, found
    assert all("ot testable" in why or why.startswith("WARNING") for why in found.values()), found
    assert len(checks) - len(found) >= 22
