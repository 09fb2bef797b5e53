"""Finds secrets that a command sends to a foreign host.

A token belongs to the service that issued it. In the body of a request to another host it is
leaked. In a header to an unknown host it may be for a gateway, which is not reported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.regions import Region

_ISSUER_HOSTS = {
    word: tuple(hosts.split())
    for words, hosts in (
        ("AWS", "amazonaws.com aws.amazon.com"),
        ("AZURE", "azure.com microsoftonline.com windows.net azure.net microsoft.com"),
        ("GCP GOOGLE GEMINI", "googleapis.com google.com"),
        ("GITHUB GH", "github.com githubusercontent.com ghcr.io"),
        ("GITLAB", "gitlab.com"),
        ("OPENAI", "openai.com azure.com"),
        ("ANTHROPIC", "anthropic.com claude.ai claude.com"),
        # Package registries are recognised by a part of the host name, for mirrors.
        ("NPM", "npmjs"), ("PYPI", "pypi"), ("DOCKER", "docker.com docker.io"),
        ("STRIPE", "stripe.com"), ("SLACK", "slack.com"), ("TWILIO", "twilio.com"),
        ("SENDGRID", "sendgrid.com sendgrid.net"), ("DATADOG", "datadoghq.com datadoghq.eu"),
        ("HUGGINGFACE HF", "huggingface.co"), ("CLOUDFLARE", "cloudflare.com"),
        ("VERCEL", "vercel.com"), ("HEROKU", "heroku.com"), ("TELEGRAM", "telegram.org"),
        ("DISCORD", "discord.com discordapp.com"),
        ("KUBE SSH DATABASE POSTGRES MYSQL REDIS JWT SUDO", ""),
    )
    for word in words.split()
}  # fmt: skip
"""First word of a variable -> hosts of the issuer; empty for secrets without one."""
_SECRET_NAME = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIAL|SERVICE_ACCOUNT"
    r"|MNEMONIC|SEED_PHRASE|_KEY$|^KEY_|DATABASE_URL|_PAT$|_AUTH$|COOKIE|SESSION_ID)",
    re.IGNORECASE,
)
_LOCAL_HOST = re.compile(
    r"^(?:localhost|127\.|0\.0\.0\.0|\[?::1|10\.|192\.168\.|host\.docker\.internal)"
)
_REQUEST_COMMAND = re.compile(
    r"\b(?:curl|wget|http|xh|invoke-restmethod|invoke-webrequest|irm|iwr)\b", re.IGNORECASE
)
_URL = re.compile(r"https?://(?:[^\s/@'\"]{1,80}@)?([A-Za-z0-9.\-\[\]]+)", re.IGNORECASE)
_BODY_OPTION = re.compile(
    r"(?:\s-d|\s-F|\s--data(?:-raw|-binary|-urlencode|-ascii)?|\s--form(?:-string)?|\s--json"
    r"|\s--post-data|\s-Body)[\s=]{0,3}(\"(?:[^\"\\]|\\.){0,2000}\"|'[^']{0,2000}'|\S{1,2000})",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\$(?:env:)?[({]?([A-Z][A-Z0-9_]{2,60})\b[)}]?")
_COMMAND_KINDS = frozenset(("shell", "plain", "powershell", "prose", "decoded"))
_TOKEN_EXCHANGE = re.compile(
    r"grant_type|client_id|client_secret|refresh_token|code_verifier", re.IGNORECASE
)
"""Token exchanges legitimately send a secret in the body."""


def is_secret(variable: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(variable))


def is_foreign_host(variable: str, host: str) -> bool:
    """Whether `host` is not one of the issuer of the secret."""
    hosts = _ISSUER_HOSTS.get(read_issuer(variable))
    host = host.lower().rstrip(".")
    if hosts is None or not is_secret(variable) or _LOCAL_HOST.match(host):
        return False
    return not any(
        host == issuer_host
        or host.endswith("." + issuer_host)
        or ("." not in issuer_host and issuer_host in host.split("."))
        for issuer_host in hosts
    )


def read_issuer(variable: str) -> str:
    """Return the first word of a variable's name, which identifies the issuer."""
    return variable.upper().partition("_")[0]


def find_host(url: str) -> str:
    """Return the host of an address, or nothing."""
    match = _URL.search(url)
    return match[1] if match else ""


def find_flows(path: str, region: Region) -> Iterator[Finding]:
    """Find commands that send a secret in the body of a request to a foreign host."""
    text = region.text
    if region.kind not in _COMMAND_KINDS or "$" not in text or "http" not in text:
        return
    if not _REQUEST_COMMAND.search(text):
        return
    line, position = region.line, 0
    for command in text.replace("\\\n", "\\ ").split("\n"):
        if evidence := _find_leak(command):
            yield Finding("sends-secret-variable", path, line, evidence)
        end = position + len(command) + 1
        line += text.count("\n", position, end)
        position = end


def _find_leak(command: str) -> str:
    """Return the secret that a command sends and the host, as evidence; nothing without one."""
    if "$" not in command or command.lstrip().startswith("#"):
        return ""
    request = _REQUEST_COMMAND.search(command)
    host = find_host(command[request.start() :]) if request else ""
    if request is None or not host:
        return ""
    for body in _BODY_OPTION.finditer(command, request.start()):
        secrets = [name for name in _VARIABLE.findall(body[1]) if is_foreign_host(name, host)]
        if secrets and not _TOKEN_EXCHANGE.search(body[1]):
            return f"{secrets[0]} → {host}"
    return ""
