"""The rules of all check-lists in one table, and the report of a check.

    tool       a folder with skill.yaml: manifest, implementation, replies
    packaged   tools of an installed Python package
    skill      a SKILL.md

A rule is one sentence, what must hold, and a fix. `box` names the line of the check-list that a
rule comes from; several rules may share one. What `satchel.skill.problems` has a code for keeps its
code, sentence and fix here: the rule only says which line of the list it breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.skill.problems import Problem, Severity

ListName = Literal["tool", "packaged", "skill"]
State = Literal["pass", "fail", "skip"]
"""`skip`: the rule does not apply or was not checked, with the reason."""

SECTIONS: dict[str, str] = {
    "manifest": "skill.yaml",
    "code": "Implementation",
    "safety": "Safety",
    "proof": "Verification",
    "tests": "Tests",
    "page": "Documentation",
    "registration": "Registration",
    "head": "Frontmatter",
    "body": "Instructions",
    "files": "Files",
}
"""Section -> title, in display order."""


class RuleFailure(NamedTuple):
    """One place that breaks a rule."""

    line: int = 0
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed
    """The values of the message."""


class CheckReport(NamedTuple):
    """The result of one check-list for one skill."""

    name: str
    path: str
    """The folder, or the module of a packaged skill."""
    list: ListName
    verdicts: tuple[CheckResult, ...]

    def failures(self, *, strict: bool = False) -> list[CheckResult]:
        """Return the failures: errors, and with `strict` warnings too."""
        severities = ("error", "warning") if strict else ("error",)
        return [
            verdict
            for verdict in self.verdicts
            if verdict.state == "fail" and verdict.severity in severities
        ]

    @property
    def failed_codes(self) -> dict[str, Severity]:
        """Return the codes of all failures, with their severity."""
        return {
            verdict.code: verdict.severity for verdict in self.verdicts if verdict.state == "fail"
        }

    def to_dict(self, *, strict: bool = False) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "name": self.name,
            "path": self.path,
            "list": self.list,
            "ok": not self.failures(strict=strict),
            "boxes": [verdict.to_dict() for verdict in self.verdicts],
        }


class CheckSheet:
    """A check-list in progress."""

    def __init__(self, name: ListName, file: str) -> None:
        self.name: ListName = name
        self.file = file
        self._rules = [rule.id for rule in find_rules(name)]
        self._verdicts: dict[str, list[CheckResult]] = {}

    def judge(self, rule: str, failures: Iterable[RuleFailure] = (), path: str = "") -> None:
        """Record a rule as passed, or its failures. Repeated calls add failures."""
        file = path or self.file
        self._add(
            rule, [CheckResult(rule, "fail", file, line, values) for line, values in failures]
        )

    def judge_problems(self, rule: str, problems: Iterable[Problem]) -> None:
        """Record a rule as passed, or as broken by problems. Repeated calls add problems."""
        results = [
            CheckResult(rule, "fail", problem.path or self.file, problem.line, problem=problem)
            for problem in problems
        ]
        self._add(rule, results)

    def _add(self, rule: str, failures: list[CheckResult]) -> None:
        earlier = [verdict for verdict in self._verdicts.get(rule, []) if verdict.state == "fail"]
        self._verdicts[rule] = [*earlier, *failures] or [CheckResult(rule)]

    def fail(self, rule: str, line: int = 0, /, path: str = "", **values: str) -> None:
        """Record one failure with the values of its message."""
        self.judge(rule, [RuleFailure(line, values)], path)

    def require(
        self, rule: str, is_met: object, line: int = 0, /, path: str = "", **values: str
    ) -> None:
        """Record a rule as passed if `is_met` is true, else one failure."""
        self.judge(rule, [] if is_met else [RuleFailure(line, values)], path)

    def skip(self, reason: str, *rules: str, is_open: bool = False) -> None:
        """Skip rules that are not judged yet.

        Args:
            reason: Why, in the user's language.
            rules: The rules.
            is_open: Whether they apply and were requested; shown as open.
        """
        for rule in rules:
            if rule in self._rules:
                verdict = CheckResult(rule, "skip", reason=reason, is_open=is_open)
                self._verdicts.setdefault(rule, [verdict])

    def has_failed(self, rule: str) -> bool:
        """Whether a rule has failed."""
        return any(verdict.state == "fail" for verdict in self._verdicts.get(rule, []))

    def skip_rest(self, reason: str, *sections: str) -> None:
        """Skip all unjudged rules, in some sections or in all."""
        self.skip(
            reason,
            *(rule for rule in self._rules if not sections or RULES[rule].section in sections),
        )

    def report(self, name: str, path: str) -> CheckReport:
        """Return the complete list in order."""
        self.skip(say("not checked"), *self._rules)
        verdicts = [verdict for rule in self._rules for verdict in self._verdicts[rule]]
        return CheckReport(name, path, self.name, tuple(verdicts))


class CheckRule(NamedTuple):
    """A rule."""

    id: str
    lists: tuple[ListName, ...]
    section: str
    severity: Severity
    box: str
    """Check-list lines, such as `B2`; empty for rules outside the lists."""
    demand: str
    detail: str = ""
    """What a failure shows after the demand; its `{fields}` are filled from the verdict."""
    fix: str = ""
    """Empty where each failure brings its own."""


class CheckResult(NamedTuple):
    """The result of one rule in one place."""

    rule: str
    state: State = "pass"
    path: str = ""
    line: int = 0
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed
    reason: str = ""
    """For `skip`: the reason in the user's language."""
    is_open: bool = False
    """For `skip`: whether the rule applies and was requested."""
    problem: Problem | None = None
    """The problem that breaks the rule."""

    @property
    def code(self) -> str:
        """The code of the fault: of its problem, or the rule itself."""
        return self.problem.code if self.problem is not None else self.rule

    @property
    def severity(self) -> Severity:
        """`error`, `warning` or `note`."""
        return (self.problem or RULES[self.rule]).severity

    @property
    def message(self) -> str:
        """The failure message in the user's language; for a skip, the reason."""
        if self.state != "fail":
            return self.reason
        if self.problem is not None:
            return self.problem.message
        rule = RULES[self.rule]
        detail = say(rule.detail, **self.values) if rule.detail else ""
        return say(rule.demand) + (say(": ") + detail if detail else "")

    @property
    def fix(self) -> str:
        """The fix, in the user's language."""
        if self.state != "fail":
            return ""
        if self.problem is not None:
            return self.problem.fix
        return say(RULES[self.rule].fix, **self.values)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        rule = RULES[self.rule]
        return {
            "rule": self.rule,
            "code": self.code if self.state == "fail" else None,
            "box": rule.box or None,
            "section": rule.section,
            "severity": self.severity,
            "state": self.state,
            "demand": say(rule.demand),
            "path": self.path or None,
            "line": self.line or None,
            "message": self.message or None,
            "fix": self.fix or None,
        }


