"""WHAT THE MODEL IS TOLD: a block of text about the skills, within a budget, and an account of it.

    catalogue = build_catalogue(snapshot.skills, budget=12_000)
    catalogue.text       # for the prompt
    catalogue.account    # who is listed in full, shortened, by name, and not at all

Reading order: `build` (the way through), `choose` (who gets how much), `render` (the forms, and why
a description cannot break out).
"""

from __future__ import annotations

from satchel.catalogue.build import Catalogue, build_catalogue, fill_template, has_place
from satchel.catalogue.choose import Account, Budget

__all__ = ["Account", "Budget", "Catalogue", "build_catalogue", "fill_template", "has_place"]
