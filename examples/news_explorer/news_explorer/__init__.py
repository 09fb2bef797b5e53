"""An agent that reads Hacker News and reports in Chinese what is new.

Reading order:

    explorer      builds the agent and runs it
    prompts       instructions of the agent and its sub-agents
    tools         the tools of the model
    hacker_news   the client of the API
    pages         web pages as text
    fetcher       HTTP with retries and limits
    seen          stories that were reported
    reports       the Markdown reports
    finishing     the end of a run

How to judge a story, how to write and what counts as news is in `.skills/`.
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
