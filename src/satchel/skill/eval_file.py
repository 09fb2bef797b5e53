"""Parser for the evaluation cases of a skill, in the dialects that authors use.

    evals/evals.json          {"evals": [{"prompt", "expected_output", "assertions", "files"}]},
                              or a list of cases, or one case
    evals/eval_queries.json   [{"query", "should_trigger"}]
    evals/triggers.yaml       prompts that should or should not select the skill (`trigger_file`)

Other JSON files directly in `evals` and in `evals/scenarios` are read when they hold a case. Names
of fields differ between authors: `_FIELDS` has them. What cannot be read is a problem with a line.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from satchel._fs import is_really_inside, open_beneath, read_small
from satchel.errors import AccessDenied
from satchel.skill.manifest import ErrorCollector
from satchel.skill.trigger_file import TriggerPrompt, Triggers, load_triggers
from satchel.skill.yaml_reader import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.skill.problems import Problem

FOLDER = "evals"
FILE = "evals/evals.json"
MAX_FILE_BYTES = 512 * 1024
MAX_CASES = 500
MAX_PROMPT_CHARS = 100_000
_FOLDERS = (FOLDER, "evals/scenarios")
_CASE_FILE = re.compile(r"evals/(?:evals|eval[_-]quer\w+|trigger[\w-]*)\.json")
"""Files that are cases whatever they hold; others count only when a case can be recognized."""
_LISTS = ("evals", "cases", "tests", "queries")
_FIELDS = {
    "id": ("id", "name"),
    "prompt": ("prompt", "input", "question", "query"),
    "expected": ("expected_output", "expected_outcome", "expected_behavior", "ground_truth"),
    "expectations": ("assertions", "expectations", "expected_behavior", "pass_criteria", "judge"),
}
"""A part of a case -> the fields that authors write it in, the first that is there counts."""
_TEXT_KEYS = ("text", "assertion", "expectation", "check", "description")
"""Fields of an expectation that is a mapping."""
_NOT_FOR_SKILL = "false_positive"
"""The `type` of a case that should not select the skill."""
_JSON_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\n]', re.DOTALL)

CheckKind = Literal["file", "contains", "matches", "schema", "script"]
CHECK_KINDS: tuple[CheckKind, ...] = get_args(CheckKind)


class EvalCheck(NamedTuple):
    """A check by program: `{"contains": "total"}`, `{"file": "out.csv", "matches": "^id,"}`."""

    kind: CheckKind
    """`file`: it exists. `contains` and `matches` (a regular expression) examine a text, `schema`
    (a JSON Schema) a JSON value; `script` runs a file of the skill, which passes with exit 0."""
    value: Any
    file: str = ""
    """The examined file of the workspace; the answer when empty."""
    args: tuple[str, ...] = ()
    """Arguments of a script."""

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else json.dumps(self.value)
        place = f" in {self.file}" if self.file and self.kind != "file" else ""
        return f"{self.kind} {value}{place}"


class EvalCase(NamedTuple):
    """A prompt, and what is expected of the answer or of the selection."""

    id: str
    """Unique among the cases of its skill."""
    prompt: str
    path: str = ""
    """The file that it is written in."""
    line: int = 0
    expected: str = ""
    """The author's description of a good answer."""
    expectations: tuple[str, ...] = ()
    """Statements that a good answer fulfils."""
    files: tuple[str, ...] = ()
    """Input files, relative to the skill's folder or to `evals`."""
    checks: tuple[EvalCheck, ...] = ()
    fires: bool | None = None
    """Whether the prompt should select the skill; None where the author does not tell."""
    instead: str = ""
    """The skill that the prompt should select instead."""

    @property
    def statements(self) -> tuple[str, ...]:
        """What a model judges: the expectations, else the expected answer."""
        return self.expectations or ((self.expected,) if self.expected else ())

    @property
    def is_task(self) -> bool:
        """Whether the answer can be judged."""
        return self.fires is not False and bool(self.statements or self.checks)


