"""An agent that reads Hacker News and reports in Chinese what is new.

Reading order:

    explorer      the whole: skills, tools, sub-agents and limits put together
    prompts       what the agent and its sub-agents are told
    tools         what they may do
    hacker_news   what is on Hacker News
    pages         what a page says
    fetching      how something is fetched: with patience, and never too much of it
    seen          what was there last time
    reports       where a report goes
    finishing     how `finish_exploration` ends a run

What to look for in a story, how to write and what counts as news stands in `.skills/`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from news_explorer.explorer import Options, Outcome, explore

__all__ = ["Options", "Outcome", "explore"]


def __getattr__(name: str) -> Any:
    # Not at the top: `__main__` says what to install where something is missing.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from news_explorer import explorer

    return getattr(explorer, name)
