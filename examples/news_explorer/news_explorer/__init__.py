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

from news_explorer.explorer import Options, Outcome, explore

__all__ = ["Options", "Outcome", "explore"]
