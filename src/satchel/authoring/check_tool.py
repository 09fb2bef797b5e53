"""Check-list of tool skills, from their files; nothing is run.

Rules that need a run are checked by `tool_trial`, on request.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import open_beneath
from satchel.authoring import text_rules
from satchel.authoring.checklist import CheckSheet
from satchel.authoring.source_analysis import (
    SourceAnalysis,
    SourceSpot,
    analyse_python,
    program_files,
    read_text,
)
from satchel.authoring.text_rules import (
    draft_of,
    internals_in,
    judge_descriptions,
    judge_language,
    judge_names,
    judge_parameters,
    message_error,
)
from satchel.errors import AccessDenied, InvalidInput
from satchel.i18n import say
from satchel.skill.document import MANIFEST
from satchel.skill.manifest_parser import RUNTIMES, load_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.authoring.checklist import Slip
    from satchel.authoring.text_rules import DraftManifest, DraftTool
    from satchel.errors import SatchelError
    from satchel.skill.manifest_parser import ManifestResult

MAX_FOLDER_FILES = 10_000
_SAME_TIME_S = 2.0
"""Files unpacked or checked out together differ by at most this."""
_OWN_BOX = frozenset((
    "tool-name", "tool-name-prefix", "tool-runtime", "tool-entry-missing", "tool-entry-path",
))  # fmt: skip
"""Manifest problems with a rule of their own."""
_FILE_NAME = re.compile(
    r"(?:^|_)(?:path|file|filename|filepath|dir|directory|folder)$", re.IGNORECASE
)
_FILE_WORDS = re.compile(
    r"文件路径|文件的路径|\bfile path\b|\bpath (?:of|to) (?:a|an|the)\b", re.IGNORECASE
)
_SOURCE_ONLY = (".c", ".cc", ".cpp", ".rs", ".go", ".ts", ".java", ".swift", ".zig", ".h")
_SYNONYMS = {
    "py": "python", "python3": "python", "python2": "python", "cpython": "python", "nodejs": "node",
    "js": "node", "javascript": "node", "ts": "node", "typescript": "node", "deno": "node",
    "bun": "node", "golang": "go", "exe": "binary", "bin": "binary", "executable": "binary",
    "native": "binary", "rust": "binary", "c": "binary",
}  # fmt: skip
ENDINGS = {
    "python": (".py",),
    "node": (".ts", ".js", ".mjs", ".cjs", ".mts", ".cts"),
    "go": (".go",),
}
"""Runtime -> file endings of its entry."""
_NEED_SOURCE = (
    "protocol-read", "protocol-write", "protocol-quiet", "error-wording", "error-inside",
    "error-language", "no-uncaught",
)  # fmt: skip
_LACKS = {
    "no-step": "does not say what to do next",
    "vague": "does not say what is wrong",
    "empty-step": "has no next step worth taking",
}


def check_tool(
    folder: str, *, language: str = ""
) -> tuple[CheckSheet, DraftManifest, ManifestResult]:
    """Check the rules that need no run.

    Args:
        folder: The skill's folder, absolute.
        language: `en` or `zh`, to require texts in that language.

    Raises:
        OSError: there is no skill.yaml, or it cannot be read.
    """
    sheet = CheckSheet("tool", os.path.join(folder, MANIFEST))
    reading = load_manifest(folder)
    draft = draft_of(reading)
    _judge_reading(sheet, reading)
    if not reading.fields:
        sheet.skip_rest(say("`skill.yaml` cannot be read"))
        return sheet, draft, reading
    prefix = os.path.basename(folder).replace("-", "_")
    libraries = dependency_names(folder) - {prefix.replace("_", "-")}
    judge_names(sheet, draft.tools, prefix, dependency_names(folder))
    judge_descriptions(sheet, draft.tools, libraries)
    judge_parameters(sheet, [one for tool in draft.tools for one in tool.parameters])
    judge_language(sheet, draft.tools, language, say("no `--language` was given"))
    _judge_start(sheet, folder, draft, reading)
    _judge_docs(sheet, draft)
    _judge_packages(sheet, folder, draft)
    _judge_code(sheet, folder, draft, language)
    _judge_files(sheet, draft)
    judge_line_ends(sheet, folder, MANIFEST)
    return sheet, draft, reading


def _judge_reading(sheet: CheckSheet, reading: ManifestResult) -> None:
    rest = [problem for problem in reading.problems if problem.code not in _OWN_BOX]
    for rule, bad in (("manifest-valid", True), ("manifest-clean", False)):
        if not bad and not reading.fields:
            continue  # its content is unknown
        sheet.judge(
            rule,
            (
                (problem.line, {"problem": problem.message, "remedy": problem.fix})
                for problem in rest
                if (problem.severity == "error") is bad
            ),
        )


def dependency_names(folder: str) -> frozenset[str]:
    """Return the lowercase names of a skill's dependencies."""
    found: set[str] = set()
    text = read_text(os.path.join(folder, "requirements.txt")) or ""
    for line in text.splitlines():
        name = re.match(r"\s*([A-Za-z0-9][\w.-]*)", line)
        if name:
            found.add(name.group(1).lower().replace("_", "-"))
    text = read_text(os.path.join(folder, "go.mod")) or ""
    for path in re.findall(r"^\s*(?:require\s+)?([\w.-]+\.[\w.-]+/\S+)\s+v\d", text, re.MULTILINE):
        found.add([part for part in path.split("/") if not re.fullmatch(r"v\d+", part)][-1].lower())
    text = read_text(os.path.join(folder, "package.json"))
    if text:
        import json

        try:
            table: Any = json.loads(text)
        except (ValueError, RecursionError):
            table = None
        given: Any = None
        if isinstance(table, dict):
            given = cast("dict[str, Any]", table).get("dependencies")
        if isinstance(given, dict):
            names = cast("dict[str, Any]", given)
            found |= {str(name).rpartition("/")[2].lower() for name in names}
    # Library names that are also common words.
    return frozenset(
        found - {"requests", "sharp", "moment", "click", "rich", "express", "got", "open"}
    )


