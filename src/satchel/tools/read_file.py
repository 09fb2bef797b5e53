"""ReadFile: reads text files below the project and below the folders of offered skills.

A path is relative to the project. The folder of an offered skill elsewhere (the user's, the
built-in ones) may be read too, since its instructions name its files. Each of these is a root, and
a path never leaves its root. The setting `reading.extensions` limits the kinds of file; files
without an extension may be read when their name is well known (`README`, `LICENSE`, `Makefile` …).

Files of a skill that `include` or `exclude` removes from the session are refused. The setting
`reading.scope = "skills"` allows only files of skills that the session may use. A skill that only
people may load is readable once it was loaded.
"""

from __future__ import annotations

import errno
import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from satchel._fs import is_inside, open_beneath
from satchel.errors import AccessDenied, Changed, InvalidInput, Refused, SatchelError
from satchel.i18n import Message
from satchel.skill.file_tree import LIMITS
from satchel.tools.base import Tool
from satchel.tools.file_reply import (
    MAX_ENTRIES_SHOWN,
    MAX_READ_BYTES,
    FileLabel,
    cut_page,
    decode_text,
    reply_to_unknown_address,
    reply_with_folder,
    reply_with_page,
)
from satchel.tools.framing import encodable, one_line, printable
from satchel.tools.lookup import not_offered, refuse_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.settings import Settings
    from satchel.skill import Skill
    from satchel.tools.base import ToolCall

_TEXT_FILE_NAMES = frozenset((
    "authors", "changelog", "citation", "codeowners", "contributing", "contributors", "copying",
    "dockerfile", "gemfile", "jenkinsfile", "justfile", "license", "licence", "makefile", "notice",
    "procfile", "rakefile", "readme", "todo", "version",
))  # fmt: skip
"""Names without an extension that are text files."""
_PATH_PARAMETERS = ("path", "relativePath", "relative_path")
_ADDRESS_SCHEME = "skill://"
_SKILL_FILES = ("SKILL.md", "skill.md", "skill.yaml")
_MAX_EXTENSIONS_SHOWN = 12
_MAX_LOADED_SKILLS_SEARCHED = 8


def is_address(path: str) -> bool:
    """Whether a path is an address such as `skill://pdf/forms.md`."""
    return path[: len(_ADDRESS_SCHEME)].lower() == _ADDRESS_SCHEME


class _OpenedPath(NamedTuple):
    """An opened file or folder."""

    descriptor: int
    root: str
    path: str
    """Below the root."""

    @property
    def full(self) -> str:
        return os.path.join(self.root, self.path)


