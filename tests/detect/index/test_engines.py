"""Three engines keep one promise: the same rows and terms give the same scores, field by field."""

from __future__ import annotations

import itertools
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from satchel.detect.index import FIELDS, Row
from satchel.detect.index.fts5 import Fts5Index, has_fts5
from satchel.detect.index.memory import MemoryIndex
from satchel.detect.index.tantivy_engine import TantivyIndex

if TYPE_CHECKING:
    from satchel.detect.index import FieldIndex

ENGINES = {"memory": MemoryIndex, "fts5": Fts5Index, "tantivy": TantivyIndex}
WORDS = [f"word{n}" for n in range(300)] + ["c++", "数据", "=数据", "PDF", "pdf", 'a"b', "é", "x'y"]
COMMON = list(itertools.accumulate(1 / (n + 3) for n in range(len(WORDS))))


def row(key: str, name: str = "", about: str = "", body: str = "", stamp: int = 1) -> Row:
    return Row(key, (stamp, stamp, stamp), (name, about, "", "", body))


def some_rows(count: int, seed: int = 1) -> list[Row]:
    chance = random.Random(seed)

    def text(most: int) -> str:
        return " ".join(chance.choices(WORDS, cum_weights=COMMON, k=chance.randint(0, most)))

    return [
        Row(f"/s/{n}/SKILL.md", (n, n, n), (text(3), text(30), text(6), text(2), text(150)))
        for n in range(count)
    ]


@pytest.fixture(params=ENGINES)
def engine(request) -> str:
    return request.param


@pytest.fixture
def index(engine, tmp_path) -> FieldIndex:
    return ENGINES[engine](str(tmp_path))


def found(index: FieldIndex, *terms: str, limit: int = 10, field: str = "description") -> set[str]:
    return set(index.search([(term, 1.0) for term in terms], limit)[field])


def test_an_empty_index_finds_nothing(index, engine):
    assert index.engine == engine
    assert index.search([("pdf", 1.0)], 10) == {field: {} for field in FIELDS}
    assert index.stamps() == {}
    assert not index.is_sound()


def test_a_term_is_found_in_its_own_field_only(index):
    index.update([row("/a", "pdf forms", "fills in forms"), row("/b", "", "reads a pdf")])
    assert found(index, "pdf", field="name") == {"/a"}
    assert found(index, "pdf") == {"/b"}
    assert found(index, "forms", "reads") == {"/a", "/b"}
    assert found(index, "pd") == set()
    assert index.is_sound()


def test_the_score_is_bm25(index):
    index.update([row("/a", about="pdf pdf text"), row("/b", about="text"), row("/c")])
    score = index.search([("pdf", 1.0)], 10)["description"]["/a"]
    rare = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    length = 1.2 * (1 - 0.75 + 0.75 * 3 / (4 / 3))
    assert score == pytest.approx(rare * 2 * 2.2 / (2 + length), rel=1e-6)


def test_a_weight_multiplies(index):
    index.update(some_rows(40))
    one = index.search([("word1", 1.0)], 40)["body"]
    assert one
    for weight in (0.1, 2.0, 3.7):
        many = index.search([("word1", weight)], 40)["body"]
        assert many == pytest.approx({key: weight * score for key, score in one.items()}, rel=1e-5)


def test_scores_of_terms_add_up(index):
    index.update(some_rows(60))
    parts = [
        index.search([(term, weight)], 60)["body"]
        for term, weight in (("word0", 1.0), ("word2", 0.5))
    ]
    both = index.search([("word0", 1.0), ("word2", 0.5)], 60)["body"]
    keys = {key for part in parts for key in part}
    sums = {key: sum(part.get(key, 0.0) for part in parts) for key in keys}
    assert both == pytest.approx(sums, rel=1e-5)


def test_fields_are_added_up(index):
    index.update(some_rows(80))
    terms = [("word0", 1.0), ("word3", 0.5), ("数据", 2.0)]
    legs = {"head": {"name": 0.7, "description": 1.0, "when": 0.5}, "body": {"body": 1.0}}
    fields = index.search(terms, 80)
    wanted: dict[str, float] = {}
    for field, share in legs["head"].items():
        for key, score in fields[field].items():
            wanted[key] = wanted.get(key, 0.0) + share * score
    got = index.search_legs(terms, legs, 80)
    assert got["head"] == pytest.approx(wanted, rel=1e-5)
    assert got["body"] == pytest.approx(fields["body"], rel=1e-5)
    best = index.search_legs(terms, legs, 3)["head"]
    assert sorted(best.values()) == pytest.approx(sorted(wanted.values())[-3:], rel=1e-5)


