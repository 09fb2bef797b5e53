"""What is the model told at a budget? Who is listed, shortened, named, left out, withheld.

The time depends on the budget, not on the number of skills: it is asked while a slider moves.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

from satchel._language import render, say
from satchel.catalogue import Budget
from satchel.errors import InvalidInput
from satchel.settings import SETTINGS
from satchel.tools.frame import printable
from satchel.ui.views.shelf import waiting_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.catalogue import Account
    from satchel.facade import Satchel
    from satchel.library import Snapshot
    from satchel.settings import Form

SHOWN = 200
"""Names of each part that are shown."""
LEAST = 500
MOST = 40_000
"""Characters at both ends of the slider; a setting that is larger moves the upper one."""
ROOM = 10_000_000
"""What a number may be at most: a block of that size is for nobody."""
FORMS: tuple[str, ...] = next(one.choices for one in SETTINGS if one.name == "form") or ()
UNITS = ("characters", "tokens")
LONGEST_GOAL = 4_000
_TOKEN = 4
"""Characters of a token, as `Budget` counts plain English."""
PARTS = ("full", "shortened", "named", "unlisted", "withheld")


class Name(NamedTuple):
    """A skill in a list."""

    name: str
    ref: str


class Slice(NamedTuple):
    """One of the five parts."""

    key: str
    title: str
    about: str
    size: int
    """How many skills."""
    names: tuple[Name, ...]
    more: int
    start: float
    """Where its piece of the bar begins, from 0 to 1,000."""
    width: float


class Scale(NamedTuple):
    """The slider."""

    unit: str
    least: int
    most: int
    step: int
    value: int
    setting: int
    """The budget that agents get now, in characters."""


class Shown(NamedTuple):
    """The catalogue at one budget."""

    scale: Scale
    form: str
    text: str
    size: int
    """Characters of the text."""
    summary: str
    """The account in one sentence."""
    slices: tuple[Slice, ...]
    total: int
    used: int
    over: bool
    """Not even the intro fits: the block says one line, or nothing."""
    line: str
    """What to write into `satchel.toml` for this budget."""
    same: bool
    """It is the budget that is set."""
    pinned: tuple[str, ...]
    """Names that were to be pinned and that no skill has."""
    waiting: int = 0
    """Skills that are not trusted, and so are not counted."""


class Beside(NamedTuple):
    """What would be said beside one request."""

    goal: str
    text: str
    names: tuple[Name, ...]
    explored: str
    """Who is there because it was never used."""
    words: str
    """Why there is nothing, or who had no room."""
    notes: tuple[str, ...]


def read_amount(text: str) -> int | None:
    """A budget as somebody wrote it; None when the field is empty.

    Raises:
        InvalidInput: it is no whole number, or below zero.
    """
    plain = text.strip().replace(",", "").replace("_", "")
    if not plain:
        return None
    if not (plain.isascii() and plain.isdigit()):
        raise InvalidInput(
            say(
                "A budget is a whole number and not below zero, and `{text}` is none",
                text=printable(text),
            ),
            say("Write 12000"),
        )
    return int(plain)


def show_catalogue(
    satchel: Satchel, *, amount: int | None = None, unit: str = "characters", form: str = ""
) -> Shown:
    """The catalogue at a budget. Nothing is recorded as offered.

    Args:
        satchel: Whose skills.
        amount: The budget; the setting when None.
        unit: `characters` or `tokens`.
        form: How it is written; the setting when empty.

    Raises:
        InvalidInput: the budget, the unit or the form makes no sense.
    """
    if unit not in UNITS:
        raise InvalidInput(
            say("A budget is counted in characters or tokens"), say("Take one of them")
        )
    chosen = form or satchel.settings.form
    if chosen not in FORMS:
        raise InvalidInput(
            say("There is no form `{form}`", form=printable(chosen[:40])),
            say("Use one of {names}", names=", ".join(f"`{name}`" for name in FORMS)),
        )
    scale = _scale(satchel.settings.budget, amount, unit)
    budget = Budget(scale.value, "tokens") if unit == "tokens" else scale.value
    # As it was seen last: a look at the disk at every move would make the slider stick.
    look = satchel.library.snapshot()
    made = satchel.preview(budget, cast("Form", chosen), look=look)
    account = made.account
    listed = len(account.full) + len(account.shortened) + len(account.named)
    return Shown(
        scale,
        chosen,
        made.text,
        len(made.text),
        account.summary(),
        tuple(_slices(account, look)),
        account.total,
        account.used,
        account.total > len(account.withheld) and not listed,
        _line(scale, len(made.text)),
        unit == "characters" and scale.value == scale.setting,
        tuple(printable(name) for name in account.unknown_pins),
        waiting_in(satchel, look),
    )


def _scale(setting: int, amount: int | None, unit: str) -> Scale:
    ratio = _TOKEN if unit == "tokens" else 1
    value = setting // ratio if amount is None else amount
    if not 0 <= value <= ROOM:
        raise InvalidInput(
            say("A budget lies between 0 and {most}", most=ROOM), say("Take another one")
        )
    most = max(MOST, setting * 4) // ratio
    return Scale(unit, LEAST // ratio, most, 100 // ratio, value, setting)


def _line(scale: Scale, size: int) -> str:
    """The setting counts characters: what was chosen in tokens is the size that it came to."""
    amount = scale.value if scale.unit == "characters" else max(scale.value * _TOKEN, size)
    return f"budget = {amount}"


def _slices(account: Account, look: Snapshot) -> Iterator[Slice]:
    names: dict[str, Iterable[str]] = {
        "full": account.full,
        "shortened": account.shortened,
        "named": account.named,
        "withheld": account.withheld,
    }
    counts = {key: len(cast("tuple[str, ...]", value)) for key, value in names.items()}
    counts["unlisted"] = account.unlisted
    listed = frozenset((*account.full, *account.shortened, *account.named))
    names["unlisted"] = _left_out(look, listed) if account.unlisted else ()
    start = 0.0
    for key in PARTS:
        count = counts[key]
        width = round(1_000 * count / account.total, 2) if account.total else 0.0
        title, about = _words(key)
        shown = tuple(_named(name, look) for name in islice(names[key], SHOWN))
        yield Slice(key, title, about, count, shown, count - len(shown), round(start, 2), width)
        start += width


def _left_out(look: Snapshot, listed: frozenset[str]) -> Iterator[str]:
    """Names of those that are not listed, in order; whoever takes a few looks at a few."""
    for skill in look.for_model:
        if skill.head.name not in listed:
            yield skill.head.name


def _named(name: str, look: Snapshot) -> Name:
    skill = look.get(name)
    return Name(printable(name), skill.ref if skill is not None else "")


def _words(key: str) -> tuple[str, str]:
    return {
        "full": (say("In full"), say("with their whole description")),
        "shortened": (say("Shortened"), say("with the first part of their description")),
        "named": (say("By name"), say("there is room for their names only")),
        "unlisted": (say("Left out"), say("counted; the model finds them by a search")),
        "withheld": (say("Withheld"), say("their authors keep them from models")),
    }[key]


def show_shortlist(satchel: Satchel, goal: str, form: str = "") -> Beside:
    """The block that would be put behind one request. Nothing is recorded.

    Raises:
        InvalidInput: the request is too long, or there is no such form.
    """
    if len(goal) > LONGEST_GOAL:
        raise InvalidInput(
            say("The request has more than {most} characters", most=LONGEST_GOAL),
            say("Write less"),
        )
    if form and form not in FORMS:
        raise InvalidInput(
            say("There is no form `{form}`", form=printable(form[:40])),
            say("Use one of {names}", names=", ".join(f"`{name}`" for name in FORMS)),
        )
    made = satchel.shortlist(goal, cast("Form | None", form or None), record=False)
    look = satchel.library.snapshot()
    notes = made.answer.notes if made.answer is not None else ()
    return Beside(
        printable(goal),
        made.text,
        tuple(_named(name, look) for name in made.listed),
        printable(made.explored),
        printable(render(made.reason)) if made.reason else "",
        tuple(printable(render(note)) for note in notes if note not in made.reason),
    )
