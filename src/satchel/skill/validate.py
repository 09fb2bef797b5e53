"""Validation of whole skills.

check             problems in practice; most are warnings and notes
violations        violations of the published Agent Skills specification, equal to the reference
                  validator wherever that follows the specification
portable_fields   a frontmatter as hosts that read YAML 1.2 see it
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING, Any

import yaml

from satchel.errors import NotFound, SkillBroken
from satchel.skill.document import MANIFEST
from satchel.skill.fields import FIELDS, SPEC_FIELDS, correct_spelling
from satchel.skill.frontmatter import decode, split_file
from satchel.skill.metadata import (
    MAX_DESCRIPTION_CHARS,
    MAX_NAME_CHARS,
    as_flag,
    as_words,
    slug,
    too_long,
)
from satchel.skill.problems import Problem
from satchel.skill.reader import load_document, parse_document
from satchel.skill.yaml_reader import Items, Pairs, Scalar, YamlRefusal, compose, kind_of

if TYPE_CHECKING:
    from satchel.skill.document import SkillDocument
    from satchel.skill.fields import FrontmatterField
    from satchel.skill.yaml_reader import Node

_NULL = re.compile(r"(?:~|null|Null|NULL)?\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]+\Z")
_BASE = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_ENDLESS = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_TEXTS = {"description": 1024, "compatibility": 500, "license": 0, "allowed-tools": 0}
"""Text fields and their maximum length; 0 means any length."""


def portable_fields(data: bytes) -> dict[str, Any]:
    """The frontmatter of a SKILL.md as plain JSON values, the same for every reader.

    Args:
        data: The whole file.

    Raises:
        SkillBroken: readers would disagree, or it is no skill by the published format.
    """
    try:
        data.decode()
    except UnicodeDecodeError as exc:
        raise SkillBroken("the file is not UTF-8", "Save the file as UTF-8 without BOM") from exc
    text, _ = decode(data)
    parts = split_file(text) if text is not None else None
    if parts is None or parts.block is None or parts.first_line != 2:
        raise SkillBroken("it does not begin with frontmatter", "Begin the file with a line `---`")
    try:
        node = compose(parts.block)
        fields = _value(node) if isinstance(node, Pairs) else None
    except YamlRefusal as exc:
        raise SkillBroken(f"its frontmatter uses {exc}", "Write the value out") from exc
    except (yaml.YAMLError, ValueError) as exc:
        raise SkillBroken(
            "its frontmatter is not YAML without a repair", "Run `satchel check` on it"
        ) from exc
    if not isinstance(fields, dict):
        raise SkillBroken("its frontmatter is not a table", "Write `name:` and `description:`")
    check_published(fields)  # pyright: ignore[reportUnknownArgumentType]
    return fields  # pyright: ignore[reportUnknownVariableType]


def check_published(fields: dict[str, Any]) -> None:
    """Check fields against the published format.

    Raises:
        SkillBroken: a field violates it.
    """
    name = fields.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SkillBroken(
            "its `name` is not 1 to 64 lowercase letters, digits and single hyphens",
            "Rename it, and its folder",
        )
    if not isinstance(fields.get("description"), str) or not fields["description"].strip():
        raise SkillBroken(
            "it has no `description` that is text", "Say what it does and when to use it"
        )
    for field, most in _TEXTS.items():
        value = fields.get(field, "-")
        if not isinstance(value, str):
            raise SkillBroken(f"its `{field}` is not text", "Put the value in quotes, on one line")
        if most and not 1 <= len(value) <= most:
            raise SkillBroken(f"its `{field}` has not 1 to {most} characters", "Make it shorter")
    metadata: Any = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(one, str) for one in metadata.values()):  # pyright: ignore[reportUnknownVariableType]
        raise SkillBroken("its `metadata` is not a table of texts", "Put the values in quotes")


def _value(node: Node) -> Any:
    if isinstance(node, Scalar):
        return _scalar(node.text) if node.plain else node.text
    if isinstance(node, Items):
        return [_value(item) for item in node.nodes]
    found: dict[str, Any] = {}
    pairs = iter(node.nodes)
    for key in pairs:
        if not isinstance(key, Scalar):
            raise ValueError("a key is a list or a table")  # noqa: TRY004 - the text is wrong
        if key.text in found or (key.plain and key.text == "<<"):
            raise ValueError("a key is repeated")
        found[key.text] = _value(next(pairs))
    return found


def _scalar(text: str) -> Any:
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _INT.match(text):
        return int(text)
    if _BASE.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError("a number is too large")
        return number
    if _ENDLESS.match(text):
        raise ValueError("a number is not finite")
    return text


MAX_COMPATIBILITY_CHARS = 500
_MAX_BODY_LINES = 500
_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>")
_LEFT = re.compile(
    r"\s*(?:To be written\b|(?:TODO|TBD)(?=[.:]|\s*$)|\[TODO[:\]]|\[insert [^\]]*\]\s*$|"
    r"Lorem ipsum dolor\b|Description (?:goes )?here\W*$|待编写|待补充|在此填写)"
)
"""Placeholders of templates, at the start only: a skill may be about such text."""
_RESERVED = ("anthropic", "claude")
_MENTIONS = ("](", "`references/", "`scripts/", "`assets/")
"""The beginning of what `_LINK` and `_NAMED` match."""
_MENTION_OR_FENCE = re.compile("|".join(map(re.escape, (*_MENTIONS, "```", "~~~"))))
_LINK = re.compile(r"""\]\(\s*<?([^()<>\s]{1,400})>?(?:\s+["'][^()]*)?\)""")
"""Target of a Markdown link."""
_NAMED = re.compile(r"`((?:references|scripts|assets)/[^`\s]+)(?:\s[^`]*)?`")
"""A path in backticks into one of a skill's own folders."""
_NO_PATH = re.compile(r"[<>*{}$|\[\]…:\\]|\.\.\.|^[/#~?]|^path/to/|\b(?:YYYY|XXX?|NAME)\b")
"""Placeholders and external targets: `references/<topic>.md`, `https://…`, `#top`."""
_FOR_EXAMPLE = re.compile(r"\bexamples?\b|\be\.g\.|\bsuch as\b|例如|比如|示例", re.IGNORECASE)
"""A line whose files are examples."""

_BREAKS_SPEC = frozenset((
    "no-frontmatter", "symlink-as-text", "frontmatter-too-large", "not-a-mapping",
    "description-missing", "name-unusable", "not-text", "repaired-value", "unclear-value",
    "stray-text", "yaml-refused", "unclosed-frontmatter", "control-characters",
    "broken-surrogates", "invalid-utf8", "bom", "leading-blank", "wide-encoding", "duplicate-key",
    "name-missing", "name-too-long", "field-too-long", "key-spelling",
))  # fmt: skip
"""Problems that also violate the published specification."""


def validate_folder(folder: str, *, strict: bool = False) -> list[Problem]:
    """Check the skill in `folder`, or the SKILL.md or skill.yaml itself.

    Args:
        folder: A skill's folder or its SKILL.md; a folder may have a skill.yaml alone.
        strict: Only violations of the published specification.

    Raises:
        NotFound: there is neither a SKILL.md nor a skill.yaml.
    """
    file = ""
    if os.path.isfile(folder):
        folder, file = os.path.split(os.path.abspath(folder))
    folder = os.path.abspath(folder)
    if not file:
        try:
            names = [name for name in os.listdir(folder) if name.lower() == "skill.md"]
        except OSError as exc:
            raise NotFound(f"`{folder}` is not a folder", "Give the folder of a skill") from exc
        if not names and os.path.exists(os.path.join(folder, MANIFEST)):
            names = [MANIFEST]
        if not names:
            raise NotFound(f"There is no SKILL.md in `{folder}`", "Run `satchel new` to write one")
        file = "SKILL.md" if "SKILL.md" in names else min(names)
    if file == MANIFEST:
        return _check_tools(folder)
    document = load_document(folder, file)
    name = os.path.basename(folder)
    path = os.path.join(folder, file)
    found = violations(document, name) if strict else check_document(document)
    if not strict:
        found += _file_names(folder, file) + _missing_files(document, folder, path)
    return [problem.at(path) for problem in sorted(found, key=lambda problem: problem.line)]


def validate_draft(data: bytes, folder: str, file: str) -> tuple[SkillDocument, list[Problem]]:
    """Check the content of a skill's file before it is written; also returns its document.

    Args:
        data: The whole file.
        folder: The skill's folder, with its other files.
        file: The file's name.
    """
    name = os.path.basename(folder)
    document = parse_document(data, name, file, (0, 0, len(data)))
    if file == MANIFEST:
        from satchel.skill.manifest_parser import check_entry, read_manifest

        found = list(check_entry(read_manifest(data, name), folder).problems)
    else:
        found = check_document(document) + _missing_files(document, folder, data)
    path = os.path.join(folder, file)
    return document, [problem.at(path) for problem in sorted(found, key=lambda one: one.line)]


def _check_tools(folder: str) -> list[Problem]:
    from satchel.skill.manifest_parser import load_manifest

    try:
        return list(load_manifest(folder).problems)
    except OSError as exc:
        values = {"reason": exc.strerror or str(exc)}
        return [Problem("unreadable", os.path.join(folder, MANIFEST), values=values)]


def _file_names(folder: str, file: str) -> list[Problem]:
    """Problems of the file's name; a scan does not list every folder."""
    try:
        others = [name for name in os.listdir(folder) if name.lower() == "skill.md"]
    except OSError:
        return []
    if len(others) > 1:
        other = next(name for name in sorted(others) if name != file)
        return [Problem("two-files", values={"used": file, "other": other})]
    return [] if file == "SKILL.md" else [Problem("file-case", values={"file": file})]


def _missing_files(document: SkillDocument, folder: str, file: str | bytes) -> list[Problem]:
    """Files that the body refers to and the folder lacks.

    `file` is the file's path, or its content if it is not written yet. Relative links count, and
    paths in backticks that begin with one of the skill's folders; code blocks and examples do not.
    """
    if document.head is None:
        return []
    missing: dict[str, int] = {}
    body, end, fenced = document.body, -1, False
    wanted = any(one in body for one in _MENTIONS)  # a quick look first
    for match in _MENTION_OR_FENCE.finditer(body) if wanted else ():
        if match.start() < end:
            continue  # in a line that was read
        start = body.rfind("\n", 0, match.start()) + 1
        end = body.find("\n", start) % (len(body) + 1)
        line = body[start:end]
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            # `scripts/build.sh` may be the project's, unless the skill has such a folder.
            targets = _LINK.findall(line) + [
                path
                for path in _NAMED.findall(line)
                if not path.startswith("scripts/") or os.path.exists(f"{folder}/scripts")
            ]
            absent = [
                path
                for path in map(_linked_path, targets)
                if path and path not in missing and not os.path.exists(os.path.join(folder, path))
            ]
            if absent and not _FOR_EXAMPLE.search(line):
                missing |= dict.fromkeys(absent, body.count("\n", 0, start))
    if not missing:
        return []
    first = _first_line_of_body(file, document.body)
    return [
        Problem("file-missing", line=first + at if first else 0, values={"file": path})
        for path, at in missing.items()
    ]


def _linked_path(target: str) -> str:
    """The target of a link relative to the skill; empty when it leads elsewhere."""
    if _NO_PATH.search(target) or target.endswith("/"):
        return ""
    path = target.partition("#")[0].partition("?")[0].rstrip(",;.")
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    path = os.path.normpath(path) if path else ""
    # `[text](url)` is a placeholder: a file has an extension or lies in a folder.
    if path.startswith("..") or ("/" not in path and "." not in path):
        return ""
    return path


def _first_line_of_body(file: str | bytes, body: str) -> int:
    """The first line of the body; 0 when the file cannot be read."""
    try:
        if isinstance(file, str):
            with open(file, "rb") as stream:
                file = stream.read()
    except OSError:
        return 0
    return file.count(b"\n") - body.count("\n") + 1


def check_document(document: SkillDocument) -> list[Problem]:
    """All problems of a skill, in the order of the file."""
    found = list(document.problems)
    if document.head is None:
        return found
    fields, lines = document.fields, document.lines
    for key, value in fields.items():
        line = lines.get(key, 0)
        field = FIELDS.get(key)
        if field is None:
            if correct_spelling(key) is None:
                found.append(Problem("unknown-field", line=line, values={"key": key}))
        else:
            found += _check_field(field, value, line)
    if _LEFT.match(document.head.description):
        found.append(Problem("description-unwritten", line=lines.get("description", 0)))
    tag = _TAG.search(document.head.description)
    if tag:
        line = lines.get("description", 0)
        found.append(Problem("description-markup", line=line, values={"tag": tag.group()}))
    for word in _RESERVED:
        if word in document.head.name.lower():
            found.append(Problem("name-reserved", line=lines.get("name", 0), values={"word": word}))
    if not document.body.strip():
        found.append(Problem("body-empty"))
    elif document.body.count("\n") > _MAX_BODY_LINES:
        values = {"lines": str(document.body.count("\n"))}
        found.append(Problem("body-long", values=values))
    return sorted(found, key=lambda problem: problem.line)


def _check_field(field: FrontmatterField, value: Any, line: int) -> list[Problem]:
    found: list[Problem] = []
    key = field.name
    if key in ("name", "description"):
        return found  # checked by `interpret`
    kind = kind_of(value)
    wanted = {"text": "text", "flag": "true or false", "list": "a list", "map": "a mapping"}[
        field.kind
    ]
    fits = {
        "text": isinstance(value, str),
        "flag": as_flag(value) is not None,
        "list": isinstance(value, (str, list)),
        "map": isinstance(value, dict),
    }[field.kind]
    if not fits and value is not None:
        found.append(
            Problem("field-type", line=line, values={"key": key, "wanted": wanted, "kind": kind})
        )
    if key == "compatibility" and isinstance(value, str) and len(value) > MAX_COMPATIBILITY_CHARS:
        found.append(too_long(key, value, MAX_COMPATIBILITY_CHARS, line))
    if key == "allowed-tools" and isinstance(value, list):
        values = {"key": key, "line": " ".join(as_words(value))}
        found.append(Problem("tools-list", line=line, values=values))
    if key == "metadata" and isinstance(value, dict):
        odd = [str(name) for name, item in value.items() if not isinstance(item, str)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if odd:
            found.append(Problem("metadata-nested", line=line, values={"keys": ", ".join(odd[:5])}))
    if field.status == "inert":
        values = {"key": key, "meaning": field.meaning}
        found.append(Problem("inert-field", line=line, values=values))
    return found


def violations(document: SkillDocument, folder: str) -> list[Problem]:
    """Violations of the published specification; empty means valid.

    The specification treats values as text, so `name: 123` is the text `123`, and a name may have
    lower-case letters of any script.
    """
    found = [problem for problem in document.problems if problem.code in _BREAKS_SPEC]
    if document.head is None:
        return found
    fields, lines = document.fields, document.lines
    for key, value in fields.items():
        line = lines.get(key, 0)
        if key not in SPEC_FIELDS:
            code = "not-in-spec" if key in FIELDS else "unknown-field"
            found.append(Problem(code, line=line, values={"key": key}))
        elif key in ("name", "description", "compatibility") and isinstance(value, (list, dict)):
            values = {"key": key, "wanted": "text", "kind": kind_of(value)}
            found.append(Problem("field-type", line=line, values=values))
        elif (
            key == "compatibility"
            and isinstance(value, str)
            and len(value) > MAX_COMPATIBILITY_CHARS
        ):
            found.append(too_long(key, value, MAX_COMPATIBILITY_CHARS, line))
    description = fields.get("description")
    if isinstance(description, str) and len(description) > MAX_DESCRIPTION_CHARS:
        line = lines.get("description", 0)
        found.append(too_long("description", description, MAX_DESCRIPTION_CHARS, line))
    if "name" in fields:
        found += _spec_name(document, folder)
    return sorted(found, key=lambda problem: problem.line)


def _spec_name(document: SkillDocument, folder: str) -> list[Problem]:
    value = document.fields["name"]
    raw = value if isinstance(value, str) else document.head.name if document.head else ""
    name = unicodedata.normalize("NFKC", raw.strip())
    line = document.lines.get("name", 0)
    found: list[Problem] = []
    shaped = all(char.isalnum() or char == "-" for char in name)
    if name != name.lower() or name.strip("-") != name or "--" in name or not shaped:
        found.append(
            Problem("name-pattern", line=line, values={"name": name, "better": slug(name)})
        )
    if len(name) > MAX_NAME_CHARS and not any(
        problem.code == "name-too-long" for problem in document.problems
    ):
        found.append(too_long("name", name, MAX_NAME_CHARS, line))
    if unicodedata.normalize("NFKC", folder) != name:
        found.append(Problem("name-mismatch", line=line, values={"name": name, "folder": folder}))
    return found
