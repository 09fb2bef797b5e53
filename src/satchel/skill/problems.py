"""The table of all problems that a skill, location or setting can have.

A `Problem` refers to its rule by code and fills the rule's sentences with its values. `error`: the
skill is not offered. `warning`: it is offered, but something was repaired, lost or hidden. `note`:
other agents may read it differently.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from satchel.i18n import Message, render

Severity = Literal["error", "warning", "note"]
_OURS = frozenset((
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


class Problem(NamedTuple):
    """A problem of a skill, a location or a setting."""

    code: str
    path: str = ""
    """Absolute path of the file or folder."""
    line: int = 0
    """1-based line in the file; 0 when the problem has no line."""
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed

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
        values = {
            key: Message(value) if key in _OURS and not isinstance(value, Message) else value
            for key, value in self.values.items()
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
    ProblemRule("no-frontmatter", "error", "The file does not begin with a `---` line: {found}",
         "Put `---`, `name:`, `description:` and `---` at the very top of the file"),
    ProblemRule("symlink-as-text", "error", "The file contains only the path `{target}`: a symlink that was checked out as text",
         "Enable symlinks (`git config core.symlinks true`) and check the file out again"),
    ProblemRule("frontmatter-too-large", "error", "The frontmatter is larger than {limit} bytes",
         "Move long text from the frontmatter into the body"),
    ProblemRule("not-a-mapping", "error", "The frontmatter is {kind}, not lines of `key: value`",
         "Write `name: …` and `description: …`, each on its own line"),
    ProblemRule("description-missing", "error", "There is no `description`, so no model could know when to use the skill",
         "Add `description:` saying what the skill does and when to use it"),
    ProblemRule("name-unusable", "error", "There is no usable `name`, and the folder's name cannot replace it",
         "Add `name:` in lower-case letters, digits and hyphens"),
    ProblemRule("not-text", "error", "The file is binary, not Markdown",
         "Save it as UTF-8 text"),
    ProblemRule("not-a-file", "error", "`{file}` is {kind}, not a regular file",
         "Replace it with a regular file"),
    ProblemRule("unreadable", "error", "It cannot be read: {reason}",
         "Check the permissions with `ls -l`, or remove it"),
    ProblemRule("outside-root", "error", "The link leads to `{target}`, outside the project; it was not followed",
         "Put a copy in place of the link, or name its target in your own `locations`"),
    # Loaded, after a repair.
    ProblemRule("repaired-value", "warning", "`{key}` is not valid YAML ({why}); its text was used as written",
         "Put the value of `{key}` in double quotes, or write it as a block with `|`"),
    ProblemRule("unclear-value", "warning", "`{key}` is not valid YAML ({why}); its text was used as written and may be wrong",
         "Rewrite the value of `{key}` inside one pair of quotes"),
    ProblemRule("stray-text", "warning", "Line {at} belongs to no key; it was {done}",
         "Indent the line below its key, or move it under the closing `---`"),
    ProblemRule("yaml-refused", "warning", "`{key}` uses {what}, which is not read; its text was used as written",
         "Write the value out in plain YAML"),
    ProblemRule("unclosed-frontmatter", "warning", "The closing `---` line is missing; only the lines before {before} were read",
         "Add a line `---` after the last key"),
    ProblemRule("doubled-frontmatter", "warning", "A second frontmatter follows the first; only the first was read",
         "Merge the two blocks into one"),
    ProblemRule("control-characters", "warning", "{count} control characters were removed from the frontmatter",
         "Delete them; an editor shows them as `^@` or boxes"),
    ProblemRule("broken-surrogates", "warning", "`{key}` contains `\\u` escapes that YAML does not know in pairs; they were joined",
         "Write the characters themselves instead of `\\ud83d\\udcbc`"),
    ProblemRule("invalid-utf8", "warning", "{count} bytes are not UTF-8 and were replaced",
         "Save the file as UTF-8"),
    ProblemRule("bom", "note", "The file begins with a byte order mark, which some agents refuse",
         "Save it as UTF-8 without BOM"),
    ProblemRule("leading-blank", "note", "There are blank lines before the opening `---`, which some agents refuse",
         "Begin the file with `---`"),
    ProblemRule("delimiter-spaces", "note", "A `---` line ends in spaces, which some agents refuse",
         "Remove the spaces after `---`"),
    ProblemRule("wide-encoding", "note", "The file is {encoding}, which most agents cannot read",
         "Save it as UTF-8"),
    # Loaded, and YAML did something the author may not have meant.
    ProblemRule("duplicate-key", "warning", "`{key}` is there twice; YAML takes the last",
         "Remove one of the two"),
    ProblemRule("hash-comment", "warning", "YAML reads ` #` in `{key}` as a comment: the rest of the line is lost",
         "Put the value of `{key}` in quotes"),
    ProblemRule("number-value", "note", "`{key}: {text}` is the number {value} to YAML",
         "Put it in quotes to keep it as text"),
    ProblemRule("date-value", "note", "`{key}: {text}` is a date to YAML, not text",
         "Put it in quotes to keep it as text"),
    ProblemRule("key-spelling", "warning", "`{key}` was read as `{meant}`",
         "Write `{meant}:`"),
    ProblemRule("bad-value", "warning", "`{key}: {text}` cannot be read as {kind}; its text was used as written",
         "Put it in quotes"),
    # Loaded, and the name or description wants attention.
    ProblemRule("name-missing", "warning", "There is no `name`; the folder's name `{name}` is used",
         "Add `name: {name}`"),
    ProblemRule("name-mismatch", "warning", "The name `{name}` differs from its folder `{folder}`",
         "Rename the folder or the skill, so that both agree"),
    ProblemRule("name-pattern", "warning", "The name `{name}` is not lower-case letters, digits and single hyphens",
         "Rename it `{better}`"),
    ProblemRule("name-too-long", "warning", "The name has {length} characters; the specification allows 64",
         "Shorten it"),
    ProblemRule("name-not-text", "warning", "The name is {kind} to YAML; `{name}` is used",
         "Put the name in quotes"),
    ProblemRule("name-reserved", "note", "The name contains `{word}`, which one vendor's service refuses",
         "Choose a name without it if the skill is to be uploaded there"),
    ProblemRule("description-not-text", "warning", "The description is {kind} to YAML; its text is used",
         "Put the description in quotes"),
    ProblemRule("description-too-long", "warning", "The description has {length} characters; the specification allows 1024",
         "Move the detail into the body"),
    ProblemRule("description-unwritten", "warning", "The description is still to be written, and models are told just that",
         "Say what the skill does and when to use it"),
    ProblemRule("description-spaces", "note", "The description begins or ends with spaces, which were removed",
         "Remove them"),
    ProblemRule("description-markup", "note", "The description contains the tag `{tag}`; it reaches the model escaped",
         "Describe it in words"),
    ProblemRule("invisible-characters", "warning", "`{key}` contains {count} invisible characters ({names}); they were removed",
         "Delete them: hidden text is a way to smuggle instructions"),
    # Loaded, and other fields want attention.
    ProblemRule("unknown-field", "note", "`{key}` is not a field of any known agent; it is kept and does nothing",
         "Move it under `metadata:`"),
    ProblemRule("not-in-spec", "warning", "`{key}` is not in the published specification; agents that know it read it",
         "Keep it for those agents, or move it under `metadata:`"),
    ProblemRule("inert-field", "note", "`{key}` is kept but does nothing here: {meaning}",
         "Keep it for the agents that read it, or remove it"),
    ProblemRule("field-type", "warning", "`{key}` should be {wanted}, but is {kind}",
         "Write `{key}` as {wanted}"),
    ProblemRule("field-too-long", "warning", "`{key}` has {length} characters; the specification allows {limit}",
         "Shorten it"),
    ProblemRule("metadata-nested", "note", "`metadata` has nested or non-text values ({keys}), which the specification does not allow",
         "Use text values, or a JSON string"),
    ProblemRule("tools-list", "note", "`{key}` is a list; the specification wants one line separated by spaces",
         "Write `{key}: {line}`"),
    ProblemRule("body-empty", "note", "There are no instructions after the frontmatter",
         "Write what the agent should do"),
    ProblemRule("file-missing", "note", "The body names `{file}`, which is not in the skill's folder",
         "Add the file, or correct the path"),
    ProblemRule("body-long", "note", "The body has {lines} lines; agents do better under 500",
         "Move detail into `references/` and name the files in the body"),
    # A tool skill: its skill.yaml.
    ProblemRule("tool-not-yaml", "error", "The file is not valid YAML: {reason}",
         "Correct the line, or put the value in double quotes"),
    ProblemRule("tool-yaml-refused", "error", "The file uses {what}, which is not read",
         "Write it out in plain YAML"),
    ProblemRule("tool-too-large", "error", "The file is larger than {limit} bytes",
         "Move long text into files beside it"),
    ProblemRule("tool-not-a-mapping", "error", "The file is {kind}, not lines of `key: value`",
         "Write `name:`, `description:`, `runtime:` and `entry:`, each on its own line"),
    ProblemRule("tool-key-missing", "error", "There is no `{key}`",
         "Add `{example}`"),
    ProblemRule("tool-key-type", "error", "`{key}` is {kind}; it must be {wanted}",
         "Write `{key}` as {wanted}"),
    ProblemRule("tool-key-twice", "error", "`{key}` is there twice",
         "Remove one of the two"),
    ProblemRule("tool-key-unknown", "note", "`{key}` is no key of a skill.yaml; it does nothing",
         "Remove it, or correct its spelling"),
    ProblemRule("tool-key-misspelt", "error", "`{key}` is no key of a skill.yaml: did you mean `{better}`?",
         "Write `{better}`"),
    ProblemRule("tool-key-place", "error", "`{key}` belongs to each tool, since there is a `tools:`",
         "Move it below the tool it speaks of"),
    ProblemRule("tool-runtime", "error", "There is no runtime `{value}`",
         "Write one of `python`, `node`, `go` and `binary`"),
    ProblemRule("tool-entry-path", "error", "The entry `{entry}` is no path inside the skill's folder",
         "Write the file's path relative to the folder, with `/`"),
    ProblemRule("tool-entry-missing", "error", "The entry `{entry}` is not there",
         "Add the file, or correct `entry:`"),
    ProblemRule("tool-go-module", "error", "A program in Go needs a `go.mod`, and there is none",
         "Run `go mod init {name}` in its folder"),
    ProblemRule("tool-name", "error", "The tool name `{name}` is not lower-case letters, digits and underscores, at most 64",
         "Write it like `{better}`"),
    ProblemRule("tool-name-prefix", "error", "The tool name `{name}` does not begin with that of its folder, `{prefix}_`",
         "Rename the tool, or the folder"),
    ProblemRule("tool-name-twice", "error", "Two tools are called `{name}`",
         "Rename one of them"),
    ProblemRule("tool-none", "error", "There is no tool below `tools:`",
         "Add one that begins with `- name:`, or remove `tools:`"),
    ProblemRule("tool-too-many", "error", "There are {count} of `{key}`; at most {limit} are taken",
         "Split the skill"),
    ProblemRule("tool-text-long", "warning", "`{key}` has {length} characters; {limit} of them reach a model",
         "Shorten it"),
    ProblemRule("tool-docs", "warning", "`{key}` is {kind} instead of {wanted}; it was left out",
         "Write `{key}` as {wanted}"),
    ProblemRule("parameter-name", "error", "The parameter name `{name}` is not letters, digits and underscores, at most 64",
         "Rename it"),
    ProblemRule("parameter-type", "error", "The parameter `{name}` has the type `{value}`, which there is not",
         "Write one of `string`, `integer`, `number` and `boolean`"),
    ProblemRule("parameter-twice", "error", "Two parameters are called `{name}`",
         "Rename one of them"),
    ProblemRule("parameter-default", "error", "The default of `{name}` is {kind}; it must be {wanted}",
         "Write a default of that type, or none"),
    ProblemRule("parameter-default-long", "error", "The default of `{name}` has {length} characters; at most {limit} are taken",
         "Shorten it, or let the program choose when nothing is given"),
    ProblemRule("parameter-default-unused", "warning", "The parameter `{name}` is required, so its default is never used",
         "Remove `default:`, or write `required: false`"),
    ProblemRule("secret-name", "error", "`{name}` cannot be the name of a secret",
         "Name a variable in capitals, digits and underscores that no program and no system reads by itself"),
    ProblemRule("files-parameter", "error", "`files` names `{name}`, which is no parameter of type `string`",
         "Name parameters of the tool that hold paths"),
    ProblemRule("tool-number", "error", "`{key}` is {value}; it must lie between {least} and {most}",
         "Choose a number in between"),
    ProblemRule("tool-file-name", "error", "The file is called `skill.yml`, so it is not read",
         "Rename it to `skill.yaml`"),
    ProblemRule("tool-nested", "note", "The skill.yaml is material of the tool skill `{outer}`, in whose folder it lies",
         "Move its folder out if it is a skill of its own"),
    ProblemRule("tool-name-taken", "warning", "The tool `{name}` is not offered: `{winner}` has one of that name",
         "Rename one of them, or change the order of locations"),
    ProblemRule("tool-name-packaged", "warning", "The tool `{name}` is not offered: the packaged skill `{winner}` has one of that name",
         "Rename the tool and its folder, or turn the package off: `{switch}=false`"),
    ProblemRule("tool-not-offered", "warning", "The tools of `{name}` are not offered: {reason}",
         "See `satchel show {name}`"),
    # Trigger tests: evals/triggers.yaml. The skill itself is as it was.
    ProblemRule("triggers-not-yaml", "warning", "The trigger tests are not valid YAML: {reason}",
         "Correct the line, or put the prompt in double quotes"),
    ProblemRule("triggers-refused", "warning", "The trigger tests use {what}, which is not read",
         "Write them out in plain YAML"),
    ProblemRule("triggers-large", "warning", "The trigger tests are larger than {limit} bytes",
         "Keep the prompts that tell most"),
    ProblemRule("triggers-shape", "warning", "The trigger tests are {kind}, not lists of prompts",
         "Write `should:` and `should_not:`, each with a list of prompts"),
    ProblemRule("triggers-none", "warning", "There is no prompt in the trigger tests",
         "Add `should:` with prompts that the skill is for"),
    ProblemRule("triggers-key", "warning", "`{key}` means nothing in trigger tests",
         "Write {better}"),
    ProblemRule("triggers-row", "warning", "A row of the trigger tests is {kind}, not a prompt",
         "Write the prompt as text, or as `prompt:` beside `note:` and `instead:`"),
    ProblemRule("triggers-colon", "warning", "YAML reads the prompt that begins with `{text}` as a key, for its colon",
         "Put the prompt in double quotes"),
    ProblemRule("triggers-side", "warning", "The prompt `{text}` does not say whether it should choose the skill",
         "Add `should_trigger: true` or `should_trigger: false`"),
    ProblemRule("triggers-twice", "warning", "The prompt `{text}` is there already: {where}",
         "Remove one of the two"),
    ProblemRule("triggers-many", "warning", "There are {count} prompts in the trigger tests; at most {limit} are run",
         "Keep those that tell most"),
    ProblemRule("triggers-long", "warning", "A prompt has {length} characters; at most {limit} are taken",
         "Shorten it to what a person would type"),
    ProblemRule("triggers-instead", "warning", "`instead` names `{name}`, and there is no such skill",
         "Write {better}"),
    # In the library.
    ProblemRule("duplicate-name", "warning", "`{name}` is defined twice here, by `{first}` and `{last}`; the last is used",
         "Rename one of them"),
    ProblemRule("shadowed", "note", "`{name}` is hidden by `{winner}`, which goes before it",
         "Rename one of them, or change the order of locations"),
    ProblemRule("untrusted", "warning", "`{name}` is not offered: the folder of this project is not trusted yet",
         "Run `satchel trust` in the project"),
    ProblemRule("unpinned", "warning", "`{name}` is not offered: the setting `trust` is `locked`, and no lockfile pins it as it is",
         "Run `satchel verify` to see what differs; import it from its source to have it locked"),
    ProblemRule("blocked", "error", "`{name}` is not offered: the scan blocks it",
         "Read what it found with `satchel scan {name}`. To use it all the same: `satchel trust {name} --accept-risk WHY`"),
    ProblemRule("modified", "note", "`{name}` was modified since it was installed: {files}",
         "Yours? Keep it with `satchel lock {name}`. Not yours? Run `satchel install --frozen`"),
    ProblemRule("not-scannable", "warning", "`{name}` cannot be scanned, so it is not used: {reason}",
         "Fix the cause: a skill that cannot be checked is not used"),
    ProblemRule("lock-broken", "error", "The lockfile cannot be used, so no skill beside it is loaded: {reason}",
         "Take it from version control again, or run `satchel lock --rebuild`"),
    ProblemRule("change-interrupted", "warning", "A command that changed {names} was interrupted and is not finished",
         "Run `satchel install`: whatever changes skills next finishes it first"),
    ProblemRule("file-case", "note", "The file is called `{file}`; other agents look only for `SKILL.md`",
         "Rename it to `SKILL.md`"),
    ProblemRule("two-files", "warning", "Both `{used}` and `{other}` are here; `{used}` is used",
         "Remove `{other}`"),
    ProblemRule("include-unmatched", "warning", "No skill matches `{name}` in `include`",
         "Correct the pattern; `satchel list --all` shows every name"),
    ProblemRule("folder-without-skill", "warning", "There is no `SKILL.md` in this folder or below it, so it is not a skill",
         "Add a `SKILL.md` to it, or move it out of the skills folder"),
    ProblemRule("loose-file", "warning", "A skill is a folder with a `SKILL.md`; this file is not read",
         "Move it to `{folder}/SKILL.md`"),
    ProblemRule("link-loop", "note", "The link leads back to `{target}`, which was already read; it was skipped",
         "Remove the link"),
    ProblemRule("too-deep", "warning", "Folders deeper than {limit} levels were not searched",
         "Move the skills up, or raise `max_depth`"),
    ProblemRule("too-many", "warning", "More than {limit} folders; the rest was not searched",
         "Point the location at the folder that holds the skills, or raise `max_folders`"),
    ProblemRule("setting-refused", "warning", "A project may not set `{name}`; it was ignored",
         "Set it in your own configuration or the environment"),
    ProblemRule("setting-unknown", "error", "There is no setting `{name}`; it was ignored",
         "Remove it; the settings reference has the names"),
    ProblemRule("setting-near", "error", "There is no setting `{name}`; it was ignored",
         "Did you mean `{near}`?"),
    ProblemRule("setting-wrong", "error", "A setting was ignored: {reason}",
         "Correct the value"),
    ProblemRule("project-setting", "note", "The project's file sets `{name}`, which holds for your own skills too",
         "Set `{name}` yourself in the environment if you want it otherwise"),
    ProblemRule("server-address", "error", "`{name}` is no server that can be used: {why}",
         "Correct it in your configuration, or run `satchel mcp remove {name}`"),
    ProblemRule("server-nested", "note", "Skills of {count} servers are left out: this program was started by a library that takes skills from it",
         "Set the servers where that library is"),
    ProblemRule("server-unreachable", "warning", "The server `{name}` does not answer: {reason}",
         "See that it runs and that you may use it, then run `satchel mcp list`"),
    ProblemRule("server-stale", "warning", "The server `{name}` does not answer ({reason}); its skills are listed as they were on {when}",
         "See that it runs and that you may use it, then run `satchel mcp list`"),
    ProblemRule("server-limit", "warning", "The server `{name}` lists too much: {why}; {count} of its skills are taken",
         "Ask whoever runs it for a smaller list, or remove it with `satchel mcp remove {name}`"),
    ProblemRule("served-refused", "error", "The server `{server}` lists `{name}`, which cannot be taken: {why}",
         "Tell whoever runs the server"),
    ProblemRule("served-shadowed", "note", "`{name}` of the server `{server}` is hidden by `{winner}`: no server replaces a skill of yours",
         "Rename yours, or make a copy of the server's under another name: `satchel mcp copy`"),
    ProblemRule("served-renamed", "note", "The server `{server}` lists several skills `{name}`; this one is offered as `{offered}`",
         "Call it by that name"),
    ProblemRule("package-broken", "warning", "The packaged skill of `{name}` cannot be used: {reason}",
         "Update the package or remove it; `satchel tools` shows every packaged skill"),
    ProblemRule("search-plain", "note", "{count} skills are searched without `tantivy`, which is made for that many",
         'Run `pip install "satchel[search]"`, then `satchel index`'),
    ProblemRule("search-unindexed", "note", "{count} skills are offered, and the search index holds {held}",
         "Run `satchel index`, or wait: the next searches bring it up to date"),
    ProblemRule("vectors-unusable", "warning", "Meanings are not compared: the setting `vectors` cannot be used ({reason})",
         "Put it right, and see that it works: `satchel vectors check`; or empty the setting"),
    ProblemRule("variable-near", "warning", "The environment has `{name}`, which no setting is called",
         "Did you mean `{near}`?"),
    ProblemRule("variable-unknown", "note", "The environment has `{name}`, which no setting is called",
         "Unset it, unless another program reads it"),
    ProblemRule("index-damaged", "note", "The saved index could not be read ({reason}); everything was read again",
         "Nothing to do; it was rebuilt"),
    ProblemRule("index-unsaved", "note", "The index could not be saved ({reason}); the next start reads everything again",
         "Make the cache folder writable, or set `use_index = false`"),
)  # fmt: skip

PROBLEMS: dict[str, ProblemRule] = {rule.code: rule for rule in _RULES}

NO_PROBLEMS: tuple[Problem, ...] = ()
"""Shared by all headers without problems."""
