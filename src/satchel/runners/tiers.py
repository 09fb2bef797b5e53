"""Selects the sandbox tier of this machine.

    bwrap      namespaces and seccomp: what is not mounted does not exist
    landlock   Landlock and seccomp: what is not granted cannot be opened
    none       an ordinary process, only where the user's settings permit it

`choose_tier` selects one that passes `selfcheck`; `sandbox` builds the launch of one program.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from satchel.errors import Unsandboxed
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.runners.base import Tier
    from satchel.runners.selfcheck import TierState
    from satchel.settings import Settings

__all__ = ["TIERS", "choose_tier"]

TIERS: tuple[Tier, ...] = ("bwrap", "landlock")
"""The strongest first."""


def choose_tier(
    settings: Settings, *, own: bool = False, ask: Callable[[Tier], TierState] | None = None
) -> Tier:
    """The tier for a program.

    Raises:
        Unsandboxed: no tier works, and the settings do not permit to run without.
    """
    if settings.sandbox == "off":
        return "none"
    if ask is None:
        from satchel.runners.selfcheck import probe as ask
    wanted = TIERS if settings.sandbox_tier == "auto" else (settings.sandbox_tier,)
    reasons: list[str] = []
    for tier in wanted:
        state = ask(tier)
        if state.holds:
            return tier
        reasons.append(f"{tier}: {state.why}")
    if settings.sandbox == "own" and own:
        return "none"
    raise Unsandboxed(
        say("There is no sandbox here to run a program in ({reasons})", reasons="; ".join(reasons)),
        say(
            "Install bubblewrap, or run `satchel sandbox check` to see what is missing; "
            "`SATCHEL_SANDBOX=own` runs your own skills without one"
        )
        if sys.platform == "linux"
        else say(
            "Programs of tool skills need Linux; `SATCHEL_SANDBOX=own` runs your own skills "
            "without a sandbox"
        ),
    )
