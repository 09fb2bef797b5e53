"""One Chromium per test file, real servers, and signed-in browser windows.

A window collects the errors of its pages: on the console, exceptions, violations of the
Content-Security-Policy, responses of 500. Any of these fails the test.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Error, expect

from needs import needs
from satchel.goals.engines.factory import local_folder
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Done, Goal, Plan
from satchel.settings import load_settings
from ui_server import WINDOW, browser, open_house

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from playwright.sync_api import BrowserContext, Page

    from satchel.goals.model import Step
    from ui_server import House

SLOW = 30_000
"""Milliseconds to wait for a page on a busy machine."""
_REPORT = pytest.StashKey[Any]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None and "/browser/" in str(item.path):
            item.add_marker(pytest.mark.timeout(180))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[_REPORT] = report
    return report


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One per file: its asyncio loop excludes others."""
    expect.set_options(timeout=SLOW)
    with browser(needs("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server shared by the tests of a file; tests that change skills use names of their own."""
    made = open_house(tmp_path_factory.mktemp("house"), SATCHEL_TRUST="all")
    try:
        yield made
    finally:
        made.server.close()


class Visitor:
    """A browser context that is signed in."""

    def __init__(self, context: BrowserContext, house: House) -> None:
        self.context = context
        self.house = house
        self.complaints: list[str] = []
        self.allowed: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda one: self.complaints.append(f"exception: {one.error}"))
        context.on("response", self._answer)
        context.set_default_timeout(SLOW)
        self.page: Page = context.new_page()

    def _console(self, message: Any) -> None:
        if message.type != "error":
            return
        said = f"console: {message.text}"
        ended = said.replace("htmx:sendAbort", "htmx:afterRequest")
        if said != ended and self.complaints[-1:] == [ended]:
            # htmx reports an aborted request twice as an error.
            self.complaints.pop()
        else:
            self.complaints.append(said)

    def _answer(self, answer: Any) -> None:
        if answer.status >= 500:
            self.complaints.append(f"{answer.status}: {answer.url}")

    def sign_in(self) -> Any:
        """Open the link that the server printed; returns the session for further windows."""
        self.page.goto(self.house.server.link())
        expect(self.page.get_by_role("navigation").first).to_be_visible()
        return self.context.storage_state()

    def go(self, path: str) -> Page:
        """Load a page."""
        self.page.goto(self.house.base + path)
        return self.page

    def allow(self, words: str) -> None:
        """Allow an error that contains these words."""
        self.allowed.append(words)

    def content(self) -> None:
        """Assert that no page had an error."""
        left = [one for one in self.complaints if not any(word in one for word in self.allowed)]
        assert not left, "\n".join(left)


@pytest.fixture(scope="module")
def sessions() -> dict[str, Any]:
    """Server URL -> cookies of a session."""
    return {}


@pytest.fixture
def come(chromium, sessions, request, tmp_path) -> Iterator[Any]:
    """Open windows: `come(house)`, with `width=`, `script=False`, `fresh=True`.

    One link opens one session, which later windows share unless they are `fresh`. After a failure,
    a screenshot and the page of every window are in the test's folder.
    """
    with ExitStack() as stack:
        visitors: list[Visitor] = []

        def enter(house: House, *, width=0, script=True, fresh=False) -> Visitor:
            known = None if fresh else sessions.get(house.base)
            context = chromium.new_context(
                locale="en-GB",
                viewport={**WINDOW, "width": width} if width else WINDOW,
                java_script_enabled=script,
                storage_state=known,
                reduced_motion="reduce",
                accept_downloads=False,
            )
            stack.callback(context.close)
            made = Visitor(context, house)
            visitors.append(made)
            if known is None:
                sessions[house.base] = made.sign_in()
            return made

        yield enter
        report = request.node.stash.get(_REPORT, None)
        for number, one in enumerate(visitors):
            if report is not None and report.failed:
                told = _keep(one, tmp_path, number)
                request.node.add_report_section("teardown", "windows", told)
        if report is None or report.passed:
            for one in visitors:
                one.content()


def _keep(visitor: Visitor, folder: Any, number: int) -> str:
    """Write the last state of a window to files; returns their paths."""
    page, name = visitor.page, f"window-{number}"
    words = [f"{name}: {page.url}", *visitor.complaints, f"server: {visitor.house.server.said}"]
    try:
        page.screenshot(path=folder / f"{name}.png", full_page=True)
        (folder / f"{name}.html").write_text(page.content(), encoding="utf-8")
    except Error as exc:  # the failure of the test counts, not that of its screenshot
        words.append(f"not all was kept: {exc}")
    words.append(f"see {folder}/{name}.png and .html")
    return "\n".join(words)


@pytest.fixture
def visitor(come, house) -> Visitor:
    """A window of the shared server."""
    return come(house)


class Nobody:
    """A runner without steps."""

    async def run(self, work: Any) -> Done:
        return Done("")


@pytest.fixture
def ask_people(house) -> Any:
    """Start a goal of human steps, and wait until it asks: `ask_people(name, *steps)`."""
    settings = load_settings(str(house.project), env=house.server.env)

    async def begin(name: str, steps: tuple[Step, ...]) -> None:
        async with LocalEngine(Nobody(), folder=local_folder(settings)) as engine:
            await engine.submit(Goal(name, Plan("Ask people", steps)))
            await engine.wait(name)

    def ask(name: str, *steps: Step) -> None:
        with ThreadPoolExecutor(1) as thread:  # the browser uses the loop of this thread
            thread.submit(asyncio.run, begin(name, steps)).result(20)

    return ask
