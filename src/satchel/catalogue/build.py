"""From skills to the text that a model is told: the catalogue, and the account of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.catalogue.budget import Account, Budget
from satchel.catalogue.choose import Chooser
from satchel.catalogue.render import FORMS, short_note
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.settings import Form
    from satchel.skill.model import Skill

DEFAULT_BUDGET = 12_000
_PLACE = re.compile(r"\{\{[ \t]*skills[ \t]*\}\}")


class Catalogue(NamedTuple):
    """The block for the prompt. `str()` of it is its text."""

    text: str
    account: Account
    digest: str
    """Names the text in traces: 16 hexadecimal digits."""

    def __str__(self) -> str:
        return self.text


def build_catalogue(
    skills: Sequence[Skill],
    *,
    budget: int | Budget = DEFAULT_BUDGET,
    form: Form = "xml",
    pin: Sequence[str] = (),
    withheld: Sequence[str] | None = None,
    get: Callable[[str], Skill | None] | None = None,
) -> Catalogue:
    """Write the block: usage, rules, the list, and what is not in it.

    The same arguments give the same bytes in every process: nothing depends on the time, on usage,
    on the language or on the order of a set. Without skills the text is empty. Where the rules take
    more than half of a budget and names would be left out for them, the rules go first; a budget
    too small for names gets one line, one too small for that nothing. The account says so.

    The time depends on the budget, not on the number of skills, but for one quick pass that finds
    the withheld and the pinned ones. Who already knows them passes `withheld` and `get`, and then
    the pass is not made.

    Args:
        skills: What may be listed, in this order.
        budget: Characters, or a `Budget`. The whole text stays within it.
        form: How it is written.
        pin: Names that come first and in full, as far as they fit.
        withheld: The names of those of `skills` that are not for models.
        get: Finds one of `skills` by its name; names must be unique then.

    Raises:
        InvalidInput: the budget or the form makes no sense.
    """
    scale = (Budget(budget) if isinstance(budget, int) else budget).checked()
    if form not in FORMS:
        raise InvalidInput(
            f"There is no form `{form}`", "Use one of " + ", ".join(f"`{name}`" for name in FORMS)
        )
    if withheld is None:
        withheld = [skill.name for skill in skills if skill.head.extra and not skill.for_model]
    pinned = _find_pinned(skills, pin, get)
    known = {skill.head.name for skill in pinned}
    account = Account(
        budget=scale.amount,
        used=0,
        total=len(skills),
        withheld=tuple(withheld),
        unit=scale.unit,
        unknown_pins=tuple(name for name in dict.fromkeys(pin) if name not in known),
    )
    offered = len(skills) - len(withheld)
    if offered <= 0:
        return _finish("", account)
    writer = FORMS[form]()
    choice = Chooser(skills, pinned, offered, writer, scale).choose()
    if (choice is None or choice.unlisted) and 2 * scale.weigh(writer.head) > scale.room:
        # Names are worth more than rules where there is no room for both.
        writer = FORMS[form](rules=False)
        choice = Chooser(skills, pinned, offered, writer, scale).choose()
        account = account._replace(rules=False)
    if choice is None or not (choice.entries or choice.names):
        text = writer.brief(short_note(offered))
        text = text if scale.weigh(text) <= scale.room else ""
        return _finish(text, account._replace(unlisted=offered, used=scale.measure(text)))
    text = writer.join(choice.entries, choice.names, choice.note)
    return _finish(
        text,
        account._replace(
            used=scale.measure(text),
            full=choice.full,
            shortened=choice.shortened,
            named=choice.named,
            unlisted=choice.unlisted,
        ),
    )


def entry_of(
    skill: Skill, *, budget: int | Budget = DEFAULT_BUDGET, form: Form = "xml"
) -> tuple[str, str]:
    """How one skill is listed when there is room: its entry, and `full`, `shortened` or `named`.

    Both are empty when it cannot be listed at all.
    """
    scale = (Budget(budget) if isinstance(budget, int) else budget).checked()
    choice = Chooser([skill], [], 1, FORMS[form](), scale).choose()
    if choice is None:
        return "", ""
    if choice.entries:
        return choice.entries[0], "full" if choice.full else "shortened"
    return (choice.names[0], "named") if choice.names else ("", "")


def _find_pinned(
    skills: Sequence[Skill], pin: Sequence[str], get: Callable[[str], Skill | None] | None
) -> list[Skill]:
    """The pinned skills in the order of `pin`; what an author withholds cannot be pinned."""
    if not pin:
        return []
    order = {name: place for place, name in enumerate(dict.fromkeys(pin))}
    if get is None:
        found = [skill for skill in skills if skill.head.name in order]
        found.sort(key=lambda skill: order[skill.head.name])
    else:
        found = [skill for skill in map(get, order) if skill is not None]
    return [skill for skill in found if skill.for_model]


def _finish(text: str, account: Account) -> Catalogue:
    from hashlib import blake2b

    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return Catalogue(text, account, digest)


def has_place(template: str) -> bool:
    """Whether a template says `{{skills}}`."""
    return _PLACE.search(template) is not None


def fill_template(template: str, catalogue: Catalogue) -> str:
    """Put the block wherever the template says `{{skills}}` or `{{ skills }}`.

    The template is read once, from left to right. What a skill's own text has in braces is never
    looked at, so a description cannot reach other places of a prompt. Other `{{names}}` stay.
    """
    return _PLACE.sub(lambda _: catalogue.text, template)
