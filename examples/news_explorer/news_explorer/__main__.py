"""Explore Hacker News from a terminal, and report in Chinese what is new since the last run."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

INSTALL = 'pip install "satchel[agent]" httpx2 trafilatura'

try:
    if find_spec("trafilatura") is None:  # imported when a page is read: better known now
        raise ModuleNotFoundError(name="trafilatura")
    from filelock import Timeout

    from news_explorer.explorer import HOME, Options, explore, skills_of
    from news_explorer.hacker_news import BASE_URL
    from satchel.errors import SatchelError
except ImportError as exc:
    if (exc.name or "").startswith("news_explorer"):
        raise
    sys.exit(f"error: The package `{exc.name}` is not installed\n\nhint: Run `{INSTALL}`")

if TYPE_CHECKING:
    from satchel.trace import Event


def main() -> int:
    """Run once; 0 when the exploration was finished, 1 when a limit ended it."""
    options = _options()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("news_explorer").setLevel(logging.INFO)
    satchel = skills_of(options.project)
    satchel.trace.listen(_tell)
    try:
        outcome = asyncio.run(explore(options, satchel))
    except SatchelError as exc:
        print(f"error: {exc}\n\nhint: {exc.hint}", file=sys.stderr)
        return exc.exit_code
    except Timeout:
        print(f"error: Another run is writing to `{options.output}`", file=sys.stderr)
        return 1
    finally:
        satchel.close()
    turn = outcome.turn
    asked = turn.requests - outcome.finished  # the answer after the end is our own
    print(outcome.text or "(no answer)")
    print(outcome.path or "No news: no report was written.")
    print(
        f"{len(turn.tools)} tool calls, {asked} requests, skills: "
        f"{', '.join(turn.skills) or 'none'}",
        file=sys.stderr,
    )
    if not outcome.finished:
        why = turn.stopped or "the model stopped"
        print(f"Not finished ({why}): what was not reported is news next time", file=sys.stderr)
    return 0 if outcome.finished else 1


def _tell(event: Event) -> None:
    if event.kind == "loaded":
        sys.stderr.write(f"skill: {', '.join(event.skills)}\n")  # at once: tools log in threads


def _options() -> Options:
    had = os.environ.get
    parser = argparse.ArgumentParser(prog="news_explorer", description=__doc__)
    parser.add_argument(
        "--model",
        default=had("NEWS_EXPLORER_MODEL", "anthropic:claude-sonnet-5"),
        help="as pydantic-ai names it; the key is in the provider's own variable",
    )
    parser.add_argument(
        "--base-url",
        default=had("NEWS_EXPLORER_BASE_URL", BASE_URL),
        help="of Hacker News (or NEWS_EXPLORER_BASE_URL)",
    )
    parser.add_argument("--output", default="reports", help="folder for reports and what was seen")
    parser.add_argument("--project", default=HOME, help="folder whose skills are used")
    parser.add_argument(
        "--private", action="store_true", help="also read pages on this machine (recorded server)"
    )
    given = parser.parse_args()
    return Options(
        given.model,
        given.base_url,
        given.output,
        given.project,
        private=given.private,
    )


if __name__ == "__main__":
    sys.exit(main())
