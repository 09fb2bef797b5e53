"""The rules of all check-lists in one table, and the report of a check.

    tool       a folder with skill.yaml: manifest, implementation, replies
    packaged   tools of an installed Python package
    skill      a SKILL.md

A rule contains the requirement, the message when it fails, and the fix. `box` names the line of the
check-list that a rule comes from; several rules may share one, since each has its own fix.
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
        missing = say("nobody looked at it")
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
    message: str
    """The failure message; its `{fields}` are filled from the verdict."""
    fix: str
    mends: bool = False
    """Whether `--fix` supports it."""


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
        if self.state == "skip":
            return self.reason
        return say(RULES[self.rule].message, **self.values) if self.state == "fail" else ""

    @property
    def fix(self) -> str:
        """The fix, in the user's language."""
        return say(RULES[self.rule].fix, **self.values) if self.state == "fail" else ""

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
    CheckRule("manifest-valid", _TOOL, "manifest", "error", "", "`skill.yaml` can be read",
         "{problem}", "{remedy}", mends=True),
    CheckRule("manifest-clean", _TOOL, "manifest", "warning", "", "Nothing in `skill.yaml` is lost or ignored",
         "{problem}", "{remedy}"),
    CheckRule("name-shape", _BOTH, "manifest", "error", "A1 B1", "`name` is `<domain>_<action>` in lower case",
         "`{name}` is not lower-case words joined by underscores", "Rename it to `{better}`", mends=True),
    CheckRule("name-prefix", _BOTH, "manifest", "error", "A1 B1", "`name` begins with the domain",
         "`{name}` does not begin with `{prefix}_`", "Rename it to `{better}`", mends=True),
    CheckRule("name-action", _BOTH, "manifest", "error", "A1 B1", "`name` says what is done",
         "`{name}` is only a domain", "Add what it does: `{name}_read`"),
    CheckRule("name-domain", _BOTH, "manifest", "warning", "A1 B1", "The domain is a subject, not a library",
         "`{domain}` is the name of a library", "Name it after what it works on: `excel`, not `openpyxl`"),
    CheckRule("name-order", _BOTH, "manifest", "warning", "A1 B1", "The domain comes before the action",
         "`{name}` begins with an action, `{action}`", "Put the subject first: `excel_write`, not `write_excel`"),
    CheckRule("description-verb", _BOTH, "manifest", "error", "A2 B2", "`description` begins with a verb",
         "The description of `{name}` begins with `{start}`", "Begin with what it does: Reads …, Counts …"),
    CheckRule("description-limit", _BOTH, "manifest", "error", "A2 B2", "`description` names a limit or a precondition",
         "The description of `{name}` names no limit", "Say what limits it: Files up to 20 MB"),
    CheckRule("description-length", _BOTH, "manifest", "error", "A2 B2", "`description` has 20 to 80 Chinese or 40 to 250 English characters",
         "The description of `{name}` has {length} characters, not {least} to {most}", "Say what it gives back and where it ends, and nothing else"),
    CheckRule("description-library", _BOTH, "manifest", "error", "A2 B2", "`description` names no library",
         "The description of `{name}` speaks of its inside: `{word}`", "Leave out how it is made; a model needs to know what it does"),
    CheckRule("description-filler", _BOTH, "manifest", "error", "A2 B2", "`description` has no filler",
         "The description of `{name}` has a word that says nothing: `{word}`", "Leave it out, or say the fact behind it"),
    CheckRule("parameter-what", _BOTH, "manifest", "error", "A3 B3", "Each parameter says what it is",
         "`{name}` does not say what it is", "Begin with its meaning and format: Cell range, written A1:C10"),
    CheckRule("parameter-bound", _BOTH, "manifest", "error", "A3 B3", "Each parameter says what holds for it",
         "`{name}` names no range, default or limit", "Say what is allowed, or what holds without it: At most 1000 rows"),
    CheckRule("parameter-example", _BOTH, "manifest", "error", "A3 B3", "Each parameter has an example",
         "`{name}` has no example", "End with one: Example: A1:D20"),
    CheckRule("runtime-known", _TOOL, "manifest", "error", "B4", "`runtime` is python, node, go or binary",
         "There is no runtime `{value}`", "Write {better}", mends=True),
    CheckRule("entry-exists", _TOOL, "manifest", "error", "B4", "`entry` is a file of the folder",
         "The entry `{entry}` is not a file in the folder", "Add the file, or correct `entry:`", mends=True),
    CheckRule("entry-fits", _TOOL, "manifest", "error", "B4", "`entry` fits `runtime`",
         "`{entry}` is no program for the runtime `{runtime}`", "Correct `runtime:` or `entry:`"),
    CheckRule("entry-executable", _TOOL, "manifest", "error", "B4", "A binary may be executed",
         "`{entry}` may not be executed", "Run `chmod +x {entry}`", mends=True),
    CheckRule("binary-fresh", _TOOL, "manifest", "warning", "", "A binary is as new as its source",
         "`{source}` is newer than `{entry}`", "{remedy}"),
    CheckRule("docs-when", _TOOL, "manifest", "error", "B5", "`docs.when_to_use` is filled in",
         "`{name}` does not say when to use it", "Add `docs.when_to_use` with two situations or more"),
    CheckRule("docs-when-not", _TOOL, "manifest", "error", "B5", "`docs.when_not_to_use` is filled in",
         "`{name}` does not say when not to use it", "Add `docs.when_not_to_use`, and name the better tool"),
    CheckRule("docs-examples", _TOOL, "manifest", "warning", "", "`docs.examples` shows a call",
         "`{name}` shows no call", "Add `docs.examples` with `scenario` and `arguments`: `satchel test` runs them"),
    CheckRule("docs-arguments", _TOOL, "manifest", "error", "", "The arguments of each example are valid",
         "The example `{scenario}` of `{name}` cannot be called: {reason}", "Correct its `arguments`"),
    CheckRule("texts-language", _BOTH, "manifest", "error", "", "Descriptions are in the language asked for",
         "`{name}` is described in another language", "Write it in the language that `--language` names"),
    # --- implementation ---
    CheckRule("program-parses", _TOOL, "code", "error", "", "The program can be parsed",
         "The program cannot be parsed: {reason}", "Correct that line"),
    CheckRule("packages", _TOOL, "code", "error", "", "Packages are named with versions, and the program can be built",
         "{problem}", "{remedy}"),
    CheckRule("protocol-read", _TOOL, "code", "error", "B6", "The program reads one line of JSON from stdin",
         "{what}", "Read one line of stdin, and parse that as JSON"),
    CheckRule("protocol-write", _TOOL, "code", "error", "B6", "The program writes one line of JSON with `output` and `error`",
         "{what}", "Write one line: an object with the texts `output` and `error`"),
    CheckRule("protocol-quiet", _TOOL, "code", "error", "B6", "Nothing else is written to stdout",
         "{what}", "Write what is for people to stderr"),
    CheckRule("error-wording", _BOTH, "code", "error", "A4 B7", "Each error is `<problem>: <value> — <next step>`",
         "The error `{text}` {lacks}", "Write it as `<problem>: <value> — <what to do next>`"),
    CheckRule("error-inside", _BOTH, "code", "error", "A4 B7", "No error shows the inside of the program",
         "An error shows what went wrong inside: {text}", "Say it in your own words, and write the details to stderr"),
    CheckRule("error-language", _BOTH, "code", "warning", "B7", "Errors are in the language of the description",
         "The error `{text}` is in another language than the description", "Write both in one language"),
    CheckRule("no-uncaught", _TOOL, "code", "error", "B8", "No exception leaves the program",
         "{what}", "Catch everything around the work, and answer with an error"),
    CheckRule("go-module", _TOOL, "code", "error", "B9", "A Go program has a `go.mod`",
         "There is no `go.mod`", "Run `go mod init {name}`", mends=True),
    CheckRule("go-builds", _TOOL, "code", "error", "B9", "A Go program builds",
         "It does not build: {reason}", "Correct it until `go build` succeeds"),
    # --- safety ---
    CheckRule("files-declared", _TOOL, "safety", "error", "", "Parameters that name files are under `files:`",
         "`{name}` names a file, but the program is not shown it", "Add `files:` with `read: [{name}]` or `write: [{name}]`: paths are checked then"),
    CheckRule("write-looks", _TOOL, "safety", "warning", "", "A tool that writes looks first what is there",
         "The program writes files and never looks whether one is there", "Check before writing, and refuse unless `overwrite` is true"),
    CheckRule("limits", _PACKAGED, "safety", "error", "A5", "Size of files and length of output are limited",
         "There is no way to fail for {what}", "Limit files to 20 MB and output to 8000 characters, and say so"),
    CheckRule("safe-paths", _PACKAGED, "safety", "error", "A6", "Every path parameter stays in the workspace",
         "{what}", "Open files through `Job.workspace`, which never leaves the project"),
    # --- verification ---
    CheckRule("answers", _TOOL, "proof", "error", "B10", "A call is answered with output",
         "`{name}` answered the example `{scenario}` with an error: {reason}", "Run `satchel try {name}`, and correct the program or the example"),
    CheckRule("refuses", _TOOL, "proof", "error", "B11", "Invalid arguments are answered with an error",
         "`{name}`, {case}: {reason}", "{remedy}"),
    CheckRule("listed", _TOOL, "proof", "error", "B12", "The tool is in the list of tools",
         "`{name}` is not among the tools of this project: {reason}", "Run `satchel why {skill}`"),
    # --- packaged skills ---
    CheckRule("tests-errors", _PACKAGED, "tests", "error", "A7", "Each way to fail has a test",
         "No test names {what}", "Add a test that brings it about"),
    CheckRule("tests-real", _PACKAGED, "tests", "error", "A8", "A test runs a tool on a real file",
         "No test calls `{name}` on a file", "Add one that writes a file, calls the tool and looks at the answer"),
    CheckRule("tests-windows", _PACKAGED, "tests", "note", "A9", "Tests open no windows",
         "A test opens a window: {what}", "Put something harmless in its place"),
    CheckRule("tests-pass", _PACKAGED, "tests", "error", "A10", "All tests pass, and cover 80 %",
         "Tests fail: {reason}", "Run them and correct what fails"),
    CheckRule("page-exists", _PACKAGED, "page", "error", "A11", "There is a page in `docs/skills`",
         "`{path}` is missing or does not match the record", "Run `python scripts/skill_pages.py`"),
    CheckRule("page-when-not", _PACKAGED, "page", "error", "A12", "The page says when not to use it, and what to use instead",
         "The record says nothing under {what}", "Fill it in: three situations, and the better tool for each"),
    CheckRule("page-output", _PACKAGED, "page", "error", "A13", "The page shows real output, in two scenarios or more",
         "{what}", "Add calls that `prepare` makes files for"),
    CheckRule("page-left-out", _PACKAGED, "page", "error", "A14", "The page says what was left out, and why",
         "The record says nothing under {what}", "Write down the choice, with its reason"),
    CheckRule("registered", _PACKAGED, "registration", "error", "A15", "An entry point of the group `satchel.skills` names it, and its library",
         "{what}", "Declare it under `[project.entry-points]`, and name the library in `wraps`"),
    CheckRule("module-name", _PACKAGED, "registration", "error", "A16", "The module is named after the domain",
         "`{module}` does not name `{domain}`", "Rename the module, so that the domain is in it"),
    CheckRule("switch", _PACKAGED, "registration", "error", "A17", "`SKILL_<NAME>_ENABLED` turns it off",
         "`{switch}=false` does not turn it off", "Serve it through the entry point, which heeds the switch"),
    CheckRule("start-line", _PACKAGED, "registration", "error", "A18", "A line at start-up says that it is on",
         "The record has no `label` or no `mark`", "Fill in both: they make the line"),
    # --- SKILL.md ---
    CheckRule("skill-valid", _SKILL, "head", "error", "", "`SKILL.md` is a skill",
         "{problem}", "{remedy}"),
    CheckRule("skill-clean", _SKILL, "head", "warning", "", "Nothing in it is repaired, lost or hidden",
         "{problem}", "{remedy}", mends=True),
    CheckRule("skill-remarks", _SKILL, "head", "note", "", "Other agents read it the same",
         "{problem}", "{remedy}"),
    CheckRule("skill-what", _SKILL, "head", "warning", "", "The description says what the skill does",
         "The description does not say what the skill does", "Begin with it: Fills in PDF forms"),
    CheckRule("skill-when", _SKILL, "head", "warning", "", "The description says when to use it",
         "The description does not say when to use the skill", "Add it: Use when the user asks for …"),
    CheckRule("skill-length", _SKILL, "head", "warning", "", "The description has 40 to 1024 characters, 20 in Chinese",
         "The description has {length} characters", "Say in one or two sentences what it does and when to use it"),
    CheckRule("skill-filled", _SKILL, "head", "error", "", "Nothing is left to be written",
         "It still says `{text}`", "Write what belongs there, or take the line out"),
    CheckRule("skill-name", _SKILL, "head", "warning", "", "The name is the folder's, in lower case with hyphens",
         "The name `{name}` is not what the folder is called, or not in lower case with hyphens", "Give both the name `{better}`"),
    CheckRule("skill-person", _SKILL, "head", "note", "", "The description speaks of the skill, not of I or you",
         "The description says `{word}`", "Write as about somebody else: Reviews code"),
    CheckRule("body-there", _SKILL, "body", "warning", "", "There are instructions",
         "There are no instructions after the frontmatter", "Write the steps, and how to know that the work is done"),
    CheckRule("body-short", _SKILL, "body", "note", "", "The instructions have at most 500 lines",
         "The instructions have {lines} lines", "Move detail into `references/`, and name the files"),
    CheckRule("references-exist", _SKILL, "body", "warning", "", "Every file that is named exists",
         "`{file}` is named and is not there", "Add the file, or correct the path"),
    CheckRule("scripts-exist", _SKILL, "body", "warning", "", "Every script that is named exists",
         "The script `{file}` is named and is not there", "Add the script, or correct the path"),
    CheckRule("triggers-readable", _SKILL, "files", "note", "", "Trigger tests, where there are any, can be run",
         "{problem}", "{remedy}"),
    # --- every kind ---
    CheckRule("script-ends", ("tool", "skill"), "files", "error", "", "Scripts with `#!` have plain line ends",
         "`{file}` has Windows line ends, so its first line names no program", "Save it with plain line ends", mends=True),
    CheckRule("last-newline", ("tool", "skill"), "files", "note", "", "The main file ends with a line end",
         "`{file}` does not end with a line end", "Add one", mends=True),
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
