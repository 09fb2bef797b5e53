"""Which secret goes where? Whose secret a variable holds, and who may be sent it.

A token belongs to the service that issued it. In the body of a request to anybody else it is
stolen; in a header to an unknown host it may be a gateway, and nothing is said.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.regions import Region

_ISSUERS: dict[str, tuple[str, ...]] = {
    "AWS": ("amazonaws.com", "aws.amazon.com"),
    "AZURE": ("azure.com", "microsoftonline.com", "windows.net", "azure.net", "microsoft.com"),
    "GCP": ("googleapis.com", "google.com"),
    "GOOGLE": ("googleapis.com", "google.com"),
    "GEMINI": ("googleapis.com", "google.com"),
    "GITHUB": ("github.com", "githubusercontent.com", "ghcr.io"),
    "GH": ("github.com", "githubusercontent.com", "ghcr.io"),
    "GITLAB": ("gitlab.com",),
    "OPENAI": ("openai.com", "azure.com"),
    "ANTHROPIC": ("anthropic.com", "claude.ai", "claude.com"),
    # Package registries are known by their first word, wherever their mirrors are.
    "NPM": ("npmjs",),
    "PYPI": ("pypi",),
    "DOCKER": ("docker.com", "docker.io"),
    "STRIPE": ("stripe.com",),
    "SLACK": ("slack.com",),
    "TWILIO": ("twilio.com",),
    "SENDGRID": ("sendgrid.com", "sendgrid.net"),
    "DATADOG": ("datadoghq.com", "datadoghq.eu"),
    "HUGGINGFACE": ("huggingface.co",),
    "HF": ("huggingface.co",),
    "CLOUDFLARE": ("cloudflare.com",),
    "VERCEL": ("vercel.com",),
    "HEROKU": ("heroku.com",),
    "DISCORD": ("discord.com", "discordapp.com"),
    "TELEGRAM": ("telegram.org",),
    "KUBE": (),
    "SSH": (),
    "DATABASE": (),
    "POSTGRES": (),
    "MYSQL": (),
    "REDIS": (),
    "JWT": (),
    "SUDO": (),
}
"""First word of a variable -> hosts of whoever issued it; none for what is nobody else's."""
_SECRET = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIAL|SERVICE_ACCOUNT"
    r"|MNEMONIC|SEED_PHRASE|_KEY$|^KEY_|DATABASE_URL|_PAT$|_AUTH$|COOKIE|SESSION_ID)",
    re.IGNORECASE,
)
_HOME = re.compile(r"^(?:localhost|127\.|0\.0\.0\.0|\[?::1|10\.|192\.168\.|host\.docker\.internal)")
_CALL = re.compile(
    r"\b(?:curl|wget|http|xh|invoke-restmethod|invoke-webrequest|irm|iwr)\b", re.IGNORECASE
)
_URL = re.compile(r"https?://(?:[^\s/@'\"]{1,80}@)?([A-Za-z0-9.\-\[\]]+)", re.IGNORECASE)
_BODY = re.compile(
    r"(?:\s-d|\s-F|\s--data(?:-raw|-binary|-urlencode|-ascii)?|\s--form(?:-string)?|\s--json"
    r"|\s--post-data|\s-Body)[\s=]{0,3}(\"(?:[^\"\\]|\\.){0,2000}\"|'[^']{0,2000}'|\S{1,2000})",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\$(?:env:)?[({]?([A-Z][A-Z0-9_]{2,60})\b[)}]?")
_SHELLS = frozenset(("shell", "plain", "powershell", "prose", "decoded"))
_GRANT = re.compile(
    r"grant_type|client_id|client_secret|refresh_token|code_verifier", re.IGNORECASE
)
"""A token exchange sends a secret in its body, and may."""


def is_secret(variable: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return bool(_SECRET.search(variable))


def is_strange(variable: str, host: str) -> bool:
    """Whether `host` is known not to be who issued the secret."""
    hosts = _ISSUERS.get(issuer(variable))
    host = host.lower().rstrip(".")
    if hosts is None or not is_secret(variable) or _HOME.match(host):
        return False
    return not any(
        host == own or host.endswith("." + own) or ("." not in own and own in host.split("."))
        for own in hosts
    )


def issuer(variable: str) -> str:
    """The first word of a variable's name."""
    return variable.upper().partition("_")[0]


def host_of(url: str) -> str:
    """The host of an address, or nothing."""
    found = _URL.search(url)
    return found[1] if found else ""


def find_flows(path: str, region: Region) -> Iterator[Finding]:
    """Commands that send a secret in the body of a request to a stranger."""
    text = region.text
    if region.kind not in _SHELLS or "$" not in text or "http" not in text:
        return
    if not _CALL.search(text):
        return
    at = 0
    for line in text.replace("\\\n", "\\ ").split("\n"):
        number = region.line + text.count("\n", 0, at)
        at += len(line) + 1
        if len(line) > 4000 or "$" not in line or line.lstrip().startswith("#"):
            continue
        call = _CALL.search(line)
        if call is None:
            continue
        host = host_of(line[call.start() :])
        if not host:
            continue
        for body in _BODY.finditer(line, call.start()):
            names = [name for name in _VARIABLE.findall(body[1]) if is_strange(name, host)]
            if names and not _GRANT.search(body[1]):
                yield Finding("sends-secret-variable", path, number, f"{names[0]} → {host}")
                break
