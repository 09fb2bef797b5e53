"""Skill: hands a skill's instructions to the model, framed, with its arguments in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.errors import Changed, InvalidInput, LockBroken, Refused
from satchel.tools.arguments import apply_arguments
from satchel.tools.frame import attribute, disarm, encodable, plural, printable, size_of
from satchel.tools.naming import absent, find_skill, not_offered, refuse_use

if TYPE_CHECKING:
    from satchel.envelope import Envelope
    from satchel.library import Library
    from satchel.settings import Settings
    from satchel.skill import Skill
    from satchel.tools.base import Call
    from satchel.tools.folder import Folder
    from satchel.tools.loaded import Loaded, LoadedSkills
    from satchel.trace import Trace

MAX_DEPTH = 5
"""How many skills may be loaded one within the other."""
MAX_CONTENT = 400_000
"""Characters of one skill that are handed over; the longest real one has 291,206."""


class SkillTool:
    """Loads a skill by its name."""

    name = "Skill"
    about_skills = True
    description = (
        "Load a skill: instructions for one kind of task, with the folder that holds its files. "
        "Call it when the user names a skill or a task clearly matches one, before you begin. "
        "Follow what it returns; read the files it mentions with ReadFile."
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
        self, library: Library, settings: Settings, loaded: LoadedSkills, trace: Trace
    ) -> None:
        self._library = library
        self._settings = settings
        self._loaded = loaded
        self._trace = trace

    def run(self, call: Call) -> Envelope:
        """Load one."""
        fresh = self._settings.refresh_on_call
        look = self._library.refresh() if fresh else self._library.snapshot()
        name = str(call.arguments["name"])
        skill = look.get(name) or find_skill(look, name, self._settings.project)
        if skill is None:
            return absent(call, look, name)
        if skill.state != "active":
            return not_offered(call, look, skill)
        if not skill.for_model and not call.as_person:
            raise Refused(
                f"Only a person can load the skill `{printable(skill.name)}`: its author set "
                "`disable-model-invocation`",
                "Go on without it, or ask the user to load it",
            )
        _guard(skill, call.stack)
        try:
            loaded = self._loaded.load(skill, look, fresh=fresh)
        except (Changed, LockBroken) as exc:
            return refuse_use(call, exc)
        except Refused as exc:
            return _unreadable(call, exc)
        return self._reply(call, skill, loaded)

    def _reply(self, call: Call, skill: Skill, loaded: Loaded) -> Envelope:
        args = str(call.arguments.get("args", ""))
        base_dir = encodable(loaded.base_dir)
        body, safe, disarmed = loaded.body, loaded.safe, loaded.disarmed
        stats: dict[str, Any] = {}
        if args or "$" in body:
            applied = apply_arguments(
                body, args, base_dir=base_dir, names=loaded.names, hint=skill.argument_hint
            )
            if applied.text is not body:
                body = applied.text
                safe, disarmed = disarm(body)
            stats["placeholders"] = applied.filled
        first = f"Base directory for this skill: {base_dir}"
        cut = len(body) > MAX_CONTENT
        if cut:
            body, safe = body[:MAX_CONTENT], safe[:MAX_CONTENT]
        content = f"{first}\n\n{body}"
        if first.isascii() and "<" not in first:
            safe = f"{first}\n\n{safe}"
        else:  # a folder's name could begin what the text ends
            safe, disarmed = disarm(content)
        folder = loaded.folder
        data: dict[str, Any] = {
            "name": skill.name,
            "base_dir": base_dir,
            "content": content,
            "files": [{"path": printable(path), "size": size} for path, size in folder.files],
            "files_total": folder.total,
            "revision": folder.revision,
        }
        if skill.origin.remote:
            data["origin"] = skill.origin.remote
        if not folder.complete:
            data["files_complete"] = False
        if folder.left_out:
            stats["files_left_out"] = folder.left_out
        notes: list[str] = []
        if cut:
            data["truncated"] = True
            notes.append(_rest(loaded))
        if loaded.changed and not self._settings.refresh_on_call:
            data["fallback"] = "changed-since-last-look"
            notes.append(
                "The file has changed since the last look at the library; this is its text now."
            )
        frame = framed(skill.name, safe, folder, skill.origin.remote)
        if disarmed:
            # Said in numbers only: the text inside is a stranger's, and so would a quote of it be.
            stats["disarmed_tags"] = disarmed
        stats["characters"] = len(content)
        self._trace.record(
            "loaded",
            (skill.name,),
            ref=skill.ref,
            revision=folder.revision,
            args=bool(args),
            by="person" if call.as_person else "model",
        )
        return call.answer(
            "\n".join((frame, *notes)),
            data,
            partial=bool(notes),
            stats=stats,
            path=encodable(loaded.path),
        )


def framed(name: str, safe: str, folder: Folder, origin: str = "") -> str:
    """What a model gets when it loads a skill.

    Args:
        name: The skill's name.
        safe: Its text, with our tags disarmed.
        folder: Its other files.
        origin: The server it comes from; empty when it lies here.
    """
    came = f' origin="{attribute(origin)}"' if origin else ""
    start = f'<skill-loaded name="{attribute(name)}"{came}>'
    return f"{start}\n{safe}\n{_files(folder)}</skill-loaded>"


def preview(skill: Skill, body: str) -> str:
    """The same for a text that is not saved yet, and without arguments: for its author to see."""
    from satchel.tools.folder import list_folder

    text = f"Base directory for this skill: {encodable(skill.base_dir)}\n\n{body.strip(chr(10))}"
    safe = disarm(text[:MAX_CONTENT])[0]
    return framed(skill.name, safe, list_folder(skill.base_dir, skill.head.file))


def _guard(skill: Skill, stack: tuple[str, ...]) -> None:
    """A skill that loads itself in the end, or too long a chain, is refused."""
    cycle = skill.name in stack
    if not cycle and len(stack) < MAX_DEPTH:
        return
    chain = " → ".join(printable(name) for name in (*stack, skill.name))
    if cycle:
        raise InvalidInput(
            f"Skills would load each other without end: {chain}",
            "Go on with the instructions you have",
        )
    raise InvalidInput(
        f"Too many skills within each other, at most {MAX_DEPTH}: {chain}",
        "Finish the inner ones first",
    )


def _unreadable(call: Call, exc: Refused) -> Envelope:
    """The operating system said no, or something else went wrong while reading."""
    cause = exc.__cause__
    if cause is None or isinstance(cause, PermissionError):
        raise exc
    return call.fail("EXECUTION_ERROR", exc.message, "Tell the user, and go on without the skill")


def _files(folder: Folder) -> str:
    """The other files of the skill, for the end of the frame."""
    if not folder.total and folder.complete:
        return ""
    shown = len(folder.files)
    rows = "".join(
        f"{disarm(printable(path))[0]} ({size_of(size)})\n" for path, size in folder.files
    )
    more = "" if folder.complete else " or more"
    rest = folder.total - shown
    after = ""
    if rest or not folder.complete:
        after = f"({plural(rest, 'file')}{more} not listed; ReadFile on a folder lists it)\n"
    return (
        f'\n<skill-files listed="{shown}" total="{folder.total}{more}">\n'
        f"Below the base directory, not read yet; open one with ReadFile\n{rows}{after}"
        "</skill-files>\n"
    )


def _rest(loaded: Loaded) -> str:
    """Where to go on after a text that was cut."""
    with open(loaded.path, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    start = max(text.find(loaded.body[:200]), 0)
    line = text.count("\n", 0, start + MAX_CONTENT) + 1
    return (
        f"The skill is longer than {MAX_CONTENT:,} characters and was cut. "
        f"Call ReadFile with path `{printable(loaded.path)}` and offset {line} for the rest."
    )
