"""How does a person type? Lines with history, completion of skills, and room for more lines."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from satchel._language import say
from satchel.cli.chat.keys import forget_keys
from satchel.cli.output import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent

_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "placeholder": "ansibrightblack",
        "completion-menu.completion": "noreverse bg:default fg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "noreverse bg:default fg:ansibrightblack",
        "completion-menu.meta.completion.current": "noreverse bg:default fg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:ansibrightblack",
    }
)
_ABOUT = 60
"""Columns of a description beside a name."""
_HISTORY = "chat-history"


class Names(Completer):
    """Completes `/name` at the beginning, and `$name` anywhere."""

    def __init__(
        self,
        orders: Mapping[str, str],
        skills: Callable[[], Mapping[str, str]],
        tools: Callable[[], Mapping[str, str]],
    ) -> None:
        """Know the names.

        Args:
            orders: What begins with `/` and is no skill -> what it does.
            skills: Gives the offered skills -> what they are for.
            tools: Gives the tool skills, which only models call.
        """
        self._tools = tools
        self._orders = orders
        self._skills = skills

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The names that begin like the word before the cursor."""
        del complete_event
        before = document.text_before_cursor
        word = before.split()[-1] if before and not before[-1].isspace() else ""
        if word.startswith("/") and before.lstrip() == word:
            tools = dict.fromkeys(self._tools(), say("a tool skill: models call it"))
            known = {**tools, **self._skills(), **self._orders}
        elif word.startswith("$"):
            known = dict(self._skills())
        else:
            return
        for name, about in sorted(known.items()):
            if name.startswith(word[1:]):
                yield Completion(
                    word[0] + name,
                    start_position=-len(word),
                    display_meta=cut(one_line(about), _ABOUT),
                )


class Prompter:
    """Asks the person at the terminal."""

    def __init__(self, state: str, completer: Completer, *, colour: bool) -> None:
        """Be ready.

        Args:
            state: The folder for the history; empty keeps none.
            completer: What is offered while one types.
            colour: Whether colours are wanted.
        """
        depth = None if colour else ColorDepth.DEPTH_1_BIT
        self._lines: PromptSession[str] = PromptSession(
            history=_history(state),
            completer=completer,
            complete_while_typing=True,
            multiline=True,
            key_bindings=_keys(),
            style=_STYLE,
            color_depth=depth,
            prompt_continuation="  ",
            reserve_space_for_menu=6,
        )
        self._answers: PromptSession[str] = PromptSession(style=_STYLE, color_depth=depth)
        self._asked = False

    async def message(self, again: str = "") -> str:
        """What the person says.

        Args:
            again: What stands there already, to be sent once more or changed.

        Raises:
            EOFError: the person leaves.
            KeyboardInterrupt: the person gave up the line.
        """
        hint = "" if self._asked else say("Ask for something; /help shows more")
        self._asked = True
        return await self._lines.prompt_async(
            FormattedText([("class:prompt", "> ")]),
            placeholder=FormattedText([("class:placeholder", hint)]),
            default=again,
        )

    async def answer(self, question: str) -> str:
        """The answer to a short question.

        Raises:
            EOFError: there is none.
            KeyboardInterrupt: the person wants none of it.
        """
        forget_keys()
        clear_typeahead(self._answers.input)
        return await self._answers.prompt_async(question)


def _history(state: str) -> History:
    """Lines of earlier chats; only their owner may read them."""
    if not state:
        return InMemoryHistory()
    path = os.path.join(state, _HISTORY)
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _keys() -> KeyBindings:
    """Enter sends; Alt-Enter, or a backslash at the end, begins another line; Tab completes."""
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        with suppress(EOFError):
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def more(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("tab")
    def complete(event: KeyPressEvent) -> None:
        """The first name, then the next: also when Tab comes before the menu does."""
        buffer = event.current_buffer
        if not (buffer.complete_state and buffer.complete_state.completions):
            asked = CompleteEvent(completion_requested=True)
            names = list(buffer.completer.get_completions(buffer.document, asked))
            if not names:
                return
            buffer.complete_state = CompletionState(buffer.document, names)
        buffer.complete_next()

    return keys
