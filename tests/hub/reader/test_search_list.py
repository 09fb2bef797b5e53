"""`search --hub`: the compact list, its cache, and the detector."""

from __future__ import annotations

import pytest

from hub.reader.tiny_hub import TinyHub, pack_rows, serving
from satchel.errors import Changed, NotFound, Refused
from satchel.store.hub_client.hubs import Hubs, listed_skills

WORDS = {
    "acme/pdf-forms": "Fills in forms of PDF documents. Use for applications and tax forms.",
    "acme/release-notes": "Writes release notes from commits. Use before a release.",
    "acme/invoice-check": "Checks invoices against orders. Use when an invoice arrives.",
    "bits/review": "Reviews pull requests for bugs. Use before a merge.",
}


@pytest.fixture
def shop(tmp_path, reader):
    made = TinyHub(tmp_path / "hub")
    for name, about in WORDS.items():
        made.release(name, description=about)
    made.build()
    with serving(made.folder) as traffic:
        made.traffic = traffic
        reader.hubs = made.settings
        reader.hubs[made.name]["url"] = traffic.url
        yield made


def found(reader, words: str) -> list[str]:
    answer, _, _ = Hubs.of(reader.satchel.settings).search(words)
    return [match.name for match in answer.matches]


def test_search_finds_by_name_and_description(shop, reader):
    assert found(reader, "review a pull request")[0] == "bits/review"
    assert found(reader, "tax forms as pdf")[0] == "acme/pdf-forms"
    assert found(reader, "pdf-forms")[0] == "acme/pdf-forms"
    assert not found(reader, "bake a cake with cherries")


def test_the_list_is_cached_and_updated_by_file(shop, reader):
    found(reader, "review")
    sent = shop.traffic.paths()
    assert len([path for path in sent if path.startswith("search/")]) == 3
    shop.traffic.sent.clear()
    found(reader, "invoice")
    assert shop.traffic.paths() == ["state"]
    shop.release("acme/tax-report", description="Writes the tax report. Use in spring.")
    shop.build()
    shop.traffic.sent.clear()
    assert found(reader, "write the tax report")[0] == "acme/tax-report"
    sent = shop.traffic.paths()
    assert len([path for path in sent if path.startswith("search/")]) == 2  # root, one bin


def test_a_damaged_cache_is_read_again(shop, reader):
    found(reader, "review")
    for path in (reader.home / "satchel/cache/hubs").glob("[!i]*/*"):
        path.write_bytes(b"x")
    assert found(reader, "review a pull request")[0] == "bits/review"


def test_a_changed_description_is_indexed_again(shop, reader):
    assert not found(reader, "audit the ledger of cherries")
    shop.releases[2]["description"] = "Audits the ledger of cherries."
    shop.build()
    assert found(reader, "audit the ledger of cherries") == ["acme/invoice-check"]


def test_a_hub_that_is_too_large(shop, reader):
    shop.build(skills=150_001)
    with pytest.raises(Refused, match="has 150,001 skills"):
        found(reader, "review")
    reader.hubs = {}
    with pytest.raises(NotFound, match="No hub is configured"):
        found(reader, "review")


@pytest.mark.parametrize("row", [{"name": "../x", "description": ""}, {}])
def test_a_hostile_list(shop, reader, row):
    segment = shop.put("search", pack_rows([row]))
    shop.build(search=shop.put("search", pack_rows([{"prefix": "", "bin": segment}])))
    hubs = Hubs.of(reader.satchel.settings)
    with pytest.raises(Changed, match="is damaged"):
        listed_skills(hubs.clients[0])
