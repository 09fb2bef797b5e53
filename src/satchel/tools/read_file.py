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
import re
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from satchel._fs import is_inside, open_beneath
from satchel.errors import AccessDenied, Changed, InvalidInput, Refused, SatchelError
from satchel.i18n import Message
from satchel.skill.file_tree import LIMITS
from satchel.tools.base import Tool
from satchel.tools.framing import attribute, encodable, framed, one_line, printable
from satchel.tools.lookup import not_offered, refuse_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.settings import Settings
    from satchel.skill import Skill
    from satchel.tools.base import ToolCall

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
"""Lines as editors count them: `str.splitlines` also breaks at form feeds and others."""


class TextPage(NamedTuple):
    """One part of a text."""

    content: str
    first: int
    """First line, counted from 1."""
    last: int
    lines: int
    """Number of lines of the whole text."""
    next_line: int
    """Where the rest begins; 0 when nothing was cut."""


def decode(data: bytes, *, cut: bool) -> tuple[str | None, str]:
    """Decode a file: its text, or None when it is binary; and the fallback that was used.

    Args:
        data: The file's bytes.
        cut: Whether the file is longer, so that the last character may be incomplete.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
        return (None, "") if "\0" in text else (text, "")
    if b"\0" in data:
        return None, ""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode(), ""
    except UnicodeDecodeError as exc:
        if cut and exc.start >= len(data) - 4:
            return data[: exc.start].decode(), ""
        return data.decode("utf-8", "replace"), "invalid-utf-8"


def cut_page(text: str, *, first: int, count: int | None, limit: int) -> TextPage:
    """Cut out `count` lines from `first` on, and of them at most `limit` characters.

    Reaching `count` is no truncation; only `limit` makes a page partial. The rest of a line that is
    longer than `limit` is left out.
    """
    rows = _LINES.findall(text)
    total = len(rows)
    if first > total:
        return TextPage("", first, first - 1, total, 0)
    wanted = rows[first - 1 : None if count is None else first - 1 + int(count)]
    taken: list[str] = []
    room = limit
    for at, row in enumerate(wanted):
        if len(row) > room:
            line = first + at
            if taken:
                return TextPage("".join(taken), first, line - 1, total, line)
            return TextPage(row[:room], first, line, total, line + 1)
        taken.append(row)
        room -= len(row)
    return TextPage("".join(taken), first, first + len(wanted) - 1, total, 0)


MAX_READ_BYTES = 16 * 1024 * 1024
"""The rest of a longer file cannot be read."""
_WELL_KNOWN = (
    "authors changelog citation codeowners contributing contributors copying dockerfile gemfile "
    "jenkinsfile justfile license licence makefile notice procfile rakefile readme todo version"
)
KNOWN_NAMES = frozenset(_WELL_KNOWN.split())
"""Names without an extension that are text files."""
_MAX_ENTRIES_SHOWN = 100
_WHERE = ("path", "relativePath", "relative_path")
_SCHEME = "skill://"
_SKILL_FILES = ("SKILL.md", "skill.md", "skill.yaml")


def is_address(path: str) -> bool:
    """Whether a path is an address."""
    return path[: len(_SCHEME)].lower() == _SCHEME


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
        self, library: Library, settings: Settings, path_of: Callable[[str], str] | None = None
    ) -> None:
        """Set up.

        Args:
            library: The skills.
            settings: Project, scope and kinds of files.
            path_of: Gives the path of an address such as `skill://pdf/forms.md`; empty when there
                is none. Without it, addresses are not accepted.
        """
        self._library = library
        self._settings = settings
        self._real_project = os.path.realpath(settings.project)
        self._kinds = frozenset(item.lower().lstrip(".") for item in settings.reading.extensions)
        self._folders: tuple[Snapshot, set[str]] | None = None
        self._path_of = path_of

    def with_paths(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with paths in place of addresses, for permission rules."""
        if self._path_of is None:
            return dict(table)
        return {
            key: self._path_of(value) or value
            if key in _WHERE and isinstance(value, str) and is_address(value)
            else value
            for key, value in table.items()
        }

    def instructions_of(self, table: Mapping[str, Any]) -> Skill | None:
        """The skill whose SKILL.md a call would read; None for any other file."""
        for key in _WHERE:
            wanted = table.get(key)
            if not isinstance(wanted, str) or "\0" in wanted:
                continue
            full = os.path.join(self._settings.project, os.path.expanduser(encodable(wanted)))
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
        wanted = str(call.arguments["path"])
        shown, uri = one_line(wanted, 300), ""
        if self._path_of is not None and is_address(wanted):
            uri, wanted = wanted, self._path_of(wanted)
            if not wanted:
                return _unknown_address(call, shown)
        served = self._served(wanted)
        if served is not None:
            return self._read_served(call, served, shown)
        try:
            descriptor, root, path = self._open(wanted, in_skill=bool(uri))
        except AccessDenied:
            return _unknown_address(call, shown) if uri else self._denied(call, wanted, shown)
        except OSError as exc:
            return self._failed(call, exc, wanted, shown)
        try:
            return self._read(call, descriptor, root, path, shown, uri)
        except OSError as exc:
            return self._failed(call, exc, wanted, shown)
        finally:
            os.close(descriptor)

    def _denied(self, call: ToolCall, wanted: str, shown: str) -> Envelope:
        hidden = self._hidden(wanted)
        if hidden is not None:
            return not_offered(call, self._library, hidden)
        if self._settings.reading.scope == "skills":
            return call.fail("ACCESS_DENIED", *_no_skill_file(shown))
        return call.fail(
            "ACCESS_DENIED",
            Message("`{path}` leads outside the project", path=shown),
            Message("Give a path below the project or below a skill's base directory"),
        )

    def _served(self, wanted: str) -> tuple[Skill, str] | None:
        """The served skill that a path belongs to, and the path below its folder."""
        if "\0" in wanted:
            return None
        path = os.path.join(self._settings.project, os.path.expanduser(wanted))
        return self._library.served_skill_at(os.path.normpath(path))

    def _read_served(self, call: ToolCall, found: tuple[Skill, str], shown: str) -> Envelope:
        """Read a listed file of a served skill, while the skill is loaded.

        A folder is answered from the listing: files added later are no part of the skill.
        """
        skill, path = found
        supply = self._library.supply_of(skill)
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
        where = printable(os.path.join(skill.base_dir, path))
        try:
            self._library.integrity.check(skill)
            files = supply.files_of(skill)
            inside = f"{path}/" if path else ""
            below = [one[len(inside) :] for one in files if one.startswith(inside)]
            if path not in files and below:
                parts = {one.partition("/")[:2] for one in below}
                entries = [
                    {"path": printable(name), "type": "dir" if more else "file"}
                    for name, more in parts
                ]
                return _folder_reply(call, shown, where, entries, len(entries))
            if path in files and not self._allowed(path):
                return self._wrong_kind(call, shown, where)
            data = supply.fetch_verified(skill, path)
            self._library.integrity.check_served(skill, path, data)
        except Refused as exc:
            return refuse_use(call, exc)
        except SatchelError as exc:
            return call.fail("EXECUTION_ERROR", one_line(exc.message, 600), one_line(exc.hint, 300))
        return self._show(call, data, len(data), where, shown, skill.origin.remote)

    def _open(self, wanted: str, *, in_skill: bool) -> tuple[int, str, str]:
        """Open a path: the descriptor, its root, and the path below it."""
        denied = AccessDenied(f"`{wanted}` leads outside")
        in_skill = in_skill or self._settings.reading.scope == "skills"
        for root, path in self._roots(wanted, in_skill=in_skill):
            try:
                return open_beneath(root, path), root, path
            except AccessDenied as exc:
                denied = exc
        raise denied

    def _hidden(self, wanted: str) -> Skill | None:
        """The known skill with the file at a path, when it may not be used."""
        if "\0" in wanted:
            return None
        path = os.path.join(self._settings.project, os.path.expanduser(wanted))
        snapshot = self._library.snapshot()
        for skill in self._library.skills_containing(os.path.realpath(path)):
            found = snapshot.by_ref(skill.ref)
            if found is not None and found.problem_code(unpinned=False):
                return found
        return None

    def _roots(self, wanted: str, *, in_skill: bool) -> Iterator[tuple[str, str]]:
        """Roots from which the path may be read, with the path below each; the project first."""
        project = self._settings.project
        if wanted.startswith("~/"):
            wanted = os.path.expanduser(wanted)
        full = os.path.normpath(os.path.join(project, wanted))
        if not in_skill:
            if not os.path.isabs(wanted):
                yield project, wanted
            for base in (project, self._real_project):
                if is_inside(full, base):
                    # A folder inside the project must not allow what the project's root denies.
                    if os.path.isabs(wanted):
                        yield project, os.path.relpath(full, base)
                    return
        folder = "" if "\0" in wanted else self._skill_above(full)
        if folder:
            yield folder, os.path.relpath(full, folder)

    def _skill_above(self, full: str) -> str:
        """The folder of the innermost active skill that contains the path, or nothing."""
        snapshot = self._library.snapshot()
        if self._folders is None or self._folders[0] is not snapshot:
            used = {skill.base_dir for skill in snapshot.every() if skill.state == "active"}
            self._folders = (snapshot, used)
        folders = self._folders[1]
        while full not in folders:
            parent = str(os.path.dirname(full))
            if parent == full:
                return ""
            full = parent
        return full

    def _read(
        self, call: ToolCall, descriptor: int, root: str, path: str, shown: str, uri: str
    ) -> Envelope:
        info = os.fstat(descriptor)
        full = os.path.join(root, path)
        where = printable(os.path.normpath(path) if root == self._settings.project else full)
        where = uri or where
        real = os.path.realpath(full)
        refused = self._refused_place(call, full, real, uri)
        if refused is not None:
            denied = call.fail("ACCESS_DENIED", *refused(shown), path=where)
            return _unknown_address(call, shown) if uri else denied
        if stat.S_ISDIR(info.st_mode) and _same(real, info):
            return self._folder(call, descriptor, real, shown, where, open_only=bool(uri))
        if not stat.S_ISREG(info.st_mode):
            return call.fail(
                "ACCESS_DENIED",
                Message("`{path}` is not a regular file", path=shown),
                Message("Check the path"),
                path=where,
            )
        # Check the real name too: a link called `notes.md` may point at something else.
        if not self._allowed(path) or not self._allowed(real):
            return self._wrong_kind(call, shown, where)
        private = self._for_people(real, call.loaded)
        if private is not None:
            return call.fail(
                "PERMISSION_DENIED",
                f"`{shown}` belongs to the skill `{one_line(private.name, 100)}`, which only a "
                "person can load",
                "Go on without it, or ask the user to load it",
                path=where,
            )
        if not _same(real, info):
            return call.fail(
                "CONFLICT",
                Message("`{path}` changed meanwhile", path=shown),
                Message("Try again"),
                path=where,
            )
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            data = stream.read(MAX_READ_BYTES)
            refused = self._refusal(real, data, stream)
        if refused is not None:
            return refuse_use(call, refused)
        return self._show(call, data, info.st_size, where, shown)

    def _refused_place(
        self, call: ToolCall, full: str, real: str, uri: str
    ) -> Callable[[str], tuple[Message, Message]] | None:
        """The sentences, given the name to show, for a place that may not be read."""
        owner = self._skill_above(os.path.normpath(full))
        if owner and not is_inside(real, os.path.realpath(owner)):
            return _link_out
        state = state_at(self._library, real)
        # An address never leads to the rest of a project whose root is a skill.
        only_skills = uri or self._settings.reading.scope == "skills"
        closed = uri and self._for_people(real, call.loaded) is not None
        if state == "excluded" or closed or (only_skills and state != "active"):
            return _no_skill_file
        return None

    def _wrong_kind(self, call: ToolCall, shown: str, where: str) -> Envelope:
        kinds = ", ".join(sorted(self._kinds)[:12])
        return call.fail(
            "ACCESS_DENIED",
            Message("`{path}` is not of a kind that may be read", path=shown),
            Message(
                "Only text files may: {kinds} and others of the setting `reading.extensions`",
                kinds=kinds,
            ),
            path=where,
        )

    def _folder(
        self, call: ToolCall, descriptor: int, real: str, shown: str, where: str, *, open_only: bool
    ) -> Envelope:
        entries: list[dict[str, str]] = []
        total = 0
        with os.scandir(descriptor if os.scandir in os.supports_fd else real) as found:
            for entry in found:
                inside = entry.is_dir(follow_symlinks=False)
                if inside and state_at(self._library, os.path.join(real, entry.name)) == "excluded":
                    continue
                inner = os.path.realpath(os.path.join(real, entry.name))
                if open_only and self._for_people(inner, call.loaded) is not None:
                    continue
                total += 1
                kind = "link" if entry.is_symlink() else "dir" if inside else "file"
                entries.append({"path": printable(entry.name), "type": kind})
                if total >= 10 * _MAX_ENTRIES_SHOWN:
                    break
        return _folder_reply(call, shown, where, entries, total)

    def _for_people(self, real: str, loaded: Sequence[str]) -> Skill | None:
        """The skill of a file that only people may load, unless it is loaded."""
        for skill in self._library.skills_containing(real):
            if skill.for_model:
                continue
            folder = os.path.realpath(skill.base_dir)
            if all(os.path.realpath(one) != folder for one in loaded):
                return skill
        return None

    def _show(
        self, call: ToolCall, data: bytes, size: int, where: str, shown: str, origin: str = ""
    ) -> Envelope:
        text, fallback = decode(data, cut=size > MAX_READ_BYTES)
        if text is None:
            return call.fail(
                "BINARY_FILE",
                Message("`{path}` is not text", path=shown),
                Message("Check the path"),
                path=where,
            )
        given = call.arguments
        page = cut_page(
            text,
            first=int(given.get("offset", 1)),
            count=given.get("limit"),
            limit=max(self._settings.reading.limit, 1),
        )
        if page.lines and page.first > page.lines:
            raise InvalidInput(
                Message(
                    "`{path}` has {lines} lines; `offset` is {line}",
                    path=shown,
                    lines=f"{page.lines:,}",
                    line=page.first,
                ),
                Message("Give a smaller `offset`"),
            )
        return _reply(call, page, where, size, fallback, origin)

    def _refusal(self, real: str, data: bytes, rest: BinaryIO) -> SatchelError | None:
        """Why a file of a skill may not be shown; None when it may.

        Args:
            real: The file's real path.
            data: The bytes to show: exactly these must have been verified.
            rest: Stream with the bytes that follow.
        """
        integrity = self._library.integrity
        digest = ""
        for skill in self._library.skills_containing(real):
            try:
                verified = integrity.check(skill)
            except SatchelError as exc:
                return exc
            digest = digest or _digest(data, rest)
            if not verified.holds(real, digest):
                return Changed(
                    Message("The skill `{name}` changed meanwhile", name=skill.name),
                    Message("Run `{command}`", command=f"satchel show {skill.reference}"),
                )
        return None

    def _in_loaded(self, wanted: str, loaded: Sequence[str]) -> str:
        """The file in a loaded skill's folder: models forget the base directory."""
        for folder in loaded[:8]:
            path = os.path.normpath(os.path.join(folder, wanted))
            if is_inside(path, folder) and (os.path.isfile(path) or self._is_listed(path)):
                return path
        return ""

    def _is_listed(self, path: str) -> bool:
        found = self._library.served_skill_at(path)
        supply = self._library.supply_of(found[0]) if found is not None else None
        return (
            found is not None
            and supply is not None
            and found[0].state == "active"
            and found[1] in supply.files_of(found[0])
        )

    def _allowed(self, path: str) -> bool:
        name = os.path.basename(path).lower()
        stem, dot, kind = name.rpartition(".")
        if dot and stem:
            return kind in self._kinds
        return not dot and name in KNOWN_NAMES

    def _failed(self, call: ToolCall, exc: OSError, wanted: str, shown: str) -> Envelope:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR):
            step = Message("Check the path")
            loaded_path = ""
            if not os.path.isabs(wanted):
                loaded_path = self._in_loaded(wanted, call.loaded)
            if loaded_path:
                step = Message(
                    "Did you mean `{path}`, in the skill's folder?", path=printable(loaded_path)
                )
            return call.fail("NOT_FOUND", Message("There is no `{path}`", path=shown), step)
        if exc.errno in (errno.EACCES, errno.EPERM):
            return call.fail(
                "PERMISSION_DENIED",
                Message("`{path}` cannot be read: {reason}", path=shown, reason=exc.strerror),
                Message("Check the permissions"),
            )
        wrong = exc.errno in (errno.ENAMETOOLONG, errno.EINVAL)
        return call.fail(
            "INVALID_PARAM" if wrong else "EXECUTION_ERROR",
            Message("`{path}` cannot be read: {reason}", path=shown, reason=exc.strerror),
            Message("Check the path"),
        )


