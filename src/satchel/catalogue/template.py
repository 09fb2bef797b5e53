"""How does the block get into a prompt that somebody else wrote?"""

from __future__ import annotations

import re
from typing import Protocol

_PLACE = re.compile(r"\{\{[ \t]*skills[ \t]*\}\}")


class HasText(Protocol):
    """A catalogue, as far as a template cares."""

    @property
    def text(self) -> str:
        """The block."""
        ...


def fill_template(template: str, catalogue: HasText) -> str:
    """Put the block wherever the template says `{{skills}}` or `{{ skills }}`.

    The template is read once, from left to right. What a skill's own text has in braces is never
    looked at, so a description cannot reach other places of a prompt. Other `{{names}}` stay.
    """
    block = catalogue.text
    return _PLACE.sub(lambda _: block, template)