def test_the_limit_is_per_field(index):
    index.update(some_rows(60))
    some = index.search([("word0", 1.0), ("word1", 1.0)], 5)
    assert {len(keys) for keys in some.values()} <= set(range(6))
    assert len(some["body"]) == 5
    full = index.search([("word0", 1.0), ("word1", 1.0)], 60)["body"]
    assert sorted(some["body"].values()) == pytest.approx(sorted(full.values())[-5:])
    assert index.search([("word0", 1.0)], 0) == {field: {} for field in FIELDS}
    assert index.search([], 5) == {field: {} for field in FIELDS}


def test_terms_are_taken_as_they_are(index):
    terms = [
        "c++",
        "c",
        "PDF",
        "pdf",
        "数据",
        "=数据",
        "é",
        'say"so',
        "it's",
        "a-b",
        "-",
        "*",
        "NEAR",
        "x" * 300,
    ]
    index.update([row(f"/{n}", about=term) for n, term in enumerate(terms)])
    for n, term in enumerate(terms):
        assert found(index, term) == {f"/{n}"}, term


def test_broken_unicode_and_odd_keys_do_no_harm(index):
    index.update([row("/bad\udcff/SKILL.md", about="pdf \ud800 x\0y")])
    assert found(index, "pdf", "\ud800") == {"/bad\udcff/SKILL.md"}
    assert index.stamps(["/bad\udcff/SKILL.md", "/none"]) == {"/bad\udcff/SKILL.md": (1, 1, 1)}


def test_rows_are_replaced_and_dropped(index):
    index.update([row("/a", about="old"), row("/b", about="old"), row("/c", about="old")])
    index.update([row("/a", about="new", stamp=2)], ["/b", "/unknown"])
    assert found(index, "old") == {"/c"}
    assert found(index, "new") == {"/a"}
    assert index.stamps() == {"/a": (2, 2, 2), "/c": (1, 1, 1)}
    index.update([], ["/a", "/c"])
    assert index.stamps() == {}
    assert found(index, "old", "new") == set()


def test_a_key_twice_in_one_update_is_there_once(index):
    index.update([row("/a", about="first"), row("/a", about="second", stamp=2)])
    assert found(index, "first", "second") == {"/a"}
    assert found(index, "first") == set()
    assert index.stamps() == {"/a": (2, 2, 2)}


def test_many_changes_leave_no_trace(index):
    rows = some_rows(50)
    index.update(rows)
    for turn in range(12):
        index.update([one._replace(stamp=(turn, 0, 0)) for one in rows[turn::3]])
    index.update([one._replace(stamp=(99, 0, 0)) for one in rows], ["/s/0/SKILL.md"])
    index.update(rows[:1])
    assert len(index.stamps()) == 50
    fresh = MemoryIndex()
    fresh.update(rows)
    terms = [("word0", 1.0), ("word5", 1.0), ("数据", 2.0)]
    wanted = fresh.search(terms, 50)["body"]
    assert index.search(terms, 50)["body"].keys() == wanted.keys()


def test_what_is_kept_is_there_in_the_next_process(index, engine, tmp_path):
    rows = some_rows(30)
    index.update(rows)
    index.update([], [rows[3].key])
    wanted = index.search([("word0", 1.0)], 30)
    index.close()
    again = ENGINES[engine](str(tmp_path))
    assert again.is_sound()
    assert again.stamps() == {one.key: one.stamp for one in rows if one is not rows[3]}
    assert again.search([("word0", 1.0)], 30) == wanted


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


def test_progress_is_told(index):
    told = []
    index.update(some_rows(1_100), progress=told.append)
    assert told == [500, 1_000, 1_100]


def test_searches_and_updates_in_many_threads(index):
    index.update(some_rows(20))
    failures = []

    def read():
        try:
            for _ in range(30):
                assert found(index, "word0", "word1", field="body", limit=5)
        except Exception as exc:  # noqa: BLE001 - shown below
            failures.append(exc)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(5):
        index.update([one._replace(stamp=(turn, 0, 0)) for one in some_rows(20)])
    for thread in threads:
        thread.join()
    assert failures == []


# --- one against the other ----------------------------------------------------------------


def _goals(count: int) -> list[list[tuple[str, float]]]:
    chance = random.Random(7)
    goals = []
    for _ in range(count):
        words = chance.choices(WORDS, cum_weights=COMMON, k=chance.randint(1, 40))
        goals.append([(word, chance.choice((1.0, 0.1, 2.5))) for word in dict.fromkeys(words)])
    return goals


