"""WHAT MODELS ARE TOLD, SAID TO PEOPLE: in the reader's language, with a step that people can take.

retell.py   one sentence said again; terminals and browsers ask here
calls.py    the sentences of tools and of programs
goals.py    the sentences of goals and steps
"""

from __future__ import annotations

from satchel.retelling.retell import SENTENCES, retell, retell_reason

__all__ = ["SENTENCES", "retell", "retell_reason"]
