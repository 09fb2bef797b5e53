"""Both engines: the same rows and terms give the same scores, field by field."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from satchel.detect.index import FIELDS, IndexRow
from satchel.detect.index.memory import MemoryIndex
from satchel.detect.index.tantivy_index import TantivyIndex

if TYPE_CHECKING:
    from satchel.detect.index import FieldIndex

ENGINES = {"memory": MemoryIndex, "tantivy": TantivyIndex}
WORDS = [f"word{n}" for n in range(300)] + ["c++", "数据", "=数据", "PDF", "pdf", 'a"b', "é", "x'y"]
COMMON = list(itertools.accumulate(1 / (n + 3) for n in range(len(WORDS))))


def row(key: str, name: str = "", about: str = "", body: str = "", stamp: int = 1) -> IndexRow:
    return IndexRow(key, (stamp, stamp, stamp), (name, about, "", "", body))


def some_rows(count: int, seed: int = 1) -> list[IndexRow]:
    chance = random.Random(seed)

    def text(most: int) -> str:
        return " ".join(chance.choices(WORDS, cum_weights=COMMON, k=chance.randint(0, most)))

    return [
        IndexRow(f"/s/{n}/SKILL.md", (n, n, n), (text(3), text(30), text(6), text(2), text(150)))
        for n in range(count)
    ]


@pytest.fixture(params=ENGINES)
def engine(request) -> str:
    return request.param


@pytest.fixture
def index(engine, tmp_path) -> FieldIndex:
    return ENGINES[engine](str(tmp_path))


def search(index, terms, limit, allowed=None):
    """Each field by itself."""
    return index.search_signals(terms, {field: {field: 1.0} for field in FIELDS}, limit, allowed)


def found(index: FieldIndex, *terms: str, limit: int = 10, field: str = "description") -> set[str]:
    return set(search(index, [(term, 1.0) for term in terms], limit)[field])


def test_an_empty_index_finds_nothing(index, engine):
    assert index.engine == engine
    assert search(index, [("pdf", 1.0)], 10) == {field: {} for field in FIELDS}
    assert index.stamps() == {}
    assert not index.version()


def test_a_term_is_found_in_its_own_field_only(index):
    index.update([row("/a", "pdf forms", "fills in forms"), row("/b", "", "reads a pdf")])
    assert found(index, "pdf", field="name") == {"/a"}
    assert found(index, "pdf") == {"/b"}
    assert found(index, "forms", "reads") == {"/a", "/b"}
    assert found(index, "pd") == set()
    assert index.version()


def test_terms_are_taken_as_they_are(index):
    terms = ["c++", "c", "PDF", "pdf", "数据", "=数据", "é", 'say"so', "a-b", "-", "*", "x" * 300]
    index.update([row(f"/{n}", about=term) for n, term in enumerate(terms)])
    for n, term in enumerate(terms):
        assert found(index, term) == {f"/{n}"}, term


def test_broken_unicode_and_odd_keys_do_no_harm(index):
    index.update([row("/bad\udcff/SKILL.md", about="pdf \ud800 x\0y")])
    assert found(index, "pdf", "\ud800") == {"/bad\udcff/SKILL.md"}
    assert index.stamps()["/bad\udcff/SKILL.md"] == (1, 1, 1)


def test_rows_are_replaced_and_dropped(index):
    index.update([row("/a", about="old"), row("/b", about="old"), row("/c", about="old")])
    changed = [row("/a", about="twice"), row("/a", about="new", stamp=2)]
    index.update(changed, ["/b", "/unknown"])
    assert index.count() == 2
    assert found(index, "old", "twice") == {"/c"}
    assert found(index, "new") == {"/a"}
    assert index.stamps() == {"/a": (2, 2, 2), "/c": (1, 1, 1)}
    index.update([], ["/a", "/c"])
    assert index.stamps() == {}
    assert found(index, "old", "new") == set()


def test_an_update_that_fails_changes_nothing(index):
    index.update([row("/a", about="old")])

    def rows():
        yield row("/a", about="new", stamp=2)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        index.update(rows(), ["/a"])
    assert found(index, "old") == {"/a"}
    assert index.stamps() == {"/a": (1, 1, 1)}
    index.update([row("/b", about="old")])
    assert found(index, "old") == {"/a", "/b"}


# --- one against the other ----------------------------------------------------------------


def _goals(count: int) -> list[list[tuple[str, float]]]:
    chance = random.Random(7)
    goals = []
    for _ in range(count):
        words = chance.choices(WORDS, cum_weights=COMMON, k=chance.randint(1, 40))
        goals.append([(word, chance.choice((1.0, 0.1, 2.5))) for word in dict.fromkeys(words)])
    return goals


def test_tantivy_ranks_as_plain_python_does(tmp_path):
    """It keeps the length of a field in one byte, so scores differ by a few per cent."""
    rows = some_rows(400)
    plain, tantivy = MemoryIndex(), TantivyIndex(str(tmp_path))
    for index in (plain, tantivy):
        index.update(rows)
    for goal in _goals(30):
        wanted, got = search(plain, goal, 500), search(tantivy, goal, 500)
        for field in FIELDS:
            assert got[field].keys() == wanted[field].keys()
            assert got[field] == pytest.approx(wanted[field], rel=0.1), field
        best = max(wanted["body"].values())
        first = max(got["body"], key=lambda key: got["body"][key])
        assert wanted["body"][first] > 0.95 * best


# --- damage -------------------------------------------------------------------------------


def _truncate(path: str) -> None:
    os.truncate(path, os.path.getsize(path) // 2)


def _scribble(path: str) -> None:
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        for at in range(0, size, max(size // 40, 1)):
            file.seek(at)
            file.write(b"\xff\x13\x37\x00" * 4)


def _empty(path: str) -> None:
    os.truncate(path, 0)


DAMAGE = {"cut": _truncate, "scribbled": _scribble, "empty": _empty, "gone": os.unlink}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_survived_and_made_anew(engine, damage, tmp_path):
    base = tmp_path / "whole"
    index = ENGINES[engine](str(base))
    os.makedirs(base, exist_ok=True)
    rows = some_rows(60)
    index.update(rows)
    files = [os.path.join(here, name) for here, _, names in os.walk(base) for name in names]
    assert files
    for number, file in enumerate(files):
        copy = str(tmp_path / f"{number}")
        shutil.copytree(base, copy)
        DAMAGE[damage](os.path.join(copy, os.path.relpath(file, base)))
        torn = ENGINES[engine](copy)
        search(torn, [("word0", 1.0), ("word9", 1.0)], 10)
        known = torn.stamps()
        torn.update([one for one in rows if known.get(one.key) != one.stamp])
        if len(torn.stamps()) < 60:
            torn.update(rows)  # the damage showed only now
        assert torn.stamps().keys() == {one.key for one in rows}, file


# --- two processes ------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_readers_go_on(tmp_path):
    first, second = TantivyIndex(str(tmp_path)), TantivyIndex(str(tmp_path))
    first.update([row("/a", about="zebra")])

    def rows():
        yield from some_rows(600)  # a few are taken before anything is locked
        with pytest.raises(TimeoutError):
            second.update([row("/c", about="zebra")])
        assert found(second, "zebra") == {"/a"}
        assert found(TantivyIndex(str(tmp_path)), "zebra") == {"/a"}
        yield row("/b", about="zebra")

    first.update(rows())
    assert found(second, "zebra") == {"/a", "/b"}
    assert found(first, "zebra") == {"/a", "/b"}
    second.update([row("/c", about="zebra")])
    assert found(first, "zebra") == {"/a", "/b", "/c"}
    assert first.stamps() == second.stamps()


def test_a_process_killed_between_both_files_has_its_rows_indexed_again(tmp_path):
    index = TantivyIndex(str(tmp_path))
    index.update([row("/a", about="old"), row("/gone", about="old")])
    before = (tmp_path / "rows").read_bytes()
    index.update([row("/a", about="new", stamp=2), row("/b", about="new")], ["/gone"])
    (tmp_path / "rows").write_bytes(before)
    left = TantivyIndex(str(tmp_path))
    assert left.stamps()["/a"] == (1, 1, 1)
    assert found(left, "new", "old") == {"/a"}
    left.update([row("/a", about="newer", stamp=2), row("/b", about="newer")], ["/gone"])
    assert found(left, "newer") == {"/a", "/b"}
    assert found(left, "old", "new") == set()
    assert left.count() == 2


def test_a_table_that_is_newer_than_the_index_is_not_used(tmp_path):
    index = TantivyIndex(str(tmp_path / "one"))
    for stamp in range(3):
        index.update([row("/a", about="pdf", stamp=stamp)])
    TantivyIndex(str(tmp_path / "other")).update([row("/b", about="pdf")])
    shutil.copy(tmp_path / "one/rows", tmp_path / "other/rows")
    torn = TantivyIndex(str(tmp_path / "other"))
    assert (bool(torn.version()), torn.stamps(), found(torn, "pdf")) == (False, {}, set())
    torn.update([row("/c", about="pdf")])
    assert found(torn, "pdf") == {"/c"}


# --- who sees a part ----------------------------------------------------------------------


@pytest.mark.req("C3")
@pytest.mark.parametrize("way", ["few", "many"])
def test_a_filter_to_a_few_skills_finds_all_of_them(index, way, monkeypatch):
    """The best of everybody hide those of somebody who sees a part."""
    if way == "many":  # more than are asked for by themselves
        monkeypatch.setattr("satchel.detect.index.MAX_ALLOWED_KEYS", 0)
    index.update(
        [row(f"/{n}", about="pdf pdf pdf") for n in range(300)]
        + [row(f"/mine/{n}", about=f"pdf and {'words ' * (n + 9)}") for n in range(5)]
    )
    mine = {f"/mine/{n}" for n in range(5)}
    terms = [("pdf", 1.0)]
    assert not mine & set(search(index, terms, 10)["description"])
    whole = search(index, terms, 1_000)["description"]
    wanted = {key: score for key, score in whole.items() if key in mine}
    got = search(index, terms, 10, {*mine, "/unknown"})["description"]
    assert got == pytest.approx(wanted, rel=1e-5)
    assert list(got) == list(wanted)
    some = index.search_signals(terms, {"head": {"description": 2.0}}, 3, mine)["head"]
    assert list(some) == ["/mine/0", "/mine/1", "/mine/2"]
    assert search(index, terms, 10, ())["description"] == {}
    assert search(index, terms, 0, mine)["description"] == {}
