"""Takes screenshots of every page of `satchel ui`.

Example:
    python scripts/screens.py                 every page, light and dark, English and Chinese
    python scripts/screens.py --into folder   the same into a folder that is kept
    python scripts/screens.py skills goal     some pages
    python scripts/screens.py --docs          the pictures that the documentation names
    python scripts/screens.py --check         take none; say which page or picture is wrong

The documentation names a picture `screen-PAGE.png`, with `-dark` and `-zh` after the page where
needed. Pixels depend on the fonts of a machine: `--check` only checks that every page renders
without console errors, and that every named picture can be taken and exists.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "tests")]

from screens_demo import Demo  # noqa: E402 - found through the line above
from ui_server import WINDOW, browser  # noqa: E402 - same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from playwright.sync_api import Browser, Page

ASSETS = os.path.join(ROOT, "docs", "assets")
MAX_PICTURE_PIXELS = 1_100
"""Height of a picture in the documentation."""
NARROW_WINDOW_PIXELS = 400
_NAMED = re.compile(r"screen-([a-z0-9-]+?)((?:-dark)?(?:-zh)?)\.png")


class Shot(NamedTuple):
    """One page, and what is done there before its picture is taken."""

    name: str
    path: str
    act: Callable[[Page, Demo], None] | None = None
    width: int = 0
    """Width of the window; the usual one when 0."""
    inside: bool = True
    """Whether the user is signed in."""
    status: int = 200


class Look(NamedTuple):
    """Theme and language of a screenshot."""

    dark: bool = False
    zh: bool = False

    @property
    def ending(self) -> str:
        """What a picture's name ends in."""
        return ("-dark" if self.dark else "") + ("-zh" if self.zh else "")


LOOKS = (Look(), Look(dark=True), Look(zh=True), Look(dark=True, zh=True))


def _open_file(page: Page, _: Demo) -> None:
    page.locator(".tree a", has_text="changed.py").click()
    page.locator(".look .source-code").wait_for()


def _choose(page: Page, _: Demo) -> None:
    for box in page.locator("[name=ref]").all()[:2]:
        box.check()


def _open_dialog(page: Page, _: Demo) -> None:
    page.locator("[data-open=dialog]").first.click()
    page.locator("#new-name").fill("Weekly Report!")
    page.locator("#new-description").fill("Writes the report of the week. Use when a week ends.")
    page.locator("#new-check meter").wait_for()  # what the server says of it


def _upload(page: Page, demo: Demo) -> None:
    page.locator("#zip-file").set_input_files(demo.newer())
    page.locator("form[data-upload=zip] button.primary").click()
    page.wait_for_url("**/plans/**")
    settle(page)
    for one in page.locator("details.file > summary").all()[:1]:
        one.click()


def _upload_several(page: Page, demo: Demo) -> None:
    page.locator("#zip-file").set_input_files(demo.several())
    page.locator("form[data-upload=zip] button.primary").click()
    page.wait_for_url("**/plans/**")


def _choose_plan(page: Page, _: Demo) -> None:
    page.locator("form:has(#path) button").click()
    page.locator("#input-1").wait_for()


def _remove(page: Page, _: Demo) -> None:
    page.locator("form[action*='/skills/remove'] button").first.click()
    page.wait_for_url("**/plans/**")


def _ask(page: Page, _: Demo) -> None:
    page.locator("#request input[name=goal]").fill("review my branch before it is merged")
    page.locator("#request button").click()
    page.wait_for_url("**goal=**")


def _edit(page: Page, _: Demo) -> None:
    page.locator("#text").press("End")


def _looked(page: Page, _: Demo) -> None:
    """Wait until the page has loaded its parts."""
    page.wait_for_function("() => !document.querySelector('.working')")


