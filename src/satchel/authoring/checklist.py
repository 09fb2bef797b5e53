"""The rules of all check-lists in one table, and the report of a check.

    tool       a folder with skill.yaml: manifest, implementation, replies
    packaged   tools of an installed Python package
    skill      a SKILL.md

A rule is one sentence, what must hold, and a fix. `box` names the line of the check-list that a
rule comes from; several rules may share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.skill.problems import Severity

Slip = tuple[int, dict[str, str]]
"""A line and the values of the message."""


class CheckReport(NamedTuple):
    """The result of one check-list for one skill."""

    name: str
    path: str
    """The folder, or the module of a packaged skill."""
    list: List
    verdicts: tuple[CheckResult, ...]

    def failed(self, *, strict: bool = False) -> list[CheckResult]:
        """Return the failures: errors, and with `strict` warnings too."""
        bad = ("error", "warning") if strict else ("error",)
        return [one for one in self.verdicts if one.state == "fail" and one.severity in bad]

    @property
    def failing(self) -> set[str]:
        """Return the failed rules of any severity."""
        return {one.rule for one in self.verdicts if one.state == "fail"}

    def to_dict(self, *, strict: bool = False) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "name": self.name,
            "path": self.path,
            "list": self.list,
            "ok": not self.failed(strict=strict),
            "boxes": [one.to_dict() for one in self.verdicts],
        }


class CheckSheet:
    """A check-list in progress."""

    def __init__(self, which: List, file: str) -> None:
        self.which: List = which
        self._file = file
        self._rules = [rule.id for rule in rules_of(which)]
        self._verdicts: dict[str, list[CheckResult]] = {}

    def judge(self, rule: str, slips: Iterable[Slip] = (), path: str = "") -> None:
        """Record a rule as passed, or its failures. Repeated calls add failures."""
        rows = [
            CheckResult(rule, "fail", path or self._file, line, values) for line, values in slips
        ]
        known = [one for one in self._verdicts.get(rule, []) if one.state == "fail"]
        self._verdicts[rule] = [*known, *rows] or [CheckResult(rule)]

    def skip(self, reason: str, *rules: str, open: bool = False) -> None:  # noqa: A002 - a box
        """Skip rules that are not judged yet.

        Args:
            reason: Why, in the user's language.
            rules: The rules.
            open: Whether they apply and were requested; shown as open.
        """
        for rule in rules:
            if rule in self._rules:
                row = CheckResult(rule, "skip", reason=reason, open=open)
                self._verdicts.setdefault(rule, [row])

    def fails(self, rule: str) -> bool:
        """Whether a rule has failed."""
        return any(one.state == "fail" for one in self._verdicts.get(rule, []))

    def skip_rest(self, reason: str, *sections: str) -> None:
        """Skip all unjudged rules, in some sections or in all."""
        self.skip(
            reason,
            *(rule for rule in self._rules if not sections or RULES[rule].section in sections),
        )

    def report(self, name: str, path: str) -> CheckReport:
        """Return the complete list in order."""
        missing = say("not checked")
        rows = [
            verdict
            for rule in self._rules
            for verdict in self._verdicts.get(rule, [CheckResult(rule, "skip", reason=missing)])
        ]
        return CheckReport(name, path, self.which, tuple(rows))


List = Literal["tool", "packaged", "skill"]
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


class CheckRule(NamedTuple):
    """A rule."""

    id: str
    lists: tuple[List, ...]
    section: str
    severity: Severity
    box: str
    """Check-list lines, such as `B2`; empty for rules outside the lists."""
    demand: str
    shown: str = ""
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
    open: bool = False
    """For `skip`: whether the rule applies and was requested."""

    @property
    def severity(self) -> Severity:
        """`error`, `warning` or `note`."""
        return RULES[self.rule].severity

    @property
    def message(self) -> str:
        """The failure message in the user's language; for a skip, the reason."""
        if self.state != "fail" or "problem" in self.values:
            return self.values.get("problem", self.reason)
        rule = RULES[self.rule]
        shown = rule.shown.format(**self.values)
        return say(rule.demand) + (say(": ") + shown if shown else "")

    @property
    def fix(self) -> str:
        """The fix, in the user's language."""
        if self.state != "fail":
            return ""
        return self.values.get("remedy") or say(RULES[self.rule].fix, **self.values)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        rule = RULES[self.rule]
        return {
            "rule": self.rule,
            "box": rule.box or None,
            "section": rule.section,
            "severity": rule.severity,
            "state": self.state,
            "demand": say(rule.demand),
            "path": self.path or None,
            "line": self.line or None,
            "message": self.message or None,
            "fix": self.fix or None,
        }