class EvalSuite(NamedTuple):
    """The cases of a skill."""

    cases: tuple[EvalCase, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def tasks(self) -> tuple[EvalCase, ...]:
        """The cases whose answers can be judged."""
        return tuple(case for case in self.cases if case.is_task)


def has_cases(folder: str) -> bool:
    """Whether a skill's folder has files of cases."""
    return os.path.isdir(os.path.join(folder, FOLDER))


def load_cases(folder: str, name: str = "") -> EvalSuite:
    """Read all cases of a skill's folder, which is untrusted: no link leads out of it.

    Args:
        folder: The folder.
        name: The skill's name, which `expected_skill` refers to; that of the folder when empty.
    """
    if not has_cases(folder):
        return EvalSuite()
    reader = _CaseReader(name or os.path.basename(os.path.abspath(folder)))
    for file in _list_files(folder):
        reader.read_file(folder, file)
    triggers = load_triggers(folder)
    if triggers is not None:
        reader.add_triggers(triggers)
    if not reader.cases and not reader.problems:
        errors = ErrorCollector()
        errors.add("evals-unread", file=FILE)
        reader.keep(errors, os.path.join(folder, FOLDER))
    return EvalSuite(tuple(reader.cases), tuple(reader.problems))


def trigger_prompts(folder: str, name: str = "") -> Triggers | None:
    """The cases about selection, for trigger tests; None when there are none.

    Those of `triggers.yaml` alone where it exists.
    """
    triggers = load_triggers(folder)
    if triggers is not None:
        return triggers
    suite = load_cases(folder, name)
    cases = [case for case in suite.cases if case.fires is not None]
    if not cases:
        return None
    prompts = (
        TriggerPrompt(case.prompt, bool(case.fires), case.line, instead=case.instead)
        for case in cases
    )
    return Triggers(cases[0].path, tuple(prompts))


def find_input(folder: str, file: str) -> str:
    """The path of an input file below the skill's folder; empty where there is none.

    Authors write it relative to the skill's folder, to `evals` or to `evals/files`.
    """
    for start in ("", "evals/", "evals/files/"):
        path = os.path.normpath(start + file)
        if is_really_inside(os.path.join(folder, path), folder) and os.path.isfile(
            os.path.join(folder, path)
        ):
            return path.replace(os.sep, "/")
    return ""


def _list_files(folder: str) -> Iterator[str]:
    """Yield the JSON files of cases, the main one first."""
    for part in _FOLDERS:
        try:
            names = sorted(os.listdir(os.path.join(folder, part)))
        except OSError:
            continue
        files = [f"{part}/{name}" for name in names if name.endswith(".json")]
        yield from sorted(files, key=lambda file: file != FILE)


class _CaseReader:
    """Collects cases and problems of several files."""

    def __init__(self, skill: str) -> None:
        self.skill = skill
        self.cases: list[EvalCase] = []
        self.problems: list[Problem] = []
        self._ids: set[str] = set()

    def keep(self, errors: ErrorCollector, path: str) -> None:
        """Keep the problems of a file."""
        self.problems += [problem.at(path) for problem in errors.problems]

    def read_file(self, folder: str, file: str) -> None:
        """Read one JSON file."""
        path = os.path.join(folder, file)
        errors = ErrorCollector()
        is_named = bool(_CASE_FILE.fullmatch(file))
        try:
            descriptor = open_beneath(folder, file)
            try:
                data = read_small(descriptor, MAX_FILE_BYTES)
            finally:
                os.close(descriptor)
            rows = _find_rows(_parse(data.decode("utf-8-sig")))
        except AccessDenied:
            errors.add("unreadable", reason="it leads outside the skill's folder")
        except OSError as exc:
            if os.path.isfile(path) and os.path.getsize(path) > MAX_FILE_BYTES:
                errors.add("triggers-large", limit=str(MAX_FILE_BYTES))
            else:
                errors.add("unreadable", reason=str(exc.strerror or exc))
        except json.JSONDecodeError as exc:
            errors.add("evals-not-json", exc.lineno, reason=exc.msg)
        except (UnicodeDecodeError, RecursionError) as exc:
            errors.add("evals-not-json", reason=getattr(exc, "reason", "it is nested too deeply"))
        else:
            if is_named or any(_text_of(row, "prompt") for row in rows or ()):
                self._read_rows(rows, folder, path, errors)
        self.keep(errors, path)

    def _read_rows(
        self, rows: list[Any] | None, folder: str, path: str, errors: ErrorCollector
    ) -> None:
        if not rows:
            errors.add("evals-none", 1, key="prompt")
        for row in rows or ():
            if len(self.cases) >= MAX_CASES:
                errors.add(
                    "triggers-many", key="prompt", count=f">{MAX_CASES}", limit=str(MAX_CASES)
                )
                break
            case = self._read_row(row, path, errors)
            if case is None:
                continue
            self.cases.append(case)
            for file in case.files:
                if not find_input(folder, file):
                    errors.add("evals-file", case.line, key=file)

    def _read_row(self, row: Any, path: str, errors: ErrorCollector) -> EvalCase | None:
        if not isinstance(row, _Record):
            errors.add("evals-row", 1, kind=kind_of(row))
            return None
        prompt = _text_of(row, "prompt")
        if not prompt:
            errors.add("evals-prompt", row.line, key="prompt")
            return None
        if len(prompt) > MAX_PROMPT_CHARS:
            errors.add_too_long("triggers-long", "prompt", row.line, prompt, MAX_PROMPT_CHARS)
            return None
        fires, instead = self._read_selection(row)
        return EvalCase(
            self._unique_id(_text_of(row, "id") or str(len(self.cases) + 1)),
            prompt,
            path,
            row.line,
            expected=_text_of(row, "expected"),
            expectations=_read_expectations(row),
            files=_read_texts(row.get("files"), ("path", "name")),
            checks=tuple(_read_checks(row, errors)),
            fires=fires,
            instead=instead,
        )

    def _read_selection(self, row: _Record) -> tuple[bool | None, str]:
        """Whether a prompt should select the skill, and the skill to select instead."""
        should_trigger, other = row.get("should_trigger"), row.get("expected_skill")
        if isinstance(should_trigger, bool):
            fires = should_trigger
        elif row.get("type") == _NOT_FOR_SKILL:
            fires = False
        elif "expected_skill" in row:
            fires = other == self.skill
        else:
            return None, ""
        return fires, other if isinstance(other, str) and other != self.skill else ""

    def add_triggers(self, triggers: Triggers) -> None:
        """Add the prompts of `triggers.yaml`."""
        self.problems += triggers.problems
        for prompt in triggers.prompts:
            self.cases.append(
                EvalCase(
                    self._unique_id(f"trigger-{prompt.line}"),
                    prompt.text,
                    triggers.path,
                    prompt.line,
                    fires=prompt.fires,
                    instead=prompt.instead,
                )
            )

    def _unique_id(self, wish: str) -> str:
        """The id of a case, with a number where another case has it already."""
        unique, number = wish, 1
        while unique in self._ids:
            number += 1
            unique = f"{wish}-{number}"
        self._ids.add(unique)
        return unique


# --- JSON with lines ----------------------------------------------------------------------


class _Record(dict[str, Any]):
    """A JSON object, with the line that it begins in."""

    line = 0


def _parse(text: str) -> Any:
    """Parse JSON; each object knows its line.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    lines = iter(_object_lines(text))

    def make_record(pairs: list[tuple[str, Any]]) -> _Record:
        record = _Record(pairs)
        record.line = next(lines, 0)
        return record

    return json.loads(text, object_pairs_hook=make_record)


def _object_lines(text: str) -> list[int]:
    """The first lines of all objects, in the order in which the objects end."""
    line, open_lines, lines = 1, list[int](), list[int]()
    for match in _JSON_PART.finditer(text):
        part = match.group()
        if part == "{":
            open_lines.append(line)
        elif part == "}" and open_lines:
            lines.append(open_lines.pop())
        line += part.count("\n")
    return lines


def _find_rows(value: Any) -> list[Any] | None:
    """The cases of a parsed file: a list, a list in an object, or the object itself."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    if not isinstance(value, _Record):
        return None
    for key in _LISTS:
        if isinstance(value.get(key), list):
            return value[key]
    return [value] if _text_of(value, "prompt") else None


def _text_of(row: Any, part: str) -> str:
    """The text of a part of a case, under the first of its names that has one."""
    if isinstance(row, _Record):
        for key in _FIELDS[part]:
            value = row.get(key)
            if isinstance(value, int) and part == "id":
                return str(value)
            if isinstance(value, str) and value.strip():
                return value.strip()
    return ""


def _read_expectations(row: _Record) -> tuple[str, ...]:
    for key in _FIELDS["expectations"]:
        if isinstance(row.get(key), list):
            return _read_texts(row[key], _TEXT_KEYS)
    return ()


def _read_texts(value: Any, keys: Iterable[str]) -> tuple[str, ...]:
    """The texts of a list, whose items may be mappings with a text."""
    texts: list[str] = []
    for item in cast("list[Any]", value) if isinstance(value, list) else ():
        fields: dict[str, Any] = item if isinstance(item, _Record) else {"": item}
        text = next((fields[key] for key in ("", *keys) if isinstance(fields.get(key), str)), "")
        if text.strip():
            texts.append(text.strip())
    return tuple(texts)


def _read_checks(row: _Record, errors: ErrorCollector) -> Iterator[EvalCheck]:
    """Yield the checks of a case; each has one key of `CHECK_KINDS`, and perhaps `file`."""
    checks = row.get("checks", [])
    for check in cast("list[Any]", checks) if isinstance(checks, list) else [checks]:
        fields = check if isinstance(check, _Record) else _Record()
        kinds: list[CheckKind] = [kind for kind in CHECK_KINDS[1:] if kind in fields] or ["file"]
        value, file = fields.get(kinds[0]), fields.get("file", "")
        if len(kinds) == 1 and isinstance(file, str) and _is_check_value(kinds[0], value):
            yield EvalCheck(kinds[0], value, file, _read_texts(fields.get("args"), ()))
        else:
            names, line = ", ".join(CHECK_KINDS), fields.line or row.line
            errors.add("evals-check", line, check=json.dumps(check)[:80], names=names)


def _is_check_value(kind: CheckKind, value: Any) -> bool:
    """Whether a check of a kind can have a value."""
    if kind == "matches" and isinstance(value, str):
        try:
            re.compile(value)
        except re.error:
            return False
    return bool(value) and isinstance(value, dict if kind == "schema" else str)


def is_private(path: str) -> bool:
    """Whether a file of a skill is about its evaluation, so that no evaluated model may see it."""
    return path == FOLDER or path.startswith(f"{FOLDER}/")
