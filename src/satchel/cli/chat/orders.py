"""What may a person order in a chat? Everything that begins with `/` and is no skill."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from satchel._language import listed, say
from satchel.cli.chat.telling import told_report
from satchel.cli.output import cut, one_line, pad, width_of, wrap
from satchel.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.agent import Agent
    from satchel.cli.chat.telling import Sum
    from satchel.cli.output import Screen
    from satchel.cli.session import Session
    from satchel.errors import SatchelError

_ORDER = re.compile(r"/([\w:.-]+)(?:\s+(.*))?\Z", re.DOTALL).match
"""`/etc/hosts` is a path and no order."""


_LEAST = 20
_SHOWN = {"why": "/why NAME", "model": "/model [NAME]"}


class Chat(Protocol):
    """What orders are about: a conversation at a terminal."""

    terminal: Session
    out: Screen
    model: str
    sum: Sum
    last: str
    by_hand: list[str]

    @property
    def agent(self) -> Agent:
        """Who answers."""
        ...

    def skills(self) -> dict[str, str]:
        """The skills that a person may load, and what they are for."""
        ...

    def tools(self) -> dict[str, str]:
        """The tool skills, which models call, and what they are for."""
        ...

    def changed(self, most: int | None = None) -> list[str]:
        """The skills that are not any more what was approved."""
        ...

    def broken(self) -> list[str]:
        """What should be a skill and cannot be read as one."""
        ...

    def take_model(self, name: str) -> None:
        """Let another model carry the conversation on."""
        ...


class Leave(Exception):
    """The chat is over."""


def read_order(text: str) -> tuple[str, str] | None:
    """Name and rest of `/name rest`; None when it is a message."""
    found = _ORDER(text.strip()) if text.startswith("/") else None
    return (found[1], (found[2] or "").strip()) if found else None


def meanings() -> dict[str, str]:
    """What each order does, in the order of the help."""
    return {
        "help": say("show this"),
        "skills": say("the skills that are offered here"),
        "tools": say("the tools that models may call"),
        "why": say("how a skill did for your last message, and its whole story"),
        "loaded": say("the skills whose text is in this conversation"),
        "cost": say("what this chat took so far"),
        "model": say("who answers; with a name: who answers from now on"),
        "reset": say("begin a new conversation"),
        "refresh": say("tell the model of changed skills at once"),
        "quit": say("end the chat, as Ctrl-D does"),
    }


def obey(chat: Chat, name: str, rest: str) -> None:
    """Do what was ordered.

    Raises:
        Leave: the person goes.
        SatchelError: it cannot be done.
    """
    _DO[name](chat, rest)


def _help(chat: Chat, _rest: str) -> None:
    out = chat.out
    rows = [
        *((_SHOWN.get(name, f"/{name}"), text) for name, text in meanings().items()),
        (say("/SKILL words"), say("load a skill yourself, and say what it is for")),
        (say("$SKILL"), say("name a skill within a message")),
        ("Alt-Enter", say("another line; so does a backslash at the end of one")),
        ("Ctrl-C", say("stop the answer, and stay")),
    ]
    width = max(width_of(first) for first, _ in rows)
    room = max(out.width - width - 4, _LEAST) if out.width else 0
    for first, text in rows:
        lines = ("\n" + " " * (width + 4)).join(wrap(text, room))
        out.write(f"  {out.paint(pad(first, width + 2), 'cyan')}{lines}\n")


def _skills(chat: Chat, _rest: str) -> None:
    loaded = chat.agent.session.loaded
    skills, tools, changed = chat.skills(), chat.tools(), chat.changed()
    known = {**dict.fromkeys(changed, ""), **tools, **skills}
    cells: list[tuple[str, ...]] = []
    styles: list[tuple[str, ...]] = []
    for name, about in known.items():
        mark, colour = ("◆", "cyan") if name in loaded else ("●", "green")
        note = say("tool") if name in tools else ""
        if name in changed:
            mark, colour, note = "○", "yellow", say("changed: `satchel trust {name}`", name=name)
        words = one_line(say("{note}: {text}", note=note, text=about) if note and about else about)
        cells.append((mark, one_line(name), words or one_line(note)))
        styles.append((colour, "bold", ""))
    for name in chat.broken():
        cells.append(("✗", one_line(name), say("broken: `satchel doctor`")))
        styles.append(("red", "bold", ""))
    if not cells:
        chat.out.line(say("No skills are offered here: `satchel init` writes a first one"), "dim")
        return
    chat.out.table(("", say("name"), say("description")), cells, styles)
    if any(row[0] == "◆" for row in cells):
        chat.out.line(say("◆ loaded in this conversation"), "dim")


def _tools(chat: Chat, _rest: str) -> None:
    found = chat.terminal.satchel.library.tools().tools
    if not found:
        chat.out.line(say("No tool skills are offered here"), "dim")
        return
    cells = [
        (one_line(name), one_line(source.skill.name), one_line(tool.description))
        for name, (source, tool) in found.items()
    ]
    head = (say("tool"), say("skill"), say("description"))
    chat.out.table(head, cells, [("bold", "", "") for _ in cells])


def _why(chat: Chat, rest: str) -> None:
    from satchel.cli.explaining import tell_story
    from satchel.cli.placing import find_standing

    if not rest:
        raise InvalidInput(say("`/why` needs the name of a skill"), say("Try `/skills`"))
    story = chat.terminal.satchel.why(rest)
    standing = None
    if story.facts["found"] and chat.last:
        standing = find_standing(chat.terminal, chat.terminal.find(rest)[0], chat.last)
    tell_story(chat.terminal, story, standing)


def _loaded(chat: Chat, _rest: str) -> None:
    held = list(chat.agent.session.loaded.values())
    if not held:
        chat.out.line(say("No skill is loaded in this conversation"), "dim")
        return
    rows: list[tuple[str, ...]] = []
    for one in held:
        notes = [say("{count} characters", count=f"{one.characters:,}")]
        if one.allowed:
            notes.append(say("allows {tools}", tools=listed(one.allowed)))
        if one.disallowed:
            notes.append(say("forbids {tools}", tools=listed(one.disallowed)))
        if not one.present:
            notes.append(say("its text was trimmed away"))
        rows.append(("◆", one_line(one.name), one.digest, one_line(say(", ").join(notes))))
    head = ("", say("name"), say("digest"), say("what it holds"))
    chat.out.table(head, rows, [("cyan", "bold", "dim", "") for _ in rows])


def _cost(chat: Chat, _rest: str) -> None:
    for line in told_report(chat.sum.total, chat.by_hand, chat.sum.uncounted):
        chat.out.line(line)


def _model(chat: Chat, rest: str) -> None:
    if rest:
        chat.take_model(rest)
    chat.out.line(say("{name} answers", name=one_line(chat.model)))


def _reset(chat: Chat, _rest: str) -> None:
    chat.agent.reset()
    chat.last = ""
    chat.out.line(say("A new conversation begins; nothing is loaded"), "dim")


def _refresh(chat: Chat, _rest: str) -> None:
    chat.terminal.satchel.refresh()
    changed = chat.agent.session.rebuild()
    count = len(chat.skills())
    text = (
        say("The next request tells the skills as they are now: {count}", count=count)
        if changed
        else say("Nothing changed: {count} skills", count=count)
    )
    chat.out.line(text, "dim")


def _quit(_chat: Chat, _rest: str) -> None:
    raise Leave


_DO: dict[str, Callable[[Chat, str], None]] = {
    "help": _help,
    "skills": _skills,
    "tools": _tools,
    "why": _why,
    "loaded": _loaded,
    "cost": _cost,
    "model": _model,
    "reset": _reset,
    "refresh": _refresh,
    "quit": _quit,
    "exit": _quit,
}
ORDERS = frozenset(_DO)


def unknown(chat: Chat, name: str, rest: str) -> SatchelError:
    """What to say about an order that nobody knows."""
    import difflib

    known = [*_DO, *chat.skills(), *chat.tools()]
    begun = [one for one in known if one.startswith(name)]
    near = (begun or difflib.get_close_matches(name, known, n=2, cutoff=0.6))[:3]
    hint = (
        say("Did you mean {names}?", names=listed(f"`/{one}`" for one in near))
        if near
        else say("`/help` shows the orders; a space before it sends `{text}` as it is",
                 text=cut(one_line(f"/{name} {rest}".strip()), 40))
    )  # fmt: skip
    return NotFound(say("There is no order and no skill `/{name}`", name=one_line(name)), hint)
