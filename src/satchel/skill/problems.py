"""The table of all problems that a skill, location or setting can have.

A `Problem` refers to its rule by code and fills the rule's sentences with its values. `error`: the
skill is not offered. `warning`: it is offered, but something was repaired, lost or hidden. `note`:
other agents may read it differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.i18n import Message, pack_messages, render, unpack_messages

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity = Literal["error", "warning", "note"]
_PHRASE_VALUES = frozenset((
    "before", "done", "found", "kind", "meaning", "wanted", "what", "where", "why",
))  # fmt: skip
"""Values that are phrases of this package, to be translated; one with fields is a message."""


class ProblemRule(NamedTuple):
    """One kind of problem."""

    code: str
    severity: Severity
    message: str
    """Template that is filled with the problem's values."""
    fix: str
    """Template of the next step, in the imperative."""
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed
    """Further values of both, filled with those of the problem."""


class Problem(NamedTuple):
    """A problem of a skill, a location or a setting.

    Example:
        from satchel import Satchel

        for problem in Satchel.for_project(".").problems():
            print(problem.severity, problem.path, problem.message, problem.fix)
    """

    code: str
    """Identifies the kind of problem, such as `description-missing`."""
    path: str = ""
    """Absolute path of the file or folder."""
    line: int = 0
    """1-based line in the file; 0 when the problem has no line."""
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed
    """What the message mentions, such as the name of a field."""

    @property
    def severity(self) -> Severity:
        """`error`, `warning` or `note`."""
        return PROBLEMS[self.code].severity

    @property
    def message(self) -> str:
        """The problem, in the user's language."""
        return render(self.for_model()[0])

    @property
    def fix(self) -> str:
        """The next step, in the user's language."""
        return render(self.for_model()[1])

    def for_model(self) -> tuple[Message, Message]:
        """Problem and next step in English, for models."""
        rule = PROBLEMS[self.code]
        rule_values = {key: text.format(**self.values) for key, text in rule.values.items()}
        values = {
            key: Message(value)
            if key in _PHRASE_VALUES and not isinstance(value, Message)
            else value
            for key, value in (rule_values | self.values).items()
        }
        return Message(rule.message, **values), Message(rule.fix, **values)

    def at(self, path: str) -> Problem:
        """The same problem in the file `path`."""
        return self._replace(path=path)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "line": self.line or None,
            "message": self.message,
            "fix": self.fix,
        }