SHOTS = (
    Shot("door", "/enter", inside=False, status=401),
    Shot("skills", "/skills"),
    Shot("skills-search", "/skills?q=review+a+branch"),
    Shot("skills-chosen", "/skills", _choose),
    Shot("skills-narrow", "/skills", width=NARROW_WINDOW_PIXELS),
    Shot("add", "/skills", _open_dialog),
    Shot("import", "/skills/import"),
    Shot("plan", "/skills/import", _upload),
    Shot("plan-several", "/skills/import", _upload_several),
    Shot("remove", "/skill?ref=.agents/skills/sql-migrations", _remove),
    Shot("edit", "/skill/edit?ref=.agents/skills/code-review", _edit),
    Shot("skill", "/skill?ref=.agents/skills/code-review", _ask),
    Shot("skill-file", "/skill?ref=.agents/skills/code-review", _open_file),
    Shot("skill-untrusted", "/skill?ref=skills/deploy-site"),
    Shot("skill-blocked", "/skill?ref=.agents/skills/quick-setup"),
    Shot("catalogue", "/catalogue?budget=1400"),
    Shot("history", "/history"),
    Shot("goals", "/goals"),
    Shot("goal", "/goals/release-1-2"),
    Shot("goal-step", "/goals/release-1-2?step=review"),
    Shot("goal-asking", "/goals/letter-november"),
    Shot("goal-done", "/goals/prices-november"),
    Shot("goal-failed", "/goals/orders-week-46?step=read"),
    Shot("goal-new", "/goals/+new"),
    Shot("goal-draft", "/goals/+new", _choose_plan),
    Shot("goal-narrow", "/goals/release-1-2", width=NARROW_WINDOW_PIXELS),
    Shot("health", "/health", _looked),
    Shot("settings", "/settings"),
    Shot("nowhere", "/nowhere", status=404),
)
"""Every page, in the order of the toolbar."""
_AT_HOME = """
(home) => {
  const every = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (every.nextNode()) every.currentNode.data = every.currentNode.data.replaceAll(home, "~");
}
"""
"""The folder of the demo has another name each time: what is shown is the person's home."""
_QUIET = """
() => document.readyState === "complete"
  && !document.querySelector(".htmx-request, .htmx-settling, [aria-busy=true]")
"""


def main(arguments: Sequence[str]) -> int:
    """Take the pictures, or say what is wrong with them."""
    parser = argparse.ArgumentParser(description="Pictures of the browser, from the real pages.")
    parser.add_argument("pages", nargs="*", help="some pages, by name")
    parser.add_argument("--into", help="a folder for the pictures")
    parser.add_argument("--docs", action="store_true", help="those that the documentation names")
    parser.add_argument("--check", action="store_true", help="take none")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.pages) - {shot.name for shot in SHOTS}:
        parser.error(f"there is no page {', '.join(sorted(unknown))}")
    shots = [shot for shot in SHOTS if not asked.pages or shot.name in asked.pages]
    wrong: list[str] = []
    if asked.docs or asked.check:
        wrong += wrong_names(taken=asked.docs)
    wanted = named()
    folder = asked.into or (ASSETS if asked.docs else tempfile.mkdtemp(prefix="satchel-screens-"))
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as base, browser() as chromium:
        demo = Demo(base)
        try:
            for look in LOOKS[::3] if asked.check else LOOKS:
                files = {shot: f"screen-{shot.name}{look.ending}.png" for shot in shots}
                some = [one for one in shots if not asked.docs or files[one] in wanted]
                for shot, page, complaints in walk(chromium, demo, some, look):
                    wrong += complaints
                    if asked.check:
                        continue
                    path = os.path.join(folder, files[shot])
                    page.evaluate(_AT_HOME, demo.home)
                    take(page, path, whole=not asked.docs)
                    print(f"wrote {path}")
        finally:
            demo.close()
    for one in wrong:
        print(f"error: {one}", file=sys.stderr)
    if wrong and (asked.check or asked.docs):
        print(
            "\nhint: Run `just screens --docs` for the pictures; repair the page", file=sys.stderr
        )
    return 1 if wrong else 0


