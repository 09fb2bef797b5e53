"""Records of the catalogue at a given budget.

The cost depends on the budget, not on the number of skills: a slider calls this on every move.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.presentation.skill_index import count_untrusted
from satchel.presentation.skills import listing_words
from satchel.settings import SETTINGS
from satchel.tools.framing import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.catalogue import Account
    from satchel.library import Snapshot
    from satchel.satchel import Satchel
    from satchel.settings import Form

MAX_NAMES_SHOWN = 200
MIN_SLIDER_CHARS = 500
MAX_SLIDER_CHARS = 40_000
MAX_BUDGET_CHARS = 10_000_000
FORMS: tuple[str, ...] = (
    next(setting.choices for setting in SETTINGS if setting.name == "form") or ()
)
PARTS = ("full", "shortened", "named", "unlisted", "withheld")


class ListedName(NamedTuple):
    """A skill in a list."""

    name: str
    ref: str


class CataloguePart(NamedTuple):
    """One of the five parts of the catalogue, in `PARTS`."""

    key: str
    title: str
    size: int
    names: tuple[ListedName, ...]
    hidden_count: int
    start: float
    """Start of its segment of the bar, from 0 to 1,000."""
    width: float


class BudgetScale(NamedTuple):
    """The budget slider, in characters."""

    minimum: int
    maximum: int
    step: int
    value: int
    setting: int


class CatalogueShown(NamedTuple):
    """The catalogue at one budget."""

    scale: BudgetScale
    form: str
    text: str
    size: int
    summary: str
    slices: tuple[CataloguePart, ...]
    total: int
    over: bool
    """Not even the introduction fits the budget."""
    line: str
    """The line for `satchel.toml` that sets this budget."""
    same: bool
    """It is the configured budget."""
    pinned: tuple[str, ...]
    """Pinned names that no skill has."""
    waiting: int = 0
    """Untrusted skills, which are not counted."""


def read_amount(text: str) -> int | None:
    """Parse a budget; None when the text is empty.

    Raises:
        InvalidInput: it is not a whole number, or negative.
    """
    plain = text.strip().replace(",", "").replace("_", "")
    if not plain:
        return None
    if not (plain.isascii() and plain.isdigit()):
        raise InvalidInput(
            say("`{name}` is not valid", name=printable(text)), say("Choose another")
        )
    return int(plain)


def show_catalogue(
    satchel: Satchel, *, amount: int | None = None, form: str = ""
) -> CatalogueShown:
    """Return the catalogue at a budget. Nothing is recorded as offered.

    Args:
        satchel: The project's skills.
        amount: The budget; None for the configured one.
        form: The format; empty for the configured one.

    Raises:
        InvalidInput: the budget or the form is invalid.
    """
    chosen_form = form or satchel.settings.form
    if chosen_form not in FORMS:
        raise InvalidInput(
            say("`{name}` is not valid", name=printable(chosen_form[:40])), say("Choose another")
        )
    scale = _scale(satchel.settings.budget, amount)
    # The cached snapshot: scanning the disk on every move would make the slider stick.
    look = satchel.library.snapshot()
    preview = satchel.preview(scale.value, cast("Form", chosen_form), snapshot=look)
    account = preview.account
    listed = len(account.full) + len(account.shortened) + len(account.named)
    return CatalogueShown(
        scale=scale,
        form=chosen_form,
        text=preview.text,
        size=len(preview.text),
        summary=say(
            "{used} of {budget} characters", used=f"{account.used:,}", budget=f"{account.budget:,}"
        ),
        slices=tuple(_slices(account, look)),
        total=account.total,
        over=account.total > len(account.withheld) and not listed,
        line=f"budget = {scale.value}",
        same=scale.value == scale.setting,
        pinned=tuple(printable(name) for name in account.unknown_pins),
        waiting=count_untrusted(satchel, look),
    )


def _scale(setting: int, amount: int | None) -> BudgetScale:
    value = setting if amount is None else amount
    if not 0 <= value <= MAX_BUDGET_CHARS:
        raise InvalidInput(say("`{name}` is not valid", name=value), say("Choose another"))
    maximum = max(MAX_SLIDER_CHARS, setting * 4)
    return BudgetScale(MIN_SLIDER_CHARS, maximum, 100, value, setting)


def _slices(account: Account, look: Snapshot) -> Iterator[CataloguePart]:
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
        part_names = tuple(_named(name, look) for name in islice(names[key], MAX_NAMES_SHOWN))
        yield CataloguePart(
            key=key,
            title=listing_words(key),
            size=count,
            names=part_names,
            hidden_count=count - len(part_names),
            start=round(start, 2),
            width=width,
        )
        start += width


def _left_out(look: Snapshot, listed: frozenset[str]) -> Iterator[str]:
    for skill in look.for_model:
        if skill.head.name not in listed:
            yield skill.head.name


def _named(name: str, look: Snapshot) -> ListedName:
    skill = look.get(name)
    return ListedName(printable(name), skill.ref if skill is not None else "")