# --- runtime, entry, docs -----------------------------------------------------------------


def _judge_start(
    sheet: CheckSheet, folder: str, draft: DraftManifest, reading: ManifestResult
) -> None:
    known = draft.runtime in RUNTIMES
    line = reading.lines.get("runtime", 0)
    wrong = bool(draft.runtime) and not known
    better = likely_runtime(draft.runtime)
    shown = f"`{better}`" if better else "`python`, `node`, `go`, `binary`"
    values = {"value": draft.runtime[:60], "better": shown}
    sheet.judge("runtime-known", [(line, values)] if wrong else [])
    line = reading.lines.get("entry", 0)
    values = {"entry": draft.entry[:100], "runtime": draft.runtime}
    there = bool(draft.entry) and is_regular_file(folder, draft.entry)
    sheet.judge("entry-exists", [] if there or not draft.entry else [(line, values)])
    if not known or not draft.entry:
        why = say("`runtime` or `entry` is not known")
        sheet.skip(why, "entry-fits", "entry-executable", "binary-fresh")
        return
    ending = os.path.splitext(draft.entry)[1].lower()
    if draft.runtime == "binary":
        fits = ending not in _SOURCE_ONLY
    else:
        fits = ending in ENDINGS[draft.runtime]
    sheet.judge("entry-fits", [] if fits else [(line, values)])
    if draft.runtime != "binary":
        sheet.skip(say("only for the runtime `binary`"), "entry-executable", "binary-fresh")
    elif not there:
        sheet.skip(say("there is no entry"), "entry-executable", "binary-fresh")
    else:
        _judge_fresh(sheet, folder, draft.entry)
        may = os.access(os.path.join(folder, draft.entry), os.X_OK)
        sheet.judge("entry-executable", [] if may or not fits else [(line, values)])


def _judge_fresh(sheet: CheckSheet, folder: str, entry: str) -> None:
    times = {
        one.name: one.stat().st_mtime
        for one in os.scandir(folder)
        if one.name.endswith(_SOURCE_ONLY) and one.is_file(follow_symlinks=False)
    }
    if not times:
        sheet.skip(say("its source is not in the folder"), "binary-fresh")
        return
    source = max(times, key=lambda name: (times[name], name))
    made = os.stat(os.path.join(folder, entry)).st_mtime
    remedy = say("Compile it again")
    if source.endswith(".c"):
        remedy = say("Run `{command}`", command=f"cc -O2 -o {entry} {source}")
    values = {"source": source, "entry": entry, "remedy": remedy}
    stale = times[source] > made + _SAME_TIME_S
    sheet.judge("binary-fresh", [(0, values)] if stale else [], os.path.join(folder, source))