def test_sqlite_scores_as_plain_python_does(tmp_path):
    rows = some_rows(300)
    plain, sqlite = MemoryIndex(), Fts5Index(str(tmp_path))
    for index in (plain, sqlite):
        index.update(rows)
        index.update(
            [one._replace(stamp=(5, 5, 5)) for one in rows[:30]], [one.key for one in rows[50:90]]
        )
    for goal in _goals(30):
        wanted, got = plain.search(goal, 400), sqlite.search(goal, 400)
        for field in FIELDS:
            assert got[field] == pytest.approx(wanted[field], rel=1e-9), field


def test_tantivy_ranks_as_plain_python_does(tmp_path):
    """It keeps the length of a field in one byte, so scores differ by a few per cent."""
    rows = some_rows(400)
    plain, tantivy = MemoryIndex(), TantivyIndex(str(tmp_path))
    for index in (plain, tantivy):
        index.update(rows)
    for goal in _goals(30):
        wanted, got = plain.search(goal, 500), tantivy.search(goal, 500)
        for field in FIELDS:
            assert got[field].keys() == wanted[field].keys()
            assert got[field] == pytest.approx(wanted[field], rel=0.1), field
        best = max(wanted["body"].values())
        first = max(got["body"], key=lambda key: got["body"][key])
        assert wanted["body"][first] > 0.95 * best


def test_sqlite_leaves_out_the_commonest_terms_of_a_long_goal(tmp_path, monkeypatch):
    monkeypatch.setattr("satchel.detect.index.fts5._WORK", 10)
    monkeypatch.setattr("satchel.detect.index.fts5._FEWEST", 1)
    index = Fts5Index(str(tmp_path))
    index.update([row(f"/{n}", about=f"common rare{n}") for n in range(30)])
    assert found(index, "rare3", "rare4", "common", limit=50) == {"/3", "/4"}
    assert len(found(index, "common", limit=50)) == 30


def test_this_python_has_full_text_search():
    assert has_fts5()


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
    index.close()
    files = [os.path.join(here, name) for here, _, names in os.walk(base) for name in names]
    assert files
    for number, file in enumerate(files):
        copy = str(tmp_path / f"{number}")
        shutil.copytree(base, copy)
        DAMAGE[damage](os.path.join(copy, os.path.relpath(file, base)))
        torn = ENGINES[engine](copy)
        torn.search([("word0", 1.0), ("word9", 1.0)], 10)
        known = torn.stamps() if torn.is_sound() else {}
        torn.update([one for one in rows if known.get(one.key) != one.stamp])
        if len(torn.stamps()) < 60:
            torn.update(rows)  # the damage showed only now
        assert torn.stamps().keys() == {one.key for one in rows}, file
        torn.close()


def test_a_lost_folder_is_noticed_and_made_anew(index, engine, tmp_path):
    index.update([row("/a", about="pdf")])
    assert found(index, "pdf") == {"/a"}
    for name in os.listdir(tmp_path):
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if engine == "memory":
        assert found(index, "pdf") == {"/a"}
    else:
        assert not index.is_sound()
        assert index.stamps() == {}
        assert found(index, "pdf") == set()
    index.update([row("/b", about="pdf")])
    assert "/b" in found(index, "pdf")
    assert index.is_sound()


@pytest.mark.parametrize("engine", ["fts5", "tantivy"])
def test_somebody_elses_files_are_replaced(engine, tmp_path):
    import sqlite3

    import tantivy

    for name in ("index.db", "rows.db"):
        with sqlite3.connect(tmp_path / name) as file:
            file.execute("CREATE TABLE rows(other)")
        file.close()
    os.mkdir(tmp_path / "index")
    tantivy.Index(tantivy.SchemaBuilder().add_text_field("other").build(), str(tmp_path / "index"))
    index = ENGINES[engine](str(tmp_path))
    assert found(index, "pdf") == set()
    assert index.stamps() == {}
    index.update([row("/a", about="pdf")])
    assert found(index, "pdf") == {"/a"}


