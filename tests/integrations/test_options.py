"""Options of adapters are checked when the adapter is made, and by type checkers."""

from __future__ import annotations

import pytest

from satchel.errors import InvalidInput
from satchel.integrations.pydantic_ai import SkillsCapability


def test_a_wrong_option_is_refused_when_the_adapter_is_made(satchel):
    with pytest.raises(TypeError, match="aprove"):
        SkillsCapability(satchel, aprove=True)  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidInput, match="belong to new sessions"):
        SkillsCapability(satchel.session(), approve=True)
    with pytest.raises(TypeError, match="includes"):
        SkillsCapability(satchel).child(includes=["a"])  # pyright: ignore[reportCallIssue]