def state_at(library: Library, real: str) -> str:
    """The state of the innermost skill that contains a real path; empty without one.

    A broken skill folder is `excluded` when the filter excludes its name.
    """
    snapshot = library.snapshot()
    known = (snapshot.by_ref(skill.ref) for skill in library.skills_containing(real))
    holders = [(len(os.path.realpath(one.base_dir)), one.state) for one in known if one]
    if holders:
        inner = max(holders)[0]
        states = {state for length, state in holders if length == inner}
        return next((one for one in ("active", "excluded") if one in states), min(states))
    for place in (one for one in library.locations if not one.single):
        root, folder = os.path.realpath(place.path), real
        while folder != root and is_inside(folder, root):
            is_skill = any(os.path.lexists(os.path.join(folder, one)) for one in _SKILL_FILES)
            if is_skill and not library.wants(place.path + folder[len(root) :]):
                return "excluded"
            folder = os.path.dirname(folder)
    return ""


def _link_out(shown: str) -> tuple[Message, Message]:
    return (
        Message("`{path}` is a link that leads out of the skill", path=shown),
        Message("Read the file under its own path"),
    )


def _no_skill_file(shown: str) -> tuple[Message, Message]:
    return (
        Message("`{path}` is not a file of a skill that is available here", path=shown),
        Message("Give a path below the project or below a skill's base directory"),
    )


