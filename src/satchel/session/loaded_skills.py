"""Tracks the skills loaded in a session, so that unchanged content is not sent twice.

A text enters the conversation once. A second load is answered with a pointer to the first, unless
the skill changed on disk or its text was trimmed from the history.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.catalogue.render import clean, xml_text, xml_value
from satchel.envelope import answer
from satchel.errors import InvalidInput, SatchelError
from satchel.i18n import Message
from satchel.session.permissions import tool_grants
from satchel.tools.framing import one_line, printable
from satchel.tools.permission_rules import SkillToolRules, is_overbroad, patterns_of
from satchel.tools.skill_tool import (
    document_digest,
    read_skill,
    short_digest,
    skill_content,
    state_marks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.session.history import SkillText
    from satchel.skill.model import Skill
    from satchel.tools.base import SkillSource
    from satchel.tools.skill_tool import LoadedSkill

STATE_VERSION = 2
_KEYS = {"version", "filters", "tools", "ask", "stack", "loaded", "dropped", "prompt"}


class StateLimits(NamedTuple):
    """The limits in a dumped session."""

    filters: list[list[list[str]]]
    """Pairs of `include` and `exclude`; a skill must pass each of them."""
    within: list[list[str]]
    """Lists of tool patterns; each list must cover a call."""
    ask: list[str]
    stack: tuple[str, ...]


def state_limits(state: Any) -> StateLimits:
    """Parse the limits of a dumped session.

    Raises:
        InvalidInput: `Session.dump` did not return this state.
    """
    if not isinstance(state, dict) or set(cast("dict[Any, Any]", state)) != _KEYS:
        raise bad_state("state")
    table = cast("dict[str, Any]", state)
    if table["version"] != STATE_VERSION:
        raise bad_state("version")
    filters = [
        [checked_list(one, "filters", str) for one in checked_list(pair, "filters", list)]
        for pair in checked_list(table["filters"], "filters", list)
    ]
    if any(len(pair) != 2 for pair in filters):
        raise bad_state("filters")
    return StateLimits(
        filters,
        [checked_list(one, "tools", str) for one in checked_list(table["tools"], "tools", list)],
        checked_list(table["ask"], "ask", str),
        tuple(checked_list(table["stack"], "stack", str)),
    )


def checked_list(value: Any, what: str, kind: type) -> list[Any]:
    """Check that a value of an untrusted state is a list of one type.

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(value, list):
        raise bad_state(what)
    found = cast("list[Any]", value)
    if any(type(one) is not kind for one in found):
        raise bad_state(what)
    return found


def bad_state(what: str) -> InvalidInput:
    """The error for a state that `Session.dump` did not return."""
    return InvalidInput(
        Message("This is not the state of a conversation: `{what}` is wrong", what=what),
        Message("Pass what `Session.dump()` returned, unchanged"),
    )


_BEFORE = (
    "These skills were loaded earlier in this conversation; what they forbid still holds. Where the"
    " text of one is not above, call Skill again to read it before you go on with it."
)
_MAX_ABOUT_CHARS = 200
ALREADY_LOADED = "is already loaded and unchanged (revision "
"""In the text of a pointer."""


class LoadedRecord(NamedTuple):
    """A skill that was loaded in a session."""

    name: str
    ref: str
    revision: str
    """Of its folder when it was loaded."""
    digest: str
    """Of its instructions and tool rules."""
    characters: int
    """Length of its text in the conversation."""
    allowed: tuple[str, ...] = ()
    """Tool patterns that need no approval while its text is present."""
    disallowed: tuple[str, ...] = ()
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


