"""Which skills did a conversation load, and is their text still in it?

A text comes in once. Asked for again it is only pointed at, unless it changed on disk or the host
said that it was trimmed away.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.catalogue.escape import clean, xml_text, xml_value
from satchel.envelope import answer
from satchel.errors import NotFound, SatchelError
from satchel.tools.frame import one_line, printable
from satchel.tools.permits import Grant, patterns_of, too_wide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.skill.model import Document, Skill

_BEFORE = (
    "These skills were loaded earlier in this conversation; what they forbid still holds. Where the"
    " text of one is not above, call Skill again to read it before you go on with it."
)
_ABOUT = 200
_SIGNS = 12


class Held(NamedTuple):
    """A skill that was loaded in a conversation."""

    name: str
    ref: str
    revision: str
    """Of its folder, as it was loaded."""
    digest: str
    """The first signs of the SHA-256 of its instructions, and of what it says about tools."""
    characters: int
    """What its text took in the conversation."""
    allowed: tuple[str, ...] = ()
    """Patterns of tools that need no person's word while its text is there."""
    disallowed: tuple[str, ...] = ()
    """Patterns of tools that are refused."""
    about: str = ""
    """What it is for, in one line."""
    present: bool = True
    """False once its text was trimmed away: what it allows ends then, what it forbids does not."""
    reminded: bool = False
    """Whether the model was reminded of it since then."""


class HoldingMark(NamedTuple):
    """What was held at one moment."""

    held: dict[str, Held]
    stamps: dict[str, tuple[int, int]]
    texts: dict[str, set[str]]


