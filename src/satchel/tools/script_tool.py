"""The tool `RunScript`: runs a script of a loaded skill in the sandbox, in the project's folder.

Skills as people write them name commands, such as `python scripts/fill.py in.pdf out.pdf`. The
script sees the project; what it writes is a proposal. It has no network and no secrets unless the
user granted them to the skill, and packages are installed only after an approval that names them.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from satchel.errors import BuildFailed, InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import Message, join_names, say
from satchel.runners.base import SCRIPT_FOLDERS, SCRIPT_INTERPRETERS, scripts_named
from satchel.tools.base import Tool
from satchel.tools.framing import one_line, printable
from satchel.tools.lookup import find_skill, not_offered, refuse_use, unknown_skill
from satchel.tools.skill_tool import document_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.library.integrity import VerifiedFolder
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.tools.base import ResolvedCall, ToolCall
    from satchel.tools.program_runner import ProgramRunner
    from satchel.tools.script_run import ScriptCall, ScriptLauncher
    from satchel.trace import Trace

MAX_ARGUMENT_BYTES = 120_000
"""Of the command line; the kernel takes no argument above 128 KiB."""
MAX_SCRIPTS_NAMED = 20
_MAX_SKILLS_EXAMINED = 500
"""Folders that are examined for scripts; a larger library is taken to have some."""
_MAX_PACKAGES_NAMED = 20
_FOLDER_PLACEHOLDER = r"[<{\[$]+[\w -]*(?i:skill|base)[\w -]*[>}\]]*"
"""How texts of skills write the skill's folder, as a regular expression."""
_snapshots_with_scripts: WeakKeyDictionary[Snapshot, bool] = WeakKeyDictionary()
"""Whether each snapshot has scripts, as `has_scripts` found."""


