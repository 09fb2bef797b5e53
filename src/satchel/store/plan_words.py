"""What a plan says of a skill, in words: the same in the terminal and in the browser."""

from __future__ import annotations

from satchel._language import say


def verdict_words(verdict: str) -> str:
    """A verdict in the reader's language."""
    return {
        "blocked": say("blocked"),
        "review": say("review"),
        "incomplete": say("incomplete"),
        "no findings": say("no findings"),
    }[verdict]


def power_words(word: str) -> str:
    """What a program asks for, in words."""
    kind, _, name = word.partition(": ")
    if kind == "secret":
        return say("get the secret `{name}`", name=name)
    return {
        "network": say("use the network"),
        "files: read": say("read the project's files"),
        "files: write": say("read and change the project's files"),
    }.get(word, word)