def _unknown_address(call: ToolCall, shown: str) -> Envelope:
    return call.fail(
        "NOT_FOUND",
        Message("There is no `{path}`", path=shown),
        "Give `skill://NAME/FILE`: the skill itself lists its files",
    )


def _digest(data: bytes, rest: BinaryIO) -> str:
    from hashlib import sha256

    total = sha256(data)
    left = LIMITS.size  # no file of a skill is longer
    while left > 0 and (chunk := rest.read(1 << 20)):
        total.update(chunk)
        left -= len(chunk)
    return total.hexdigest()


def _same(path: str, info: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), info)
    except OSError:
        return False


def _folder_reply(
    call: ToolCall, shown: str, where: str, entries: list[dict[str, str]], total: int
) -> Envelope:
    entries.sort(key=lambda entry: entry["path"])
    del entries[_MAX_ENTRIES_SHOWN:]
    names = [entry["path"] + ("/" if entry["type"] == "dir" else "") for entry in entries]
    more = f" and {total - _MAX_ENTRIES_SHOWN} more" if total > _MAX_ENTRIES_SHOWN else ""
    step = Message("It is empty")
    if names:
        step = Message("Read a file in it: {names}", names=", ".join(names) + more)
    data = {"entries": entries, "entries_total": total}
    return call.fail(
        "IS_DIRECTORY", Message("`{path}` is a folder", path=shown), step, data, path=where
    )


