"""Which way to hold a program is there on this machine?

    bwrap      namespaces and seccomp: what is not named does not exist
    landlock   Landlock and seccomp: what is not named cannot be opened
    none       an ordinary process, and only where the user's settings agree

`choose` says which, after programs have tried to get out (`selfcheck`); `dress` writes down what
one program gets.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import Unsandboxed
from satchel.runners.dressing import dress

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.runners.base import Tier
    from satchel.runners.selfcheck import Standing
    from satchel.settings import Settings

__all__ = ["TIERS", "choose", "dress"]

TIERS: tuple[Tier, ...] = ("bwrap", "landlock")
"""The strongest first."""


def choose(
    settings: Settings, *, own: bool = False, ask: Callable[[Tier], Standing] | None = None
) -> Tier:
    """How programs are held here.

    Args:
        settings: `sandbox` and `sandbox_tier` decide.
        own: Whether the skill is the user's own.
        ask: Says whether a tier holds; by default it is tried once per process.

    Raises:
        Unsandboxed: no tier holds, and the settings do not agree to go without.
    """
    if settings.sandbox == "off":
        return "none"
    if ask is None:
        from satchel.runners.selfcheck import probe as ask
    wanted = TIERS if settings.sandbox_tier == "auto" else (settings.sandbox_tier,)
    reasons: list[str] = []
    for tier in wanted:
        standing = ask(tier)
        if standing.holds:
            return tier
        reasons.append(f"{tier}: {standing.why}")
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
