"""Which slips can be mended without asking the author? Only those with one right answer.

A mend is a change of one file, shown as a diff before it is made. Every mend is tried first: it
stays only if the rule is met afterwards and none is broken by it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain, write_atomic
from satchel._language import say
from satchel.authoring.check_tool import ENDINGS, entry_is_there, likely_runtime
from satchel.errors import Refused
from satchel.skill.manifest import FILE
from satchel.skill.manifest_read import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.authoring.rules import Report, Verdict

_MAX = 4 << 20
_PAIR = re.compile(r"^(\s*(?:-\s+)?)([A-Za-z_][\w-]*):[ \t]+(\S.*?)[ \t]*$")
"""A line `key: value` of YAML."""


class Mend(NamedTuple):
    """A change of one file."""

    path: str
    """Absolute."""
    before: bytes | None
    """None when there is no such file."""
    after: bytes
    rules: tuple[str, ...]
    executable: bool = False
    """It also becomes a program."""

    def diff(self, base: str) -> str:
        """What changes, as a unified diff with paths relative to `base`."""
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


def mends_for(folder: str, reports: Iterable[Report]) -> list[Mend]:
    """What can surely be mended in a skill, one change for each file."""
    folder = os.path.abspath(folder)
    failed = [one for report in reports for one in report.verdicts if one.state == "fail"]
    found: list[Mend] = []
    for path in (os.path.join(folder, FILE), *sorted({one.path for one in failed})):
        if path in {mend.path for mend in found} or not os.path.isfile(path):
            continue
        if os.path.islink(path):
            continue
        mend = _mend_text(folder, path, [one for one in failed if one.path == path])
        if mend is not None:
            found.append(mend)
    for one in failed:
        if one.rule == "script-ends":
            found += _mend_ends(os.path.join(folder, one.values["file"]))
        elif one.rule == "go-module":
            found += _mend_module(folder)
        elif one.rule == "entry-executable":
            path = os.path.join(folder, one.values["entry"])
            data = _read(path)
            if data is not None:
                found.append(Mend(path, data, data, (one.rule,), executable=True))
    return found


def apply(mends: Iterable[Mend]) -> None:
    """Write the changes, each file whole or not at all.

    Raises:
        Refused: a file changed meanwhile, or cannot be written.
    """
    for mend in mends:
        try:
            mode = stat.S_IMODE(os.stat(mend.path).st_mode) if mend.before is not None else 0o644
            if mend.before is not None and read_plain(mend.path, _MAX) != mend.before:
                raise Refused(
                    say("`{path}` changed meanwhile", path=mend.path), say("Run the command again")
                )
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
                say("Check the permissions of the folder"),
            ) from exc


def _read(path: str) -> bytes | None:
    try:
        return read_plain(path, _MAX)
    except OSError:
        return None


# --- one file of text ---------------------------------------------------------------------


def _mend_text(folder: str, path: str, failed: list[Verdict]) -> Mend | None:
    """All that can be mended in skill.yaml or SKILL.md."""
    before = _read(path)
    if before is None or not failed:
        return None
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError:
        return None
    done: list[str] = []
    for verdict in failed:
        better = _better(folder, path, text, verdict)
        if better is not None and better != text:
            text = better
            done.append(verdict.rule)
    if not done:
        return None
    return Mend(path, before, text.encode(), tuple(dict.fromkeys(done)))


def _better(folder: str, path: str, text: str, verdict: Verdict) -> str | None:
    """The text with one slip mended; None when there is more than one way."""
    values = verdict.values
    if verdict.rule in ("name-shape", "name-prefix"):
        names = re.findall(r"^\s*(?:-\s+)?name:\s*[\"']?([\w-]+)", text, re.MULTILINE)
        if values["better"] in names:
            return None
        return _with_value(text, verdict.line, "name", values["name"], values["better"])
    if verdict.rule == "runtime-known":
        better = likely_runtime(values["value"])
        return (
            _with_value(text, verdict.line, "runtime", values["value"], better) if better else None
        )
    if verdict.rule == "entry-exists":
        better = _only_entry(folder, text)
        return _with_value(text, verdict.line, "entry", values["entry"], better) if better else None
    if verdict.rule == "manifest-valid":
        return _quoted_manifest(text, os.path.basename(folder))
    if verdict.rule == "skill-clean":
        return _quoted_head(folder, path, text)
    if verdict.rule == "last-newline":
        return text + "\n"
    return None


def _with_value(text: str, line: int, key: str, old: str, new: str) -> str | None:
    """The text with one value replaced, on its line, as it was quoted."""
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


def _only_entry(folder: str, text: str) -> str:
    """The one file that can be meant by `entry`; nothing when there are several."""
    runtime = re.search(r"^runtime:\s*[\"']?(\w+)", text, re.MULTILINE)
    endings = ENDINGS.get(runtime.group(1), ()) if runtime else ()
    if not endings:
        return ""
    names = [
        name
        for name in sorted(os.listdir(folder))
        if name.endswith(endings)
        and not name.endswith((".d.ts", "_test.go", ".test.ts", ".test.js"))
        and not name.startswith("test_")
        and entry_is_there(folder, name)
    ]
    return names[0] if len(names) == 1 else ""


def _quoted_manifest(text: str, name: str) -> str | None:
    """A skill.yaml whose only fault is a value that needs quotes."""
    before = read_manifest(text.encode(), name)
    if before.fields:
        return None
    for _ in range(8):
        reading = read_manifest(text.encode(), name)
        broken = [one for one in reading.problems if one.code == "tool-not-yaml" and one.line]
        if not broken:
            return text if reading.fields else None
        better = _with_quotes(text, broken[0].line)
        if better is None:
            return None
        text = better
    return None


def _with_quotes(text: str, line: int) -> str | None:
    """The value on a line put in quotes; the parser may have stumbled one line later."""
    rows = text.split("\n")
    for at in (line - 1, line - 2):
        match = _PAIR.match(rows[at]) if 0 <= at < len(rows) else None
        if match and match[3][0] not in "\"'|>[{&*!" and (": " in match[3] or match[3][0] in "@`%"):
            rows[at] = f"{match[1]}{match[2]}: {json.dumps(match[3], ensure_ascii=False)}"
            return "\n".join(rows)
    return None


def _quoted_head(folder: str, path: str, text: str) -> str | None:
    """A SKILL.md whose values were repaired: quoted, so that every agent reads the same."""
    from satchel.skill.load import parse_document

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


def _mend_ends(path: str) -> Iterator[Mend]:
    data = _read(path)
    if data is not None:
        yield Mend(path, data, data.replace(b"\r\n", b"\n"), ("script-ends",))


def _mend_module(folder: str) -> Iterator[Mend]:
    """A go.mod, where the program needs nothing but the standard library."""
    imports: set[str] = set()
    for name in sorted(os.listdir(folder)):
        data = _read(os.path.join(folder, name)) if name.endswith(".go") else None
        text = (data or b"").decode("utf-8", "replace")
        for block in re.findall(r"^import\s*\(([^)]*)\)", text, re.MULTILINE):
            imports |= set(re.findall(r"\"([^\"]+)\"", block))
        imports |= set(re.findall(r"^import\s+(?:\w+\s+)?\"([^\"]+)\"", text, re.MULTILINE))
    if any("." in path.split("/")[0] for path in imports):
        return
    module = f"module {os.path.basename(folder)}\n\ngo 1.21\n"
    yield Mend(os.path.join(folder, "go.mod"), None, module.encode(), ("go-module",))