class RunScriptTool(Tool):
    """Runs a script of a loaded skill."""

    name = "RunScript"
    about_skills = True
    description = (
        "Run a script of a loaded skill. Call it where a skill says to run one of its files: "
        "`python scripts/fill.py in.pdf out.pdf` is script `scripts/fill.py` with args "
        '["in.pdf", "out.pdf"]. The working folder is the project, so name its files by relative '
        "paths. It runs in a sandbox, without network unless the user granted it, and returns what "
        "the script printed; the files that it wrote are kept once they are accepted. Have it "
        "write to the project: files in /tmp or the home folder are lost."
    )
    aliases = {  # noqa: RUF012 - read only, as the protocol says
        "name": "skill",
        "path": "script",
        "arguments": "args",
        "input": "stdin",
    }
    parameters: dict[str, Any] = {  # noqa: RUF012 - same
        "type": "object",
        "properties": {
            "skill": {
                "type": "string",
                "description": "The name of the loaded skill",
                "minLength": 1,
                "maxLength": 1000,
            },
            "script": {
                "type": "string",
                "description": "The script's path below the skill's folder, without interpreter",
                "minLength": 1,
                "maxLength": 1000,
            },
            "args": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Its arguments, one entry each; no shell reads them",
                "maxItems": 1000,
            },
            "stdin": {
                "type": "string",
                "description": "Text for its standard input; leave out if it reads none",
                "maxLength": 1_000_000,
            },
        },
        "required": ["skill", "script"],
        "additionalProperties": False,
    }
    hints = {  # noqa: RUF012 - same
        # A script may do whatever its sandbox permits, so nothing is promised.
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": False,
    }

    def __init__(
        self, library: Library, settings: Settings, runner: ProgramRunner, trace: Trace
    ) -> None:
        self._library = library
        self._settings = settings
        self._runner = runner
        self._trace = trace
        self.unsandboxed = settings.sandbox == "off"

    @property
    def proposes(self) -> bool:
        """Whether an overlay catches what scripts write."""
        return not self._runner.writes_directly(lambda: True)

    def is_offered(self, snapshot: Snapshot) -> bool:
        """Whether a skill that a model may load has scripts."""
        return has_scripts(snapshot)

    def list_scripts(self, files: Sequence[tuple[str, int]], text: str) -> tuple[str, ...]:
        """The scripts among the files of a skill, given by path and mode."""
        if not files:
            return ()
        from satchel.runners.scripts import list_scripts

        return list_scripts(files, text)

    # --- permissions ----------------------------------------------------------------------

    def permission_arguments(self, call: ResolvedCall) -> dict[str, Any]:
        """The call as patterns see it: `RunScript(pdf-forms/scripts/*)`.

        The other spellings count only for patterns that forbid: these match in doubt.
        """
        skill = self._find_skill(call)
        name = skill.name if skill is not None else str(self._argument(call, "skill"))
        path = self._script_path(skill, call)
        return {"script": f"{name}/{path}", "title": name, "text": f"{name}:{path}"}

    def reasons(self, call: ResolvedCall) -> tuple[str, ...]:
        """What must be approved before the script runs: the packages that are not installed yet.

        The content that was examined is noted in the call: packages of another are not installed.
        """
        call.examined = ""
        try:
            script = self._find_script(call)
            if script is None or self._runner.is_built(script.skill.base_dir, script.plan):
                return ()
        except SatchelError:
            return ()  # the call itself reports the error
        call.examined = script.digest
        packages = [f"`{one_line(name, 60)}`" for name in script.plan.packages]
        if (unlisted_count := len(packages) - _MAX_PACKAGES_NAMED) > 0:
            packages[_MAX_PACKAGES_NAMED:] = [say("and {count} more", count=unlisted_count)]
        names = join_names(packages)
        script_name = one_line(f"{script.skill.name}/{script.plan.path}", 200)
        text = say("install the packages {names} for `{script}`", names=names, script=script_name)
        return (text,)

    def _find_script(self, call: ResolvedCall) -> ScriptCall | None:
        """Find the script of a call, whether its skill is loaded or not.

        None where there is no such skill, or it may not be used.
        """
        skill = self._find_skill(call)
        if skill is None or skill.state != "active" or skill.origin.remote:
            return None
        verified = self._library.integrity.check(skill)
        return self._plan_script(skill, verified, call)

    def _find_skill(self, call: ResolvedCall) -> Skill | None:
        return find_skill(call.snapshot, str(self._argument(call, "skill")), self._settings.project)

    def _argument(self, call: ResolvedCall, name: str) -> Any:
        """The value of a parameter, which may be sent under an alias; empty if it is missing."""
        keys = (name, *(alias for alias, parameter in self.aliases.items() if parameter == name))
        values = (call.received.get(key) for key in keys)
        return next((value for value in values if value is not None), "")

    def _script_path(self, skill: Skill | None, call: ResolvedCall) -> str:
        """The path of the script below the skill's folder, as far as it lies there.

        Skills name their folder in many ways, which a model copies: `{baseDir}/scripts/x.py`,
        `~/.claude/skills/NAME/scripts/x.py`, `<skill-path>/scripts/x.py`.
        """
        path = str(self._argument(call, "script")).strip()
        if skill is not None:
            path = path.removeprefix(skill.base_dir.rstrip("/") + "/")
            if not os.path.lexists(os.path.join(skill.base_dir, path)):
                names = "|".join(map(re.escape, (skill.name, os.path.basename(skill.base_dir))))
                folder = rf"(?:.*/(?:{names})|(?:{names})|{_FOLDER_PLACEHOLDER})"
                path = re.sub(rf"^{folder}/", "", path)
        return posixpath.normpath(path)

    def _plan_script(
        self, skill: Skill, verified: VerifiedFolder, call: ResolvedCall
    ) -> ScriptCall:
        """Plan how the script of a call is launched.

        Raises:
            NotFound: the skill has no such file.
            BuildFailed: it cannot be run.
        """
        path = self._script_path(skill, call)
        if path not in verified.tree.files:
            text = self._library.integrity.document(skill, verified).body
            names = self.list_scripts([(file.path, file.mode) for file in verified.survey], text)
            quoted_names = [f"`{printable(name)}`" for name in names[:MAX_SCRIPTS_NAMED]]
            step = Message("Its scripts are {names}", names=quoted_names) if quoted_names else ""
            raise NotFound(
                Message(
                    "The skill `{name}` has no file `{path}`",
                    name=one_line(skill.name, 100),
                    path=one_line(path, 200),
                ),
                step or Message("It has no scripts: go on without"),
            )
        from satchel.tools.script_run import plan_call

        return plan_call(skill, verified, path)

    # --- the call -------------------------------------------------------------------------

    def run(self, call: ToolCall) -> Envelope:
        """Run the script once."""
        resolved, args = call.resolved, _read_args(call.arguments)
        skill, requested_name = self._find_skill(resolved), str(call.arguments["skill"])
        if skill is None:
            return unknown_skill(
                call, resolved.snapshot, requested_name, self._library.untrusted_notice()
            )
        if skill.state != "active":
            return not_offered(call, self._library, skill, self._library.untrusted_notice())
        name = one_line(skill.name, 100)
        if skill.origin.remote:
            raise Refused(
                Message("The skill `{name}` is served, and its scripts do not run here", name=name),
                Message("Go on without it"),
            )
        try:
            verified = self._library.integrity.check(skill)
            if not call.as_person and (refusal := self._refuse_unloaded(call, skill, verified)):
                return refusal
        except SatchelError as exc:
            return refuse_use(call, exc)
        try:
            script = self._plan_script(skill, verified, resolved)
        except BuildFailed as exc:
            return self._launcher().refuse(call, skill, self._script_path(skill, resolved), exc)
        return self._launcher().run(call, script, args)

    def _launcher(self) -> ScriptLauncher:
        from satchel.tools.script_run import ScriptLauncher

        return ScriptLauncher(
            self.name,
            library=self._library,
            settings=self._settings,
            runner=self._runner,
            trace=self._trace,
        )

    def _refuse_unloaded(
        self, call: ToolCall, skill: Skill, verified: VerifiedFolder
    ) -> Envelope | None:
        """Refuse a skill whose present instructions are not in the conversation."""
        name = one_line(skill.name, 100)
        loaded_digest = call.loaded_digests.get(skill.name)
        if loaded_digest is None:
            return call.fail(
                "PERMISSION_DENIED",
                Message("The skill `{name}` is not loaded", name=name),
                Message("Call Skill with name `{name}` first, and read what it says", name=name),
            )
        if loaded_digest == document_digest(self._library.integrity.document(skill, verified)):
            return None
        return call.fail(
            "CONFLICT",
            Message("The skill `{name}` changed since it was loaded", name=name),
            Message("Call Skill with name `{name}` again, then go on", name=name),
        )


