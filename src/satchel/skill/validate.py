"""Validation of whole skills.

check_document    problems in practice; most are warnings and notes
find_violations   violations of the published Agent Skills specification, equal to the reference
                  validator wherever that follows the specification
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING, Any, cast

from satchel.errors import NotFound
from satchel.skill.document import MANIFEST
from satchel.skill.fields import FIELDS, SPEC_FIELDS, correct_spelling
from satchel.skill.file_references import find_missing_files
from satchel.skill.manifest_parser import check_entry, load_manifest, read_manifest
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
from satchel.skill.requirements import REQUIREMENT_KEYS, read_requirements
from satchel.skill.yaml_reader import kind_of

if TYPE_CHECKING:
    from satchel.skill.document import SkillDocument
    from satchel.skill.fields import FrontmatterField

MAX_COMPATIBILITY_CHARS = 500
_MAX_BODY_LINES = 500
_MARKUP_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>")
_PLACEHOLDER_TEXT = re.compile(
    r"\s*(?:To be written\b|(?:TODO|TBD)(?=[.:]|\s*$)|\[TODO[:\]]|\[insert [^\]]*\]\s*$|"
    r"Lorem ipsum dolor\b|Description (?:goes )?here\W*$|待编写|待补充|在此填写)"
)
"""Placeholders of templates, at the start only: a skill may be about such text."""
_RESERVED_WORDS = ("anthropic", "claude")
_SPEC_VIOLATIONS = frozenset((
    "no-frontmatter", "symlink-as-text", "frontmatter-too-large", "not-a-mapping",
    "description-missing", "name-unusable", "not-text", "repaired-value", "unclear-value",
    "stray-text", "yaml-refused", "unclosed-frontmatter", "control-characters",
    "broken-surrogates", "invalid-utf8", "bom", "leading-blank", "wide-encoding", "duplicate-key",
    "name-missing", "name-too-long", "field-too-long", "key-spelling", "merge-conflict",
    "unclosed-value", "conflict-marks",
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
        return _check_manifest(folder)
    return validate_document(load_document(folder, file), folder, file, strict=strict)


def validate_document(
    document: SkillDocument, folder: str, file: str, *, strict: bool = False
) -> list[Problem]:
    """Check a skill whose SKILL.md has been read.

    Args:
        document: The SKILL.md.
        folder: The skill's folder, absolute.
        file: The name of the SKILL.md.
        strict: Only violations of the published specification.
    """
    name = os.path.basename(folder)
    path = os.path.join(folder, file)
    problems = find_violations(document, name) if strict else check_document(document)
    if not strict:
        problems += _check_file_name(folder, file) + find_missing_files(document, folder, path)
    return [problem.at(path) for problem in sorted(problems, key=lambda problem: problem.line)]


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
        problems = list(check_entry(read_manifest(data, name), folder).problems)
    else:
        problems = check_document(document) + find_missing_files(document, folder, data)
    path = os.path.join(folder, file)
    return document, [
        problem.at(path) for problem in sorted(problems, key=lambda problem: problem.line)
    ]


def _check_manifest(folder: str) -> list[Problem]:
    try:
        return list(load_manifest(folder).problems)
    except OSError as exc:
        values = {"reason": exc.strerror or str(exc)}
        return [Problem("unreadable", os.path.join(folder, MANIFEST), values=values)]


def _check_file_name(folder: str, file: str) -> list[Problem]:
    """Problems of the file's name; a scan does not list every folder."""
    try:
        variants = [name for name in os.listdir(folder) if name.lower() == "skill.md"]
    except OSError:
        return []
    if len(variants) > 1:
        other = next(name for name in sorted(variants) if name != file)
        return [Problem("two-files", values={"used": file, "other": other})]
    return [] if file == "SKILL.md" else [Problem("file-case", values={"file": file})]


def check_document(document: SkillDocument) -> list[Problem]:
    """All problems of a skill, in the order of the file."""
    problems = list(document.problems)
    if document.head is None:
        return problems
    fields, lines = document.fields, document.lines
    for key, value in fields.items():
        line = lines.get(key, 0)
        field = FIELDS.get(key)
        if field is None:
            if correct_spelling(key) is None:
                problems.append(Problem("unknown-field", line=line, values={"key": key}))
        else:
            problems += _check_field(field, value, line)
        servers = read_requirements({key: value}).get("mcp") if key in REQUIREMENT_KEYS else ()
        if servers:
            values = {"servers": ", ".join(f"`{server}`" for server in servers)}
            problems.append(Problem("requires-mcp", line=line, values=values))
    if _PLACEHOLDER_TEXT.match(document.head.description):
        problems.append(Problem("description-unwritten", line=lines.get("description", 0)))
    tag = _MARKUP_TAG.search(document.head.description)
    if tag:
        line = lines.get("description", 0)
        problems.append(Problem("description-markup", line=line, values={"tag": tag.group()}))
    for word in _RESERVED_WORDS:
        if word in document.head.name.lower():
            problems.append(
                Problem("name-reserved", line=lines.get("name", 0), values={"word": word})
            )
    if not document.body.strip():
        problems.append(Problem("body-empty"))
    elif document.body.count("\n") > _MAX_BODY_LINES:
        values = {"lines": str(document.body.count("\n"))}
        problems.append(Problem("body-long", values=values))
    return sorted(problems, key=lambda problem: problem.line)


