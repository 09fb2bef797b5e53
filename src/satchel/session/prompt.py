"""Builds and freezes the system prompt and tool definitions of a session.

Both stay byte-identical so that the provider's cache holds. They are rebuilt when the tools that
can be called or their descriptions changed. Otherwise changes are reported in a notice after the
next message (`change_notice.py`). A session that has `ReadFile` and not `Skill` gets the catalogue
with paths and no notices: its prompt is rebuilt when the list changed.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import read_plain, write_atomic
from satchel.session.change_notice import (
    ListedSkill,
    compare_catalogue,
    listed_skills,
    render_changes,
)
from satchel.session.options import state_error
from satchel.tools.read_file import ReadFileTool
from satchel.tools.skill_tool import SkillTool, short_digest
from satchel.tools.toolset import cached_catalogue, record_offer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.library import Library, Snapshot
    from satchel.settings import Settings
    from satchel.tools.toolset import Toolset

_NOTICES_NOTE = (
    "Behind a message of the user, or behind a tool's result, this program may put a note about"
    " skills: which of them may fit the request, and what changed since this list was written."
    " What the newest note says of a skill is right."
)
_SCRIPTS_NOTE = (
    "Where a loaded skill says to run one of its files, such as `python scripts/x.py a b`, call"
    ' RunScript with that skill, script `scripts/x.py` and args ["a", "b"].'
)
MAX_STORED_PROMPTS = 256
_MAX_STORED_BYTES = 16 * 1024 * 1024
_CHANGED_SKILL = ListedSkill("", "", "")
"""Stands for a skill that is listed otherwise now: it differs from every listed skill."""


class FrozenPrompt(NamedTuple):
    """The prompt and definitions that are sent until the next rebuild."""

    prompt: str
    version: object
    """`Toolset.version` of the tools."""
    tools: list[dict[str, Any]]
    rows: Mapping[str, ListedSkill]
    """The listed skills by name."""
    definitions: dict[tuple[str, bool], list[dict[str, Any]]]
    """Definitions by provider and whether they contain the catalogue."""


class SessionPrompt:
    """Prompt, tools and change notices of one session."""

    def __init__(
        self,
        settings: Settings,
        library: Library,
        tools: Callable[[], Toolset],
        offers: Callable[[str], bool],
        find_edited: Callable[[Snapshot], list[str]],
    ) -> None:
        self._settings = settings
        self._library = library
        self._trace = library.trace
        self._tools = tools
        self._offers = offers
        self._find_edited = find_edited
        self._lock = threading.RLock()
        self._frozen: FrozenPrompt | None = None
        self._reported: Mapping[str, ListedSkill] | None = None
        """The skills as the model knows them, from the prompt and the notices."""
        self._reported_snapshot: Snapshot | None = None
        """The snapshot that was compared last; None when it has to be compared again."""
        self._sent_notices: list[str] = []
        """The notices that should be in the history."""

    def current(self, snapshot: Snapshot) -> FrozenPrompt:
        """The prompt to send, rebuilt where necessary."""
        with self._lock:
            frozen = self._frozen
            if frozen is None:
                return self._build(snapshot)
            version = self._tools().version(snapshot)
            if version != frozen.version:
                if self._describe(snapshot, "anthropic") != frozen.tools:
                    self._trace.record("rebuilt", (), reason="other tools can be called")
                    return self._build(snapshot)
                frozen = self._frozen = frozen._replace(version=version)
            if (
                not self._offers(SkillTool.name)
                and snapshot is not self._reported_snapshot
                and listed_skills(snapshot) != frozen.rows
            ):
                self._trace.record("rebuilt", (), reason="the skills changed")
                return self._build(snapshot)
            return frozen

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Names of the tools that can be called now, frozen or not."""
        names = self._tools().offered(snapshot)
        return tuple(name for name in names if self._offers(name))

    def prompt_and_tools(
        self, snapshot: Snapshot, provider: str, *, catalogue: bool
    ) -> tuple[str, list[dict[str, Any]]]:
        """Prompt and tools for a provider."""
        frozen = self.current(snapshot)
        key = (provider, catalogue)
        if key not in frozen.definitions:
            frozen.definitions[key] = self._describe(snapshot, provider, catalogue=catalogue)
        return frozen.prompt, list(frozen.definitions[key])

    def forget_notices(self) -> None:
        """Note that change notices left the history: report all differences from the prompt."""
        with self._lock:
            self._reported = self._frozen.rows if self._frozen is not None else None
            self._reported_snapshot = None

    def check_again(self) -> None:
        """Look for loaded skills that were edited at the next notice."""
        with self._lock:
            self._reported_snapshot = None

    def find_missing(self, texts: Sequence[str]) -> None:
        """Repeat the changes whose notice is in none of these texts."""
        with self._lock:
            sent_notices = self._sent_notices
            self._sent_notices = [
                notice for notice in sent_notices if any(notice in text for text in texts)
            ]
            if len(self._sent_notices) < len(sent_notices):
                self.forget_notices()

    def change_notice(self, snapshot: Snapshot) -> str:
        """The notice of changes since the last one; empty when there are none, or without Skill."""
        if not self._offers(SkillTool.name):
            return ""
        with self._lock:
            self.current(snapshot)
            if snapshot is self._reported_snapshot:
                return ""
            self._reported_snapshot = snapshot
            changes = compare_catalogue(self._reported or {}, snapshot, self._find_edited(snapshot))
            self._reported = listed_skills(snapshot)
            text = render_changes(changes)
            if text:
                self._sent_notices.append(text)
                self._trace.record(
                    "told",
                    (),
                    added=[skill.name for skill in changes.added],
                    changed=[skill.name for skill in changes.changed],
                    removed=list(changes.removed),
                    edited=list(changes.edited),
                )
            return text

    def dump(self) -> dict[str, str] | None:
        """The digests of the prompt and of what was reported; None when nothing was.

        Their size does not depend on the library. The prompt itself goes into the cache folder, so
        that a restored session can send the same bytes.
        """
        with self._lock:
            if self._frozen is None or self._reported is None:
                return None
            stored = StoredPrompt(self._frozen.prompt, _digests(self._frozen.rows))
            reported = _digest(_digests(self._reported))
        stored.save(self._settings.paths.cache)
        return {"digest": stored.digest, "reported": reported}

    def load_state(self, state: Any, snapshot: Snapshot) -> None:
        """Continue with a dumped state, and report changes since then.

        The prompt keeps its bytes if it is the same now, or is in the cache folder; otherwise it is
        built from the library as it is.

        Raises:
            InvalidInput: `dump` did not return this state.
        """
        if state is None:
            return
        table = cast("dict[str, Any]", state) if isinstance(state, dict) else {}
        if table.keys() != {"digest", "reported"} or not all(
            isinstance(value, str) for value in table.values()
        ):
            raise state_error("prompt")
        with self._lock:
            built = self._build(snapshot)
            digests = _digests(built.rows)
            if StoredPrompt(built.prompt, digests).digest == table["digest"]:
                return
            stored = StoredPrompt.load(self._settings.paths.cache, table["digest"])
            if stored is None:
                self._trace.record("rebuilt", (), reason="the prompt is not stored here")
                return
            rows = {
                name: built.rows[name] if digests.get(name) == digest else _CHANGED_SKILL
                for name, digest in stored.rows.items()
            }
            self._frozen = built._replace(prompt=stored.prompt, rows=rows)
            self._reported = built.rows if _digest(digests) == table["reported"] else rows
            self._reported_snapshot = None

    def _build(self, snapshot: Snapshot) -> FrozenPrompt:
        """Build the prompt and the tools; their skills count as reported."""
        tools = self._describe(snapshot, "anthropic")
        text = untrusted_notice = ""
        has_skill_tool = self._offers(SkillTool.name)
        if has_skill_tool or self._offers(ReadFileTool.name):
            # Without Skill the model reads SKILL.md itself and needs its path.
            form = None if has_skill_tool else "paths"
            catalogue = cached_catalogue(snapshot, self._settings, form=form)
            text, untrusted_notice = catalogue.text, self._library.untrusted_notice()
            if text:
                record_offer(self._trace, catalogue)
            if text and has_skill_tool:
                text = f"{text}\n\n{_NOTICES_NOTE}"
                if "RunScript" in self.names(snapshot):
                    text = f"{text} {_SCRIPTS_NOTE}"
        rows = listed_skills(snapshot) if text else {}
        version = self._tools().version(snapshot)
        prompt = "\n\n".join(filter(None, (text, untrusted_notice)))
        self._frozen = FrozenPrompt(prompt, version, tools, rows, {})
        self._reported = rows
        self._reported_snapshot = None if self._find_edited(snapshot) else snapshot
        return self._frozen

    def _describe(
        self, snapshot: Snapshot, provider: str, *, catalogue: bool = False
    ) -> list[dict[str, Any]]:
        tools = self._tools()
        definitions = tools.definitions(provider, catalogue=catalogue, snapshot=snapshot)
        names = tools.offered(snapshot)
        return [
            definition
            for name, definition in zip(names, definitions, strict=True)
            if self._offers(name)
        ]