_TOOL: tuple[ListName, ...] = ("tool",)
_TOOL_AND_PACKAGED: tuple[ListName, ...] = ("tool", "packaged")
_PACKAGED: tuple[ListName, ...] = ("packaged",)
_SKILL: tuple[ListName, ...] = ("skill",)

_RULES = (
    # --- skill.yaml ---
    CheckRule("manifest-valid", _TOOL, "manifest", "error", "", "`skill.yaml` must be valid"),
    CheckRule("name-shape", _TOOL_AND_PACKAGED, "manifest", "error", "A1 B1", "The tool name must be a domain and an action in lower case"),
    CheckRule(id="name-action", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A1 B1", demand="The tool name must be a domain and an action in lower case",
         detail="`{name}`", fix="Rename it to `{better}`"),
    CheckRule(id="name-domain", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A1 B1", demand="The domain should be a subject, not a library",
         detail="`{domain}`", fix="Rename it"),
    CheckRule(id="name-order", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A1 B1", demand="The tool name must be a domain and an action in lower case",
         detail="`{name}`", fix="Rename it"),
    CheckRule(id="description-verb", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A2 B2", demand="The description must start with a verb",
         detail="`{name}`, `{start}`", fix="Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule(id="description-limit", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A2 B2", demand="The description must state a limit or precondition",
         detail="`{name}`", fix="Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule(id="description-length", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A2 B2", demand="The description must have 20 to 80 Chinese or 40 to 250 English characters",
         detail="`{name}` ({length})", fix="Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule(id="description-library", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A2 B2", demand="The description must not name a library or use filler words",
         detail="`{name}`, `{word}`", fix="Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule(id="description-filler", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A2 B2", demand="The description must not name a library or use filler words",
         detail="`{name}`, `{word}`", fix="Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule(id="parameter-what", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A3 B3", demand="Each parameter must state its meaning, its limits and an example",
         detail="`{name}`", fix="Rewrite it, for example: Cell range, at most 1000 rows. Example: A1:D20"),
    CheckRule(id="parameter-bound", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A3 B3", demand="Each parameter must state its meaning, its limits and an example",
         detail="`{name}`", fix="Rewrite it, for example: Cell range, at most 1000 rows. Example: A1:D20"),
    CheckRule(id="parameter-example", lists=_TOOL_AND_PACKAGED, section="manifest", severity="note", box="A3 B3", demand="Each parameter must state its meaning, its limits and an example",
         detail="`{name}`", fix="Rewrite it, for example: Cell range, at most 1000 rows. Example: A1:D20"),
    CheckRule(id="entry-fits", lists=_TOOL, section="manifest", severity="error", box="B4", demand="`runtime` and `entry` must fit each other",
         detail="`{entry}`", fix="Correct it"),
    CheckRule(id="entry-executable", lists=_TOOL, section="manifest", severity="error", box="B4", demand="A binary must be executable",
         detail="`{entry}`", fix="Run `{command}`"),
    CheckRule(id="docs-when", lists=_TOOL, section="manifest", severity="note", box="B5", demand="`docs` must say when to use the tool and when not",
         detail="`{name}`", fix="Add it to `skill.yaml`"),
    CheckRule(id="docs-when-not", lists=_TOOL, section="manifest", severity="note", box="B5", demand="`docs` must say when to use the tool and when not",
         detail="`{name}`", fix="Add it to `skill.yaml`"),
    CheckRule(id="docs-examples", lists=_TOOL, section="manifest", severity="note", box="", demand="`docs.examples` should show a call",
         detail="`{name}`", fix="Add it to `skill.yaml`"),
    CheckRule(id="docs-arguments", lists=_TOOL, section="manifest", severity="error", box="", demand="The arguments of each example must be valid",
         detail="`{name}`, {scenario}: {reason}", fix="Correct it"),
    # --- implementation ---
    CheckRule("packages", _TOOL, "code", "error", "", "Dependencies must be named with versions"),
    CheckRule(id="protocol", lists=_TOOL, section="code", severity="error", box="B6", demand="The program must read one line of JSON and write one, nothing else",
         detail="`{name}`, {case}: {reason}", fix="Correct it"),
    CheckRule(id="error-wording", lists=_TOOL_AND_PACKAGED, section="code", severity="note", box="A4 B7", demand="Errors must have the form `<problem>: <value> — <next step>`",
         detail="{text}", fix="Correct it"),
    CheckRule(id="error-inside", lists=_TOOL_AND_PACKAGED, section="code", severity="error", box="A4 B7", demand="Errors must not show internals of the program",
         detail="{text}", fix="Correct it"),
    CheckRule(id="error-language", lists=_TOOL_AND_PACKAGED, section="code", severity="note", box="B7", demand="Errors should be in the language of the description",
         detail="{text}", fix="Correct it"),
    CheckRule(id="no-uncaught", lists=_TOOL, section="code", severity="error", box="B8", demand="Every exception must be caught",
         detail="`{name}`, {case}: {reason}", fix="Correct it"),
    CheckRule(id="go-builds", lists=_TOOL, section="code", severity="error", box="B9", demand="A Go program must build",
         detail="{reason}", fix="Correct it"),
    # --- safety ---
    CheckRule(id="files-declared", lists=_TOOL, section="safety", severity="error", box="", demand="`files: none` must not hide files that parameters name",
         detail="`{name}`", fix="Delete `files: none` from `skill.yaml`, or write `files: read`"),
    CheckRule(id="limits", lists=_PACKAGED, section="safety", severity="error", box="A5", demand="File size and output length must be limited",
         detail="`{name}`", fix="Complete the record"),
    CheckRule(id="safe-paths", lists=_PACKAGED, section="safety", severity="error", box="A6", demand="Paths must stay in the workspace",
         detail="`{name}`", fix="Open files through `Job.workspace`"),
    # --- verification ---
    CheckRule(id="answers", lists=_TOOL, section="proof", severity="error", box="B10", demand="The examples must succeed",
         detail="`{name}`, {scenario}: {reason}", fix="Correct it"),
    CheckRule(id="refuses", lists=_TOOL, section="proof", severity="error", box="B11", demand="Invalid arguments must be answered with an error",
         detail="`{name}`, {case}: {reason}", fix="Correct it"),
    CheckRule(id="listed", lists=_TOOL, section="proof", severity="error", box="B12", demand="The tool must be in the list of tools",
         detail="`{name}`: {reason}", fix="Run `{command}`"),
    # --- packaged skills ---
    CheckRule(id="tests-errors", lists=_PACKAGED, section="tests", severity="error", box="A7", demand="Each failure must have a test, and each tool one with a real file",
         detail="{what}", fix="Add a test"),
    CheckRule(id="tests-real", lists=_PACKAGED, section="tests", severity="error", box="A8", demand="Each failure must have a test, and each tool one with a real file",
         detail="`{name}`", fix="Add a test"),
    CheckRule(id="tests-windows", lists=_PACKAGED, section="tests", severity="note", box="A9", demand="Tests must not open windows",
         detail="{what}", fix="Correct it"),
    CheckRule(id="tests-pass", lists=_PACKAGED, section="tests", severity="error", box="A10", demand="All tests must pass with 80 % coverage",
         detail="", fix="Correct it"),
    CheckRule(id="page-exists", lists=_PACKAGED, section="page", severity="error", box="A11", demand="The page in `docs/skills` must be complete",
         detail="`{path}`", fix="Run `{command}`"),
    CheckRule(id="page-when-not", lists=_PACKAGED, section="page", severity="error", box="A12", demand="The page in `docs/skills` must be complete",
         detail="{what}", fix="Complete the record"),
    CheckRule(id="page-output", lists=_PACKAGED, section="page", severity="error", box="A13", demand="The page in `docs/skills` must be complete",
         detail="{what}", fix="Complete the record"),
    CheckRule(id="page-left-out", lists=_PACKAGED, section="page", severity="error", box="A14", demand="The page in `docs/skills` must be complete",
         detail="{what}", fix="Complete the record"),
    CheckRule(id="registered", lists=_PACKAGED, section="registration", severity="error", box="A15", demand="The registration must be complete",
         detail="{what}", fix="Complete the record"),
    CheckRule(id="module-name", lists=_PACKAGED, section="registration", severity="error", box="A16", demand="The module must be named after the domain",
         detail="`{module}`", fix="Rename it"),
    CheckRule(id="switch", lists=_PACKAGED, section="registration", severity="error", box="A17", demand="The registration must be complete",
         detail="`{switch}`", fix="Complete the record"),
    CheckRule(id="start-line", lists=_PACKAGED, section="registration", severity="error", box="A18", demand="The registration must be complete",
         detail="{what}", fix="Complete the record"),
    # --- SKILL.md ---
    CheckRule("skill-valid", _SKILL, "head", "error", "", "`SKILL.md` must be valid"),
    CheckRule(id="skill-what", lists=_SKILL, section="head", severity="note", box="", demand="The description should say what the skill does and when to use it",
         detail="", fix="Rewrite it, for example: Fills in PDF forms. Use when the user asks for a form."),
    CheckRule(id="skill-when", lists=_SKILL, section="head", severity="note", box="", demand="The description should say what the skill does and when to use it",
         detail="", fix="Rewrite it, for example: Fills in PDF forms. Use when the user asks for a form."),
    CheckRule(id="skill-length", lists=_SKILL, section="head", severity="note", box="", demand="The description should have at least 40 characters, 20 in Chinese",
         detail="{length}", fix="Rewrite it, for example: Fills in PDF forms. Use when the user asks for a form."),
    CheckRule(id="skill-filled", lists=_SKILL, section="head", severity="warning", box="", demand="Placeholders must be replaced",
         detail="`{text}`", fix="Write the text, or delete the line"),
    CheckRule(id="skill-person", lists=_SKILL, section="head", severity="note", box="", demand="The description should not use the first or second person",
         detail="`{word}`", fix="Rewrite it, for example: Fills in PDF forms. Use when the user asks for a form."),
    CheckRule("body-valid", _SKILL, "body", "error", "", "`SKILL.md` must be valid"),
    # --- every kind ---
    CheckRule("files-valid", ("tool", "skill"), "files", "error", "", "The files of a skill must be valid"),
)  # fmt: skip

RULES: dict[str, CheckRule] = {rule.id: rule for rule in _RULES}
"""Every rule by its id."""


def section_title(section: str, list_name: ListName) -> str:
    """Return the heading of a section; a package has no skill.yaml."""
    return "Declaration" if section == "manifest" and list_name == "packaged" else SECTIONS[section]


def find_rules(list_name: ListName) -> list[CheckRule]:
    """Return the rules of one check-list in display order."""
    order = list(SECTIONS)
    rules = [rule for rule in _RULES if list_name in rule.lists]
    return sorted(rules, key=lambda rule: order.index(rule.section))
