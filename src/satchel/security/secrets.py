"""Were credentials left in a skill? Known shapes of tokens, without placeholders."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKENS = {
    "AKIA": r"(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "gh": r"gh[pousr]_[A-Za-z0-9]{36,}\b",
    "github_pat_": r"github_pat_[A-Za-z0-9_]{60,}\b",
    "glpat-": r"glpat-[A-Za-z0-9_-]{20,}\b",
    "xox": r"xox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{20,}\b",
    "sk-ant-": r"sk-ant-(?:api|sid|oat)\d\d-[A-Za-z0-9_-]{60,}",
    "sk-": r"sk-(?:proj-|svcacct-)?[A-Za-z0-9]{40,}\b",
    "sk_live_": r"[rs]k_live_[A-Za-z0-9]{24,}\b",
    "AIza": r"AIza[0-9A-Za-z_-]{35}\b",
    "npm_": r"npm_[A-Za-z0-9]{36}\b",
    "pypi-": r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}",
    "hf_": r"hf_[A-Za-z0-9]{34,}\b",
    "SG.": r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}\b",
    "eyJ": r"eyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{20,}",
    "dop_v1_": r"dop_v1_[a-f0-9]{64}\b",
    "hooks.slack.com": r"hooks\.slack\.com/services/T[A-Z0-9]{8,}/B[A-Z0-9]{8,}/[A-Za-z0-9]{24}",
    "discord": r"discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,}",
    "bot": r"bot\d{8,10}:[A-Za-z0-9_-]{35}\b",
}
_COMPILED = {word: re.compile(pattern) for word, pattern in _TOKENS.items()}
_KEY = re.compile(
    r"-----BEGIN (?:RSA |EC |DSA |OPENSSH |PGP |ENCRYPTED )?PRIVATE KEY(?: BLOCK)?-----"
    r"\s{0,8}((?:[A-Za-z0-9+/=:\-, ]{20,100}\s{1,4}){3})"
)
_ASSIGNED = re.compile(r"[:=][ \t]{0,4}['\"]([^\s'\"]{12,80})['\"]")
_NAMES = ("passw", "secret", "api_key", "apikey", "token")
_NAMED = re.compile(
    r"\b(?:password|passwd|secret|api_?key|auth_?token|access_?token|client_?secret)['\"]?\s{0,4}$",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"example|sample|dummy|fake|test|your|placeholder|redacted|changeme|xxxx|\.\.\.|<|>|\$\{|\{\{"
    r"|1234|abcd|0000|none|null|secret|password|insert|replace|todo|env|config|process|demo|mock",
    re.IGNORECASE,
)
_ENOUGH = 3.2
"""Bits of entropy a character from which a value looks random."""


def find_secrets(path: str, text: str, lowered: str) -> Iterator[Finding]:
    """Credentials in a text, shortened so that a report does not spread them."""
    if "PRIVATE KEY" in text:
        found = _KEY.search(text)
        if found and _entropy(found[1]) > 4 and not _PLACEHOLDER.search(found[1][:40]):
            yield _at(path, text, found.start(), "secret-private-key", found.group()[:32])
    for word, pattern in _COMPILED.items():
        if word not in text:
            continue
        for found in pattern.finditer(text):
            value = found.group()
            if text[max(found.start() - 1, 0)].isalnum() and found.start():
                continue  # the middle of a longer word
            if _entropy(value) >= _ENOUGH and not _PLACEHOLDER.search(value):
                yield _at(path, text, found.start(), "secret-token", _masked(value))
                break
    if not any(word in lowered for word in _NAMES):
        return
    for found in _ASSIGNED.finditer(text):
        value = found[1]
        before = text[max(0, found.start() - 40) : found.start()]
        if _NAMED.search(before) and _random(value):
            yield _at(path, text, found.start(), "secret-assigned", _masked(value))
            break


def _random(value: str) -> bool:
    kinds = (
        any(char.islower() for char in value)
        + any(char.isupper() for char in value)
        + any(char.isdigit() for char in value)
    )
    return kinds >= 2 and _entropy(value) >= 3.5 and not _PLACEHOLDER.search(value)


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(
        value.count(char) / total * math.log2(value.count(char) / total) for char in set(value)
    )


def _masked(value: str) -> str:
    return f"{value[:6]}… ({len(value)} characters)"


def _at(path: str, text: str, where: int, rule: str, evidence: str) -> Finding:
    return Finding(rule, path, text.count("\n", 0, where) + 1, evidence)
