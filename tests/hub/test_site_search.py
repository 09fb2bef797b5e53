"""The search on the pages of a hub, beside `satchel search --hub`: the same order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hub import servers
from hub.conftest import NAME
from needs import needs
from satchel.cli.main import run
from satchel.store.signing import SshKey
from ui_server import browser

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(120)
SKILLS = {
    "pdf-forms": "Fills in forms of PDF documents. Use for applications and tax forms.",
    "release-notes": "Writes release notes from merged pull requests. Use before a release.",
    "invoice-check": "Checks invoices against orders. Use when an invoice arrives.",
    "review": "Reviews pull requests for bugs and missing tests. Use before a merge.",
    "go-review": "Reviews Go code. Use for packages and modules.",
    "c-sharp": "Explains C# and .NET projects, their build files and packages.",
    "deploy": "Deploys services to Kubernetes with Helm charts.",
    "charts": "Draws charts from a CSV file; bars, lines and areas.",
    "slow-sql": "Optimises slow SQL queries with query plans and indexes.",
    "translate": "Translates documents between languages and keeps the layout.",
    "contracts": "Analyses contracts: terms, deadlines and penalties.",
    "GitHub-issues".lower(): "Sorts GitHub issues by labels, and closes old ones.",
    "zh-clean": "清理数据表格，删除重复的行并统一日期格式。",
    "zh-contract": "审查合同条款，指出风险和缺少的条款。",
    "zh-report": "根据数据生成周报和图表。",
    "ja-notes": "リリースノートを作成します。",
}
QUERIES = [
    "review a pull request", "make a chart from a csv file", "write release notes",
    "tax forms as pdf", "review my Go code", "C# packages", "optimize queries", "acme/review",
    "analyzing contracts", "translation of documents", "close github issues",
    "check the invoices of an order", "kubernetes deployment",
]  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("search")
    for name, description in SKILLS.items():
        path = folder / "skills" / "acme" / name
        path.mkdir(parents=True)
        head = f"name: {name}\ndescription: {json.dumps(description, ensure_ascii=False)}"
        (path / "SKILL.md").write_text(f"---\n{head}\n---\nDo it.\n")
    store = str(folder / "hub")
    assert run(["hub", "init", store, "--name", NAME, "--key", keys["hub"]]) == 0
    assert run(["hub", "build", store, str(folder / "skills"), "--key", keys["hub"]]) == 0
    return folder / "hub"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, hub: Path):
    with browser(needs("chromium")) as chromium:
        for address in servers.caddy(tmp_path_factory.mktemp("caddy"), hub):
            page = chromium.new_page()
            page.goto(address)
            page.get_by_label("Search skills").fill("kuber")
            page.get_by_text("1 skill", exact=True).wait_for()  # the list is loaded once
            yield page


def on_page(page: Any, text: str) -> list[str]:
    """The names that the page shows for a search."""
    page.get_by_label("Search skills").fill(text)
    return page.eval_on_selector_all("#rows th", "all => all.map((cell) => cell.textContent)")


@pytest.fixture
def in_terminal(shell, hub, tmp_path, monkeypatch, keys):
    """The names that the command prints for a search, best first, whether they fit or not."""
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    public = json.dumps(SshKey(keys["hub"]).public)
    settings = f'[hubs."{NAME}"]\nurl = {json.dumps(str(hub))}\nkey = {public}\n'
    (tmp_path / "satchel.toml").write_text(settings)

    def search(text: str) -> list[str]:
        _, out = shell.run("--project", str(tmp_path), "search", "--hub", text, "--json")
        found = json.loads(out)
        return [match["name"] for match in found["skills"] + found["runners_up"]]

    return search


def test_page_and_terminal_have_the_same_order(page, in_terminal):
    for query in QUERIES:
        names, expected = on_page(page, query), in_terminal(query)
        assert expected, query
        assert names[: len(expected)] == expected, query


@pytest.mark.parametrize(
    ("query", "first"),
    [("合同风险", "acme/zh-contract"), ("怎样清理重复的数据", "acme/zh-clean"),
     ("リリース", "acme/ja-notes"), ("周报", "acme/zh-report")],
)  # fmt: skip
def test_chinese_and_japanese_are_found_by_parts_of_a_sentence(query, first, page, in_terminal):
    assert on_page(page, query)[0] == first == in_terminal(query)[0]


def test_a_word_that_is_not_finished_is_found(page):
    assert on_page(page, "kuber") == ["acme/deploy"]