def named() -> set[str]:
    """The file names of the pictures that the documentation and the README name."""
    found: set[str] = set()
    for path in _texts():
        with open(path, encoding="utf-8") as file:
            found.update(match.group() for match in _NAMED.finditer(file.read()))
    return found


def wrong_names(*, taken: bool = False) -> list[str]:
    """What is wrong with the pictures that are named, and with those that are there.

    Args:
        taken: They are taken now, so none can be missing.
    """
    wanted = named()
    pages = {shot.name for shot in SHOTS}
    wrong: list[str] = []
    for file in sorted(wanted):
        match = _NAMED.fullmatch(file)
        if match is None or match[1] not in pages:
            wrong.append(f"`{file}` is named, and `scripts/screens.py` has no such page")
        elif not taken and not os.path.isfile(os.path.join(ASSETS, file)):
            wrong.append(f"`{file}` is named, and not in `docs/assets`")
    there = [one for one in os.listdir(ASSETS) if one.startswith("screen-")]
    wrong += [f"`docs/assets/{one}` is named nowhere" for one in sorted(set(there) - wanted)]
    return wrong


def _texts() -> Iterator[str]:
    yield os.path.join(ROOT, "README.md")
    for here, _, files in os.walk(os.path.join(ROOT, "docs")):
        yield from (os.path.join(here, one) for one in sorted(files) if one.endswith(".md"))


def walk(
    chromium: Browser, demo: Demo, shots: Sequence[Shot], look: Look, **more: Any
) -> Iterator[tuple[Shot, Page, list[str]]]:
    """Go to each page and do there what belongs to it.

    Args:
        chromium: The browser.
        demo: Whose pages.
        shots: Which pages.
        look: Light or dark, English or Chinese.
        more: Further options of the browser's context.

    Yields:
        The page, as somebody sees it, and what it complained about.
    """
    context = chromium.new_context(
        color_scheme="dark" if look.dark else "light",
        locale="zh-CN" if look.zh else "en-GB",
        timezone_id="UTC",
        viewport=WINDOW,
        reduced_motion="reduce",
        **more,
    )
    complaints: list[str] = []

    def hear(words: str) -> None:
        complaints.append(words)

    context.on("console", lambda one: hear(one.text) if one.type == "error" else None)
    context.on("weberror", lambda one: hear(str(one.error)))
    page = context.new_page()
    page.set_default_timeout(20_000)
    inside = False
    for shot in shots:
        if shot.inside and not inside:
            page.goto(demo.server.link())
            inside = True
        complaints.clear()
        page.set_viewport_size({"width": shot.width or WINDOW["width"], "height": WINDOW["height"]})
        answer = page.goto(demo.server.base + shot.path)
        if answer is None or answer.status != shot.status:
            hear(f"the answer was {answer and answer.status}")
        elif shot.status != 200:
            complaints.clear()  # the console says it, too
        if not complaints:
            settle(page)
            if shot.act is not None:
                shot.act(page, demo)
                settle(page)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if wide > 0:
                hear(f"it is {wide} pixels wider than the window")
        place = f"{shot.name}{look.ending}"
        yield shot, page, [f"page `{place}`: {one}" for one in complaints]
    context.close()


def settle(page: Page) -> None:
    """Wait till nothing is on its way."""
    page.wait_for_function(_QUIET)
    time.sleep(0.1)  # what is typed is asked about a little later
    page.wait_for_function(_QUIET)


def take(page: Page, path: str, *, whole: bool) -> None:
    """One picture; that of the documentation is cut and has few colours, so that it is small."""
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")
    # What lies behind a dialog is dimmed as far as the window goes.
    far = page.locator("dialog[open]").count() == 0
    page.screenshot(path=path, full_page=far, animations="disabled")
    if whole:
        return
    from PIL import Image

    with Image.open(path) as image:
        cut = image.convert("RGB").crop((0, 0, image.width, min(image.height, MAX_PICTURE_PIXELS)))
    cut.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
