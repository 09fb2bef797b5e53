"""Which findings did somebody accept? Reads `satchel-scan.toml`.

    [[allow]]
    rule = "fetch-and-run"
    skill = "deploy"              # a pattern such as `team-*`; every skill when left out
    path = "scripts/install.sh"   # a pattern; every file when left out
    digest = "sha256:…"           # only while the file is exactly this; any when left out
    reason = "Our own installer, pinned by a checksum"
    expires = 2027-03-31

The file lives beside `satchel.lock`, where a pull request shows it, or beside the user's own
settings. A skill never carries its own: whoever wrote the skill would accept everything. What is
accepted is still shown, and after its last day it counts again.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import Message
from satchel.errors import SettingsError
from satchel.security.report import Allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import date

    from satchel.security.report import Finding

FILE = "satchel-scan.toml"
_LIMIT = 256 * 1024
_KEYS = frozenset(("rule", "skill", "path", "digest", "reason", "expires"))


class Allowance(NamedTuple):
    """One accepted finding, or several of a kind."""

    rule: str
    reason: str
    expires: date
    skill: str = "*"
    path: str = "*"
    digest: str = ""
    source: str = ""
    """The file that says so."""


def read_allowances(path: str) -> tuple[Allowance, ...]:
    """The entries of an allow-list; none when there is no such file.

    Raises:
        SettingsError: the file cannot be read, or an entry lacks its reason or its last day.
    """
    import tomllib

    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT + 1)
    except FileNotFoundError:
        return ()
    except OSError as exc:
        raise _wrong(path, exc.strerror or str(exc)) from exc
    if len(data) > _LIMIT:
        raise _wrong(path, f"it is larger than {_LIMIT} bytes")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except ValueError as exc:
        raise _wrong(path, str(exc)) from exc
    rows = table.get("allow", [])
    if not isinstance(rows, list) or set(table) - {"allow"}:
        raise _wrong(path, "only `[[allow]]` tables are known")
    return tuple(_entry(path, row) for row in rows)  # pyright: ignore[reportUnknownVariableType]


def _entry(path: str, row: Any) -> Allowance:
    from datetime import date, datetime

    from satchel.security.rules import RULES

    if not isinstance(row, dict):
        raise _wrong(path, "only `[[allow]]` tables are known")
    values: dict[str, Any] = dict(row)  # pyright: ignore[reportUnknownArgumentType]
    unknown = sorted(set(values) - _KEYS)
    if unknown:
        raise _wrong(path, f"`{unknown[0]}` is not known")
    expires = values.pop("expires", None)
    if isinstance(expires, datetime) or not isinstance(expires, date):
        raise _wrong(path, "an entry has no `expires = 2027-01-31`")
    for name, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise _wrong(path, f"`{name}` is no text")
    for name in ("rule", "reason"):
        if name not in values:
            raise _wrong(path, f"an entry has no `{name}`")
    rule = values["rule"]
    if rule not in RULES and not rule.startswith("yara:"):
        raise _wrong(path, f"there is no rule `{rule}`")
    return Allowance(expires=expires, source=path, **values)


def _wrong(path: str, why: str) -> SettingsError:
    return SettingsError(
        Message("`{path}` cannot be used: {reason}", path=os.path.basename(path), reason=why),
        "Each entry has `rule`, `reason` and `expires`; `skill`, `path` and `digest` are optional",
    )


def apply(
    findings: Iterable[Finding],
    allowances: Sequence[Allowance],
    *,
    skill: str,
    today: date,
    digest: Callable[[str], str],
) -> tuple[list[Finding], list[Allowed], list[str]]:
    """Part findings into those that count, those accepted, and the allowances that are too old.

    Args:
        findings: All of them.
        allowances: What was accepted.
        skill: The skill's name.
        today: The day to compare with.
        digest: Gives `sha256:…` of a file, asked only where an entry names one.
    """
    left: list[Finding] = []
    accepted: list[Allowed] = []
    old: dict[str, None] = {}
    for finding in findings:
        fitting = [one for one in allowances if _fits(one, finding, skill, digest)]
        valid = next((one for one in fitting if today <= one.expires), None)
        if valid is not None:
            accepted.append(Allowed(finding, valid.reason, valid.expires.isoformat()))
            continue
        for one in fitting:
            old[f"{one.rule} ({one.expires.isoformat()}): {one.reason}"] = None
        left.append(finding)
    return left, accepted, list(old)


def _fits(one: Allowance, finding: Finding, skill: str, digest: Callable[[str], str]) -> bool:
    return (
        one.rule == finding.rule
        and fnmatchcase(skill, one.skill)
        and fnmatchcase(finding.path, one.path)
        and (not one.digest or one.digest == digest(finding.path))
    )


def gather(
    own: str, project: str, given: Sequence[str] = ()
) -> tuple[list[Allowance], list[Allowance]]:
    """The entries that count, and those of the project that do not.

    A project came from somebody, perhaps from whoever wrote its skills: what it accepts about
    itself unblocks nothing. Whoever runs the scan may name a file, and then it counts in full.

    Args:
        own: The user's file.
        project: The project's file.
        given: Files that were named on the command line.

    Raises:
        SettingsError: a file is not an allow-list.
    """
    from satchel.security.rules import RULES

    entries = [one for path in (own, *given) if path for one in read_allowances(path)]
    near = read_allowances(project) if project else ()
    refused = [one for one in near if one.rule in RULES and RULES[one.rule].severity == "block"]
    named = {os.path.realpath(path) for path in given}
    if os.path.realpath(project) in named:
        return entries, []
    return [*entries, *(one for one in near if one not in refused)], refused
