"""Automatic fixes of check-list errors that have exactly one correct fix.

A fix changes one file and is shown as a diff first. Every fix is verified: it is kept only if the
rule passes afterwards and no other rule fails.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain, write_atomic
from satchel.errors import Refused
from satchel.i18n import say
from satchel.skill.document import MANIFEST
from satchel.skill.manifest_parser import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.authoring.checklist import CheckReport, CheckResult

_MAX_FILE_BYTES = 4 << 20
_PAIR = re.compile(r"^(\s*(?:-\s+)?)([A-Za-z_][\w-]*):[ \t]+(\S.*?)[ \t]*$")
"""A YAML line `key: value`."""


class Fix(NamedTuple):
    """A change of one file."""

    path: str
    """Absolute."""
    before: bytes | None
    """None when there is no such file."""
    after: bytes
    rules: tuple[str, ...]
    executable: bool = False
    """Whether it also becomes executable."""

    def diff(self, base: str) -> str:
        """Return a unified diff with paths relative to `base`."""
        import difflib

        name = os.path.relpath(self.path, base).replace(os.sep, "/")
        old = (self.before or b"").decode("utf-8", "replace").splitlines(keepends=True)
        new = self.after.decode("utf-8", "replace").splitlines(keepends=True)
        head = "/dev/null" if self.before is None else f"a/{name}"
        rows = list(difflib.unified_diff(old, new, head, f"b/{name}"))
        if self.executable:
            rows.insert(0, f"chmod +x {name}\n")
        rows = [
            row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows
        ]
        return "".join(rows)


def find_fixes(folder: str, reports: Iterable[CheckReport]) -> list[Fix]:
    """Return the unambiguous fixes of a skill, one per file."""
    folder = os.path.abspath(folder)
    failed = [one for report in reports for one in report.verdicts if one.state == "fail"]
    found: list[Fix] = []
    for path in (os.path.join(folder, MANIFEST), *sorted({one.path for one in failed})):
        if path in {mend.path for mend in found} or not os.path.isfile(path):
            continue
        if os.path.islink(path):
            continue
        mend = _fix_text(folder, path, [one for one in failed if one.path == path])
        if mend is not None:
            found.append(mend)
    for one in failed:
        if one.rule == "script-ends":
            found += _fix_line_ends(os.path.join(folder, one.values["file"]))
        elif one.rule == "entry-executable":
            path = os.path.join(folder, one.values["entry"])
            data = _read(path)
            if data is not None:
                found.append(Fix(path, data, data, (one.rule,), executable=True))
    return found


def apply(mends: Iterable[Fix]) -> None:
    """Write the changes, each file atomically.

    Raises:
        Refused: a file changed meanwhile, or cannot be written.
    """
    for mend in mends:
        try:
            mode = stat.S_IMODE(os.stat(mend.path).st_mode) if mend.before is not None else 0o644
            if mend.before is not None and read_plain(mend.path, _MAX_FILE_BYTES) != mend.before:
                raise Refused(say("`{path}` changed meanwhile", path=mend.path), say("Try again"))
            if mend.after != mend.before:
                write_atomic(mend.path, mend.after)
            os.chmod(mend.path, mode | 0o111 if mend.executable else mode)
        except OSError as exc:
            raise Refused(
                say(
                    "`{path}` cannot be written: {reason}",
                    path=mend.path,
                    reason=exc.strerror or exc,
                ),
                say("Check the permissions"),
            ) from exc


def _read(path: str) -> bytes | None:
    try:
        return read_plain(path, _MAX_FILE_BYTES)
    except OSError:
        return None


# --- one file of text ---------------------------------------------------------------------


def _fix_text(folder: str, path: str, failed: list[CheckResult]) -> Fix | None:
    before = _read(path)
    if before is None or not failed:
        return None
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError:
        return None
    done: list[str] = []
    for verdict in failed:
        better = _fixed(folder, path, text, verdict)
        if better is not None and better != text:
            text = better
            done.append(verdict.rule)
    if not done:
        return None
    return Fix(path, before, text.encode(), tuple(dict.fromkeys(done)))


def _fixed(folder: str, path: str, text: str, verdict: CheckResult) -> str | None:
    """Return the text with one error fixed; None if the fix is ambiguous."""
    values = verdict.values
    if verdict.rule in ("name-shape", "name-prefix"):
        names = re.findall(r"^\s*(?:-\s+)?name:\s*[\"']?([\w-]+)", text, re.MULTILINE)
        if values["better"] in names:
            return None
        return _replace_value(text, verdict.line, "name", values["name"], values["better"])
    if verdict.rule == "manifest-valid":
        return _fix_manifest(text, os.path.basename(folder))
    if verdict.rule == "skill-clean":
        return _fix_frontmatter(folder, path, text)
    return None


def _replace_value(text: str, line: int, key: str, old: str, new: str) -> str | None:
    """Replace one value on its line, keeping its quotes."""
    rows = text.split("\n")
    wanted = range(len(rows)) if line <= 0 else range(line - 1, min(line, len(rows)))
    pattern = re.compile(rf"^(\s*(?:-\s+)?{key}:\s*)([\"']?){re.escape(old)}\2(\s*(?:#.*)?\r?)$")
    found = [at for at in wanted if pattern.match(rows[at])]
    if len(found) != 1:
        return None
    rows[found[0]] = pattern.sub(
        lambda match: f"{match[1]}{match[2]}{new}{match[2]}{match[3]}", rows[found[0]]
    )
    return "\n".join(rows)


def _fix_manifest(text: str, name: str) -> str | None:
    """Fix a skill.yaml whose only error is a value that needs quotes."""
    before = read_manifest(text.encode(), name)
    if before.fields:
        return None
    for _ in range(8):
        reading = read_manifest(text.encode(), name)
        broken = [one for one in reading.problems if one.code == "tool-not-yaml" and one.line]
        if not broken:
            return text if reading.fields else None
        better = _quote_value(text, broken[0].line)
        if better is None:
            return None
        text = better
    return None


def _quote_value(text: str, line: int) -> str | None:
    """Quote the value on a line; the parser may report the line after it."""
    rows = text.split("\n")
    for at in (line - 1, line - 2):
        match = _PAIR.match(rows[at]) if 0 <= at < len(rows) else None
        if match and match[3][0] not in "\"'|>[{&*!" and (": " in match[3] or match[3][0] in "@`%"):
            rows[at] = f"{match[1]}{match[2]}: {json.dumps(match[3], ensure_ascii=False)}"
            return "\n".join(rows)
    return None


def _fix_frontmatter(folder: str, path: str, text: str) -> str | None:
    """Quote repaired values of a SKILL.md, so that all agents read the same."""
    from satchel.skill.reader import parse_document

    name, file = os.path.basename(folder), os.path.basename(path)

    def read(content: str) -> tuple[list[str], dict[str, object]]:
        document = parse_document(content.encode(), name, file, (0, 0, 0))
        keys = [one.values["key"] for one in document.problems if one.code == "repaired-value"]
        return keys, dict(document.fields)

    keys, fields = read(text)
    rows = text.split("\n")
    for key in keys:
        for at, row in enumerate(rows):
            match = _PAIR.match(row)
            if match and not match[1] and match[2] == key:
                rows[at] = f"{key}: {json.dumps(str(fields[key]), ensure_ascii=False)}"
                break
    better = "\n".join(rows)
    left, after = read(better)
    return better if keys and not left and after == fields else None


# --- other files --------------------------------------------------------------------------


def _fix_line_ends(path: str) -> Iterator[Fix]:
    data = _read(path)
    if data is not None:
        yield Fix(path, data, data.replace(b"\r\n", b"\n"), ("script-ends",))
