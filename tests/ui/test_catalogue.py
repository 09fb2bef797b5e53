"""The Catalogue page: slider, lists, text, and the shortlist of a request."""

from __future__ import annotations

import html
import re

import pytest


@pytest.fixture
def many(visit, skill):
    for at in range(40):
        skill(f"skill-{at:02}", f"Does thing {at}. " + "Use when asked for it. " * 8)
    skill("secret", "Kept from models.", disable_model_invocation=True)
    visit.satchel.refresh()
    return visit


def _counts(text: str) -> dict[str, int]:
    rows = re.findall(r'<div class="(\w+)[^"]*"><dt>.*?<strong>([\d,]+)</strong>', text, re.DOTALL)
    return {key: int(count.replace(",", "")) for key, count in rows}


def _block(text: str) -> str:
    found = re.search(r'<pre id="block"[^>]*>(.*?)</pre>', text, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


def test_the_page_shows_what_is_set(many):
    text = many.get("/catalogue").text
    assert 'type="range"' in text
    assert f'value="{many.satchel.settings.budget}"' in text
    assert "Current setting" in text
    assert _block(text) == many.satchel.preview().text
    account = many.satchel.preview().account
    assert f"{account.used:,} of {account.budget:,} characters" in text


def test_a_move_shows_exactly_what_the_catalogue_makes(many):
    for budget in (0, 300, 1_000, 3_000, 12_000, 40_000):
        for form in ("xml", "markdown"):
            text = many.part(f"/catalogue?budget={budget}&form={form}").text
            made = many.satchel.preview(budget, form)
            assert "<html" not in text
            counts = _counts(text)
            assert counts["full"] == len(made.account.full)
            assert counts["shortened"] == len(made.account.shortened)
            assert counts["named"] == len(made.account.named)
            assert counts["unlisted"] == made.account.unlisted
            assert counts["withheld"] == 1
            assert sum(counts.values()) == made.account.total
            if made.text:
                assert _block(text) == made.text


def test_what_is_left_out_is_named_and_leads_to_its_skill(many):
    text = many.part("/catalogue?budget=400").text
    assert 'data-fold="unlisted"' in text
    assert "/skill?ref=.agents%2Fskills%2Fskill-39" in text
    assert "budget = 400" in text


def test_nothing_is_recorded_as_offered(many):
    many.get("/catalogue")
    many.get("/catalogue/shortlist?goal=thing", headers={"HX-Request": "true"})
    assert "offered" not in [row["kind"] for row in many.satchel.trace.history()]


def test_the_block_beside_a_request(visit, skill):
    skill("code-review", "Reviews pull requests and diffs. Use when somebody asks for a review.")
    visit.satchel.refresh()
    text = visit.get("/catalogue/shortlist", params={"goal": "review my pull request"},
                     headers={"HX-Request": "true"}).text  # fmt: skip
    made = visit.satchel.shortlist("review my pull request", record=False)
    assert made.text
    assert html.escape(made.text, quote=False)[:40] in text.replace("&#34;", '"')
    whole = visit.get("/catalogue", params={"goal": "review my pull request"}).text
    assert 'id="beside-block"' in whole
    none = visit.get("/catalogue/shortlist", params={"goal": "zxqv"},
                     headers={"HX-Request": "true"}).text  # fmt: skip
    assert 'class="note info"' in none