def test_a_commit_that_only_one_side_knows_is_not_trusted(tmp_path):
    index = TantivyIndex(str(tmp_path))
    index.update([row("/a", about="pdf")])
    shutil.copy(tmp_path / "rows.db", tmp_path / "before.db")
    index.close()
    TantivyIndex(str(tmp_path)).update([row("/b", about="pdf")])
    for end in ("-wal", "-shm"):
        (tmp_path / f"rows.db{end}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "before.db", tmp_path / "rows.db")
    torn = TantivyIndex(str(tmp_path))
    assert not torn.is_sound()
    assert torn.damage == "its two sides do not fit together"
    assert torn.stamps() == {}
    torn.update([row("/c", about="pdf")])
    assert found(torn, "pdf") == {"/c"}


# --- two processes ------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["fts5", "tantivy"])
def test_a_second_writer_is_told_and_readers_go_on(engine, tmp_path):
    first, second = ENGINES[engine](str(tmp_path)), ENGINES[engine](str(tmp_path))
    first.update([row("/a", about="zebra")])

    def rows():
        yield from some_rows(600)  # a few are taken before anything is locked
        with pytest.raises(TimeoutError):
            second.update([row("/c", about="zebra")])
        assert found(second, "zebra") == {"/a"}
        assert found(ENGINES[engine](str(tmp_path)), "zebra") == {"/a"}
        yield row("/b", about="zebra")

    first.update(rows())
    assert found(second, "zebra") == {"/a", "/b"}
    assert found(first, "zebra") == {"/a", "/b"}
    second.update([row("/c", about="zebra")])
    assert found(first, "zebra") == {"/a", "/b", "/c"}


@pytest.mark.parametrize("engine", ["fts5", "tantivy"])
def test_a_row_is_found_while_it_is_replaced_by_somebody_else(engine, tmp_path):
    mine, theirs = ENGINES[engine](str(tmp_path)), ENGINES[engine](str(tmp_path))
    mine.update([row("/a", about="pdf"), row("/b", about="pdf")])
    assert found(mine, "pdf") == {"/a", "/b"}
    theirs.update([row("/a", about="pdf new", stamp=2)])
    assert found(mine, "pdf") == {"/a", "/b"}
    assert mine.stamps() == {"/a": (2, 2, 2), "/b": (1, 1, 1)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_searches_and_writes(index, tmp_path):
    index.update(some_rows(20))
    before = found(index, "word0", field="body")
    code = (
        "import os, sys\n"
        f"sys.path[:0] = {[os.path.dirname(__file__), *sys.path]!r}\n"
        "from test_engines import ENGINES, some_rows, found, row\n"
        f"index = ENGINES[{index.engine!r}]({str(tmp_path)!r})\n"
        "assert found(index, 'word0', field='body')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    ok = bool(found(index, 'word0', field='body'))\n"
        "    index.update([row('/forked', about='forked')])\n"
        "    os._exit(0 if ok and found(index, 'forked') == {'/forked'} else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert found(index, 'word0', field='body')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if index.engine != "memory":
        assert found(index, "forked") == {"/forked"}
    assert found(index, "word0", field="body") == before


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_writer_leaves_the_old_state_or_the_new_one(engine, tmp_path):
    code = (
        "import sys\n"
        f"sys.path[:0] = {[os.path.dirname(__file__), *sys.path]!r}\n"
        "from test_engines import ENGINES, some_rows\n"
        f"index = ENGINES[{engine!r}]({str(tmp_path)!r})\n"
        "rows = some_rows(30)\n"
        "print('ready', flush=True)\n"
        "for turn in range(1, 10_000):\n"
        "    index.update([one._replace(stamp=(turn, 0, 0)) for one in rows[turn % 5 :: 5]])\n"
    )
    index = ENGINES[engine](str(tmp_path))
    index.update(some_rows(30))
    whole = found(index, "word0", "word1", "word2", field="body", limit=50)
    index.close()
    for turn in range(5):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
            assert other.stdout.readline() == b"ready\n"
            time.sleep(0.05 + 0.037 * turn)
            assert other.poll() is None, "it failed by itself"
            other.kill()
        left = ENGINES[engine](str(tmp_path))
        assert left.is_sound()
        assert len(left.stamps()) == 30
        assert found(left, "word0", "word1", "word2", field="body", limit=50) == whole
        left.close()


# --- who sees a part ----------------------------------------------------------------------


@pytest.mark.req("C3")
@pytest.mark.parametrize("way", ["few", "many", "long"])
def test_who_may_see_few_of_many_finds_them_all(index, way, monkeypatch):
    """The best of everybody hide those of somebody who sees a part."""
    if way == "many":  # more than are asked for by themselves
        monkeypatch.setattr("satchel.detect.index.base.FEW_ALLOWED", 0)
    if way == "long":  # more than SQLite takes
        monkeypatch.setattr("satchel.detect.index.fts5._LONGEST", 1)
    index.update(
        [row(f"/{n}", about="pdf pdf pdf") for n in range(300)]
        + [row(f"/mine/{n}", about=f"pdf and {'words ' * (n + 9)}") for n in range(5)]
    )
    mine = {f"/mine/{n}" for n in range(5)}
    terms = [("pdf", 1.0)]
    assert not mine & set(index.search(terms, 10)["description"])
    whole = index.search(terms, 1_000)["description"]
    wanted = {key: score for key, score in whole.items() if key in mine}
    got = index.search(terms, 10, {*mine, "/unknown"})["description"]
    assert got == pytest.approx(wanted, rel=1e-5)
    assert list(got) == list(wanted)
    some = index.search_legs(terms, {"head": {"description": 2.0}}, 3, mine)["head"]
    assert list(some) == ["/mine/0", "/mine/1", "/mine/2"]
    assert index.search(terms, 10, ())["description"] == {}
    assert index.search(terms, 0, mine)["description"] == {}


def test_an_index_knows_how_many_it_has(index):
    assert index.count() == 0
    index.update([row("/a", about="one"), row("/b", about="two"), row("/c")])
    assert index.count() == 3
    index.update([row("/a", about="three")], ["/b"])
    assert index.count() == 2


def test_every_change_is_another_version(index, engine, tmp_path):
    assert index.version() == ()
    index.update([row("/a", about="one")])
    first = index.version()
    assert first
    index.search([("one", 1.0)], 5)
    index.stamps()
    assert index.version() == first
    index.update([row("/b", about="two")])
    second = index.version()
    assert second not in (first, ())
    if engine == "memory":
        return  # nobody else can change what is in memory
    other = ENGINES[engine](str(tmp_path))
    other.update([], ["/b"])
    third = index.version()
    assert third not in (first, second, ())
    assert (index.count(), index.version()) == (1, third)
    other.close()
    for name in os.listdir(tmp_path):
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert index.version() == ()
    assert index.count() == 0


def test_a_field_that_was_empty_is_searched_once_it_has_a_text(index):
    index.update([row("/a", "pdf", "reads")])
    assert found(index, "forms", field="when") == set()
    index.update([Row("/b", (1, 1, 1), ("", "", "forms", "", ""))])
    assert found(index, "forms", field="when") == {"/b"}
    legs = index.search_legs([("forms", 1.0)], {"head": {"name": 1.0, "when": 1.0}}, 10)
    assert set(legs["head"]) == {"/b"}


def test_another_process_has_given_a_field_its_first_text(tmp_path):
    mine, theirs = TantivyIndex(str(tmp_path)), TantivyIndex(str(tmp_path))
    mine.update([row("/a", "pdf", "reads")])
    assert found(mine, "forms", field="triggers") == set()
    theirs.update([Row("/b", (1, 1, 1), ("", "", "", "forms", ""))])
    assert found(mine, "forms", field="triggers") == {"/b"}
    assert found(TantivyIndex(str(tmp_path)), "forms", field="triggers") == {"/b"}


def test_an_index_that_does_not_tell_its_fields_is_searched_in_all(tmp_path):
    TantivyIndex(str(tmp_path)).update([Row("/b", (1, 1, 1), ("", "", "forms", "", ""))])
    with closing(sqlite3.connect(tmp_path / "rows.db")) as table:
        table.execute("PRAGMA user_version = 0")
    older = TantivyIndex(str(tmp_path))
    assert found(older, "forms", field="when") == {"/b"}
    older.update([Row("/c", (1, 1, 1), ("forms", "", "", "", ""))])
    assert found(older, "forms", field="when") == {"/b"}
    assert found(older, "forms", field="name") == {"/c"}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_knows_how_many_rows_have_a_term(engine, tmp_path):
    index = ENGINES[engine](str(tmp_path))
    rows = [row("/a", "pdf", "pdf form"), row("/b", "", "form c++"), row("/c", "数据", "form")]
    index.update(rows)
    found = index.having(["pdf", "form", "c++", "数据", "nowhere"])
    assert set(found) == set(FIELDS)
    assert found["name"] == {"pdf": 1, "数据": 1}
    assert found["description"] == {"pdf": 1, "form": 3, "c++": 1}


def test_an_index_beside_another_scores_as_that_one_does():
    """The same row has the same score, wherever it is."""
    rows = some_rows(200)
    every, most, few = MemoryIndex(), MemoryIndex(), MemoryIndex()
    every.update(rows)
    most.update(rows[:190])
    few.update(rows[190:])
    terms = [(word, 1.0) for word in WORDS[:12]]
    legs = {"name": {"name": 1.0}, "head": {"description": 1.0}}
    whole = every.search_legs(terms, legs, 500)
    alone = few.search_legs(terms, legs, 500)
    beside = few.search_beside(most, terms, legs, 500)

    def distance(found: dict[str, dict[str, float]]) -> float:
        return sum(abs(whole[leg][key] - s) for leg in legs for key, s in found[leg].items())

    assert beside["head"]
    assert distance(beside) < distance(alone) / 2
