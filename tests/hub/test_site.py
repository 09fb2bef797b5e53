"""The static pages of a hub in a real browser, and other clients, behind a real web server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import assets
from hub import servers
from hub.conftest import NAME, write_skill_at
from needs import needs
from satchel.cli.main import run
from ui_server import browser

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).parents[2]
HOSTILE = """\
<script>window.harmed = 1</script> <img src=x onerror="window.harmed = 2">
[click](javascript:window.harmed=3) [away](//evil.example/x) ![seen](https://evil.example/x.png)
<style>body { display: none }</style>

```html
</code></pre><script>window.harmed = 4</script>
```
"""
AXE = """
async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter((one) => one.impact === "serious" || one.impact === "critical")
  .map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 160)}`)
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str]) -> Path:
    """A hub with 60 skills of two publishers: one hostile, one blocked."""
    folder = tmp_path_factory.mktemp("site")
    skills = folder / "skills"
    for number in range(57):
        write_skill_at(skills / "beta" / f"number-{number}", "1.0.0", "Count.")
    write_skill_at(skills / "acme" / "notes", "1.0.0", "Write them.")
    write_skill_at(skills / "acme" / "hostile", "1.0.0", HOSTILE)
    store = str(folder / "hub")
    assert run(["hub", "init", store, "--name", NAME, "--key", keys["hub"]]) == 0
    words = ["hub", "build", store, str(skills), "--key", keys["hub"]]
    assert run(words) == 0
    write_skill_at(skills / "acme" / "notes", "1.1.0", "Write them well.")
    assert run(words) == 0
    return folder / "hub"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, hub: Path):
    yield from servers.caddy(tmp_path_factory.mktemp("caddy"), hub)


@pytest.fixture(scope="module")
def chromium():
    with browser(needs("chromium")) as found:
        yield found


def open_page(chromium: Any, address: str, **options: Any) -> tuple[Any, list[str]]:
    page = chromium.new_page(**options)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda one: one.url.startswith(address) or wrong.append(one.url))
    return page, wrong


def test_search_runs_from_static_files(chromium, address):
    page, wrong = open_page(chromium, address)
    page.goto(address)
    page.get_by_label("Search skills").fill("number-4 merged")
    page.get_by_text("59 skills").wait_for()
    first = page.locator("#rows tr").first.get_by_role("link", name="beta/number-4", exact=True)
    first.click()
    page.get_by_role("heading", name="number-4", level=1).wait_for()
    assert f"satchel hub add {address}/" in page.inner_text("main")
    assert "satchel install beta/number-4" in page.inner_text("main")
    assert wrong == []


def test_the_page_of_a_publisher_lists_its_skills(chromium, address):
    page, wrong = open_page(chromium, address)
    page.goto(f"{address}/acme/notes/")
    page.get_by_role("link", name="← acme").click()
    page.locator("#rows tr").first.wait_for()
    assert page.locator("#rows th").all_inner_texts() == ["acme/hostile", "acme/notes"]
    page.get_by_role("link", name="acme/notes").click()
    page.get_by_role("heading", name="notes", level=1).wait_for()
    assert wrong == []


def test_a_hostile_skill_does_nothing(chromium, address):
    page, wrong = open_page(chromium, address)
    page.goto(f"{address}/acme/hostile/")
    assert page.evaluate("window.harmed") is None
    assert page.is_visible("main")
    assert "<script>" in page.inner_text("main")  # shown, not run
    links = page.eval_on_selector_all("main a", "all => all.map((one) => one.href)")
    assert not [one for one in links if one and not one.startswith(address)]
    assert wrong == []


def test_no_page_has_inline_scripts_or_styles(hub):
    pages = list(hub.rglob("*.html"))
    assert len(pages) == 62  # 59 skills, two publishers, the first page
    for path in pages:
        text = path.read_text()
        assert not re.search(r"<script(?! src=)|<style|<[a-z][^>]*\s(style|on\w+)=", text)
        assert re.search(r"Content-Security-Policy.*script-src 'self'", text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(chromium, address, scheme, width):
    axe = assets.read(assets.modules(), assets.AXE).decode()
    page, wrong = open_page(
        chromium, address, color_scheme=scheme, bypass_csp=True,
        viewport={"width": width, "height": 800},
    )  # fmt: skip
    for path in ("/", "/acme/", "/acme/notes/", "/acme/hostile/"):
        page.goto(address + path)
        page.evaluate(axe)
        wrong += page.evaluate(AXE)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, path
    assert wrong == []


def skills_cli(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    modules = os.environ.get("CI_HUB_MODULES") or pytest.fail("CI_HUB_MODULES is not set")
    program = os.path.join(modules, "skills", "bin", "cli.mjs")
    return subprocess.run(
        [needs("node"), program, *words], cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, "HOME": str(tmp_path), "CI": "1", "DO_NOT_TRACK": "1"}, timeout=60,
    )  # fmt: skip


def test_another_client_installs_and_refuses_a_changed_blob(address, hub, tmp_path):
    words = ("add", f"{address}/acme/notes", "--yes", "--agent", "claude-code", "--copy")
    done = skills_cli(tmp_path, *words)
    installed = tmp_path / ".claude" / "skills" / "notes" / "SKILL.md"
    assert "Write them well." in installed.read_text(), done.stdout + done.stderr
    index = json.loads((hub / "acme/notes/.well-known/agent-skills/index.json").read_text())
    blob = hub / "acme/notes/.well-known/agent-skills" / index["skills"][0]["url"]
    before = blob.read_bytes()
    blob.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    shutil.rmtree(tmp_path / ".claude")
    try:
        done = skills_cli(tmp_path, *words)
    finally:
        blob.write_bytes(before)
    assert "No skills found" in done.stdout + done.stderr
    assert not installed.exists()


def test_the_repository_of_a_company_works_as_it_says(tmp_path, keys, shell, monkeypatch):
    shutil.copytree(ROOT / "examples" / "company_hub", tmp_path / "repository")
    hub = tmp_path / "hub.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", hub], check=True)
    shell.init(str(hub))
    environment = {
        **os.environ,
        "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
        "HUB": str(hub),
        "HUB_KEY": Path(keys["hub"]).read_text(),
    }
    for script in ("ci/check.sh", "ci/deploy.sh"):
        done = subprocess.run(
            [script], cwd=tmp_path / "repository", env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run(["git", "clone", "-q", hub, tmp_path / "pages"], check=True)
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    monkeypatch.chdir(tmp_path / "other")
    with_key = ("--key", keys["hub"] + ".pub")
    (tmp_path / "caddy").mkdir()
    for served in servers.caddy(tmp_path / "caddy", tmp_path / "pages"):
        assert shell.run("hub", "add", served, *with_key)[0] == 0, shell.err
        assert shell.run("install", "acme/greeting", "--yes")[0] == 0, shell.err
    assert (tmp_path / "other/.agents/skills/greeting/SKILL.md").exists()
