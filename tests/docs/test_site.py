"""The built site as a reader uses it: the copy button, the sidebar, the way to the source."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

import docs_site
import package_page
from needs import needs
from ui_server import browser

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
pytestmark = pytest.mark.timeout(120)  # builds the site, starts a browser


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server on this machine has the site."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(os.path.join(ROOT, "docs"), folder / "docs")
    shutil.copy(os.path.join(ROOT, "zensical.toml"), folder)
    docs_site.build(folder)
    handler = functools.partial(_QuietHandler, directory=str(folder / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Any]:
    """A window that may use the clipboard."""
    with browser(needs("chromium")) as chromium:
        context = chromium.new_context()
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        yield context.new_page()


def _copied(page: Any, number: int) -> str:
    """What the copy button of a block puts into the clipboard."""
    block = page.locator("div.highlight").nth(number)
    block.hover()
    block.locator("button[data-md-type=copy]").click()
    return page.evaluate("navigator.clipboard.readText()")


def _number_of(page: Any, start: str) -> int:
    texts = page.locator("div.highlight code").all_inner_texts()
    return next(number for number, text in enumerate(texts) if text.startswith(start))


def test_the_copy_button_copies_commands_only(page, address):
    page.goto(f"{address}/tutorial/first-skill/")
    number = _number_of(page, "$ satchel new release-notes")
    assert _copied(page, number) == "satchel new release-notes --kind minimal\nsatchel list"


def test_a_conversation_is_copied_as_its_command(page, address):
    page.goto(f"{address}/start/")
    assert _copied(page, _number_of(page, "$ satchel chat")) == "satchel chat"


def test_other_blocks_are_copied_whole(page, address):
    page.goto(f"{address}/start/")
    number = _number_of(page, "---\nname: meeting-notes")
    assert _copied(page, number).startswith("---\nname: meeting-notes\ndescription: ")


def test_the_first_tutorial_is_in_the_sidebar(page, address):
    page.goto(f"{address}/tutorial/tool-skill/")
    sidebar = page.locator(".md-sidebar--primary")
    assert sidebar.get_by_role("link", name="Your first skill").count() == 1


def test_every_page_links_to_source_and_issues_and_asks_no_other_server(page, address):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/guides/in-ci/", wait_until="networkidle")
    links = page.locator(f"footer a[href='{package_page.current_address()}']")
    assert links.count() == 1
    assert [url for url in asked if not url.startswith(address)] == []


def test_chinese_readers_get_chinese_pages_navigation_and_search(page, address):
    page.goto(f"{address}/tutorial/first-skill/")
    page.locator("[hreflang=zh].md-select__link").evaluate("link => link.click()")
    page.wait_for_url(f"{address}/zh/tutorial/first-skill/")
    assert page.locator("html").get_attribute("lang") == "zh"
    assert page.locator("h1").inner_text().startswith("第一个技能")
    assert page.locator(".md-tabs").get_by_role("link", name="教程").count() == 1
    search = page.request.get(f"{address}/zh/search.json").json()
    assert search["config"]["lang"] == ["zh"]
    titles = {entry["location"]: entry["title"] for entry in search["items"]}
    assert titles["tutorial/first-skill/#6-break-it"] == "6. 制造一个错误"


def test_a_chinese_page_leads_to_its_english_one(page, address):
    page.goto(f"{address}/zh/start/")
    page.locator("[hreflang=en].md-select__link").evaluate("link => link.click()")
    page.wait_for_url(f"{address}/start/")
