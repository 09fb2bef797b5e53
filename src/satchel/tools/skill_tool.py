"""The `Skill` tool: reads, verifies and frames a skill's instructions with its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import Changed, InvalidInput, LockBroken, NotFound, Refused, SkillBroken
from satchel.i18n import Message
from satchel.library.scanner import OWN_FOLDERS, SKIPPED_FOLDERS
from satchel.tools.arguments import apply_arguments, argument_names
from satchel.tools.base import Folder, SkillSource, Tool
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
from satchel.tools.permission_rules import patterns_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.library.fingerprint import Survey
    from satchel.settings import Settings
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill
    from satchel.tools.base import ResolvedCall, ToolCall
    from satchel.trace import Trace

MAX_FILES_LISTED = 50
_OWN = ("/skill.md", "/skill.yaml")
"""Files that make a subfolder a separate skill."""


def list_folder(rows: Survey, own_file: str) -> Folder:
    """List the files of a skill's folder, shallow ones first.

    Args:
        rows: The survey of the folder, or the listing of a server.
        own_file: The SKILL.md, which counts for the revision only.
    """
    from hashlib import blake2b

    heads = {path.rpartition("/")[0] for path, *_ in rows if path.lower().endswith(_OWN)}
    inner = tuple(f"{head}/" for head in heads if head and head.split("/", 1)[0] not in OWN_FOLDERS)
    kept = [
        (path, size, f"{path}\0{size}\0{changed}/{touched}\n")
        for path, changed, touched, size, _, _ in rows
        if not path.startswith(inner) and SKIPPED_FOLDERS.isdisjoint(path.split("/")[:-1])
    ]
    text = "".join(row[2] for row in kept)
    others = sorted((path.count("/"), path, size) for path, size, _ in kept if path != own_file)
    return Folder(
        tuple((path, size) for _, path, size in others[:MAX_FILES_LISTED]),
        len(others),
        blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest(),
    )


MAX_SKILL_NESTING = 5
"""Skills loaded within each other."""
MAX_CONTENT_CHARS = 400_000
"""Of one skill; the longest real one has 291,206."""


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

    def __init__(self, library: Library, settings: Settings, trace: Trace) -> None:
        self._library = library
        self._settings = settings
        self._trace = trace
        self._kept: dict[str, tuple[Snapshot, SkillSource]] = {}
        """Sources read with `refresh_on_call` off: valid for one snapshot."""

    def run(self, call: ToolCall) -> Envelope:
        """Run the call."""
        found = self.load(call)
        return found.envelope if isinstance(found, LoadedSkill) else found

    def named(self, table: Mapping[str, Any], snapshot: Snapshot) -> Skill | None:
        """The skill that a call names, available or not; None when there is none."""
        given = {table[key] for key in ("name", "skill") if isinstance(table.get(key), str)}
        if len(given) != 1:
            return None
        name = str(given.pop())
        return snapshot.get(name) or find_skill(snapshot, name, self._settings.project)

    def load(self, call: ToolCall) -> LoadedSkill | Envelope:
        """The skill with its text and envelope; an error envelope when it cannot be loaded."""
        found = call.resolved
        skill, snapshot = found.skill, found.snapshot
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
            source = self.read(found)
        except (Changed, LockBroken) as exc:
            return refuse_use(call, exc)
        except Refused as exc:
            return _unreadable(call, exc)
        return self._reply(call, skill, source)

    def read(self, found: ResolvedCall) -> SkillSource:
        """Read the skill that a call names, once per call.

        Raises:
            SatchelError: it cannot be read or verified, or is no skill any more.
        """
        assert found.skill is not None  # noqa: S101 - checked by the caller
        if found.source is None:
            path = found.skill.path
            frozen = not self._settings.refresh_on_call
            kept = self._kept.get(path) if frozen else None
            if kept is not None and kept[0] is found.snapshot:
                found.source = kept[1]
            else:
                found.source = read_skill(self._library, found.skill)
                if frozen:
                    self._kept[path] = (found.snapshot, found.source)
        return found.source

    def _reply(self, call: ToolCall, skill: Skill, source: SkillSource) -> LoadedSkill:
        args = str(call.arguments.get("args", ""))
        content, cut = skill_content(skill, source, args)
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
        if cut:
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
            "\n".join((skill_frame(skill, source, content, nonce), *notes)),
            data,
            partial=bool(notes),
            stats={"characters": len(content)},
            path=encodable(skill.path),
        )
        return LoadedSkill(skill, source, nonce, short_digest(content), envelope)


def skill_content(skill: Skill, source: SkillSource, args: str) -> tuple[str, bool]:
    """The text of a skill with its arguments, and whether it was cut."""
    base_dir = encodable(skill.base_dir)
    body = source.body
    if args or "$" in body:
        names = argument_names(source.fields.get("arguments"))
        body = apply_arguments(body, args, base_dir=base_dir, names=names, hint=skill.argument_hint)
    cut = len(body) > MAX_CONTENT_CHARS
    return f"Base directory for this skill: {base_dir}\n\n{body[:MAX_CONTENT_CHARS]}", cut


class LoadedSkill(NamedTuple):
    """A loaded skill, with what a session records of it."""

    skill: Skill
    source: SkillSource
    nonce: str
    """Of the frame around its text."""
    text_digest: str
    """Of the text as sent, with arguments."""
    envelope: Envelope


def read_skill(library: Library, skill: Skill) -> SkillSource:
    """Verify and read a skill.

    Raises:
        SatchelError: it cannot be read or verified, or is no skill any more.
    """
    verified = library.integrity.check(skill)
    document = library.integrity.document(skill, verified)
    head = document.head
    if head is None:
        problem = next((item for item in document.problems if item.severity == "error"), None)
        why = problem.message if problem else "it is no skill"
        fix = problem.fix if problem else "Run `satchel doctor`"
        raise SkillBroken(f"`{skill.path}` can no longer be read as a skill: {why}", fix)
    if head.name != skill.head.name:  # another skill is at the path
        raise NotFound(Message("There is no skill `{name}`", name=skill.name), Message("Try again"))
    return SkillSource(
        document.body.strip("\n"),
        document.fields,
        list_folder(verified.rows, skill.head.file),
        document_digest(document),
        verified.tree.digest,
        changed=(head.mtime_ns, head.size) != (skill.head.mtime_ns, skill.head.size),
    )


def document_digest(document: SkillDocument) -> str:
    """The digest of a skill's instructions and tool rules."""
    text = document.body.strip("\n")
    rules = [
        patterns_of(document.fields.get(key), forbidding=key[0] == "d")
        for key in ("allowed-tools", "disallowed-tools")
    ]
    return short_digest(f"{text}\0{rules}" if any(rules) else text)


