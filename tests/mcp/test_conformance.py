"""The official checks of MCP against our server and our host, as processes, over real HTTP.

`@modelcontextprotocol/conformance` asks for each requirement of the protocol and of the Skills
extension. For the host it starts `conformance_client.py`: a library made from settings, and the
tools called as a model calls them. Every check of the extension passes; none warns and none is
skipped.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mcp_talk import node, official

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)

CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conformance_client.py")
SERVER_SKILLS = {
    "sep-2640-skills-enumeration": 32,
    "sep-2640-skills-manifest": 6,
    "sep-2640-skills-directory": 7,
}
"""Scenarios of the extension, and how many checks each has."""
SERVER_BASE = (
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
HOST_SKILLS = {
    "sep-2640-client-no-prefetch": "sep-2640-host-no-prefetch",
    "sep-2640-client-verify-digest": "sep-2640-host-verify-digest",
    "sep-2640-client-verify-size": "sep-2640-host-size-mismatch-failure",
    "sep-2640-client-verify-frontmatter": "sep-2640-host-frontmatter-comparison",
}
"""Scenarios of the extension, and the check each of them is about."""
HOST_BASE = {
    "initialize": set[str](),
    "tools_call": set[str](),
    "sse-retry": set[str](),
    "http-invalid-tool-headers": set[str](),
    "http-standard-headers": {"sep-2243-client-includes-standard-headers"},
    "request-metadata": {
        "sep-2575-client-declares-roots-capability",
        "sep-2575-client-declares-sampling-capability",
        "sep-2575-client-declares-elicitation-capability",
    },
}
"""Scenarios of the protocol, and which of their checks a host of skills has nothing to show for:
it offers servers no roots, no sampling and no questions, and the newer protocol sends no
`notifications/initialized`. Left out: OAuth (`auth/*`; a token comes from the environment),
elicitation, and mirrored parameters and request state of tools, which it never calls."""


def run(folder: Path, side: str, scenario: str, *words: str) -> list[dict[str, Any]]:
    """The checks of one scenario."""
    suite = [node(), official("conformance", "dist", "index.js"), side, *words]
    done = subprocess.run(
        [*suite, "--scenario", scenario, "--output-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    found = glob.glob(f"{folder}/**/checks.json", recursive=True)
    assert found, done.stdout + done.stderr
    with open(found[0], encoding="utf-8") as file:
        checks = json.load(file)
    assert side == "server" or done.returncode == 0, done.stdout + done.stderr
    return [check for check in checks if side == "server" or check["status"] != "INFO"]


def run_host(folder: Path, scenario: str) -> list[dict[str, Any]]:
    client = shlex.join([sys.executable, CLIENT])
    return run(folder, "client", scenario, "--command", client, "--timeout", "60000")


def faults(checks: list[dict[str, str]]) -> dict[str, str]:
    """Whatever is not a plain success: failures, warnings, what was skipped."""
    return {
        check["id"]: f"{check['status']} {check.get('errorMessage', '')}"
        for check in checks
        if check["status"] not in {"SUCCESS", "INFO"}
    }


@pytest.mark.parametrize("scenario", SERVER_SKILLS)
def test_the_skills_extension_is_complete(url, scenario, tmp_path):
    checks = run(tmp_path, "server", scenario, "--url", url)
    assert faults(checks) == {}
    assert len(checks) == SERVER_SKILLS[scenario]


@pytest.mark.parametrize("scenario", SERVER_BASE)
def test_the_protocol_is_kept(url, scenario, tmp_path):
    checks = run(tmp_path, "server", scenario, "--url", url)
    assert faults(checks) == {}
    assert checks


def test_requests_need_no_session(url, tmp_path):
    checks = run(tmp_path, "server", "server-stateless", "--url", url)
    found = faults(checks)
    assert set(found) == NOT_TESTABLE, found
    assert all("ot testable" in why or why.startswith("WARNING") for why in found.values()), found
    assert len(checks) - len(found) >= 22


@pytest.mark.parametrize("scenario", HOST_SKILLS)
def test_every_check_of_the_skills_extension_passes(scenario, tmp_path):
    checks = run_host(tmp_path, scenario)
    assert [(one["id"], one["status"]) for one in checks] == [(HOST_SKILLS[scenario], "SUCCESS")]


@pytest.mark.parametrize("scenario", HOST_BASE)
def test_the_protocol_below_it_is_spoken_as_it_should(scenario, tmp_path):
    checks = run_host(tmp_path, scenario)
    assert {one["status"] for one in checks} <= {"SUCCESS", "SKIPPED"}
    assert {one["id"] for one in checks if one["status"] == "SKIPPED"} <= HOST_BASE[scenario]
    assert any(one["status"] == "SUCCESS" for one in checks)