def _reply(
    call: ToolCall, page: TextPage, where: str, size: int, fallback: str, origin: str
) -> Envelope:
    data: dict[str, Any] = {
        "content": page.content,
        "path": encodable(where),
        "first_line": page.first if page.lines else 0,
        "last_line": page.last,
        "lines": page.lines,
    }
    notes: list[str] = []
    if page.next_line:
        data["truncated"] = True
        if not page.content.endswith("\n"):
            notes.append(f"Line {page.last} is too long: the rest of it is left out.")
        if page.next_line <= page.lines:
            notes.append(
                f"There is more. Call ReadFile again with offset {page.next_line} for the rest."
            )
    elif size > MAX_READ_BYTES:
        data["truncated"] = True
        notes.append(
            f"The file has {size:,} bytes; what is beyond {MAX_READ_BYTES:,} cannot be read."
        )
    if fallback:
        data["fallback"] = fallback
        notes.append("Some bytes were not valid text and are shown as `\ufffd`.")
    lines = f"{data['first_line']}-{page.last} of {page.lines}"
    came = f' origin="{attribute(origin)}"' if origin else ""
    text = framed("file-read", f'path="{attribute(where)}" lines="{lines}"{came}', page.content)
    stats: dict[str, Any] = {"bytes": size, "characters": len(page.content)}
    return call.answer(
        "\n".join((text, *notes)), data, partial=bool(notes), stats=stats, path=encodable(where)
    )