def _check_field(field: FrontmatterField, value: Any, line: int) -> list[Problem]:
    problems: list[Problem] = []
    key = field.name
    if key in ("name", "description"):
        return problems  # checked by `interpret`
    kind = kind_of(value)
    expected_kinds = {"text": "text", "flag": "true or false", "list": "a list", "map": "a mapping"}
    has_expected_kind = {
        "text": isinstance(value, str),
        "flag": as_flag(value) is not None,
        "list": isinstance(value, (str, list)),
        "map": isinstance(value, dict),
        "any": True,
    }[field.kind]
    if not has_expected_kind and value is not None:
        problems.append(
            Problem(
                "field-type",
                line=line,
                values={"key": key, "wanted": expected_kinds[field.kind], "kind": kind},
            )
        )
    if key == "compatibility" and isinstance(value, str) and len(value) > MAX_COMPATIBILITY_CHARS:
        problems.append(too_long(key, value, MAX_COMPATIBILITY_CHARS, line))
    if key == "allowed-tools" and isinstance(value, list):
        values = {"key": key, "line": " ".join(as_words(value))}
        problems.append(Problem("tools-list", line=line, values=values))
    if key == "metadata" and isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        keys = [str(name) for name, content in fields.items() if not isinstance(content, str)]
        if keys:
            values = {"keys": ", ".join(keys[:5])}
            problems.append(Problem("metadata-nested", line=line, values=values))
    if field.status == "inert":
        values = {"key": key, "meaning": field.meaning}
        problems.append(Problem("inert-field", line=line, values=values))
    return problems


def find_violations(document: SkillDocument, folder: str) -> list[Problem]:
    """Find violations of the published specification; empty means valid.

    The specification treats values as text, so `name: 123` is the text `123`, and a name may have
    lower-case letters of any script.
    """
    problems = [problem for problem in document.problems if problem.code in _SPEC_VIOLATIONS]
    if document.head is None:
        return problems
    fields, lines = document.fields, document.lines
    for key, value in fields.items():
        line = lines.get(key, 0)
        if key not in SPEC_FIELDS:
            code = "not-in-spec" if key in FIELDS else "unknown-field"
            problems.append(Problem(code, line=line, values={"key": key}))
        elif key in ("name", "description", "compatibility") and isinstance(value, (list, dict)):
            values = {"key": key, "wanted": "text", "kind": kind_of(value)}
            problems.append(Problem("field-type", line=line, values=values))
        elif (
            key == "compatibility"
            and isinstance(value, str)
            and len(value) > MAX_COMPATIBILITY_CHARS
        ):
            problems.append(too_long(key, value, MAX_COMPATIBILITY_CHARS, line))
    description = fields.get("description")
    if isinstance(description, str) and len(description) > MAX_DESCRIPTION_CHARS:
        line = lines.get("description", 0)
        problems.append(too_long("description", description, MAX_DESCRIPTION_CHARS, line))
    if "name" in fields:
        problems += _find_name_violations(document, folder)
    return sorted(problems, key=lambda problem: problem.line)


def _find_name_violations(document: SkillDocument, folder: str) -> list[Problem]:
    value = document.fields["name"]
    header_name = document.head.name if document.head else ""
    written_name = value if isinstance(value, str) else header_name
    name = unicodedata.normalize("NFKC", written_name.strip())
    line = document.lines.get("name", 0)
    problems: list[Problem] = []
    has_valid_signs = all(sign.isalnum() or sign == "-" for sign in name)
    has_valid_hyphens = name.strip("-") == name and "--" not in name
    if name != name.lower() or not has_valid_signs or not has_valid_hyphens:
        values = {"name": name, "better": slug(name)}
        problems.append(Problem("name-pattern", line=line, values=values))
    is_reported = any(problem.code == "name-too-long" for problem in document.problems)
    if len(name) > MAX_NAME_CHARS and not is_reported:
        problems.append(too_long("name", name, MAX_NAME_CHARS, line))
    if unicodedata.normalize("NFKC", folder) != name:
        problems.append(
            Problem("name-mismatch", line=line, values={"name": name, "folder": folder})
        )
    return problems