_STATE: dict[str, type] = {
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
        self._held: dict[str, LoadedRecord] = {}
        self._nonces: set[str] = set()
        """Of the frames that were made or examined here: they have nothing new to tell."""
        self._dropped: set[str] = set()
        self._is_restored = False
        """Until the first `sync` after `load_state`: the history has frames of dropped skills."""

    @property
    def all(self) -> Mapping[str, LoadedRecord]:
        """The records by name, in the order of loading."""
        with self._lock:
            return dict(self._held)

    def folders(self) -> list[str]:
        """Base directories, the latest first."""
        return [held.folder for held in self.all.values() if held.folder][::-1]

    def grants(self) -> list[SkillToolRules]:
        """Current tool rules of the loaded skills that have some."""
        return [
            SkillToolRules(one.name, one.allowed if one.present else (), one.disallowed)
            for one in self.all.values()
            if one.allowed or one.disallowed
        ]

    def forbidden(self) -> list[SkillToolRules]:
        """Their rules that forbid tools."""
        return [grant._replace(allowed=()) for grant in self.grants() if grant.disallowed]

    def forget(self, names: Sequence[str]) -> None:
        """Note that the text of these skills left the history; all when none is named."""
        with self._lock:
            for name in names or tuple(self._held):
                held = self._held.get(name)
                if held is None:
                    continue
                self._held[name] = held._replace(present=False, reminded=False, texts=frozenset())
                if held.present:
                    self._trace.record("forgotten", (name,), ref=held.ref)

    def drop(self, names: Sequence[str]) -> None:
        """Remove skills with their rules; all when none is named."""
        with self._lock:
            for name in names or tuple(self._held):
                held = self._held.pop(name, None)
                if held is not None:
                    self._dropped.add(name)
                    self._trace.record("forgotten", (name,), ref=held.ref, dropped=True)

    def reminder(self, names: Sequence[str]) -> str:
        """The block that replaces their trimmed text; for all when none is named."""
        held = [one for one in self.all.values() if not names or one.name in names]
        if not held:
            return ""
        rows = [
            f"<skill name={xml_value(clean(one.name))} {state_marks(one.digest, one.disallowed)}>"
            f"{xml_text(clean(one.about))}</skill>"
            for one in held
        ]
        return "\n".join(("<skills-loaded-before>", _BEFORE, *rows, "</skills-loaded-before>"))

    def reminder_due(self) -> str:
        """The block for skills whose text left the history without a reminder since."""
        with self._lock:
            due = [one.name for one in self._held.values() if not one.present and not one.reminded]
            for name in due:
                self._held[name] = self._held[name]._replace(reminded=True)
        return self.reminder(due) if due else ""

    def record(self, loaded: LoadedSkill) -> Envelope:
        """Record a loaded skill; the reply becomes a pointer when its text is already present.

        Forbidden tools are added to those forbidden before: a second load lifts nothing.
        """
        skill, reply = loaded.skill, loaded.envelope
        fields, digest = loaded.source.fields, loaded.source.digest
        forbidden = patterns_of(fields.get("disallowed-tools"), forbidding=True)
        if fields.get("disallowed-tools") and not forbidden:
            reason = "`disallowed-tools` names no tool: nothing is forbidden"
            self._trace.record("failed", (skill.name,), what="disallowed-tools", reason=reason)
        held = LoadedRecord(
            skill.name,
            skill.ref,
            loaded.source.folder.revision,
            digest,
            len(reply.data["content"]),
            self._allowed(skill, loaded.source),
            forbidden,
            one_line(skill.description, _MAX_ABOUT_CHARS),
            nonce=loaded.nonce,
            texts=frozenset((loaded.text_digest,)),
            folder=skill.base_dir,
            stamp=(skill.head.mtime_ns, skill.head.size),
        )
        with self._lock:
            self._nonces.add(loaded.nonce)
            self._dropped.discard(skill.name)
            before = self._held.get(skill.name)
            if before is None:
                self._held[skill.name] = held
                return reply
            both = dict.fromkeys((*before.disallowed, *held.disallowed))
            held = held._replace(disallowed=tuple(both))
            again = False
            if before.present and before.digest == digest:
                # Unchanged instructions allow no more than before, whatever was approved since.
                kept = tuple(one for one in held.allowed if one in before.allowed)
                again = self._deduplicate and loaded.text_digest in before.texts
                nonce = before.nonce if again else held.nonce
                texts = before.texts | held.texts
                held = held._replace(allowed=kept, nonce=nonce, texts=texts)
            self._held[skill.name] = held
        if again:
            return self._pointer(reply, held, touched=before.revision != held.revision)
        if before.digest != digest:
            note = f"The skill changed since it was loaded before; this is its text now ({digest})."
            data = {**reply.data, "changed_since_loaded": True}
            return reply._replace(text=f"{note}\n{reply.text}", data=data)
        return reply

    # --- from the history -----------------------------------------------------------------

    def adopt(
        self,
        found: SkillText,
        text: str,
        skill: Skill | None,
        arguments: Mapping[str, Any],
        may_grant: Callable[[], bool],
    ) -> bool:
        """Take over a skill that the history has and this session did not load.

        It allows tools only if the whole text that a load would return now is in the result: who
        forges that gives the model the same instructions, and gains nothing.

        Args:
            found: What the result says of itself.
            text: The whole result.
            skill: The skill that the call names; None when there is none, or no call.
            arguments: The arguments of the call.
            may_grant: Whether the skill could be loaded here without approval.

        Returns:
            Whether something was new.
        """
        with self._lock:
            before = self._held.get(found.name)
            known = found.nonce in self._nonces if found.nonce else before is not None
            hidden = found.name in self._dropped and (self._is_restored or not found.nonce)
            if found.nonce:
                self._nonces.add(found.nonce)
            if known or hidden:
                return False
        source, whole, content, allowed, forbidden = None, False, "", (), found.disallowed
        if skill is not None and (skill.state != "active" or skill.name != found.name):
            skill = None  # nothing of a skill that is not offered gets into a reminder
        if skill is not None:
            with suppress(SatchelError):
                source = read_skill(self._library, skill)
        if source is not None and skill is not None:
            current = patterns_of(source.fields.get("disallowed-tools"), forbidding=True)
            forbidden = (*forbidden, *current)
            content, _ = skill_content(skill, source, str(arguments.get("args") or ""))
            whole = bool(found.nonce) and source.digest == found.digest and content in text
            allowed = self._allowed(skill, source) if whole and may_grant() else ()
        is_changed = source is None or source.digest != found.digest
        held = LoadedRecord(
            found.name,
            skill.ref if skill is not None else "",
            source.folder.revision if whole and source is not None else "",
            found.digest,
            len(content) if whole else 0,
            allowed,
            tuple(dict.fromkeys((*(before.disallowed if before else ()), *forbidden))),
            one_line(skill.description, _MAX_ABOUT_CHARS) if skill is not None else "",
            present=whole or (bool(found.nonce) and is_changed),
            nonce=found.nonce,
            texts=frozenset((short_digest(content),)) if whole else frozenset(),
            folder=skill.base_dir if whole and skill is not None else "",
            stamp=(skill.head.mtime_ns, skill.head.size) if whole and skill is not None else (0, 0),
        )
        with self._lock:
            self._dropped.discard(found.name)
            self._held[found.name] = held
        return True

    def knows(self, nonce: str) -> bool:
        """Whether a frame was made or examined here."""
        return nonce in self._nonces

    def forbid(self, name: str, patterns: Sequence[str], digest: str = "") -> None:
        """Take over what a skill forbids whose text is not in the history any more."""
        with self._lock:
            held = self._held.get(name)
            if name in self._dropped or not (held or patterns):
                return
            held = held or LoadedRecord(name, "", "", digest, 0, present=False, reminded=True)
            both = dict.fromkeys((*held.disallowed, *patterns))
            self._held[name] = held._replace(disallowed=tuple(both))

    def forget_missing(
        self, has_text: Callable[[LoadedRecord], bool], reminders: Callable[[str], bool] | None
    ) -> list[str]:
        """Forget the skills whose text or whose reminder left the history.

        Args:
            has_text: Whether the history has the whole text of a skill.
            reminders: Whether it has a reminder of the skill of this name; None when unknown.

        Returns:
            Names of the skills whose text was there before and is gone.
        """
        self._is_restored = False
        held = self.all.values()
        lost = [one.name for one in held if one.present and not has_text(one)]
        again = [one.name for one in held if not one.present and one.reminded]
        if reminders is not None:
            lost_reminders = [name for name in again if not reminders(name)]
        else:
            lost_reminders = []
        if lost or lost_reminders:
            self.forget([*lost, *lost_reminders])
        return lost

    def edited(self, snapshot: Snapshot) -> list[str]:
        """Names of skills whose present text differs from the one on disk."""
        return [
            held.name
            for held in self.all.values()
            if held.present and self._is_edited(held, snapshot)
        ]

    def _pointer(self, reply: Envelope, held: LoadedRecord, *, touched: bool) -> Envelope:
        self._trace.record("repeated", (held.name,), ref=held.ref, digest=held.digest)
        text = (
            f"The skill `{printable(held.name)}` {ALREADY_LOADED}{held.revision}); its text is "
            "above."
        )
        if touched:
            text += " Files of it were touched since then: read those again that you need."
        data = {
            "name": held.name,
            "base_dir": reply.data["base_dir"],
            "revision": held.revision,
            "digest": held.digest,
            "already_loaded": True,
        }
        params: dict[str, Any] = reply.context["params_input"]
        return answer(text, data, params=params, time_ms=int(reply.stats["time_ms"]))

    def _allowed(self, skill: Skill, source: SkillSource) -> tuple[str, ...]:
        """The patterns that need no approval while the skill is loaded."""
        grants = tool_grants(self._library, skill, source.fields, source.tree_digest)
        if grants.refused:
            reason = "`allowed-tools` is a request that the user did not grant"
            if skill.origin.remote:
                reason = "`allowed-tools` of a skill from a server"
            tools = " ".join(grants.refused)
            self._trace.record("refused", (skill.name,), tool=tools, reason=reason)
        if any(map(is_overbroad, patterns_of(source.fields.get("allowed-tools")))):
            reason = "`allowed-tools` has a pattern that names no tool"
            self._trace.record("refused", (skill.name,), tool="*", reason=reason)
        return grants.granted

    def _is_edited(self, held: LoadedRecord, snapshot: Snapshot) -> bool:
        """Whether the content differs; a changed modification time alone is no edit."""
        skill = snapshot.get(held.name)
        if skill is None:
            return False
        stamp = (skill.head.mtime_ns, skill.head.size)
        if stamp == held.stamp:
            return False
        try:
            document = self._library.integrity.read(skill)
        except SatchelError:
            return True
        if document_digest(document) != held.digest:
            return True
        with self._lock:
            if self._held.get(held.name) == held:
                self._held[held.name] = held._replace(stamp=stamp)
        return False

    # --- as data --------------------------------------------------------------------------

    def dump(self) -> list[dict[str, Any]]:
        """The loaded skills as JSON data."""
        return [
            {
                **{key: getattr(held, key) for key in _STATE},
                "disallowed": list(held.disallowed),
                "texts": sorted(held.texts),
            }
            for held in self.all.values()
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
        for row in checked_list(state, "loaded", dict):
            if set(row) != _STATE.keys() or any(
                type(row[key]) is not kind for key, kind in _STATE.items()
            ):
                raise bad_state("loaded")
            forbidden = tuple(checked_list(row["disallowed"], "disallowed", str))
            texts = frozenset(checked_list(row["texts"], "texts", str))
            kept: dict[str, Any] = {**row, "disallowed": forbidden, "texts": texts}
            held = LoadedRecord(**kept)
            self._held[held.name] = self._verified(held)
            self._nonces.add(held.nonce)
        self._dropped = set(checked_list(dropped, "dropped", str))
        self._is_restored = True

    def _verified(self, held: LoadedRecord) -> LoadedRecord:
        skill = self._library.snapshot().get(held.name)
        if skill is None or skill.ref != held.ref:
            return held
        try:
            source = read_skill(self._library, skill)
        except SatchelError:
            return held
        if source.digest != held.digest:
            return held
        return held._replace(
            allowed=self._allowed(skill, source),
            folder=skill.base_dir,
            stamp=(skill.head.mtime_ns, skill.head.size),
        )
