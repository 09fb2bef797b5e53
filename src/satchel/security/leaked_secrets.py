"""Finds credentials that were left in the text of a file.

The values in findings are masked, so that a report does not leak them. Placeholders, and values
that are not random, are no credentials. The scan calls `find_secrets` once for each text.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from satchel.security.report import TextSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.report import Finding

_TOKEN_PATTERNS = {
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
"""Plain text of a service's tokens -> their pattern."""
_TOKENS = {word: re.compile(pattern) for word, pattern in _TOKEN_PATTERNS.items()}
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:RSA |EC |DSA |OPENSSH |PGP |ENCRYPTED )?PRIVATE KEY(?: BLOCK)?-----"
    r"\s{0,8}((?:[A-Za-z0-9+/=:\-, ]{20,100}\s{1,4}){3})"
)
_MIN_KEY_ENTROPY_BITS = 4
"""Per character of a private key."""
_ASSIGNED_TEXT = re.compile(r"[:=][ \t]{0,4}['\"]([^\s'\"]{12,80})['\"]")
_SECRET_WORDS = ("passw", "secret", "api_key", "apikey", "token")
"""A text without one of them has no `_SECRET_NAME`."""
_SECRET_NAME = re.compile(
    r"\b(?:password|passwd|secret|api_?key|auth_?token|access_?token|client_?secret)['\"]?\s{0,4}$",
    re.IGNORECASE,
)
_MAX_NAME_CHARS = 40
_PLACEHOLDER = re.compile(
    r"example|sample|dummy|fake|test|your|placeholder|redacted|changeme|xxxx|\.\.\.|<|>|\$\{|\{\{"
    r"|1234|abcd|0000|none|null|secret|password|insert|replace|todo|env|config|process|demo|mock",
    re.IGNORECASE,
)
_MIN_TOKEN_ENTROPY_BITS = 3.2
"""Per character of a token."""
_MIN_VALUE_ENTROPY_BITS = 3.5
"""Per character of an assigned value."""


def find_secrets(path: str, text: str) -> Iterator[Finding]:
    """Find private keys, tokens of services, and random values with names such as `password`.

    Args:
        path: For the findings.
        text: The text of the file.
    """
    source = TextSource(path, text)
    yield from _find_private_key(source)
    yield from _find_tokens(source)
    yield from _find_assigned_secret(source)


def _find_private_key(source: TextSource) -> Iterator[Finding]:
    if "PRIVATE KEY" not in source.text:
        return
    match = _PRIVATE_KEY.search(source.text)
    if match is None:
        return
    key = match[1]
    if _entropy_bits(key) > _MIN_KEY_ENTROPY_BITS and not _PLACEHOLDER.search(key[:40]):
        yield source.finding("secret-private-key", match.start(), match.group()[:32])


def _find_tokens(source: TextSource) -> Iterator[Finding]:
    """Find tokens in the forms that services give them; the first one of each form."""
    text = source.text
    for word, pattern in _TOKENS.items():
        if word not in text:
            continue
        for match in pattern.finditer(text):
            value = match.group()
            if match.start() > 0 and text[match.start() - 1].isalnum():
                continue  # the middle of a longer word
            if _entropy_bits(value) >= _MIN_TOKEN_ENTROPY_BITS and not _PLACEHOLDER.search(value):
                yield source.finding("secret-token", match.start(), _mask(value))
                break


def _find_assigned_secret(source: TextSource) -> Iterator[Finding]:
    """Find the first random value that is assigned to a name such as `password`."""
    text = source.text
    lowered = text.lower()
    if not any(word in lowered for word in _SECRET_WORDS):
        return
    for match in _ASSIGNED_TEXT.finditer(text):
        value = match[1]
        name = text[max(0, match.start() - _MAX_NAME_CHARS) : match.start()]
        if _SECRET_NAME.search(name) and _is_random(value):
            yield source.finding("secret-assigned", match.start(), _mask(value))
            break


def _is_random(value: str) -> bool:
    """Whether a value looks like a generated one: several kinds of characters, much entropy."""
    has_lower = any(char.islower() for char in value)
    has_upper = any(char.isupper() for char in value)
    has_digit = any(char.isdigit() for char in value)
    if has_lower + has_upper + has_digit < 2:
        return False
    return _entropy_bits(value) >= _MIN_VALUE_ENTROPY_BITS and not _PLACEHOLDER.search(value)


def _entropy_bits(value: str) -> float:
    """Return the entropy of a character of the value, in bits."""
    shares = [value.count(char) / len(value) for char in set(value)]
    return -sum(share * math.log2(share) for share in shares)


def _mask(value: str) -> str:
    return f"{value[:6]}… ({len(value)} characters)"
