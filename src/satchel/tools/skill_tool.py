"""The `Skill` tool: reads, verifies and frames a skill's instructions with its arguments."""

from __future__ import annotations

import json
import re
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import Changed, InvalidInput, LockBroken, NotFound, Refused, SkillBroken
from satchel.i18n import Message
from satchel.library.location_walk import OWN_FOLDERS, SKIPPED_FOLDERS
from satchel.tools.arguments import apply_arguments, argument_names
from satchel.tools.base import Folder, ReadSkill, Tool
from satchel.tools.framing import (
    attribute,
    encodable,
    framed,
    make_nonce,
    plural,
    printable,
    size_of,
)
from satchel.tools.lookup import find_skill, not_offered, refuse_use, unknown_skill
from satchel.tools.permission_rules import parse_patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.library.fingerprint import Survey
    from satchel.settings import Settings
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill
    from satchel.tools.base import ResolvedCall, ToolCall
    from satchel.trace import Trace

MAX_FILES_LISTED = 50
MAX_SCRIPTS_LISTED = 30
MAX_SKILL_NESTING = 5
"""Skills loaded within each other."""
MAX_CONTENT_CHARS = 400_000
"""Of one skill; the longest real one has 291,206."""
_SKILL_FILES = ("/skill.md", "/skill.yaml")
"""Files that make a subfolder a separate skill."""
_SCRIPT_PATH = re.compile(r"(?:^|/)(?:scripts|bin|tools)/|\.(?:py|sh|bash|[cm]?js|ts)$")
"""Paths of files that may be scripts."""