def short_digest(text: str) -> str:
    """The first twelve digits of a text's SHA-256."""
    from hashlib import sha256

    return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def skill_frame(skill: Skill, source: SkillSource, content: str, nonce: str) -> str:
    """The text of a loaded skill: its instructions and the list of its files, framed.

    The opening tag holds what `Session.sync` has to know after a restart.
    """
    origin = skill.origin.remote
    came = f' origin="{attribute(origin)}"' if origin else ""
    forbidden = patterns_of(source.fields.get("disallowed-tools"), forbidding=True)
    marks = f'name="{attribute(skill.name)}"{came} {state_marks(source.digest, forbidden)}'
    return framed("skill-loaded", marks, f"{content}\n{_file_list(source.folder, nonce)}", nonce)


def state_marks(digest: str, forbidden: Sequence[str]) -> str:
    """The attributes that tell the version of a loaded skill, and the tools that it forbids."""
    tools = f' disallowed-tools="{attribute(", ".join(forbidden))}"' if forbidden else ""
    return f'digest="{attribute(digest)}"{tools}'


def _check_nesting(skill: Skill, stack: tuple[str, ...]) -> None:
    cycle = skill.name in stack
    if not cycle and len(stack) < MAX_SKILL_NESTING:
        return
    chain = " → ".join(printable(name) for name in (*stack, skill.name))
    if cycle:
        raise InvalidInput(
            f"Skills would load each other without end: {chain}",
            "Go on with the instructions you have",
        )
    raise InvalidInput(
        f"Too many skills within each other, at most {MAX_SKILL_NESTING}: {chain}",
        "Finish the inner ones first",
    )


def _unreadable(call: ToolCall, exc: Refused) -> Envelope:
    """The reply to an I/O error; a denied permission is raised."""
    cause = exc.__cause__
    if cause is None or isinstance(cause, PermissionError):
        raise exc
    return call.fail("EXECUTION_ERROR", exc.message, "Tell the user, and go on without the skill")


def _file_list(folder: Folder, nonce: str) -> str:
    if not folder.total:
        return ""
    shown = len(folder.files)
    rows = "".join(f"{printable(path)} ({size_of(size)})\n" for path, size in folder.files)
    rest = folder.total - shown
    after = f"({plural(rest, 'file')} not listed; ReadFile on a folder lists it)\n" if rest else ""
    about = "Below the base directory, not read yet; open one with ReadFile\n"
    marks = f'listed="{shown}" total="{folder.total}"'
    return f"\n{framed('skill-files', marks, f'{about}{rows}{after}', nonce)}\n"


def _truncation_note(path: str, body: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    start = max(text.find(body[:200]), 0)
    line = text.count("\n", 0, start + MAX_CONTENT_CHARS) + 1
    return (
        f"The skill is longer than {MAX_CONTENT_CHARS:,} characters and was cut. "
        f"Call ReadFile with path `{printable(path)}` and offset {line} for the rest."
    )
