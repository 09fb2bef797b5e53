"""The catalogue: a list of skills for the system prompt, within a budget.

    catalogue = build_catalogue(snapshot.skills, budget=12_000)
    catalogue.text       # for the prompt
    catalogue.account    # which skills are listed in full, truncated, by name, or not at all

Reading order: `catalogue` (entry points), `budget` (what fits), `render` (output forms and
quoting).
"""

from __future__ import annotations

from satchel.catalogue.budget import Account, Budget
from satchel.catalogue.catalogue import Catalogue, build_catalogue, fill_template, has_placeholder

__all__ = ["Account", "Budget", "Catalogue", "build_catalogue", "fill_template", "has_placeholder"]
