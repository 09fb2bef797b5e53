"""Accepted findings: reads `satchel-scan.toml`.

    [[allow]]
    rule = "fetch-and-run"
    skill = "deploy"              # a pattern such as `team-*`; every skill when left out
    path = "scripts/install.sh"   # a pattern; every file when left out
    digest = "sha256:…"           # only while the file is exactly this; any when left out
    reason = "Our own installer, pinned by a checksum"
    expires = 2027-03-31

The file is beside `satchel.lock`, where a pull request shows it, or beside the user's own settings.
A file inside a skill is not read: the author of the skill would accept everything. An accepted
finding is still shown, and counts again after its expiry date.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import SettingsError
from satchel.i18n import Message
from satchel.security.report import AllowedFinding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import date

    from satchel.security.report import Finding

ALLOWLIST_FILE = "satchel-scan.toml"
_MAX_FILE_BYTES = 256 * 1024
_KEYS = frozenset(("rule", "skill", "path", "digest", "reason", "expires"))


class Allowance(NamedTuple):
    """An entry of the allowlist."""

    rule: str
    reason: str
    expires: date
    skill: str = "*"
    path: str = "*"
    digest: str = ""
    source: str = ""
    """The path of the allowlist."""


def read_allowances(path: str) -> tuple[Allowance, ...]:
    """Read an allowlist; no entries when there is no such file.

    Raises:
        SettingsError: the file cannot be read, or an entry has no reason or expiry date.
    """
    import tomllib

    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as exc:
        raise _invalid(path, exc.strerror or str(exc)) from exc
    if len(data) > _MAX_FILE_BYTES:
        raise _invalid(path, f"it is larger than {_MAX_FILE_BYTES} bytes")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except ValueError as exc:
        raise _invalid(path, str(exc)) from exc
    rows = table.get("allow", [])
    if not isinstance(rows, list) or set(table) - {"allow"}:
        raise _invalid(path, "only `[[allow]]` tables are known")
    return tuple(_entry(path, row) for row in rows)  # pyright: ignore[reportUnknownVariableType]


def _entry(path: str, row: Any) -> Allowance:
    from datetime import date, datetime

    from satchel.security.rules import RULES

    if not isinstance(row, dict):
        raise _invalid(path, "only `[[allow]]` tables are known")
    values: dict[str, Any] = dict(row)  # pyright: ignore[reportUnknownArgumentType]
    unknown = sorted(set(values) - _KEYS)
    if unknown:
        raise _invalid(path, f"`{unknown[0]}` is not known")
    expires = values.pop("expires", None)
    if isinstance(expires, datetime) or not isinstance(expires, date):
        raise _invalid(path, "an entry has no `expires = 2027-01-31`")
    for name, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise _invalid(path, f"`{name}` is no text")
    for name in ("rule", "reason"):
        if name not in values:
            raise _invalid(path, f"an entry has no `{name}`")
    rule = values["rule"]
    if rule not in RULES and not rule.startswith("yara:"):
        raise _invalid(path, f"there is no rule `{rule}`")
    return Allowance(expires=expires, source=path, **values)


def _invalid(path: str, why: str) -> SettingsError:
    return SettingsError(
        Message("`{path}` cannot be used: {reason}", path=os.path.basename(path), reason=why),
        "Each entry has `rule`, `reason` and `expires`; `skill`, `path` and `digest` are optional",
    )


def apply_allowances(
    findings: Iterable[Finding],
    allowances: Sequence[Allowance],
    *,
    skill: str,
    today: date,
    digest: Callable[[str], str],
) -> tuple[list[Finding], list[AllowedFinding], list[str]]:
    """Split findings into those that count and those accepted; also returns expired allowances.

    Args:
        findings: All findings.
        allowances: The allowlist.
        skill: The skill's name.
        today: The date to compare with.
        digest: Returns `sha256:…` of a file; called only for entries with a digest.
    """
    left: list[Finding] = []
    accepted: list[AllowedFinding] = []
    old: dict[str, None] = {}
    for finding in findings:
        fitting = [one for one in allowances if _matches(one, finding, skill, digest)]
        valid = next((one for one in fitting if today <= one.expires), None)
        if valid is not None:
            accepted.append(AllowedFinding(finding, valid.reason, valid.expires.isoformat()))
            continue
        for one in fitting:
            old[f"{one.rule} ({one.expires.isoformat()}): {one.reason}"] = None
        left.append(finding)
    return left, accepted, list(old)


def _matches(one: Allowance, finding: Finding, skill: str, digest: Callable[[str], str]) -> bool:
    return (
        one.rule == finding.rule
        and fnmatchcase(skill, one.skill)
        and fnmatchcase(finding.path, one.path)
        and (not one.digest or one.digest == digest(finding.path))
    )


def gather_allowances(
    own: str, project: str, given: Sequence[str] = ()
) -> tuple[list[Allowance], list[Allowance]]:
    """The allowances that count, and those of the project that do not.

    A project may have the same author as its skills, so its allowlist unblocks nothing. A file
    that the user names on the command line counts in full.

    Args:
        own: The user's file.
        project: The project's file.
        given: Files named on the command line.

    Raises:
        SettingsError: a file is not an allowlist.
    """
    from satchel.security.rules import RULES

    entries = [one for path in (own, *given) if path for one in read_allowances(path)]
    near = read_allowances(project) if project else ()
    refused = [one for one in near if one.rule in RULES and RULES[one.rule].severity == "block"]
    named = {os.path.realpath(path) for path in given}
    if os.path.realpath(project) in named:
        return entries, []
    return [*entries, *(one for one in near if one not in refused)], refused