_TOOL: tuple[List, ...] = ("tool",)
_BOTH: tuple[List, ...] = ("tool", "packaged")
_PACKAGED: tuple[List, ...] = ("packaged",)
_SKILL: tuple[List, ...] = ("skill",)

_RULES = (
    # --- skill.yaml ---
    CheckRule("manifest-valid", _TOOL, "manifest", "error", "", "`skill.yaml` must be valid"),
    CheckRule("manifest-clean", _TOOL, "manifest", "warning", "", "`skill.yaml` must be valid"),
    CheckRule("name-shape", _BOTH, "manifest", "error", "A1 B1", "The tool name must be a domain and an action in lower case",
         "`{name}`", "Rename it to `{better}`"),
    CheckRule("name-prefix", _BOTH, "manifest", "error", "A1 B1", "The tool name must be a domain and an action in lower case",
         "`{name}`", "Rename it to `{better}`"),
    CheckRule("name-action", _BOTH, "manifest", "error", "A1 B1", "The tool name must be a domain and an action in lower case",
         "`{name}`", "Rename it to `{better}`"),
    CheckRule("name-domain", _BOTH, "manifest", "warning", "A1 B1", "The domain should be a subject, not a library",
         "`{domain}`", "Rename it"),
    CheckRule("name-order", _BOTH, "manifest", "warning", "A1 B1", "The tool name must be a domain and an action in lower case",
         "`{name}`", "Rename it"),
    CheckRule("description-verb", _BOTH, "manifest", "warning", "A2 B2", "The description must start with a verb",
         "`{name}`, `{start}`", "Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule("description-limit", _BOTH, "manifest", "warning", "A2 B2", "The description must state a limit or precondition",
         "`{name}`", "Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule("description-length", _BOTH, "manifest", "warning", "A2 B2", "The description must have 20 to 80 Chinese or 40 to 250 English characters",
         "`{name}` ({length})", "Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule("description-library", _BOTH, "manifest", "warning", "A2 B2", "The description must not name a library or use filler words",
         "`{name}`, `{word}`", "Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule("description-filler", _BOTH, "manifest", "warning", "A2 B2", "The description must not name a library or use filler words",
         "`{name}`, `{word}`", "Rewrite it, for example: Reads a range of cells. Files up to 20 MB."),
    CheckRule("parameter-what", _BOTH, "manifest", "warning", "A3 B3", "Each parameter must state its meaning, its limits and an example",
         "`{name}`", "Rewrite it, for example: Cell range, at most 1000 rows. Example: A1:D20"),
    CheckRule("parameter-bound", _BOTH, "manifest", "warning", "A3 B3", "Each parameter must state its meaning, its limits and an example",
         "`{name}`", "Rewrite it, for example: Cell range, at most 1000 rows. Example: A1:D20"),
    CheckRule("parameter-example", _BOTH, "manifest", "warning", "A3 B3", "Each parameter must state its meaning, its limits and an example",
         "`{name}`", "Rewrite it, for example: Cell range, at most 1000 rows. Example: A1:D20"),
    CheckRule("runtime-known", _TOOL, "manifest", "error", "B4", "`runtime` and `entry` must fit each other",
         "`{value}`", "Correct it"),
    CheckRule("entry-exists", _TOOL, "manifest", "error", "B4", "`runtime` and `entry` must fit each other",
         "`{entry}`", "Correct it"),
    CheckRule("entry-fits", _TOOL, "manifest", "error", "B4", "`runtime` and `entry` must fit each other",
         "`{entry}`", "Correct it"),
    CheckRule("entry-executable", _TOOL, "manifest", "error", "B4", "A binary must be executable",
         "`{entry}`", "Run `{command}`"),
    CheckRule("docs-when", _TOOL, "manifest", "warning", "B5", "`docs` must say when to use the tool and when not",
         "`{name}`", "Add it to `skill.yaml`"),
    CheckRule("docs-when-not", _TOOL, "manifest", "warning", "B5", "`docs` must say when to use the tool and when not",
         "`{name}`", "Add it to `skill.yaml`"),
    CheckRule("docs-examples", _TOOL, "manifest", "warning", "", "`docs.examples` should show a call",
         "`{name}`", "Add it to `skill.yaml`"),
    CheckRule("docs-arguments", _TOOL, "manifest", "error", "", "The arguments of each example must be valid",
         "`{name}`, {scenario}: {reason}", "Correct it"),
    # --- implementation ---
    CheckRule("packages", _TOOL, "code", "error", "", "Dependencies must be named with versions"),
    CheckRule("protocol", _TOOL, "code", "error", "B6", "The program must read one line of JSON and write one, nothing else",
         "`{name}`, {case}: {reason}", "Correct it"),
    CheckRule("error-wording", _BOTH, "code", "warning", "A4 B7", "Errors must have the form `<problem>: <value> — <next step>`",
         "{text}", "Correct it"),
    CheckRule("error-inside", _BOTH, "code", "error", "A4 B7", "Errors must not show internals of the program",
         "{text}", "Correct it"),
    CheckRule("error-language", _BOTH, "code", "warning", "B7", "Errors should be in the language of the description",
         "{text}", "Correct it"),
    CheckRule("no-uncaught", _TOOL, "code", "error", "B8", "Every exception must be caught",
         "`{name}`, {case}: {reason}", "Correct it"),
    CheckRule("go-module", _TOOL, "code", "error", "B9", "A Go program must build",
         "", "Run `{command}`"),
    CheckRule("go-builds", _TOOL, "code", "error", "B9", "A Go program must build",
         "{reason}", "Correct it"),
    # --- safety ---
    CheckRule("files-declared", _TOOL, "safety", "error", "", "`files: none` must not hide files that parameters name",
         "`{name}`", "Delete `files: none` from `skill.yaml`, or write `files: read`"),
    CheckRule("limits", _PACKAGED, "safety", "error", "A5", "File size and output length must be limited",
         "`{name}`", "Complete the record"),
    CheckRule("safe-paths", _PACKAGED, "safety", "error", "A6", "Paths must stay in the workspace",
         "`{name}`", "Open files through `Job.workspace`"),
    # --- verification ---
    CheckRule("answers", _TOOL, "proof", "error", "B10", "The examples must succeed",
         "`{name}`, {scenario}: {reason}", "Correct it"),
    CheckRule("refuses", _TOOL, "proof", "error", "B11", "Invalid arguments must be answered with an error",
         "`{name}`, {case}: {reason}", "Correct it"),
    CheckRule("listed", _TOOL, "proof", "error", "B12", "The tool must be in the list of tools",
         "`{name}`: {reason}", "Run `{command}`"),
    # --- packaged skills ---
    CheckRule("tests-errors", _PACKAGED, "tests", "error", "A7", "Each failure must have a test, and each tool one with a real file",
         "{what}", "Add a test"),
    CheckRule("tests-real", _PACKAGED, "tests", "error", "A8", "Each failure must have a test, and each tool one with a real file",
         "`{name}`", "Add a test"),
    CheckRule("tests-windows", _PACKAGED, "tests", "note", "A9", "Tests must not open windows",
         "{what}", "Correct it"),
    CheckRule("tests-pass", _PACKAGED, "tests", "error", "A10", "All tests must pass with 80 % coverage",
         "", "Correct it"),
    CheckRule("page-exists", _PACKAGED, "page", "error", "A11", "The page in `docs/skills` must be complete",
         "`{path}`", "Run `{command}`"),
    CheckRule("page-when-not", _PACKAGED, "page", "error", "A12", "The page in `docs/skills` must be complete",
         "{what}", "Complete the record"),
    CheckRule("page-output", _PACKAGED, "page", "error", "A13", "The page in `docs/skills` must be complete",
         "{what}", "Complete the record"),
    CheckRule("page-left-out", _PACKAGED, "page", "error", "A14", "The page in `docs/skills` must be complete",
         "{what}", "Complete the record"),
    CheckRule("registered", _PACKAGED, "registration", "error", "A15", "The registration must be complete",
         "{what}", "Complete the record"),
    CheckRule("module-name", _PACKAGED, "registration", "error", "A16", "The module must be named after the domain",
         "`{module}`", "Rename it"),
    CheckRule("switch", _PACKAGED, "registration", "error", "A17", "The registration must be complete",
         "`{switch}`", "Complete the record"),
    CheckRule("start-line", _PACKAGED, "registration", "error", "A18", "The registration must be complete",
         "{what}", "Complete the record"),
    # --- SKILL.md ---
    CheckRule("skill-valid", _SKILL, "head", "error", "", "`SKILL.md` must be valid"),
    CheckRule("skill-clean", _SKILL, "head", "warning", "", "`SKILL.md` must be valid"),
    CheckRule("skill-remarks", _SKILL, "head", "note", "", "`SKILL.md` must be valid"),
    CheckRule("skill-what", _SKILL, "head", "warning", "", "The description should say what the skill does and when to use it",
         "", "Rewrite it, for example: Fills in PDF forms. Use when the user asks for a form."),
    CheckRule("skill-when", _SKILL, "head", "warning", "", "The description should say what the skill does and when to use it",
         "", "Rewrite it, for example: Fills in PDF forms. Use when the user asks for a form."),
    CheckRule("skill-length", _SKILL, "head", "warning", "", "The description should have 40 to 1024 characters, 20 in Chinese",
         "{length}", "Rewrite it, for example: Fills in PDF forms. Use when the user asks for a form."),
    CheckRule("skill-filled", _SKILL, "head", "error", "", "Placeholders must be replaced",
         "`{text}`", "Write the text, or delete the line"),
    CheckRule("skill-name", _SKILL, "head", "warning", "", "The skill's name should equal its folder, in lower case with hyphens",
         "the name is `{name}`, the folder `{folder}`", "Give both the name `{better}`"),
    CheckRule("skill-person", _SKILL, "head", "note", "", "The description should not use the first or second person",
         "`{word}`", "Rewrite it, for example: Fills in PDF forms. Use when the user asks for a form."),
    CheckRule("body-there", _SKILL, "body", "warning", "", "There should be instructions",
         "", "Write the steps"),
    CheckRule("body-short", _SKILL, "body", "note", "", "The instructions should have at most 500 lines",
         "{lines}", "Move details into `references/`"),
    CheckRule("references-exist", _SKILL, "body", "warning", "", "Named files should exist",
         "`{file}`", "Add the file, or correct the path"),
    CheckRule("scripts-exist", _SKILL, "body", "warning", "", "Named files should exist",
         "`{file}`", "Add the file, or correct the path"),
    CheckRule("triggers-readable", _SKILL, "files", "note", "", "Trigger tests should be valid"),
    # --- every kind ---
    CheckRule("script-ends", ("tool", "skill"), "files", "error", "", "Scripts with `#!` must have Unix line ends",
         "`{file}`", "Save it with Unix line ends"),
)  # fmt: skip

RULES: dict[str, CheckRule] = {rule.id: rule for rule in _RULES}
"""Every rule by its id."""


def title_of(section: str, which: List) -> str:
    """Return the heading of a section; a package has no skill.yaml."""
    return "Declaration" if section == "manifest" and which == "packaged" else SECTIONS[section]


def rules_of(which: List) -> list[CheckRule]:
    """Return the rules of one check-list in display order."""
    order = list(SECTIONS)
    found = [rule for rule in _RULES if which in rule.lists]
    return sorted(found, key=lambda rule: order.index(rule.section))