class Holding:
    """The loaded skills of one conversation."""

    def __init__(self, library: Library, *, points: bool = True) -> None:
        """Hold nothing yet.

        Args:
            library: Where the skills are from.
            points: Whether a text that is there already is only pointed at. Whoever is never told
                that it was trimmed away hands it over each time.
        """
        self._library = library
        self._trace = library.trace
        self._points = points
        self._lock = threading.RLock()
        self._held: dict[str, Held] = {}
        self._folders: dict[str, str] = {}
        self._stamps: dict[str, tuple[int, int]] = {}
        self._texts: dict[str, set[str]] = {}

    @property
    def all(self) -> Mapping[str, Held]:
        """By name, in the order in which they were loaded."""
        with self._lock:
            return dict(self._held)

    def folders(self) -> list[str]:
        """Where the loaded skills lie, the latest first."""
        with self._lock:
            found = [self._folders[name] for name in self._held if name in self._folders]
        return found[::-1]

    def mark(self) -> HoldingMark:
        """What is held now, to come back to."""
        with self._lock:
            texts = {name: set(known) for name, known in self._texts.items()}
            return HoldingMark(dict(self._held), dict(self._stamps), texts)

    def restore(self, mark: HoldingMark) -> None:
        """Hold what was held then: what came since is no part of the conversation."""
        with self._lock:
            for name, held in self._held.items():
                if name not in mark.held:
                    self._trace.record("forgotten", (name,), ref=held.ref, dropped=True)
            self._held, self._stamps = dict(mark.held), dict(mark.stamps)
            self._texts = {name: set(known) for name, known in mark.texts.items()}

    def grants(self) -> list[Grant]:
        """What they say about tools now."""
        return [
            Grant(one.name, one.allowed if one.present else (), one.disallowed)
            for one in self.all.values()
        ]

    def forget(self, names: Sequence[str]) -> None:
        """Their text is no longer there; of all of them when none is named."""
        with self._lock:
            for name in names or tuple(self._held):
                held = self._held.get(name)
                if held is None:
                    continue
                self._held[name] = held._replace(present=False, reminded=False)
                self._texts.pop(name, None)
                if held.present:
                    self._trace.record("forgotten", (name,), ref=held.ref)

    def drop(self, names: Sequence[str]) -> None:
        """They were never loaded, as far as rules go; all of them when none is named."""
        with self._lock:
            for name in names or tuple(self._held):
                held = self._held.pop(name, None)
                self._texts.pop(name, None)
                if held is not None:
                    self._trace.record("forgotten", (name,), ref=held.ref, dropped=True)

    def reminder(self, names: Sequence[str]) -> str:
        """The block that stands for them where their text went; for all when none is named."""
        held = [one for one in self.all.values() if not names or one.name in names]
        if not held:
            return ""
        rows = [
            f"<skill name={xml_value(clean(one.name))} digest={xml_value(one.digest)}>"
            f"{xml_text(clean(one.about))}</skill>"
            for one in held
        ]
        return "\n".join(("<skills-loaded-before>", _BEFORE, *rows, "</skills-loaded-before>"))

    def reminder_due(self) -> str:
        """The block for those whose text went and that nobody was reminded of since."""
        with self._lock:
            due = [one.name for one in self._held.values() if not one.present and not one.reminded]
            for name in due:
                self._held[name] = self._held[name]._replace(reminded=True)
        return self.reminder(due) if due else ""

    def keep(self, reply: Envelope) -> Envelope:
        """Remember what a call of Skill loaded; of what is there already, only say so.

        What it forbids is added to what it forbade before: loading again lifts nothing.

        Args:
            reply: What Skill answered.

        Raises:
            SatchelError: the skill went or changed this very moment.
        """
        data = reply.data
        name, content = str(data["name"]), str(data["content"])
        skill = self._library.snapshot().get(name)
        if skill is None:  # nobody knows any more what it forbids
            raise NotFound(
                f"The skill `{printable(name)}` went this very moment", "Go on without it"
            )
        document = self._library.seals.read(skill)
        digest, text = _digest_of(document), _digest(content)
        fields = document.fields
        forbidden = patterns_of(fields.get("disallowed-tools"), forbidding=True)
        if fields.get("disallowed-tools") and not forbidden:
            reason = "`disallowed-tools` names no tool: nothing is forbidden"
            self._trace.record("failed", (name,), what="disallowed-tools", reason=reason)
        held = Held(
            name,
            skill.ref,
            str(data["revision"]),
            digest,
            len(content),
            self._allowed(skill, fields),
            forbidden,
            one_line(skill.description, _ABOUT),
        )
        with self._lock:
            before = self._held.get(name)
            known = self._texts.setdefault(name, set())
            same = before is not None and before.present and before.digest == digest
            if before is not None:
                both = dict.fromkeys((*before.disallowed, *held.disallowed))
                held = held._replace(disallowed=tuple(both))
            if before is not None and same:
                # The same words grant no more than they did, whatever was trusted since.
                kept = tuple(one for one in held.allowed if one in before.allowed)
                held = held._replace(allowed=kept)
            again = same and text in known and self._points
            self._held[name] = held
            self._folders[name] = skill.base_dir
            self._stamps[name] = (skill.head.mtime_ns, skill.head.size)
            if again:
                touched = before is not None and before.revision != held.revision
                return self._pointer(reply, held, touched=touched)
            if not same:
                known.clear()
            known.add(text)
        if before is not None and before.digest != digest:
            note = f"The skill changed since it was loaded before; this is its text now ({digest})."
            return reply._replace(
                text=f"{note}\n{reply.text}", data={**data, "changed_since_loaded": True}
            )
        return reply

    def edited(self, look: Snapshot) -> list[str]:
        """Those whose text is there and is no longer the one on disk."""
        return [
            held.name for held in self.all.values() if held.present and self._is_edited(held, look)
        ]

    def _pointer(self, reply: Envelope, held: Held, *, touched: bool) -> Envelope:
        self._trace.record("repeated", (held.name,), ref=held.ref, digest=held.digest)
        text = (
            f"The skill `{printable(held.name)}` is already loaded and unchanged (revision "
            f"{held.revision}); its text is above."
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

    def _allowed(self, skill: Skill, fields: Mapping[str, Any]) -> tuple[str, ...]:
        """What a skill approves in advance; one from a server approves nothing."""
        found = patterns_of(fields.get("allowed-tools"))
        if found and skill.origin.remote:
            reason = "`allowed-tools` of a skill from a server"
            self._trace.record("refused", (skill.name,), tool=" ".join(found), reason=reason)
            return ()
        if any(too_wide(pattern) for pattern in found):
            reason = "`allowed-tools` has a pattern that names no tool"
            self._trace.record("refused", (skill.name,), tool="*", reason=reason)
        return tuple(pattern for pattern in found if not too_wide(pattern))

    def _is_edited(self, held: Held, look: Snapshot) -> bool:
        """Whether a skill has another text than the one that was loaded; a touch is no edit."""
        skill = look.get(held.name)
        if skill is None:
            return False
        stamp = (skill.head.mtime_ns, skill.head.size)
        if stamp == self._stamps.get(held.name):
            return False
        try:
            document = self._library.seals.read(skill)
        except SatchelError:
            return True
        if _digest_of(document) != held.digest:
            return True
        self._stamps[held.name] = stamp
        return False


def _digest_of(document: Document) -> str:
    """Of what the skill says, to the model and about tools: an edit of either is a change."""
    text = document.body.strip("\n")
    rules = [
        patterns_of(document.fields.get(key), forbidding=key[0] == "d")
        for key in ("allowed-tools", "disallowed-tools")
    ]
    return _digest(f"{text}\0{rules}" if any(rules) else text)


def _digest(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode("utf-8", "replace")).hexdigest()[:_SIGNS]