class ReadFileTool(Tool):
    """Reads one text file."""

    name = "ReadFile"
    description = (
        "Read a text file of the project, or of a skill's folder. Paths are relative to the "
        "project; for a skill's file join the skill's base directory and the file's path. "
        "On a folder it answers with what is in it."
    )
    aliases = {"relativePath": "path", "relative_path": "path"}  # noqa: RUF012 - read only
    parameters: dict[str, Any] = {  # noqa: RUF012 - read only
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The file's path",
                "minLength": 1,
                "maxLength": 4096,
            },
            "offset": {
                "type": "integer",
                "description": "First line to read, counted from 1",
                "minimum": 1,
            },
            "limit": {"type": "integer", "description": "How many lines to read", "minimum": 1},
        },
        "required": ["path"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        library: Library,
        settings: Settings,
        resolve_address: Callable[[str], str] | None = None,
    ) -> None:
        """Set up.

        Args:
            library: The skills.
            settings: Project, scope and kinds of files.
            resolve_address: Returns the path of an address such as `skill://pdf/forms.md`; empty
                when there is none. Without it, addresses are not accepted.
        """
        self._library = library
        self._settings = settings
        self._real_project = os.path.realpath(settings.project)
        self._extensions = frozenset(
            extension.lower().lstrip(".") for extension in settings.reading.extensions
        )
        self._active_folders: tuple[Snapshot, set[str]] | None = None
        """The folders of active skills in the snapshot for which they were listed."""
        self._resolve_address = resolve_address

    def replace_addresses(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with paths in place of addresses, for permission rules."""
        paths = dict(arguments)
        if self._resolve_address is None:
            return paths
        for key in _PATH_PARAMETERS:
            value = arguments.get(key)
            if isinstance(value, str) and is_address(value):
                paths[key] = self._resolve_address(value) or value
        return paths

    def find_instructions(self, arguments: Mapping[str, Any]) -> Skill | None:
        """Find the skill whose SKILL.md a call would read; None for any other file."""
        for key in _PATH_PARAMETERS:
            path = arguments.get(key)
            if not isinstance(path, str) or "\0" in path:
                continue
            full = os.path.join(self._settings.project, os.path.expanduser(encodable(path)))
            served = self._library.served_skill_at(os.path.normpath(full))
            if served is not None and served[1] == served[0].head.file:
                return served[0]
            real = os.path.realpath(full)
            for skill in self._library.skills_containing(real):
                if real == os.path.realpath(skill.path):
                    return skill
        return None

    def run(self, call: ToolCall) -> Envelope:
        """Run the call."""
        requested = str(call.arguments["path"])
        label, address = one_line(requested, 300), ""
        if self._resolve_address is not None and is_address(requested):
            address, requested = requested, self._resolve_address(requested)
            if not requested:
                return reply_to_unknown_address(call, label)
        served = self._find_served(requested)
        if served is not None:
            return self._read_served(call, served, label)
        try:
            opened = self._open(requested, only_skills=bool(address))
        except AccessDenied:
            if address:
                return reply_to_unknown_address(call, label)
            return self._refuse_path(call, requested, label)
        except OSError as exc:
            return self._reply_to_os_error(call, exc, requested, label)
        try:
            return self._read_opened(call, opened, label, address)
        except OSError as exc:
            return self._reply_to_os_error(call, exc, requested, label)
        finally:
            os.close(opened.descriptor)

    def _refuse_path(self, call: ToolCall, requested: str, label: str) -> Envelope:
        unusable_skill = self._find_unusable_skill(requested)
        if unusable_skill is not None:
            return not_offered(call, self._library, unusable_skill)
        if self._settings.reading.scope == "skills":
            return call.fail("ACCESS_DENIED", *_no_skill_file(label))
        return call.fail(
            "ACCESS_DENIED",
            Message("`{path}` leads outside the project", path=label),
            Message("Give a path below the project or below a skill's base directory"),
        )

    def _find_served(self, requested: str) -> tuple[Skill, str] | None:
        """Find the served skill that a path belongs to, and the path below its folder."""
        if "\0" in requested:
            return None
        path = os.path.join(self._settings.project, os.path.expanduser(requested))
        return self._library.served_skill_at(os.path.normpath(path))

    def _read_served(self, call: ToolCall, served: tuple[Skill, str], label: str) -> Envelope:
        """Read a listed file of a served skill, while the skill is loaded.

        A folder is answered from the listing: files added later are no part of the skill.
        """
        skill, path = served
        supply = self._library.served_skills_of(skill)
        if skill.state != "active" or supply is None:
            return not_offered(call, self._library, skill)
        if skill.base_dir not in call.loaded:
            return call.fail(
                "PERMISSION_DENIED",
                Message(
                    "The skill `{name}` comes from a server: its files are read while it is loaded",
                    name=one_line(skill.name, 100),
                ),
                "Load it first, with Skill and its name",
            )
        file_label = FileLabel(label, printable(os.path.join(skill.base_dir, path)))
        try:
            self._library.integrity.check(skill)
            files = supply.files_of(skill)
            if path not in files and (entries := _list_served_folder(files, path)):
                return reply_with_folder(call, file_label, entries, len(entries))
            if path in files and not self._has_allowed_extension(path):
                return self._refuse_extension(call, file_label)
            data = supply.fetch_verified(skill, path)
            self._library.integrity.check_served(skill, path, data)
        except Refused as exc:
            return refuse_use(call, exc)
        except SatchelError as exc:
            return call.fail("EXECUTION_ERROR", one_line(exc.message, 600), one_line(exc.hint, 300))
        return self._reply_with_text(call, data, len(data), file_label, skill.origin.remote)

    def _open(self, requested: str, *, only_skills: bool) -> _OpenedPath:
        """Open a path below the project, unless `only_skills`, or below an active skill.

        Raises:
            AccessDenied: the path leads elsewhere.
            OSError: it cannot be opened.
        """
        error = AccessDenied(f"`{requested}` leads outside")
        only_skills = only_skills or self._settings.reading.scope == "skills"
        for root, path in self._iter_roots(requested, only_skills=only_skills):
            try:
                return _OpenedPath(open_beneath(root, path), root, path)
            except AccessDenied as exc:
                error = exc
        raise error

    def _find_unusable_skill(self, requested: str) -> Skill | None:
        """Find the known skill with the file at a path, when it may not be used."""
        if "\0" in requested:
            return None
        path = os.path.join(self._settings.project, os.path.expanduser(requested))
        snapshot = self._library.snapshot()
        for skill in self._library.skills_containing(os.path.realpath(path)):
            current = snapshot.by_ref(skill.ref)
            if current is not None and current.problem_code(unpinned=False):
                return current
        return None

    def _iter_roots(self, requested: str, *, only_skills: bool) -> Iterator[tuple[str, str]]:
        """Yield the roots of a path, with the path below each; the project first."""
        project = self._settings.project
        if requested.startswith("~/"):
            requested = os.path.expanduser(requested)
        full = os.path.normpath(os.path.join(project, requested))
        if not only_skills:
            if not os.path.isabs(requested):
                yield project, requested
            for base in (project, self._real_project):
                if is_inside(full, base):
                    # A folder inside the project must not allow what the project's root denies.
                    if os.path.isabs(requested):
                        yield project, os.path.relpath(full, base)
                    return
        folder = "" if "\0" in requested else self._find_skill_folder(full)
        if folder:
            yield folder, os.path.relpath(full, folder)

    def _find_skill_folder(self, path: str) -> str:
        """Find the folder of the innermost active skill that contains a path; empty if none."""
        snapshot = self._library.snapshot()
        if self._active_folders is None or self._active_folders[0] is not snapshot:
            active = {skill.base_dir for skill in snapshot.every() if skill.state == "active"}
            self._active_folders = (snapshot, active)
        folders = self._active_folders[1]
        while path not in folders:
            parent = str(os.path.dirname(path))
            if parent == path:
                return ""
            path = parent
        return path

    def _read_opened(
        self, call: ToolCall, opened: _OpenedPath, requested: str, address: str
    ) -> Envelope:
        info = os.fstat(opened.descriptor)
        is_in_project = opened.root == self._settings.project
        shown_path = os.path.normpath(opened.path) if is_in_project else opened.full
        label = FileLabel(requested, address or printable(shown_path))
        real = os.path.realpath(opened.full)
        refusal = self._find_path_refusal(call, opened.full, real, address)
        if refusal is not None:
            denied = call.fail("ACCESS_DENIED", *refusal(requested), path=label.resolved)
            return reply_to_unknown_address(call, requested) if address else denied
        if stat.S_ISDIR(info.st_mode) and _is_same_file(real, info):
            return self._list_folder(call, opened, real, label, hide_private=bool(address))
        if not stat.S_ISREG(info.st_mode):
            return call.fail(
                "ACCESS_DENIED",
                Message("`{path}` is not a regular file", path=requested),
                Message("Check the path"),
                path=label.resolved,
            )
        # Check the real name too: a link called `notes.md` may point at something else.
        if not self._has_allowed_extension(opened.path) or not self._has_allowed_extension(real):
            return self._refuse_extension(call, label)
        private_skill = self._find_private_skill(real, call.loaded)
        if private_skill is not None:
            return call.fail(
                "PERMISSION_DENIED",
                f"`{requested}` belongs to the skill `{one_line(private_skill.name, 100)}`, which "
                "only a person can load",
                "Go on without it, or ask the user to load it",
                path=label.resolved,
            )
        if not _is_same_file(real, info):
            return call.fail(
                "CONFLICT",
                Message("`{path}` changed meanwhile", path=requested),
                Message("Try again"),
                path=label.resolved,
            )
        with os.fdopen(opened.descriptor, "rb", closefd=False) as stream:
            data = stream.read(MAX_READ_BYTES)
            error = self._find_content_error(real, data, stream)
        if error is not None:
            return refuse_use(call, error)
        return self._reply_with_text(call, data, info.st_size, label)

    def _find_path_refusal(
        self, call: ToolCall, full: str, real: str, address: str
    ) -> Callable[[str], tuple[Message, Message]] | None:
        """Find why a path may not be read; None when it may.

        Returns:
            A function that makes message and next step, given the path to name.
        """
        skill_folder = self._find_skill_folder(os.path.normpath(full))
        if skill_folder and not is_inside(real, os.path.realpath(skill_folder)):
            return _link_out_of_skill
        state = state_at(self._library, real)
        if state == "excluded":
            return _no_skill_file
        if address and self._find_private_skill(real, call.loaded) is not None:
            return _no_skill_file
        # An address never leads to the rest of a project whose root is a skill.
        only_skills = bool(address) or self._settings.reading.scope == "skills"
        return _no_skill_file if only_skills and state != "active" else None

    def _refuse_extension(self, call: ToolCall, label: FileLabel) -> Envelope:
        return call.fail(
            "ACCESS_DENIED",
            Message("`{path}` is not of a kind that may be read", path=label.requested),
            Message(
                "Only text files may: {kinds} and others of the setting `reading.extensions`",
                kinds=", ".join(sorted(self._extensions)[:_MAX_EXTENSIONS_SHOWN]),
            ),
            path=label.resolved,
        )

    def _list_folder(
        self,
        call: ToolCall,
        opened: _OpenedPath,
        real: str,
        label: FileLabel,
        *,
        hide_private: bool,
    ) -> Envelope:
        """List a folder, without excluded skills and, if `hide_private`, those for people only."""
        entries: list[dict[str, str]] = []
        total = 0
        with os.scandir(opened.descriptor if os.scandir in os.supports_fd else real) as listing:
            for entry in listing:
                path = os.path.join(real, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and state_at(self._library, path) == "excluded":
                    continue
                real_path = os.path.realpath(path)
                if hide_private and self._find_private_skill(real_path, call.loaded) is not None:
                    continue
                total += 1
                kind = "link" if entry.is_symlink() else "dir" if is_folder else "file"
                entries.append({"path": printable(entry.name), "type": kind})
                if total >= 10 * MAX_ENTRIES_SHOWN:
                    break
        return reply_with_folder(call, label, entries, total)

    def _find_private_skill(self, real: str, loaded: Sequence[str]) -> Skill | None:
        """Find the skill of a file that only people may load, unless it is loaded."""
        for skill in self._library.skills_containing(real):
            if skill.for_model:
                continue
            folder = os.path.realpath(skill.base_dir)
            if all(os.path.realpath(loaded_folder) != folder for loaded_folder in loaded):
                return skill
        return None

    def _reply_with_text(
        self, call: ToolCall, data: bytes, file_bytes: int, label: FileLabel, origin: str = ""
    ) -> Envelope:
        """Make the reply with the lines of a file that the call asks for."""
        text, fallback = decode_text(data, is_cut=file_bytes > MAX_READ_BYTES)
        if text is None:
            return call.fail(
                "BINARY_FILE",
                Message("`{path}` is not text", path=label.requested),
                Message("Check the path"),
                path=label.resolved,
            )
        page = cut_page(
            text,
            first_line=int(call.arguments.get("offset", 1)),
            max_lines=call.arguments.get("limit"),
            max_chars=max(self._settings.reading.limit, 1),
        )
        if page.line_count and page.first_line > page.line_count:
            raise InvalidInput(
                Message(
                    "`{path}` has {lines} lines; `offset` is {line}",
                    path=label.requested,
                    lines=f"{page.line_count:,}",
                    line=page.first_line,
                ),
                Message("Give a smaller `offset`"),
            )
        return reply_with_page(
            call, label, page, file_bytes=file_bytes, fallback=fallback, origin=origin
        )

    def _find_content_error(self, real: str, data: bytes, stream: BinaryIO) -> SatchelError | None:
        """Find why a file of a skill may not be shown; None when it may.

        Args:
            real: The file's real path.
            data: The bytes to show: exactly these must have been verified.
            stream: Stream with the bytes that follow.
        """
        integrity = self._library.integrity
        digest = ""
        for skill in self._library.skills_containing(real):
            try:
                verified = integrity.check(skill)
            except SatchelError as exc:
                return exc
            digest = digest or _digest_file(data, stream)
            if not verified.has_real_path(real, digest):
                return Changed(
                    Message("The skill `{name}` changed meanwhile", name=skill.name),
                    Message("Run `{command}`", command=f"satchel show {skill.reference}"),
                )
        return None

    def _find_in_loaded_skills(self, requested: str, loaded: Sequence[str]) -> str:
        """Find a file in a loaded skill's folder: models forget the base directory."""
        for folder in loaded[:_MAX_LOADED_SKILLS_SEARCHED]:
            path = os.path.normpath(os.path.join(folder, requested))
            if is_inside(path, folder) and (os.path.isfile(path) or self._is_served(path)):
                return path
        return ""

    def _is_served(self, path: str) -> bool:
        """Whether an active served skill lists the file at a path."""
        served = self._library.served_skill_at(path)
        if served is None:
            return False
        skill, file = served
        supply = self._library.served_skills_of(skill)
        return supply is not None and skill.state == "active" and file in supply.files_of(skill)

    def _has_allowed_extension(self, path: str) -> bool:
        name = os.path.basename(path).lower()
        stem, dot, extension = name.rpartition(".")
        if dot and stem:
            return extension in self._extensions
        return not dot and name in _TEXT_FILE_NAMES

    def _reply_to_os_error(
        self, call: ToolCall, exc: OSError, requested: str, label: str
    ) -> Envelope:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR):
            step = Message("Check the path")
            loaded_path = ""
            if not os.path.isabs(requested):
                loaded_path = self._find_in_loaded_skills(requested, call.loaded)
            if loaded_path:
                step = Message(
                    "Did you mean `{path}`, in the skill's folder?", path=printable(loaded_path)
                )
            return call.fail("NOT_FOUND", Message("There is no `{path}`", path=label), step)
        message = Message("`{path}` cannot be read: {reason}", path=label, reason=exc.strerror)
        if exc.errno in (errno.EACCES, errno.EPERM):
            return call.fail("PERMISSION_DENIED", message, Message("Check the permissions"))
        is_invalid = exc.errno in (errno.ENAMETOOLONG, errno.EINVAL)
        code = "INVALID_PARAM" if is_invalid else "EXECUTION_ERROR"
        return call.fail(code, message, Message("Check the path"))


