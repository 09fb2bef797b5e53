"""Tracks the skills loaded in a session, so that unchanged content is not sent twice.

A text enters the conversation once. A second load is answered with a pointer to the first, unless
the skill changed on disk or its text was trimmed from the history.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.catalogue.render import clean, xml_text, xml_value
from satchel.envelope import answer
from satchel.errors import SatchelError
from satchel.session.options import check_list, state_error
from satchel.session.permissions import tool_grants
from satchel.tools.framing import one_line, printable
from satchel.tools.permission_rules import SkillToolRules, is_grantable, parse_patterns
from satchel.tools.skill_tool import (
    document_digest,
    read_skill,
    short_digest,
    skill_content,
    state_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.session.history import SkillText
    from satchel.skill.model import Skill
    from satchel.tools.base import ReadSkill
    from satchel.tools.skill_tool import LoadedSkill

_REMINDER_TEXT = (
    "These skills were loaded earlier in this conversation; what they forbid still holds. Where the"
    " text of one is not above, call Skill again to read it before you go on with it."
)
_MAX_DESCRIPTION_CHARS = 200
ALREADY_LOADED = "is already loaded and unchanged (revision "
"""In the text of a pointer."""


class LoadedRecord(NamedTuple):
    """A skill that was loaded in a session."""

    name: str
    """The name of the skill."""
    digest: str
    """Of its instructions and tool rules."""
    ref: str = ""
    """Its unique reference in the library."""
    revision: str = ""
    """Of its folder when it was loaded."""
    characters: int = 0
    """Length of its text in the conversation."""
    allowed: tuple[str, ...] = ()
    """Tool patterns that need no approval while its text is present."""
    disallowed: tuple[str, ...] = ()
    """Tool patterns that are refused from the load on."""
    about: str = ""
    """One-line description."""
    present: bool = True
    """False once its text was trimmed from the history: `allowed` ends then, `disallowed` stays."""
    reminded: bool = False
    """Whether a reminder was sent since then."""
    nonce: str = ""
    """Of the frame around its text, to find it in the history."""
    texts: frozenset[str] = frozenset()
    """Digests of the texts that were sent: other arguments make another text."""
    folder: str = ""
    """Base directory."""
    stamp: tuple[int, int] = (0, 0)
    """Modification time and size of SKILL.md at the last comparison."""


_STATE_FIELDS: dict[str, type] = {
    "name": str, "ref": str, "revision": str, "digest": str, "characters": int,
    "disallowed": list, "about": str, "present": bool, "reminded": bool, "nonce": str,
    "texts": list,
}  # fmt: skip
"""Fields that `dump` stores. `allowed` is not stored: it is read from the skill again."""


class LoadedSkills:
    """The loaded skills of one session."""

    def __init__(self, library: Library, *, deduplicate: bool = True) -> None:
        """Start empty.

        Args:
            library: The library of the skills.
            deduplicate: Answer a repeated load with a pointer. Set it to False for a host that
                never reports what was trimmed from the history.
        """
        self._library = library
        self._trace = library.trace
        self._deduplicate = deduplicate
        self._lock = threading.RLock()
        self._records: dict[str, LoadedRecord] = {}
        self._nonces: set[str] = set()
        """Of the frames that were made or examined here: they have nothing new to tell."""
        self._dropped: set[str] = set()
        self._is_restored = False
        """Until the first `sync` after `load_state`: the history has frames of dropped skills."""

    @property
    def all(self) -> Mapping[str, LoadedRecord]:
        """The records by name, in the order of loading."""
        with self._lock:
            return dict(self._records)

    def folders(self) -> list[str]:
        """Base directories, the latest first."""
        return [record.folder for record in self.all.values() if record.folder][::-1]

    def digests(self) -> dict[str, str]:
        """The digest of the instructions that were loaded, by name."""
        return {record.name: record.digest for record in self.all.values()}

    def grants(self) -> list[SkillToolRules]:
        """Current tool rules of the loaded skills that have some."""
        return [
            SkillToolRules(record.name, record.allowed if record.present else (), record.disallowed)
            for record in self.all.values()
            if record.allowed or record.disallowed
        ]

    def forbidden(self) -> list[SkillToolRules]:
        """Their rules that forbid tools."""
        return [grant._replace(allowed=()) for grant in self.grants() if grant.disallowed]

    def forget(self, names: Sequence[str]) -> None:
        """Note that the text of these skills left the history; all when none is named."""
        with self._lock:
            for name in names or tuple(self._records):
                record = self._records.get(name)
                if record is None:
                    continue
                self._records[name] = record._replace(
                    present=False, reminded=False, texts=frozenset()
                )
                if record.present:
                    self._trace.record("forgotten", (name,), ref=record.ref)

    def drop(self, names: Sequence[str]) -> None:
        """Remove skills with their rules; all when none is named."""
        with self._lock:
            for name in names or tuple(self._records):
                record = self._records.pop(name, None)
                if record is not None:
                    self._dropped.add(name)
                    self._trace.record("forgotten", (name,), ref=record.ref, dropped=True)

    def reminder(self, names: Sequence[str]) -> str:
        """The block that replaces their trimmed text; for all when none is named."""
        records = [record for record in self.all.values() if not names or record.name in names]
        if not records:
            return ""
        rows = [
            f"<skill name={xml_value(clean(record.name))}"
            f" {state_attributes(record.digest, record.disallowed)}>"
            f"{xml_text(clean(record.about))}</skill>"
            for record in records
        ]
        return "\n".join(
            ("<skills-loaded-before>", _REMINDER_TEXT, *rows, "</skills-loaded-before>")
        )

    def reminder_due(self) -> str:
        """The block for skills whose text left the history without a reminder since."""
        with self._lock:
            names = [
                record.name
                for record in self._records.values()
                if not record.present and not record.reminded
            ]
            for name in names:
                self._records[name] = self._records[name]._replace(reminded=True)
        return self.reminder(names) if names else ""

    def record(self, loaded: LoadedSkill) -> Envelope:
        """Record a loaded skill; the reply becomes a pointer when its text is already present.

        Forbidden tools are added to those forbidden before: a second load lifts nothing.
        """
        skill, reply = loaded.skill, loaded.envelope
        fields, digest = loaded.source.fields, loaded.source.digest
        forbidden = parse_patterns(fields.get("disallowed-tools"), forbidding=True)
        if fields.get("disallowed-tools") and not forbidden:
            reason = "`disallowed-tools` names no tool: nothing is forbidden"
            self._trace.record("failed", (skill.name,), what="disallowed-tools", reason=reason)
        record = LoadedRecord(
            name=skill.name,
            ref=skill.ref,
            revision=loaded.source.folder.revision,
            digest=digest,
            characters=len(reply.data["content"]),
            allowed=self._find_allowed(skill, loaded.source),
            disallowed=forbidden,
            about=one_line(skill.description, _MAX_DESCRIPTION_CHARS),
            nonce=loaded.nonce,
            texts=frozenset((loaded.text_digest,)),
            folder=skill.base_dir,
            stamp=(skill.head.mtime_ns, skill.head.size),
        )
        with self._lock:
            self._nonces.add(loaded.nonce)
            self._dropped.discard(skill.name)
            old = self._records.get(skill.name)
            if old is None:
                self._records[skill.name] = record
                return reply
            record = _add_forbidden(record, old.disallowed)
            is_repeated = False
            if old.present and old.digest == digest:
                # Unchanged instructions allow no more than before, whatever was approved since.
                allowed = tuple(pattern for pattern in record.allowed if pattern in old.allowed)
                is_repeated = self._deduplicate and loaded.text_digest in old.texts
                nonce = old.nonce if is_repeated else record.nonce
                texts = old.texts | record.texts
                record = record._replace(allowed=allowed, nonce=nonce, texts=texts)
            self._records[skill.name] = record
        if is_repeated:
            return self._pointer(reply, record, is_touched=old.revision != record.revision)
        if old.digest != digest:
            note = f"The skill changed since it was loaded before; this is its text now ({digest})."
            data = {**reply.data, "changed_since_loaded": True}
            return reply._replace(text=f"{note}\n{reply.text}", data=data)
        return reply

    # --- from the history -----------------------------------------------------------------

    def adopt(
        self,
        skill_text: SkillText,
        text: str,
        skill: Skill | None,
        arguments: Mapping[str, Any],
        may_grant: Callable[[], bool],
    ) -> bool:
        """Take over a skill that the history has and this session did not load.

        It allows tools only if the whole text that a load would return now is in the result: who
        forges that gives the model the same instructions, and gains nothing.

        Args:
            skill_text: What the result says of itself.
            text: The whole result.
            skill: The skill that the call names; None when there is none, or no call.
            arguments: The arguments of the call.
            may_grant: Whether the skill could be loaded here without approval.

        Returns:
            Whether something was new.
        """
        name, digest, forbidden, nonce = skill_text
        with self._lock:
            old = self._records.get(name)
            is_examined = nonce in self._nonces if nonce else old is not None
            is_dropped = name in self._dropped and (self._is_restored or not nonce)
            if nonce:
                self._nonces.add(nonce)
            if is_examined or is_dropped:
                return False
        record = LoadedRecord(name, digest, disallowed=forbidden, present=bool(nonce), nonce=nonce)
        # Nothing of a skill that is not offered gets into a reminder.
        if skill is not None and skill.state == "active" and skill.name == name:
            record = self._complete(record, text, skill, arguments, may_grant)
        record = _add_forbidden(record, old.disallowed if old is not None else ())
        with self._lock:
            self._dropped.discard(name)
            self._records[name] = record
        return True

    def _complete(
        self,
        record: LoadedRecord,
        text: str,
        skill: Skill,
        arguments: Mapping[str, Any],
        may_grant: Callable[[], bool],
    ) -> LoadedRecord:
        """Add to the record of an adopted skill what its current files say."""
        record = record._replace(
            ref=skill.ref, about=one_line(skill.description, _MAX_DESCRIPTION_CHARS)
        )
        try:
            source = read_skill(self._library, skill)
        except SatchelError:
            return record
        forbidden = parse_patterns(source.fields.get("disallowed-tools"), forbidding=True)
        record = record._replace(disallowed=(*record.disallowed, *forbidden))
        if source.digest != record.digest:
            return record
        content, _ = skill_content(skill, source, str(arguments.get("args") or ""))
        if not record.nonce or content not in text:
            return record._replace(present=False)
        return record._replace(
            revision=source.folder.revision,
            characters=len(content),
            allowed=self._find_allowed(skill, source) if may_grant() else (),
            texts=frozenset((short_digest(content),)),
            folder=skill.base_dir,
            stamp=(skill.head.mtime_ns, skill.head.size),
        )

    def has_examined(self, nonce: str) -> bool:
        """Whether a frame was made or examined here."""
        return nonce in self._nonces

    def forbid(self, name: str, patterns: Sequence[str], digest: str = "") -> None:
        """Take over what a skill forbids whose text is not in the history any more."""
        with self._lock:
            record = self._records.get(name)
            if name in self._dropped or not (record or patterns):
                return
            record = record or LoadedRecord(name, digest, present=False, reminded=True)
            forbidden = dict.fromkeys((*record.disallowed, *patterns))
            self._records[name] = record._replace(disallowed=tuple(forbidden))

    def forget_missing(
        self, has_text: Callable[[LoadedRecord], bool], reminded_names: Collection[str] | None
    ) -> list[str]:
        """Forget the skills whose text or whose reminder left the history.

        Args:
            has_text: Whether the history has the whole text of a skill.
            reminded_names: The skills of which it has a reminder; None when unknown.

        Returns:
            Names of the skills whose text was there before and is gone.
        """
        self._is_restored = False
        records = self.all.values()
        lost = [record.name for record in records if record.present and not has_text(record)]
        lost_reminders: list[str] = []
        if reminded_names is not None:
            lost_reminders = [
                record.name
                for record in records
                if not record.present and record.reminded and record.name not in reminded_names
            ]
        if lost or lost_reminders:
            self.forget([*lost, *lost_reminders])
        return lost

    def edited(self, snapshot: Snapshot) -> list[str]:
        """Names of skills whose present text differs from the one on disk."""
        return [
            record.name
            for record in self.all.values()
            if record.present and self._is_edited(record, snapshot)
        ]

    def _pointer(self, reply: Envelope, record: LoadedRecord, *, is_touched: bool) -> Envelope:
        self._trace.record("repeated", (record.name,), ref=record.ref, digest=record.digest)
        text = (
            f"The skill `{printable(record.name)}` {ALREADY_LOADED}{record.revision}); its text is "
            "above."
        )
        if is_touched:
            text += " Files of it were touched since then: read those again that you need."
        data = {
            "name": record.name,
            "base_dir": reply.data["base_dir"],
            "revision": record.revision,
            "digest": record.digest,
            "already_loaded": True,
        }
        params: dict[str, Any] = reply.context["params_input"]
        return answer(text, data, params=params, time_ms=int(reply.stats["time_ms"]))

    def _find_allowed(self, skill: Skill, source: ReadSkill) -> tuple[str, ...]:
        """Return the patterns that need no approval while the skill is loaded."""
        grants = tool_grants(self._library, skill, source.fields, source.tree_digest)
        if grants.refused:
            reason = "`allowed-tools` is a request that the user did not grant"
            if skill.origin.remote:
                reason = "`allowed-tools` of a skill from a server"
            tools = " ".join(grants.refused)
            self._trace.record("refused", (skill.name,), tool=tools, reason=reason)
        patterns = parse_patterns(source.fields.get("allowed-tools"))
        if tools := " ".join(pattern for pattern in patterns if not is_grantable(pattern)):
            reason = "`allowed-tools` cannot ask for every tool, nor for `RunScript`"
            self._trace.record("refused", (skill.name,), tool=tools, reason=reason)
        return grants.granted

    def _is_edited(self, record: LoadedRecord, snapshot: Snapshot) -> bool:
        """Whether the content differs; a changed modification time alone is no edit."""
        skill = snapshot.get(record.name)
        if skill is None:
            return False
        stamp = (skill.head.mtime_ns, skill.head.size)
        if stamp == record.stamp:
            return False
        try:
            document = self._library.integrity.read(skill)
        except SatchelError:
            return True
        if document_digest(document) != record.digest:
            return True
        with self._lock:
            if self._records.get(record.name) == record:
                self._records[record.name] = record._replace(stamp=stamp)
        return False

    # --- as data --------------------------------------------------------------------------

    def dump(self) -> list[dict[str, Any]]:
        """The loaded skills as JSON data."""
        return [
            {
                **{key: getattr(record, key) for key in _STATE_FIELDS},
                "disallowed": list(record.disallowed),
                "texts": sorted(record.texts),
            }
            for record in self.all.values()
        ]

    @property
    def dropped(self) -> list[str]:
        """The skills that were unloaded on the user's behalf."""
        with self._lock:
            return sorted(self._dropped)

    def load_state(self, state: Any, dropped: Any) -> None:
        """Continue with a dumped state. What a skill allows is read from its current files.

        A skill with another text than the one that was loaded allows nothing until it is loaded
        again; what it forbade stays forbidden.

        Raises:
            InvalidInput: `dump` did not return this state.
        """
        for row in check_list(state, "loaded", dict):
            if set(row) != _STATE_FIELDS.keys() or any(
                type(row[key]) is not field_type for key, field_type in _STATE_FIELDS.items()
            ):
                raise state_error("loaded")
            forbidden = tuple(check_list(row["disallowed"], "disallowed", str))
            texts = frozenset(check_list(row["texts"], "texts", str))
            fields: dict[str, Any] = {**row, "disallowed": forbidden, "texts": texts}
            record = LoadedRecord(**fields)
            self._records[record.name] = self._restore_grants(record)
            self._nonces.add(record.nonce)
        self._dropped = set(check_list(dropped, "dropped", str))
        self._is_restored = True

    def _restore_grants(self, record: LoadedRecord) -> LoadedRecord:
        """Add what the skill allows; nothing when its text is another one now."""
        skill = self._library.snapshot().get(record.name)
        if skill is None or skill.ref != record.ref:
            return record
        try:
            source = read_skill(self._library, skill)
        except SatchelError:
            return record
        if source.digest != record.digest:
            return record
        return record._replace(
            allowed=self._find_allowed(skill, source),
            folder=skill.base_dir,
            stamp=(skill.head.mtime_ns, skill.head.size),
        )


def _add_forbidden(record: LoadedRecord, patterns: Sequence[str]) -> LoadedRecord:
    """Add what a skill forbade before, in front of what it forbids now, each pattern once."""
    return record._replace(disallowed=tuple(dict.fromkeys((*patterns, *record.disallowed))))