def likely_runtime(value: str) -> str:
    """Return the runtime meant by a misspelling; empty if ambiguous."""
    import difflib

    word = value.strip().lower()
    if word in RUNTIMES:
        return word
    plain = re.sub(r"[\s\d.]+$", "", word)
    near = difflib.get_close_matches(plain, RUNTIMES, 2, cutoff=0.7)
    return _SYNONYMS.get(word) or _SYNONYMS.get(plain) or (near[0] if len(near) == 1 else "")


def is_regular_file(folder: str, entry: str) -> bool:
    """Whether a path is a regular file inside a folder."""
    import stat

    try:
        descriptor = open_beneath(folder, entry)
    except (OSError, AccessDenied):
        return False
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _judge_docs(sheet: CheckSheet, draft: DraftManifest) -> None:
    tools = draft.tools
    for rule, empty in (
        ("docs-when", [tool for tool in tools if not tool.when]),
        ("docs-when-not", [tool for tool in tools if not tool.when_not]),
        ("docs-examples", [tool for tool in tools if not tool.examples]),
    ):
        sheet.judge(rule, ((tool.line, {"name": tool.name}) for tool in empty))
    if any(tool.schema is None for tool in draft.tools):
        sheet.skip(say("the manifest cannot be used"), "docs-arguments")
        return
    sheet.judge("docs-arguments", (slip for tool in draft.tools for slip in _wrong_examples(tool)))


def _wrong_examples(tool: DraftTool) -> Iterator[Slip]:
    from satchel.tools.schema import check

    for shown in tool.examples:
        try:
            check(dict(shown.arguments), tool.schema or {}, {})
        except InvalidInput as exc:
            scenario = shown.scenario[:60]
            yield shown.line, {"scenario": scenario, "name": tool.name, "reason": exc.message}


# --- the program --------------------------------------------------------------------------


def _judge_packages(sheet: CheckSheet, folder: str, draft: DraftManifest) -> None:
    """Check dependencies with the readers of the build."""
    from satchel.errors import BuildFailed
    from satchel.runners.node import read_lock, read_package
    from satchel.runners.python import REQUIREMENTS, read_requirements

    if draft.runtime not in RUNTIMES:
        return
    readers = {
        "python": {REQUIREMENTS: read_requirements},
        "node": {"package.json": read_package, "package-lock.json": read_lock},
    }.get(draft.runtime, {})
    there = [name for name in readers if os.path.lexists(os.path.join(folder, name))]
    if not there:
        sheet.skip(say("it asks for no packages"), "packages")
        return
    sheet.judge("packages")
    for name in there:
        try:
            readers[name](folder)
        except BuildFailed as exc:
            path = os.path.join(folder, name)
            slips = _package_errors(exc, read_text(path) or "", numbered=name == REQUIREMENTS)
            sheet.judge("packages", slips, path)


def _package_errors(exc: SatchelError, text: str, *, numbered: bool) -> Iterator[Slip]:
    head, *rest = exc.message.splitlines()
    if not rest:
        yield 0, {"problem": head, "remedy": exc.hint}
    for row in rest:
        if numbered:
            number = re.search(r"\d+", row)
            line = int(number.group()) if number else 0
            told = row[row.index("`") :] if "`" in row else row
        else:
            quoted = re.findall(r"`([^`]+)`", row)
            at = text.find(f'"{quoted[0]}"') if quoted else -1
            line, told = text.count("\n", 0, at) + 1 if at >= 0 else 0, row
        yield line, {"problem": head + say(": ") + told, "remedy": exc.hint}


def _judge_code(sheet: CheckSheet, folder: str, draft: DraftManifest, language: str) -> None:
    if draft.runtime == "go":
        there = os.path.isfile(os.path.join(folder, "go.mod"))
        name = os.path.basename(folder)
        sheet.judge("go-module", [] if there else [(0, {"name": name})], folder)
    else:
        sheet.skip(say("only for the runtime `go`"), "go-module", "go-builds")
    if draft.runtime not in RUNTIMES:
        sheet.skip_rest(say("`runtime` is not known"), "code")
        return
    if draft.runtime != "python":
        why = say("its source is not read: only a run can tell, with `--run`")
        sheet.skip(why, "program-parses", *_NEED_SOURCE)
        return
    files = program_files(folder, draft.entry)
    if not files:
        sheet.skip(say("there is no source to look at"), "program-parses", *_NEED_SOURCE)
        return
    try:
        found = analyse_python(files)
    except RecursionError:
        found = SourceAnalysis(broken=SourceSpot(say("it is nested too deeply"), files[0].path, 0))
    if found.broken is not None:
        path = os.path.join(folder, found.broken.path)
        values = {"reason": found.broken.text}
        sheet.judge("program-parses", [(found.broken.line, values)], path)
        sheet.skip(say("the program cannot be parsed"), *_NEED_SOURCE)
        return
    sheet.judge("program-parses")
    _judge_protocol(sheet, folder, draft, found)
    wanted = language or text_rules.language_of(draft.tools[0].description if draft.tools else "")
    _judge_errors(sheet, folder, found, wanted)
    if draft.access == "write":
        bad = found.writes_files and not found.checks_existence
        sheet.judge("write-looks", [(0, {})] if bad else [], os.path.join(folder, draft.entry))