def _read_args(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the arguments for the command line; numbers become texts.

    Raises:
        InvalidInput: an entry is something else, or they are too long.
    """
    args: list[str] = []
    for value in arguments.get("args", ()):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidInput(
                Message("`{name}` {slip}", name="args", slip=Message("must be a list of texts")),
                Message('Write each argument as a text, such as ["in.pdf", "--pages", "3"]'),
            )
        args.append(str(value))
    size = sum(len(os.fsencode(arg)) + 1 for arg in args)
    if size > MAX_ARGUMENT_BYTES or any("\0" in arg for arg in args):
        raise InvalidInput(
            Message(
                "The arguments have {size} bytes; at most {limit} are handed over",
                size=f"{size:,}",
                limit=f"{MAX_ARGUMENT_BYTES:,}",
            ),
            Message("Write long text to a file and give its path"),
        )
    return tuple(args)


def has_scripts(snapshot: Snapshot) -> bool:
    """Whether a skill that a model may load has scripts, by names in its folder and its text.

    The first one ends the search, and a large library is not searched: its tools stay the same.
    """
    has_any = _snapshots_with_scripts.get(snapshot)
    if has_any is None:
        skills = snapshot.for_model
        has_any = len(skills) > _MAX_SKILLS_EXAMINED or any(map(_skill_has_scripts, skills))
        _snapshots_with_scripts[snapshot] = has_any
    return has_any


def _skill_has_scripts(skill: Skill) -> bool:
    if skill.origin.remote:
        return False
    try:
        with os.scandir(skill.base_dir) as entries:
            is_folder = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        suffixes = tuple(SCRIPT_INTERPRETERS)
        if any(name in SCRIPT_FOLDERS or name.endswith(suffixes) for name in is_folder):
            return True
        if not any(is_folder.values()):
            return False
        with open(skill.path, encoding="utf-8", errors="replace") as file:
            named_paths = scripts_named(file.read())
    except OSError:
        return False
    return any(os.path.isfile(os.path.join(skill.base_dir, path)) for path in named_paths)