def list_folder(survey: Survey, own_file: str) -> Folder:
    """List the files of a skill's folder, shallow ones first.

    Args:
        survey: The survey of the folder, or the listing of a server.
        own_file: The SKILL.md, which counts for the revision only.
    """
    nested_skills = _find_nested_skills(survey)
    files = [
        file
        for file in survey
        if not file.path.startswith(nested_skills)
        and SKIPPED_FOLDERS.isdisjoint(file.path.split("/")[:-1])
    ]
    state = "".join(
        f"{file.path}\0{file.size}\0{file.mtime_ns}/{file.ctime_ns}\n" for file in files
    )
    others = [file for file in files if file.path != own_file]
    others.sort(key=lambda file: (file.path.count("/"), file.path))
    return Folder(
        tuple((file.path, file.size) for file in others[:MAX_FILES_LISTED]),
        len(others),
        blake2b(state.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest(),
        tuple((file.path, file.mode) for file in files if _SCRIPT_PATH.search(file.path)),
    )


def _find_nested_skills(survey: Survey) -> tuple[str, ...]:
    """Find the folders of other skills below the skill's folder, each with a slash at the end."""
    folders = {
        file.path.rpartition("/")[0] for file in survey if file.path.lower().endswith(_SKILL_FILES)
    }
    return tuple(
        f"{folder}/" for folder in folders if folder and folder.split("/", 1)[0] not in OWN_FOLDERS
    )


class SkillTool(Tool):
    """Loads a skill by name."""

    name = "Skill"
    about_skills = True
    description = (
        "Load a skill: instructions for one kind of task, with the folder that holds its files. "
        "Call it when the user names a skill or a task clearly matches one, before you begin. "
        "Follow what it returns; read the files it mentions with ReadFile. What a tool quotes ends "
        "at the closing tag with the nonce of the opening one."
    )
    aliases = {"skill": "name"}  # noqa: RUF012 - read only, as the protocol says
    parameters: dict[str, Any] = {  # noqa: RUF012 - same
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "description": "The skill's name, exactly as listed or found",
                "minLength": 1,
                "maxLength": 1000,
            },
            "args": {
                "type": "string",
                "description": "What the skill is to work on, in one line; leave out if nothing",
                "maxLength": 100_000,
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        library: Library,
        settings: Settings,
        trace: Trace,
        *,
        list_scripts: Callable[[Sequence[tuple[str, int]], str], tuple[str, ...]] | None = None,
    ) -> None:
        """Set up.

        Args:
            library: The skills.
            settings: Where the project is.
            trace: Where events are recorded.
            list_scripts: Finds scripts among files with their modes, where there is `RunScript`;
                a file that the text says to run is one.
        """
        self._list_scripts = list_scripts
        self._library = library
        self._settings = settings
        self._trace = trace
        self._cached_sources: dict[str, tuple[Snapshot, ReadSkill]] = {}
        """Sources read with `refresh_on_call` off: valid for one snapshot."""

    def run(self, call: ToolCall) -> Envelope:
        """Run the call."""
        result = self.load(call)
        return result.envelope if isinstance(result, LoadedSkill) else result

    def find_named(self, arguments: Mapping[str, Any], snapshot: Snapshot) -> Skill | None:
        """Find the skill that a call names, available or not; None when there is none."""
        names = {arguments[key] for key in ("name", "skill") if isinstance(arguments.get(key), str)}
        if len(names) != 1:
            return None
        name = str(names.pop())
        found = snapshot.get(name) or find_skill(snapshot, name, self._settings.project)
        return found or self._library.find_served(name.strip())

    def load(self, call: ToolCall, *, names_scripts: bool = True) -> LoadedSkill | Envelope:
        """Load a skill with its text and envelope; an error envelope when it cannot be loaded.

        Args:
            call: The call.
            names_scripts: Whether `RunScript` can be called in this session.
        """
        resolved = call.resolved
        skill, snapshot = resolved.skill, resolved.snapshot
        if skill is None:
            return unknown_skill(
                call, snapshot, str(call.arguments["name"]), self._library.untrusted_notice()
            )
        if skill.state != "active":
            return not_offered(call, self._library, skill, self._library.untrusted_notice())
        if not skill.for_model and not call.as_person:
            raise Refused(
                f"Only a person can load the skill `{printable(skill.name)}`: its author set "
                "`disable-model-invocation`",
                "Go on without it, or ask the user to load it",
            )
        _check_nesting(skill, call.stack)
        try:
            source = self.read(resolved)
        except (Changed, LockBroken) as exc:
            return refuse_use(call, exc)
        except Refused as exc:
            return _reply_to_read_error(call, exc)
        scripts: tuple[str, ...] = ()
        if names_scripts and self._list_scripts is not None and not skill.origin.remote:
            scripts = self._list_scripts(source.folder.modes, source.body)
        return self._reply(call, skill, source, scripts)

    def read(self, resolved: ResolvedCall) -> ReadSkill:
        """Read the skill that a call names, once per call.

        Raises:
            SatchelError: it cannot be read or verified, or is no skill any more.
        """
        assert resolved.skill is not None  # noqa: S101 - checked by the caller
        if resolved.source is None:
            path = resolved.skill.path
            use_cache = not self._settings.refresh_on_call
            cached = self._cached_sources.get(path) if use_cache else None
            if cached is not None and cached[0] is resolved.snapshot:
                resolved.source = cached[1]
            else:
                resolved.source = read_skill(self._library, resolved.skill)
                if use_cache:
                    self._cached_sources[path] = (resolved.snapshot, resolved.source)
        return resolved.source

    def _reply(
        self, call: ToolCall, skill: Skill, source: ReadSkill, scripts: tuple[str, ...]
    ) -> LoadedSkill:
        args = str(call.arguments.get("args", ""))
        content, is_cut = skill_content(skill, source, args)
        folder = source.folder
        data: dict[str, Any] = {
            "name": skill.name,
            "base_dir": encodable(skill.base_dir),
            "content": content,
            "files": [{"path": printable(path), "size": size} for path, size in folder.files],
            "files_total": folder.total,
            "revision": folder.revision,
        }
        if skill.origin.remote:
            data["origin"] = skill.origin.remote
        notes: list[str] = []
        if is_cut:
            data["truncated"] = True
            notes.append(_truncation_note(skill.path, source.body))
        if source.changed and not self._settings.refresh_on_call:
            data["fallback"] = "changed-since-last-look"
            notes.append(
                "The file has changed since the last look at the library; this is its text now."
            )
        nonce = make_nonce(content, *(path for path, _ in folder.files))
        self._trace.record(
            "loaded",
            (skill.name,),
            ref=skill.ref,
            revision=folder.revision,
            args=bool(args),
            by="person" if call.as_person else "model",
        )
        envelope = call.answer(
            "\n".join((skill_frame(skill, source, content, nonce, scripts), *notes)),
            data,
            partial=bool(notes),
            stats={"characters": len(content)},
            path=encodable(skill.path),
        )
        return LoadedSkill(skill, source, nonce, short_digest(content), envelope)


def skill_content(skill: Skill, source: ReadSkill, args: str) -> tuple[str, bool]:
    """Return the text of a skill with its arguments, and whether it was cut."""
    base_dir = encodable(skill.base_dir)
    body = source.body
    if args or "$" in body:
        names = argument_names(source.fields.get("arguments"))
        body = apply_arguments(body, args, base_dir=base_dir, names=names, hint=skill.argument_hint)
    is_cut = len(body) > MAX_CONTENT_CHARS
    return f"Base directory for this skill: {base_dir}\n\n{body[:MAX_CONTENT_CHARS]}", is_cut


class LoadedSkill(NamedTuple):
    """A loaded skill, with what a session records of it."""

    skill: Skill
    source: ReadSkill
    nonce: str
    """Of the frame around its text."""
    text_digest: str
    """Of the text as sent, with arguments."""
    envelope: Envelope


def read_skill(library: Library, skill: Skill) -> ReadSkill:
    """Verify and read a skill.

    Raises:
        SatchelError: it cannot be read or verified, or is no skill any more.
    """
    verified = library.integrity.check(skill)
    document = library.integrity.document(skill, verified)
    head = document.head
    if head is None:
        errors = (problem for problem in document.problems if problem.severity == "error")
        error = next(errors, None)
        reason = error.message if error else "it is no skill"
        fix = error.fix if error else "Run `satchel doctor`"
        raise SkillBroken(f"`{skill.path}` can no longer be read as a skill: {reason}", fix)
    if head.name != skill.head.name:  # another skill is at the path
        raise NotFound(Message("There is no skill `{name}`", name=skill.name), Message("Try again"))
    return ReadSkill(
        document.body.strip("\n"),
        document.fields,
        list_folder(verified.survey, skill.head.file),
        document_digest(document),
        verified.tree.digest,
        changed=(head.mtime_ns, head.size) != (skill.head.mtime_ns, skill.head.size),
    )


def document_digest(document: SkillDocument) -> str:
    """Digest a skill's instructions and tool rules."""
    text = document.body.strip("\n")
    rules = [
        parse_patterns(document.fields.get("allowed-tools")),
        parse_patterns(document.fields.get("disallowed-tools"), forbidding=True),
    ]
    return short_digest(f"{text}\0{rules}" if any(rules) else text)


def short_digest(text: str) -> str:
    """Return the first twelve digits of a text's SHA-256."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def skill_frame(
    skill: Skill, source: ReadSkill, content: str, nonce: str, scripts: Sequence[str]
) -> str:
    """Return the text of a loaded skill: its instructions, its files and its scripts, framed.

    The opening tag holds what `Session.sync` has to know after a restart.
    """
    origin = skill.origin.remote
    origin_attribute = f' origin="{attribute(origin)}"' if origin else ""
    forbidden = parse_patterns(source.fields.get("disallowed-tools"), forbidding=True)
    state = state_attributes(source.digest, forbidden)
    attributes = f'name="{attribute(skill.name)}"{origin_attribute} {state}'
    lists = _frame_files(source.folder, scripts, nonce) + _frame_scripts(skill, scripts, nonce)
    return framed("skill-loaded", attributes, f"{content}\n{lists}", nonce)


def state_attributes(digest: str, forbidden: Sequence[str]) -> str:
    """Return the attributes for the version of a loaded skill, and the tools that it forbids."""
    tools = f' disallowed-tools="{attribute(", ".join(forbidden))}"' if forbidden else ""
    return f'digest="{attribute(digest)}"{tools}'


def _check_nesting(skill: Skill, stack: tuple[str, ...]) -> None:
    """Check how deep skills are loaded within each other.

    Raises:
        InvalidInput: too deep, or the skill is being loaded already.
    """
    is_cycle = skill.name in stack
    if not is_cycle and len(stack) < MAX_SKILL_NESTING:
        return
    chain = " → ".join(printable(name) for name in (*stack, skill.name))
    if is_cycle:
        raise InvalidInput(
            f"Skills would load each other without end: {chain}",
            "Go on with the instructions you have",
        )
    raise InvalidInput(
        f"Too many skills within each other, at most {MAX_SKILL_NESTING}: {chain}",
        "Finish the inner ones first",
    )


def _reply_to_read_error(call: ToolCall, exc: Refused) -> Envelope:
    """Make the reply to an I/O error; a denied permission is raised."""
    cause = exc.__cause__
    if cause is None or isinstance(cause, PermissionError):
        raise exc
    return call.fail("EXECUTION_ERROR", exc.message, "Tell the user, and go on without the skill")


def _frame_files(folder: Folder, scripts: Sequence[str], nonce: str) -> str:
    """Frame the files of a skill, without the scripts that `_frame_scripts` names."""
    listed_scripts = frozenset(scripts[:MAX_SCRIPTS_LISTED])
    files = [(path, size) for path, size in folder.files if path not in listed_scripts]
    total = folder.total - len(listed_scripts)
    if not total:
        return ""
    lines = "".join(f"{printable(path)} ({size_of(size)})\n" for path, size in files)
    unlisted = total - len(files)
    ending = ""
    if unlisted:
        ending = f"({plural(unlisted, 'file')} not listed; ReadFile on a folder lists it)\n"
    introduction = "Below the base directory, not read yet; open one with ReadFile\n"
    attributes = f'listed="{len(files)}" total="{total}"'
    return f"\n{framed('skill-files', attributes, f'{introduction}{lines}{ending}', nonce)}\n"


def _frame_scripts(skill: Skill, scripts: Sequence[str], nonce: str) -> str:
    """Frame the scripts of a skill, with the call that runs one."""
    if not scripts:
        return ""
    listed_scripts = scripts[:MAX_SCRIPTS_LISTED]
    example = json.dumps(
        {"skill": skill.name, "script": listed_scripts[0], "args": ["..."]}, ensure_ascii=False
    )
    introduction = (
        "Below the base directory. To run one, call RunScript; where the text says to run "
        "`python`, `bash` or `node` with a file below, that is what it means: "
        f"{printable(example)}\n"
        "Python and Node packages come with the first run: skip steps such as `pip install`.\n"
    )
    lines = "".join(f"{printable(path)}\n" for path in listed_scripts)
    unlisted = len(scripts) - len(listed_scripts)
    ending = f"({plural(unlisted, 'script')} not listed)\n" if unlisted else ""
    attributes = f'total="{len(scripts)}"'
    return f"{framed('skill-scripts', attributes, f'{introduction}{lines}{ending}', nonce)}\n"


def _truncation_note(path: str, body: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    start = max(text.find(body[:200]), 0)
    line = text.count("\n", 0, start + MAX_CONTENT_CHARS) + 1
    return (
        f"The skill is longer than {MAX_CONTENT_CHARS:,} characters and was cut. "
        f"Call ReadFile with path `{printable(path)}` and offset {line} for the rest."
    )