def _digests(rows: Mapping[str, ListedSkill]) -> dict[str, str]:
    return {name: short_digest("\0".join(row)) for name, row in rows.items()}


def _digest(value: Any) -> str:
    return sha256(_as_json(value)).hexdigest()


def _as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")


class StoredPrompt(NamedTuple):
    """A prompt in the cache folder, in a file named after its digest."""

    prompt: str
    rows: dict[str, str]
    """The digest of each listed skill's description."""

    @property
    def digest(self) -> str:
        """The digest of the prompt and of its skills."""
        return _digest(list(self))

    def save(self, cache: str) -> None:
        """Store it, and delete the oldest ones beyond the limit; never raises."""
        folder = os.path.join(cache, "prompts")
        path = os.path.join(folder, self.digest)
        if not cache or os.path.exists(path):
            return
        with suppress(OSError):
            write_atomic(path, _as_json(list(self)), private=True, durable=False)
            files = sorted(os.scandir(folder), key=lambda entry: entry.stat().st_mtime_ns)
            for entry in files[:-MAX_STORED_PROMPTS]:
                os.unlink(entry)

    @classmethod
    def load(cls, cache: str, digest: str) -> StoredPrompt | None:
        """Read it back; None when it is not there, or was changed."""
        if not cache or not digest.isalnum():
            return None
        try:
            data = read_plain(os.path.join(cache, "prompts", digest), _MAX_STORED_BYTES)
            stored = cls(*json.loads(data))
        except (OSError, ValueError, TypeError):
            return None
        return stored if stored.digest == digest else None