_RULES = (
    # The file is not a skill.
    ProblemRule("merge-conflict", "error", "The file has a merge conflict", "Keep one side of the lines between `<<<<<<<` and `>>>>>>>`, and delete these marks"),
    ProblemRule("no-frontmatter", "error", "The file does not begin with a `---` line", "Put `---`, `name:`, `description:` and `---` at the top of the file"),
    ProblemRule("symlink-as-text", "error", "The file contains only the path `{target}`: a symlink that was checked out as text", "Replace the link by a copy"),
    ProblemRule("frontmatter-too-large", "error", "It is larger than {limit} bytes", "Shorten it"),
    ProblemRule("not-a-mapping", "error", "It is {kind}, not a mapping", "Write one `key: value` per line"),
    ProblemRule("description-missing", "error", "There is no `{key}`", "Say what the skill does and when to use it", {"key": "description"}),
    ProblemRule("name-unusable", "error", "There is no usable `name`", "Rename it"),
    ProblemRule("unclosed-value", "error", "`{key}` is not valid YAML ({why})", "Close it, or put the value in double quotes"),
    ProblemRule("not-strict", "error", "`strict` is set, and the frontmatter needed a repair: {what}", "Correct it"),
    ProblemRule("not-text", "error", "The file is not text", "Save the file as UTF-8 without BOM"),
    ProblemRule("not-a-file", "error", "`{file}` is {kind}, not a regular file", "Remove it"),
    ProblemRule("unreadable", "error", "It cannot be read: {reason}", "Check the permissions"),
    ProblemRule("outside-root", "error", "The link to `{target}` was not followed", "Replace the link by a copy"),
    # Loaded, after a repair.
    ProblemRule("repaired-value", "warning", "`{key}` is not valid YAML ({why}); its text was used as written", "Put the value in double quotes"),
    ProblemRule("unclear-value", "warning", "`{key}` is not valid YAML ({why}); its text was used as written", "Put the value in double quotes"),
    ProblemRule("stray-text", "warning", "Line {at} belongs to no key; it was {done}", "Indent it below its key"),
    ProblemRule("yaml-refused", "warning", "`{key}` uses {what}; its text was used as written", "Write the value in plain YAML"),
    ProblemRule("unclosed-frontmatter", "warning", "The closing `---` line is missing, so the fields were read up to {before}", "Add `---` below the last field"),
    ProblemRule("doubled-frontmatter", "warning", "There is a second frontmatter; only the first was read", "Remove one of them"),
    ProblemRule("control-characters", "warning", "{count} control characters were removed", "Remove them"),
    ProblemRule("broken-surrogates", "warning", "`{key}` contains `\\u` escapes in pairs; they were joined", "Write the value in plain YAML"),
    ProblemRule("invalid-utf8", "warning", "{count} bytes are not UTF-8 and were replaced", "Save the file as UTF-8 without BOM"),
    ProblemRule("bom", "note", "The encoding is {encoding}", "Save the file as UTF-8 without BOM", {"encoding": "UTF-8 with BOM"}),
    ProblemRule("leading-blank", "note", "There are blanks beside `---`", "Remove them"),
    ProblemRule("delimiter-spaces", "note", "There are blanks beside `---`", "Remove them"),
    ProblemRule("wide-encoding", "note", "The encoding is {encoding}", "Save the file as UTF-8 without BOM"),
    # Loaded, and YAML did something the author may not have meant.
    ProblemRule("duplicate-key", "warning", "`{key}` is there twice", "Remove one of them"),
    ProblemRule("hash-comment", "warning", "YAML reads ` #` in `{key}` as a comment", "Put the value in double quotes"),
    ProblemRule("number-value", "note", "`{key}: {text}` is {kind} to YAML", "Put the value in double quotes", {"kind": "a number"}),
    ProblemRule("date-value", "note", "`{key}: {text}` is {kind} to YAML", "Put the value in double quotes", {"kind": "a date"}),
    ProblemRule("key-spelling", "warning", "`{key}` was read as `{meant}`", "Write `{value}`", {"value": "{meant}:"}),
    ProblemRule("bad-value", "warning", "`{key}: {text}` cannot be read as {kind}", "Put the value in double quotes"),
    # Loaded, and the name or description wants attention.
    ProblemRule("name-missing", "warning", "There is no `name`; the folder's name `{name}` is used", "Add `{example}`", {"example": "name: {name}"}),
    ProblemRule("name-mismatch", "warning", "The name `{name}` differs from its folder `{folder}`", "Make the name and the folder equal"),
    ProblemRule("name-pattern", "warning", "`{name}` is not a valid name", "Rename it to `{better}`"),
    ProblemRule("name-too-long", "warning", "`{key}` has {length} characters; the limit is {limit}", "Shorten it"),
    ProblemRule("name-not-text", "warning", "`{key}` is {kind} to YAML; its text is used", "Put the value in double quotes"),
    ProblemRule("name-reserved", "note", "The name contains `{word}`, which one vendor's service refuses", "Rename it"),
    ProblemRule("description-not-text", "warning", "`{key}` is {kind} to YAML; its text is used", "Put the value in double quotes"),
    ProblemRule("description-too-long", "warning", "`{key}` has {length} characters; the limit is {limit}", "Shorten it"),
    ProblemRule("description-unwritten", "warning", "The description is a placeholder", "Say what the skill does and when to use it"),
    ProblemRule("description-spaces", "note", "The description begins or ends with spaces", "Remove them"),
    ProblemRule("description-markup", "note", "The description contains the tag `{tag}`", "Remove it"),
    ProblemRule("invisible-characters", "warning", "`{key}` contains {count} invisible characters ({names}); they were removed", "Remove them"),
    # Loaded, and other fields want attention.
    ProblemRule("unknown-field", "note", "`{key}` is not a known field; it is ignored", "Move it under `metadata:`"),
    ProblemRule("not-in-spec", "warning", "`{key}` is not in the specification", "Move it under `metadata:`"),
    ProblemRule("inert-field", "note", "Satchel ignores `{key}` ({meaning})", "Keep it for other agents, or remove it"),
    ProblemRule("requires-mcp", "note", "It requires the MCP servers {servers}, which Satchel cannot see: it is offered without them, too", "Connect them in your agent"),
    ProblemRule("field-type", "warning", "`{key}` is {kind}; it must be {wanted}", "Write `{key}` as {wanted}"),
    ProblemRule("field-too-long", "warning", "`{key}` has {length} characters; the limit is {limit}", "Shorten it"),
    ProblemRule("metadata-nested", "note", "`metadata` has nested or non-text values ({keys})", "Use text values"),
    ProblemRule("tools-list", "note", "`{key}` is a list, not one line", "Write `{value}`", {"value": "{key}: {line}"}),
    ProblemRule("body-empty", "note", "There is no `{key}`", "Write the steps", {"key": "body"}),
    ProblemRule("file-missing", "note", "There is no `{key}`", "Add the file, or correct the path", {"key": "{file}"}),
    ProblemRule("conflict-marks", "warning", "The instructions contain the marks of a merge conflict", "Keep one side of the lines between `<<<<<<<` and `>>>>>>>`, and delete these marks; put an example into a code block"),
    ProblemRule("body-long", "note", "The body has {lines} lines; agents do better under 500", "Move details into `references/`"),
    # A tool skill: its skill.yaml.
    ProblemRule("tool-not-yaml", "error", "It is not valid YAML: {reason}", "Correct it"),
    ProblemRule("tool-yaml-refused", "error", "It uses {what}, which is not supported", "Write the value in plain YAML"),
    ProblemRule("tool-too-large", "error", "It is larger than {limit} bytes", "Shorten it"),
    ProblemRule("tool-not-a-mapping", "error", "It is {kind}, not a mapping", "Write one `key: value` per line"),
    ProblemRule("tool-key-missing", "error", "There is no `{key}`", "Add `{example}`"),
    ProblemRule("tool-key-type", "error", "`{key}` is {kind}; it must be {wanted}", "Write `{key}` as {wanted}"),
    ProblemRule("tool-key-twice", "error", "`{key}` is there twice", "Remove one of them"),
    ProblemRule("tool-key-unknown", "note", "`{key}` is not a known field; it is ignored", "Remove it"),
    ProblemRule("tool-key-misspelt", "error", "`{key}` is not a known field; it is ignored", "Rename it to `{better}`"),
    ProblemRule("tool-key-place", "error", "`{key}` belongs below a tool of `tools:`", "Move it elsewhere"),
    ProblemRule("tool-runtime", "error", "`{value}` is not valid", "Write {better}", {"better": "python, node, go, binary"}),
    ProblemRule("tool-entry-path", "error", "There is no `{key}`", "Add the file, or correct the path", {"key": "{entry}"}),
    ProblemRule("tool-entry-missing", "error", "There is no `{key}`", "Add the file, or correct the path", {"key": "{entry}"}),
    ProblemRule("tool-go-module", "error", "There is no `{key}`", "Run `{command}`", {"key": "go.mod", "command": "go mod init {name}"}),
    ProblemRule("tool-name", "error", "`{name}` is not a valid name", "Rename it to `{better}`"),
    ProblemRule("tool-name-prefix", "error", "`{name}` is not a valid name", "Rename it to `{better}`", {"better": "{prefix}_{name}"}),
    ProblemRule("tool-name-twice", "error", "`{key}` is there twice", "Rename one of them", {"key": "{name}"}),
    ProblemRule("tool-none", "error", "There is no `{key}`", "Add one", {"key": "tools"}),
    ProblemRule("tool-too-many", "error", "There are {count} of `{key}`; the limit is {limit}", "Shorten it"),
    ProblemRule("tool-text-long", "warning", "`{key}` has {length} characters; the limit is {limit}", "Shorten it"),
    ProblemRule("tool-docs", "warning", "`{key}` is {kind}; it must be {wanted}", "Write `{key}` as {wanted}"),
    ProblemRule("parameter-name", "error", "`{name}` is not a valid name", "Rename it"),
    ProblemRule("parameter-type", "error", "`{value}` is not valid", "Write {better}", {"better": "string, integer, number, boolean"}),
    ProblemRule("parameter-twice", "error", "`{key}` is there twice", "Rename one of them", {"key": "{name}"}),
    ProblemRule("parameter-default", "error", "`{key}` is {kind}; it must be {wanted}", "Write `{key}` as {wanted}"),
    ProblemRule("parameter-default-long", "error", "`{key}` has {length} characters; the limit is {limit}", "Shorten it"),
    ProblemRule("parameter-default-unused", "warning", "`{name}` is required, so its default is never used", "Remove one of them"),
    ProblemRule("secret-name", "error", "`{name}` is not a valid name", "Rename it"),
    ProblemRule("files-parameter", "error", "`files` names `{name}`, which is no parameter of type `string`", "Write `files: {access}`, or the names of parameters"),
    ProblemRule("tool-number", "error", "`{key}` is {value}; it must be between {least} and {most}", "Correct it"),
    ProblemRule("tool-file-name", "error", "The file should be called `{better}`", "Rename it", {"better": "skill.yaml"}),
    ProblemRule("tool-nested", "note", "It is inside the tool skill `{outer}`, so it is not a skill", "Move it elsewhere"),
    ProblemRule("tool-name-taken", "warning", "The tool `{name}` is not offered: `{winner}` has one of that name", "Rename one of them"),
    ProblemRule("tool-name-packaged", "warning", "The tool `{name}` is not offered: `{winner}` has one of that name", "Rename it, or set `{switch}=false`"),
    ProblemRule("tool-not-offered", "warning", "The tools of `{name}` are not offered: {reason}", "Run `{command}`", {"command": "satchel show {name}"}),
    ProblemRule("tool-not-ready", "error", "The tools of `{name}` are not offered: {reason}", "{hint}"),
    ProblemRule("tool-packages", "error", "The packages cannot be installed: {reason}", "{fix}"),
    # Trigger tests: evals/triggers.yaml. The skill itself is as it was.
    ProblemRule("triggers-not-yaml", "warning", "It is not valid YAML: {reason}", "Correct it"),
    ProblemRule("triggers-refused", "warning", "It uses {what}, which is not supported", "Write the value in plain YAML"),
    ProblemRule("script-plan", "warning", "`{file}` cannot be run: {reason}", "{fix}"),
    ProblemRule("script-ends", "warning", "`{file}` begins with `#!` and has Windows line ends", "Save it with Unix line ends"),
    ProblemRule("triggers-large", "warning", "It is larger than {limit} bytes", "Shorten it"),
    ProblemRule("triggers-shape", "warning", "It is {kind}, not a mapping", "Write one `key: value` per line"),
    ProblemRule("triggers-none", "warning", "There is no `{key}`", "Add one", {"key": "prompt"}),
    ProblemRule("triggers-key", "warning", "`{key}` is not a known field; it is ignored", "Write {better}"),
    ProblemRule("triggers-row", "warning", "A row is {kind}, not a prompt", "Put the value in double quotes"),
    ProblemRule("triggers-many", "warning", "There are {count} of `{key}`; the limit is {limit}", "Shorten it"),
    ProblemRule("triggers-long", "warning", "`{key}` has {length} characters; the limit is {limit}", "Shorten it"),
    # Evaluation cases: evals/*.json.
    ProblemRule("evals-not-json", "warning", "It is not valid JSON: {reason}", "Correct it"),
    ProblemRule("evals-none", "warning", "There is no `{key}`", "Add one"),
    ProblemRule("evals-row", "warning", "A case is {kind}, not a mapping", "Write `{example}`", {"example": '{{"prompt": "…", "expectations": ["…"]}}'}),
    ProblemRule("evals-prompt", "warning", "There is no `{key}`", "Add one"),
    ProblemRule("evals-check", "warning", "The check `{check}` cannot be used", "Give it one of {names}, with a valid value"),
    ProblemRule("evals-file", "warning", "There is no `{key}`", "Add the file, or correct the path"),
    ProblemRule("evals-unread", "warning", "The folder has no cases that can be read", "Write them to `{file}`"),
    # In the library.
    ProblemRule("duplicate-name", "warning", "Both `{used}` and `{other}` are here; `{used}` is used", "Rename one of them", {"used": "{last}", "other": "{first}"}),
    ProblemRule("shadowed", "note", "`{name}` is hidden by `{winner}`", "Rename one of them"),
    ProblemRule("untrusted", "warning", "`{name}` is not offered: the folder of this project is not trusted yet", "Run `{command}`", {"command": "satchel trust"}),
    ProblemRule("unpinned", "warning", "`{name}` is not offered: no lockfile pins it as it is", "Run `{command}`", {"command": "satchel verify"}),
    ProblemRule("blocked", "error", "`{name}` is not offered: the scan blocks it", "Read the findings with `satchel scan {name}`. To use it anyway: `satchel trust {name} --accept-risk WHY`"),
    ProblemRule("revoked", "error", "`{name}` is not offered: its hub revoked it: {reason}", "Run `satchel update {name}` for a newer version, or remove it with `satchel remove {name}`"),
    ProblemRule("needs-setup", "warning", "`{name}` is not offered, because it needs {what}", "{fix}"),
    ProblemRule("grant-ended", "note", "`{name}` changed, so what you granted it ended", "The skill changed after you granted it something, which ended the grant: grant it again with {commands}"),
    ProblemRule("modified", "note", "`{name}` was modified since it was installed: {files}", "Keep it with `satchel verify --accept {name}`, or restore it with `satchel install --frozen`"),
    ProblemRule("not-scannable", "warning", "`{name}` cannot be scanned, so it is not used: {reason}", "Run `{command}`", {"command": "satchel scan {name}"}),
    ProblemRule("lock-broken", "error", "The lockfile cannot be used, so no skill beside it is loaded: {reason}", "{fix}", {"fix": "Restore it from version control, or delete it and install the skills again"}),
    ProblemRule("change-interrupted", "warning", "A command that changed {names} was interrupted and is not finished", "Run `satchel install`: whatever changes skills next finishes it first"),
    ProblemRule("file-case", "note", "The file should be called `{better}`", "Rename it", {"better": "SKILL.md"}),
    ProblemRule("two-files", "warning", "Both `{used}` and `{other}` are here; `{used}` is used", "Remove one of them"),
    ProblemRule("include-unmatched", "warning", "No skill matches `{name}` in `include`", "Correct it"),
    ProblemRule("folder-without-skill", "warning", "There is no `{key}`", "Add it, or move the folder", {"key": "SKILL.md"}),
    ProblemRule("loose-file", "warning", "A skill is a folder with a `SKILL.md`; this file is not read", "Move it to `{path}`", {"path": "{folder}/SKILL.md"}),
    ProblemRule("link-loop", "note", "The link to `{target}` was not followed", "Remove it"),
    ProblemRule("too-deep", "warning", "Not everything was searched: the limit is {limit}", "Move it elsewhere"),
    ProblemRule("too-many", "warning", "Not everything was searched: the limit is {limit}", "Move it elsewhere"),
    ProblemRule("setting-refused", "warning", "A project may not set `{name}`; it was ignored", "Set it in your own configuration or the environment"),
    ProblemRule("setting-unknown", "error", "There is no setting `{name}`", "Remove it"),
    ProblemRule("setting-near", "error", "There is no setting `{name}`", "Did you mean {names}?", {"names": "`{near}`"}),
    ProblemRule("setting-wrong", "error", "A setting was ignored: {reason}", "Correct it"),
    ProblemRule("project-setting", "note", "The project sets `{name}`, also for your own skills", "Set it in your own configuration or the environment"),
    ProblemRule("server-address", "error", "`{name}` cannot be used: {why}", "Run `{command}`", {"command": "satchel mcp remove {name}"}),
    ProblemRule("server-nested", "note", "Skills of {count} servers are left out: this process serves another library", "Set the servers in that library"),
    ProblemRule("server-unreachable", "warning", "The server `{name}` does not answer: {reason}", "Run `{command}`", {"command": "satchel mcp list"}),
    ProblemRule("server-stale", "warning", "The server `{name}` does not answer ({reason}); its skills are listed as they were on {when}", "Run `{command}`", {"command": "satchel mcp list"}),
    ProblemRule("server-limit", "warning", "The server `{name}` lists too much: {why}; {count} skills are used", "Report it to the operator of the server"),
    ProblemRule("served-refused", "error", "The server `{server}` lists `{name}`, which cannot be used: {why}", "Report it to the operator of the server"),
    ProblemRule("served-shadowed", "note", "`{name}` is hidden by `{winner}`", "Rename one of them"),
    ProblemRule("served-renamed", "note", "The server `{server}` lists several skills `{name}`; this one is offered as `{offered}`", "No action needed"),
    ProblemRule("package-broken", "warning", "`{path}` cannot be used: {reason}", "Remove it", {"path": "{name}"}),
    ProblemRule("search-plain", "note", "{count} skills are searched without `tantivy`", "Run `{command}`", {"command": 'pip install "satchel[search]"'}),
    ProblemRule("embeddings-unusable", "warning", "Embeddings are not used: {reason}", "Run `{command}`", {"command": "satchel config set embeddings MODEL"}),
    ProblemRule("variable-unknown", "warning", "There is no setting `{name}`", "Remove it"),
    ProblemRule("sandbox-off", "warning", "Programs of skills run without a sandbox: they can do whatever you can do", "Run `{command}`", {"command": "satchel config set sandbox required"}),
    ProblemRule("sandbox-missing", "warning", "The programs of skills do not run here: there is no sandbox", "Run `{command}`", {"command": "satchel config sandbox"}),
    ProblemRule("index-damaged", "note", "The scan cache was rebuilt: {reason}", "No action needed"),
    ProblemRule("index-unsaved", "note", "The scan cache could not be saved: {reason}", "Check the permissions"),
)  # fmt: skip

PROBLEMS: dict[str, ProblemRule] = {rule.code: rule for rule in _RULES}

REPAIRS = frozenset((
    "repaired-value", "unclear-value", "stray-text", "yaml-refused", "unclosed-frontmatter", "doubled-frontmatter",
    "control-characters", "broken-surrogates", "invalid-utf8", "key-spelling", "bad-value", "name-missing",
))  # fmt: skip
"""Codes of frontmatter that is no valid YAML, or has no `name`, and was read nevertheless."""

NO_PROBLEMS: tuple[Problem, ...] = ()
"""Shared by all headers without problems."""


def pack_problems(problems: Iterable[Problem]) -> tuple[tuple[Any, ...], ...]:
    """Convert problems for a cache: only tuples, mappings, texts and numbers."""
    return tuple(
        tuple(problem._replace(values=pack_messages(problem.values))) for problem in problems
    )


def unpack_problems(packed_problems: Iterable[Iterable[Any]]) -> tuple[Problem, ...]:
    """Restore the problems given to `pack_problems`."""
    problems = [Problem(*values) for values in packed_problems]
    if not problems:
        return NO_PROBLEMS
    return tuple(problem._replace(values=unpack_messages(problem.values)) for problem in problems)
