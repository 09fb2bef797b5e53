"""A report as SARIF 2.1.0, which code scanning services and editors read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from satchel.security.rules import OWASP, RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.security.report import Finding, Report
    from satchel.security.rules import Rule

_LEVELS = {"block": "error", "review": "warning", "note": "note"}
_SCORES = {"block": "9.0", "review": "5.0", "note": "2.0"}
"""By which services sort security findings."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(reports: Mapping[str, Report], version: str) -> dict[str, Any]:
    """One run over several skills.

    Args:
        reports: Folder of each skill, relative to where the scan began -> its report.
        version: Of Satchel.
    """
    used = {one.rule for report in reports.values() for one in report.findings}
    used |= {one.finding.rule for report in reports.values() for one in report.allowed}
    rules = [RULES[name] for name in sorted(used)]
    places = {rule.id: at for at, rule in enumerate(rules)}
    results = [
        result for folder, report in reports.items() for result in _results(folder, report, places)
    ]
    missing = [
        _notice(folder, path, reason)
        for folder, report in reports.items()
        for path, reason in report.unscanned
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "satchel",
                        "version": version,
                        "semanticVersion": version,
                        "rules": [_rule(rule) for rule in rules],
                    }
                },
                "invocations": [
                    {"executionSuccessful": True, "toolExecutionNotifications": missing}
                ],
                "results": results,
                "columnKind": "unicodeCodePoints",
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    classes = [f"{name} {OWASP[name]}" for name in rule.owasp if name in OWASP]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["security", *classes], "security-severity": _SCORES[rule.severity]},
    }


def _results(folder: str, report: Report, places: Mapping[str, int]) -> list[dict[str, Any]]:
    results = [_result(folder, one, places) for one in report.findings]
    for one in report.allowed:
        row = _result(folder, one.finding, places)
        why = f"{one.reason} (until {one.expires})"
        row["suppressions"] = [{"kind": "external", "status": "accepted", "justification": why}]
        results.append(row)
    return results


def _result(folder: str, finding: Finding, places: Mapping[str, int]) -> dict[str, Any]:
    about = finding.about
    text = f"{about.what}. {about.fix}."
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(folder, finding.path)}}
    if finding.line:
        region: dict[str, Any] = {"startLine": finding.line}
        if finding.evidence:
            region["snippet"] = {"text": _plain(finding.evidence)}
        location["region"] = region
    return {
        "ruleId": finding.rule,
        "ruleIndex": places[finding.rule],
        "level": _LEVELS[about.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }


def _notice(folder: str, path: str, reason: str) -> dict[str, Any]:
    return {
        "level": "warning",
        "message": {"text": f"Not looked at: {reason}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(folder, path)}}}],
    }


def _uri(folder: str, path: str) -> str:
    whole = f"{folder}/{path}" if folder not in {"", "."} else path
    return quote(whole.replace("\\", "/"), errors="surrogatepass")


def _plain(text: str) -> str:
    """Evidence without characters that a viewer would act on."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