def _judge_protocol(
    sheet: CheckSheet, folder: str, draft: DraftManifest, source: SourceAnalysis
) -> None:
    for rule, spot in (("protocol-read", source.reads), ("protocol-write", source.writes)):
        slips = [(spot.line, {"what": spot.text})] if spot else []
        sheet.judge(rule, slips, os.path.join(folder, spot.path) if spot else "")
    sheet.judge("protocol-quiet")
    for spot in source.loud:
        path = os.path.join(folder, spot.path)
        sheet.judge("protocol-quiet", [(spot.line, {"what": spot.text})], path)
    bare = say("Nothing catches every exception: there is no `except Exception`")
    slips = [] if source.guarded else [(1, {"what": bare})]
    sheet.judge("no-uncaught", slips, os.path.join(folder, draft.entry))


def _judge_errors(sheet: CheckSheet, folder: str, source: SourceAnalysis, wanted: str) -> None:
    if not source.errors and not source.leaks:
        why = say("no text of an error was found in the source")
        sheet.skip(why, "error-wording", "error-inside", "error-language")
        return
    for rule in ("error-wording", "error-inside", "error-language"):
        sheet.judge(rule)
    for spot in source.errors:
        path, shown = os.path.join(folder, spot.path), spot.text[:60]
        slip = message_error(spot.text)
        if slip:
            values = {"text": shown, "lacks": say(_LACKS[slip])}
            sheet.judge("error-wording", [(spot.line, values)], path)
        if internals_in(spot.text):
            sheet.judge("error-inside", [(spot.line, {"text": f"`{shown}`"})], path)
        if text_rules.has_words(spot.text) and text_rules.language_of(spot.text) != wanted:
            sheet.judge("error-language", [(spot.line, {"text": shown})], path)
    for spot in source.leaks:
        path = os.path.join(folder, spot.path)
        sheet.judge("error-inside", [(spot.line, {"text": spot.text})], path)


def _judge_files(sheet: CheckSheet, draft: DraftManifest) -> None:
    unseen = [
        one
        for tool in draft.tools
        for one in tool.parameters
        if one.type == "string"
        and (_FILE_NAME.search(one.name) or _FILE_WORDS.search(one.description))
        and one.name not in draft.shown
        and draft.access == "none"
    ]
    sheet.judge("files-declared", ((one.line, {"name": one.name}) for one in unseen))
    sheet.skip(say("the skill writes no files of the workspace"), "write-looks")


# --- files --------------------------------------------------------------------------------


def judge_line_ends(sheet: CheckSheet, folder: str, main: str) -> None:
    """Check line ends of scripts."""
    found = scripts_with_windows_ends(folder)
    if found is None:
        sheet.skip(
            say("the folder has more than {count} files", count=MAX_FOLDER_FILES), "script-ends"
        )
    else:
        sheet.judge("script-ends", ((1, {"file": name}) for name in found), folder)
    text = read_text(os.path.join(folder, main), 4 << 20)
    bare = text is not None and bool(text) and not text.endswith("\n")
    sheet.judge(
        "last-newline", [(text.count("\n") + 1 if text else 0, {"file": main})] if bare else []
    )


def scripts_with_windows_ends(folder: str) -> list[str] | None:
    """Return scripts whose `#!` line ends with a carriage return; None for too many files."""
    found: list[str] = []
    looked = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name != "node_modules"
        )
        looked += len(files) + len(folders)
        if looked > MAX_FOLDER_FILES:
            return None
        for name in sorted(files):
            path = os.path.join(here, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            try:
                with open(path, "rb") as file:
                    start = file.read(256)
            except OSError:
                continue  # an unreadable file cannot be run either
            if start.startswith(b"#!") and start.partition(b"\n")[0].endswith(b"\r"):
                found.append(os.path.relpath(path, folder).replace(os.sep, "/"))
    return found
