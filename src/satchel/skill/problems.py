"""What can be wrong with a skill, in one table.

A `Problem` says which rule, where, and with which values; the sentences live here once, so they
can be translated, documented and tested. `error` means the skill is not offered, `warning` that
it is but something was repaired, lost or hidden, `note` that other agents may read it otherwise.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from satchel._language import Message, render

Severity = Literal["error", "warning", "note"]
_OURS = frozenset((
    "before", "done", "found", "kind", "meaning", "wanted", "what", "where", "why",
))  # fmt: skip
"""Values that are phrases from this package, never text of a skill. One with fields is a message."""


class Rule(NamedTuple):
    """One kind of problem."""

    code: str
    severity: Severity
    message: str
    """A template; its `{fields}` are filled from the problem's values."""
    fix: str
    """What to do next, in the imperative; a template too."""


class Problem(NamedTuple):
    """A problem of a skill, a location or a setting."""

    code: str
    path: str = ""
    """The file or folder, absolute."""
    line: int = 0
    """1-based line in the file; 0 when the problem has no line."""
    values: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple default, never changed
    """What fills the sentence."""

    @property
    def severity(self) -> Severity:
        """`error`, `warning` or `note`."""
        return PROBLEMS[self.code].severity

    @property
    def message(self) -> str:
        """What is wrong, in the reader's language."""
        return render(self.for_model()[0])

    @property
    def fix(self) -> str:
        """What to do next, in the reader's language."""
        return render(self.for_model()[1])

    def for_model(self) -> tuple[Message, Message]:
        """What is wrong and what to do, in English: a model's text must not follow the locale."""
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
    Rule("no-frontmatter", "error", "The file does not begin with a `---` line: {found}",
         "Put `---`, `name:`, `description:` and `---` at the very top of the file"),
    Rule("symlink-as-text", "error", "The file contains only the path `{target}`: a symlink that was checked out as text",
         "Enable symlinks (`git config core.symlinks true`) and check the file out again"),
    Rule("frontmatter-too-large", "error", "The frontmatter is larger than {limit} bytes",
         "Move long text from the frontmatter into the body"),
    Rule("not-a-mapping", "error", "The frontmatter is {kind}, not lines of `key: value`",
         "Write `name: …` and `description: …`, each on its own line"),
    Rule("description-missing", "error", "There is no `description`, so no model could know when to use the skill",
         "Add `description:` saying what the skill does and when to use it"),
    Rule("name-unusable", "error", "There is no usable `name`, and the folder's name cannot replace it",
         "Add `name:` in lower-case letters, digits and hyphens"),
    Rule("not-text", "error", "The file is binary, not Markdown",
         "Save it as UTF-8 text"),
    Rule("not-a-file", "error", "`{file}` is {kind}, not a regular file",
         "Replace it with a regular file"),
    Rule("unreadable", "error", "It cannot be read: {reason}",
         "Check the permissions with `ls -l`, or remove it"),
    Rule("outside-root", "error", "The link leads to `{target}`, outside the project; it was not followed",
         "Put a copy in place of the link, or name its target in your own `locations`"),
    # Loaded, after a repair.
    Rule("repaired-value", "warning", "`{key}` is not valid YAML ({why}); its text was used as written",
         "Put the value of `{key}` in double quotes, or write it as a block with `|`"),
    Rule("unclear-value", "warning", "`{key}` is not valid YAML ({why}); its text was used as written and may be wrong",
         "Rewrite the value of `{key}` inside one pair of quotes"),
    Rule("stray-text", "warning", "Line {at} belongs to no key; it was {done}",
         "Indent the line below its key, or move it under the closing `---`"),
    Rule("yaml-refused", "warning", "`{key}` uses {what}, which is not read; its text was used as written",
         "Write the value out in plain YAML"),
    Rule("unclosed-frontmatter", "warning", "The closing `---` line is missing; only the lines before {before} were read",
         "Add a line `---` after the last key"),
    Rule("doubled-frontmatter", "warning", "A second frontmatter follows the first; only the first was read",
         "Merge the two blocks into one"),
    Rule("control-characters", "warning", "{count} control characters were removed from the frontmatter",
         "Delete them; an editor shows them as `^@` or boxes"),
    Rule("broken-surrogates", "warning", "`{key}` contains `\\u` escapes that YAML does not know in pairs; they were joined",
         "Write the characters themselves instead of `\\ud83d\\udcbc`"),
    Rule("invalid-utf8", "warning", "{count} bytes are not UTF-8 and were replaced",
         "Save the file as UTF-8"),
    Rule("bom", "note", "The file begins with a byte order mark, which some agents refuse",
         "Save it as UTF-8 without BOM"),
    Rule("leading-blank", "note", "There are blank lines before the opening `---`, which some agents refuse",
         "Begin the file with `---`"),
    Rule("delimiter-spaces", "note", "A `---` line ends in spaces, which some agents refuse",
         "Remove the spaces after `---`"),
    Rule("wide-encoding", "note", "The file is {encoding}, which most agents cannot read",
         "Save it as UTF-8"),
    # Loaded, and YAML did something the author may not have meant.
    Rule("duplicate-key", "warning", "`{key}` is there twice; YAML takes the last",
         "Remove one of the two"),
    Rule("hash-comment", "warning", "YAML reads ` #` in `{key}` as a comment: the rest of the line is lost",
         "Put the value of `{key}` in quotes"),
    Rule("number-value", "note", "`{key}: {text}` is the number {value} to YAML",
         "Put it in quotes to keep it as text"),
    Rule("date-value", "note", "`{key}: {text}` is a date to YAML, not text",
         "Put it in quotes to keep it as text"),
    Rule("key-spelling", "warning", "`{key}` was read as `{meant}`",
         "Write `{meant}:`"),
    Rule("bad-value", "warning", "`{key}: {text}` cannot be read as {kind}; its text was used as written",
         "Put it in quotes"),
    # Loaded, and the name or description wants attention.
    Rule("name-missing", "warning", "There is no `name`; the folder's name `{name}` is used",
         "Add `name: {name}`"),
    Rule("name-mismatch", "warning", "The name `{name}` differs from its folder `{folder}`",
         "Rename the folder or the skill, so that both agree"),
    Rule("name-pattern", "warning", "The name `{name}` is not lower-case letters, digits and single hyphens",
         "Rename it `{better}`"),
    Rule("name-too-long", "warning", "The name has {length} characters; the specification allows 64",
         "Shorten it"),
    Rule("name-not-text", "warning", "The name is {kind} to YAML; `{name}` is used",
         "Put the name in quotes"),
    Rule("name-reserved", "note", "The name contains `{word}`, which one vendor's service refuses",
         "Choose a name without it if the skill is to be uploaded there"),
    Rule("description-not-text", "warning", "The description is {kind} to YAML; its text is used",
         "Put the description in quotes"),
    Rule("description-too-long", "warning", "The description has {length} characters; the specification allows 1024",
         "Move the detail into the body"),
    Rule("description-unwritten", "warning", "The description is still to be written, and models are told just that",
         "Say what the skill does and when to use it"),
    Rule("description-spaces", "note", "The description begins or ends with spaces, which were removed",
         "Remove them"),
    Rule("description-markup", "note", "The description contains the tag `{tag}`; it reaches the model escaped",
         "Describe it in words"),
    Rule("invisible-characters", "warning", "`{key}` contains {count} invisible characters ({names}); they were removed",
         "Delete them: hidden text is a way to smuggle instructions"),
    # Loaded, and other fields want attention.
    Rule("unknown-field", "note", "`{key}` is not a field of any known agent; it is kept and does nothing",
         "Move it under `metadata:`"),
    Rule("not-in-spec", "warning", "`{key}` is not in the published specification; agents that know it read it",
         "Keep it for those agents, or move it under `metadata:`"),
    Rule("inert-field", "note", "`{key}` is kept but does nothing here: {meaning}",
         "Keep it for the agents that read it, or remove it"),
    Rule("field-type", "warning", "`{key}` should be {wanted}, but is {kind}",
         "Write `{key}` as {wanted}"),
    Rule("field-too-long", "warning", "`{key}` has {length} characters; the specification allows {limit}",
         "Shorten it"),
    Rule("metadata-nested", "note", "`metadata` has nested or non-text values ({keys}), which the specification does not allow",
         "Use text values, or a JSON string"),
    Rule("tools-list", "note", "`{key}` is a list; the specification wants one line separated by spaces",
         "Write `{key}: {line}`"),
    Rule("body-empty", "note", "There are no instructions after the frontmatter",
         "Write what the agent should do"),
    Rule("file-missing", "note", "The body names `{file}`, which is not in the skill's folder",
         "Add the file, or correct the path"),
    Rule("body-long", "note", "The body has {lines} lines; agents do better under 500",
         "Move detail into `references/` and name the files in the body"),
    # A tool skill: its skill.yaml.
    Rule("tool-not-yaml", "error", "The file is not valid YAML: {reason}",
         "Correct the line, or put the value in double quotes"),
    Rule("tool-yaml-refused", "error", "The file uses {what}, which is not read",
         "Write it out in plain YAML"),
    Rule("tool-too-large", "error", "The file is larger than {limit} bytes",
         "Move long text into files beside it"),
    Rule("tool-not-a-mapping", "error", "The file is {kind}, not lines of `key: value`",
         "Write `name:`, `description:`, `runtime:` and `entry:`, each on its own line"),
    Rule("tool-key-missing", "error", "There is no `{key}`",
         "Add `{example}`"),
    Rule("tool-key-type", "error", "`{key}` is {kind}; it must be {wanted}",
         "Write `{key}` as {wanted}"),
    Rule("tool-key-twice", "error", "`{key}` is there twice",
         "Remove one of the two"),
    Rule("tool-key-unknown", "note", "`{key}` is no key of a skill.yaml; it does nothing",
         "Remove it, or correct its spelling"),
    Rule("tool-key-misspelt", "error", "`{key}` is no key of a skill.yaml: did you mean `{better}`?",
         "Write `{better}`"),
    Rule("tool-key-place", "error", "`{key}` belongs to each tool, since there is a `tools:`",
         "Move it below the tool it speaks of"),
    Rule("tool-runtime", "error", "There is no runtime `{value}`",
         "Write one of `python`, `node`, `go` and `binary`"),
    Rule("tool-entry-path", "error", "The entry `{entry}` is no path inside the skill's folder",
         "Write the file's path relative to the folder, with `/`"),
    Rule("tool-entry-missing", "error", "The entry `{entry}` is not there",
         "Add the file, or correct `entry:`"),
    Rule("tool-go-module", "error", "A program in Go needs a `go.mod`, and there is none",
         "Run `go mod init {name}` in its folder"),
    Rule("tool-name", "error", "The tool name `{name}` is not lower-case letters, digits and underscores, at most 64",
         "Write it like `{better}`"),
    Rule("tool-name-prefix", "error", "The tool name `{name}` does not begin with that of its folder, `{prefix}_`",
         "Rename the tool, or the folder"),
    Rule("tool-name-twice", "error", "Two tools are called `{name}`",
         "Rename one of them"),
    Rule("tool-none", "error", "There is no tool below `tools:`",
         "Add one that begins with `- name:`, or remove `tools:`"),
    Rule("tool-too-many", "error", "There are {count} of `{key}`; at most {limit} are taken",
         "Split the skill"),
    Rule("tool-text-long", "warning", "`{key}` has {length} characters; {limit} of them reach a model",
         "Shorten it"),
    Rule("tool-docs", "warning", "`{key}` is {kind} instead of {wanted}; it was left out",
         "Write `{key}` as {wanted}"),
    Rule("parameter-name", "error", "The parameter name `{name}` is not letters, digits and underscores, at most 64",
         "Rename it"),
    Rule("parameter-type", "error", "The parameter `{name}` has the type `{value}`, which there is not",
         "Write one of `string`, `integer`, `number` and `boolean`"),
    Rule("parameter-twice", "error", "Two parameters are called `{name}`",
         "Rename one of them"),
    Rule("parameter-default", "error", "The default of `{name}` is {kind}; it must be {wanted}",
         "Write a default of that type, or none"),
    Rule("parameter-default-long", "error", "The default of `{name}` has {length} characters; at most {limit} are taken",
         "Shorten it, or let the program choose when nothing is given"),
    Rule("parameter-default-unused", "warning", "The parameter `{name}` is required, so its default is never used",
         "Remove `default:`, or write `required: false`"),
    Rule("secret-name", "error", "`{name}` cannot be the name of a secret",
         "Name a variable in capitals, digits and underscores that no program and no system reads by itself"),
    Rule("files-parameter", "error", "`files` names `{name}`, which is no parameter of type `string`",
         "Name parameters of the tool that hold paths"),
    Rule("tool-number", "error", "`{key}` is {value}; it must lie between {least} and {most}",
         "Choose a number in between"),
    Rule("tool-file-name", "error", "The file is called `skill.yml`, so it is not read",
         "Rename it to `skill.yaml`"),
    Rule("tool-nested", "note", "The skill.yaml is material of the tool skill `{outer}`, in whose folder it lies",
         "Move its folder out if it is a skill of its own"),
    Rule("tool-name-taken", "warning", "The tool `{name}` is not offered: `{winner}` has one of that name",
         "Rename one of them, or change the order of locations"),
    Rule("tool-name-packaged", "warning", "The tool `{name}` is not offered: the packaged skill `{winner}` has one of that name",
         "Rename the tool and its folder, or turn the package off: `{switch}=false`"),
    Rule("tool-not-offered", "warning", "The tools of `{name}` are not offered: {reason}",
         "See `satchel show {name}`"),
    # Trigger tests: evals/triggers.yaml. The skill itself is as it was.
    Rule("triggers-not-yaml", "warning", "The trigger tests are not valid YAML: {reason}",
         "Correct the line, or put the prompt in double quotes"),
    Rule("triggers-refused", "warning", "The trigger tests use {what}, which is not read",
         "Write them out in plain YAML"),
    Rule("triggers-large", "warning", "The trigger tests are larger than {limit} bytes",
         "Keep the prompts that tell most"),
    Rule("triggers-shape", "warning", "The trigger tests are {kind}, not lists of prompts",
         "Write `should:` and `should_not:`, each with a list of prompts"),
    Rule("triggers-none", "warning", "There is no prompt in the trigger tests",
         "Add `should:` with prompts that the skill is for"),
    Rule("triggers-key", "warning", "`{key}` means nothing in trigger tests",
         "Write {better}"),
    Rule("triggers-row", "warning", "A row of the trigger tests is {kind}, not a prompt",
         "Write the prompt as text, or as `prompt:` beside `note:` and `instead:`"),
    Rule("triggers-colon", "warning", "YAML reads the prompt that begins with `{text}` as a key, for its colon",
         "Put the prompt in double quotes"),
    Rule("triggers-side", "warning", "The prompt `{text}` does not say whether it should choose the skill",
         "Add `should_trigger: true` or `should_trigger: false`"),
    Rule("triggers-twice", "warning", "The prompt `{text}` is there already: {where}",
         "Remove one of the two"),
    Rule("triggers-many", "warning", "There are {count} prompts in the trigger tests; at most {limit} are run",
         "Keep those that tell most"),
    Rule("triggers-long", "warning", "A prompt has {length} characters; at most {limit} are taken",
         "Shorten it to what a person would type"),
    Rule("triggers-instead", "warning", "`instead` names `{name}`, and there is no such skill",
         "Write {better}"),
    # In the library.
    Rule("duplicate-name", "warning", "`{name}` is defined twice here, by `{first}` and `{last}`; the last is used",
         "Rename one of them"),
    Rule("shadowed", "note", "`{name}` is hidden by `{winner}`, which goes before it",
         "Rename one of them, or change the order of locations"),
    Rule("untrusted", "warning", "`{name}` is not offered: the folder of this project is not trusted yet",
         "Run `satchel trust` in the project"),
    Rule("unpinned", "warning", "`{name}` is not offered: the setting `trust` is `locked`, and no lockfile pins it as it is",
         "Run `satchel verify` to see what differs; import it from its source to have it locked"),
    Rule("blocked", "error", "`{name}` is not offered: the scan blocks it",
         "Read what it found with `satchel scan {name}`. To use it all the same: `satchel trust {name} --accept-risk WHY`"),
    Rule("modified", "note", "`{name}` was modified since it was installed: {files}",
         "Yours? Keep it with `satchel lock {name}`. Not yours? Run `satchel install --frozen`"),
    Rule("not-scannable", "warning", "`{name}` cannot be scanned, so it is not used: {reason}",
         "Fix the cause: a skill that cannot be checked is not used"),
    Rule("lock-broken", "error", "The lockfile cannot be used, so no skill beside it is loaded: {reason}",
         "Take it from version control again, or run `satchel lock --rebuild`"),
    Rule("change-interrupted", "warning", "A command that changed {names} was interrupted and is not finished",
         "Run `satchel install`: whatever changes skills next finishes it first"),
    Rule("file-case", "note", "The file is called `{file}`; other agents look only for `SKILL.md`",
         "Rename it to `SKILL.md`"),
    Rule("two-files", "warning", "Both `{used}` and `{other}` are here; `{used}` is used",
         "Remove `{other}`"),
    Rule("include-unmatched", "warning", "No skill matches `{name}` in `include`",
         "Correct the pattern; `satchel list --all` shows every name"),
    Rule("folder-without-skill", "warning", "There is no `SKILL.md` in this folder or below it, so it is not a skill",
         "Add a `SKILL.md` to it, or move it out of the skills folder"),
    Rule("loose-file", "warning", "A skill is a folder with a `SKILL.md`; this file is not read",
         "Move it to `{folder}/SKILL.md`"),
    Rule("link-loop", "note", "The link leads back to `{target}`, which was already read; it was skipped",
         "Remove the link"),
    Rule("too-deep", "warning", "Folders deeper than {limit} levels were not searched",
         "Move the skills up, or raise `max_depth`"),
    Rule("too-many", "warning", "More than {limit} folders; the rest was not searched",
         "Point the location at the folder that holds the skills, or raise `max_folders`"),
    Rule("setting-refused", "warning", "A project may not set `{name}`; it was ignored",
         "Set it in your own configuration or the environment"),
    Rule("setting-unknown", "error", "There is no setting `{name}`; it was ignored",
         "Remove it; the settings reference has the names"),
    Rule("setting-near", "error", "There is no setting `{name}`; it was ignored",
         "Did you mean `{near}`?"),
    Rule("setting-wrong", "error", "A setting was ignored: {reason}",
         "Correct the value"),
    Rule("project-setting", "note", "The project's file sets `{name}`, which holds for your own skills too",
         "Set `{name}` yourself in the environment if you want it otherwise"),
    Rule("server-address", "error", "`{name}` is no server that can be used: {why}",
         "Correct it in your configuration, or run `satchel mcp remove {name}`"),
    Rule("server-nested", "note", "Skills of {count} servers are left out: this program was started by a library that takes skills from it",
         "Set the servers where that library is"),
    Rule("server-unreachable", "warning", "The server `{name}` does not answer: {reason}",
         "See that it runs and that you may use it, then run `satchel mcp list`"),
    Rule("server-stale", "warning", "The server `{name}` does not answer ({reason}); its skills are listed as they were on {when}",
         "See that it runs and that you may use it, then run `satchel mcp list`"),
    Rule("server-limit", "warning", "The server `{name}` lists too much: {why}; {count} of its skills are taken",
         "Ask whoever runs it for a smaller list, or remove it with `satchel mcp remove {name}`"),
    Rule("served-refused", "error", "The server `{server}` lists `{name}`, which cannot be taken: {why}",
         "Tell whoever runs the server"),
    Rule("served-shadowed", "note", "`{name}` of the server `{server}` is hidden by `{winner}`: no server replaces a skill of yours",
         "Rename yours, or make a copy of the server's under another name: `satchel mcp copy`"),
    Rule("served-renamed", "note", "The server `{server}` lists several skills `{name}`; this one is offered as `{offered}`",
         "Call it by that name"),
    Rule("package-broken", "warning", "The packaged skill of `{name}` cannot be used: {reason}",
         "Update the package or remove it; `satchel tools` shows every packaged skill"),
    Rule("search-plain", "note", "{count} skills are searched without `tantivy`, which is made for that many",
         'Run `pip install "satchel[search]"`, then `satchel index`'),
    Rule("search-unindexed", "note", "{count} skills are offered, and the search index holds {held}",
         "Run `satchel index`, or wait: the next searches bring it up to date"),
    Rule("vectors-unusable", "warning", "Meanings are not compared: the setting `vectors` cannot be used ({reason})",
         "Put it right, and see that it works: `satchel vectors check`; or empty the setting"),
    Rule("variable-near", "warning", "The environment has `{name}`, which no setting is called",
         "Did you mean `{near}`?"),
    Rule("variable-unknown", "note", "The environment has `{name}`, which no setting is called",
         "Unset it, unless another program reads it"),
    Rule("index-damaged", "note", "The saved index could not be read ({reason}); everything was read again",
         "Nothing to do; it was rebuilt"),
    Rule("index-unsaved", "note", "The index could not be saved ({reason}); the next start reads everything again",
         "Make the cache folder writable, or set `use_index = false`"),
)  # fmt: skip

PROBLEMS: dict[str, Rule] = {rule.code: rule for rule in _RULES}
"""Every rule by its code."""

NO_PROBLEMS: tuple[Problem, ...] = ()
"""Shared by the many skills that have none."""