def state_at(library: Library, real: str) -> str:
    """Return the state of the innermost skill that contains a real path; empty without one.

    A broken skill folder is `excluded` when the filter excludes its name.
    """
    snapshot = library.snapshot()
    states_by_length: dict[int, set[str]] = {}
    for skill in library.skills_containing(real):
        current = snapshot.by_ref(skill.ref)
        if current:
            length = len(os.path.realpath(current.base_dir))
            states_by_length.setdefault(length, set()).add(current.state)
    if not states_by_length:
        return "excluded" if _is_filtered_out(library, real) else ""
    states = states_by_length[max(states_by_length)]
    for state in ("active", "excluded"):
        if state in states:
            return state
    return min(states)


def _is_filtered_out(library: Library, real: str) -> bool:
    """Whether filters exclude an unknown skill folder that contains a real path."""
    for location in library.locations:
        if location.single:
            continue
        root, folder = os.path.realpath(location.path), real
        while folder != root and is_inside(folder, root):
            is_skill = any(os.path.lexists(os.path.join(folder, name)) for name in _SKILL_FILES)
            if is_skill and not library.wants(location.path + folder[len(root) :]):
                return True
            folder = os.path.dirname(folder)
    return False


def _list_served_folder(files: Iterable[str], folder: str) -> list[dict[str, str]]:
    """List a folder of a served skill; empty when there is no such folder."""
    prefix = f"{folder}/" if folder else ""
    below = [file[len(prefix) :] for file in files if file.startswith(prefix)]
    return [
        {"path": printable(name), "type": "dir" if separator else "file"}
        for name, separator in {relative.partition("/")[:2] for relative in below}
    ]


def _link_out_of_skill(label: str) -> tuple[Message, Message]:
    return (
        Message("`{path}` is a link that leads out of the skill", path=label),
        Message("Read the file under its own path"),
    )


def _no_skill_file(label: str) -> tuple[Message, Message]:
    return (
        Message("`{path}` is not a file of a skill that is available here", path=label),
        Message("Give a path below the project or below a skill's base directory"),
    )


def _digest_file(data: bytes, stream: BinaryIO) -> str:
    """Digest the first bytes of a file together with those that follow in the stream."""
    digest = sha256(data)
    remaining_bytes = LIMITS.size  # no file of a skill is longer
    while remaining_bytes > 0 and (chunk := stream.read(1 << 20)):
        digest.update(chunk)
        remaining_bytes -= len(chunk)
    return digest.hexdigest()


def _is_same_file(path: str, info: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), info)
    except OSError:
        return False
