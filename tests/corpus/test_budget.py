"""Catalogues of real skills: within budget, complete accounts, reproducible."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from catalogue.blocks import read_block
from corpus.write_out import pick, write_out
from satchel.catalogue import build_catalogue
from satchel.catalogue.render import clean
from satchel.library import Library
from sizes import sized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.library import Snapshot

SIZES = sized([10, 1_000, 4_000], [10, 100, 1_000, 10_000, 69_568])
FORMS = ["xml", "markdown"]
BUDGETS = [0, 60, 300, 1_200, 2_500, 12_000, 60_000]

# The first test of a size writes its folders and reads them.
pytestmark = [pytest.mark.timeout(300), pytest.mark.req("A11")]


@pytest.fixture(scope="module")
def folders(real_skills, tmp_path_factory) -> Iterator[dict[int, str]]:
    """The real skills as folders, once for each size; removed afterwards, as they are many."""
    base = tmp_path_factory.mktemp("real")
    made: dict[int, str] = {}
    for size in SIZES:
        made[size] = str(base / str(size))
        assert len(write_out(pick(real_skills, size), made[size])) == size
    yield made
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def snapshots(folders) -> dict[int, Snapshot]:
    return {size: Library([folder]).snapshot() for size, folder in folders.items()}


@pytest.mark.parametrize("size", SIZES)
def test_every_written_skill_is_read(snapshots, size):
    snapshot = snapshots[size]
    assert len(snapshot.skills) + len(snapshot.hidden) == size
    assert {skill.state for skill in snapshot.hidden} <= {"shadowed"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_the_block_keeps_its_budget_and_accounts_for_every_skill(snapshots, size, form):
    # All of them, those with one name too: more than a library offers, and all the harder.
    everything = (*snapshots[size].skills, *snapshots[size].hidden)
    for skills in (snapshots[size].skills, everything):
        for budget in BUDGETS:
            catalogue = build_catalogue(skills, budget=budget, form=form)
            account = catalogue.account
            listed = [*account.full, *account.shortened, *account.named]
            assert account.used <= account.budget
            assert len(listed) + account.unlisted + len(account.withheld) == len(skills)
            assert len(catalogue.text) == account.used
            if not listed:
                continue
            block = read_block(catalogue.text, form)
            shown = [*(entry.name for entry in block.entries), *block.names]
            assert sorted(shown) == sorted(map(clean, listed))
            # Names of real skills come through as they are: a model can call what it reads.
            assert sorted(shown) == sorted(listed)


@pytest.mark.parametrize("size", SIZES)
def test_a_listed_skill_costs_few_tokens(snapshots, size):
    """At most 60 each, four characters a token; what its own description takes when it is whole."""
    catalogue = build_catalogue(snapshots[size].skills)
    entries = read_block(catalogue.text, "xml").entries
    listed = len(entries) + len(catalogue.account.named)
    start = catalogue.text.index("<skill name" if entries else "<names>")
    rows = len(catalogue.text[start : catalogue.text.index("<note>")])
    if catalogue.account.shortened or catalogue.account.named:
        assert rows / 4 / listed <= 60
    else:
        assert (rows - sum(len(entry.text) for entry in entries)) / 4 / listed <= 20
