"""The vectors of skills: made once, found again, rebuilt when lost, and never waited for."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from satchel.detect.vectors import nearest as nearest_module
from satchel.detect.vectors import shelf as shelf_module
from satchel.detect.vectors import store as store_module
from satchel.detect.vectors.store import Filled, VectorStore
from satchel.errors import ModelFailed
from tiny_models import Letters

SKILLS = {
    "/skills/pdf/SKILL.md": ["pdf", "merge and split pdf files"],
    "/skills/review/SKILL.md": ["review", "review code of a pull request"],
    "/skills/dinner/SKILL.md": ["dinner", "plan a week of dinners"],
}
CHINESE = ("/skills/中文/SKILL.md", ["写作", "把中文写得自然"])


def _query(text: str):
    return Letters().embed([text])[0]


def _files(folder) -> list[str]:
    return sorted(glob.glob(f"{folder}/*/*.vec"))


def _text(at: int) -> str:
    return f"skill number {at * 7919 % 10007} does {at}"


def _first(found) -> str:
    return next(iter(found))


def _many(count: int) -> list[tuple[str, list[str]]]:
    return [(f"/skills/{at}/SKILL.md", [_text(at)]) for at in range(count)]


@pytest.mark.req("C10")
@pytest.mark.parametrize("on_disk", [True, False])
def test_the_nearest_skill_comes_first_with_a_score_for_each_text(tmp_path, letters, on_disk):
    store = VectorStore(str(tmp_path) if on_disk else None, letters)
    assert store.fill(SKILLS.items()) == Filled(3, 0, 0)
    found = store.best(_query("merge and split pdf files"), 2)
    assert _first(found) == "/skills/pdf/SKILL.md"
    assert len(found) == 2
    by_name, by_description = found["/skills/pdf/SKILL.md"]
    assert by_description == pytest.approx(1, abs=0.01)
    expected = float(_query("pdf") @ _query("merge and split pdf files"))
    assert by_name == pytest.approx(expected, abs=0.01)
    some = store.scores(_query("dinner"), ["/skills/dinner/SKILL.md", "/nowhere/SKILL.md"])
    assert list(some) == ["/skills/dinner/SKILL.md"]
    assert some["/skills/dinner/SKILL.md"][0] == pytest.approx(1, abs=0.01)


def test_a_skill_is_embedded_once_and_again_when_its_texts_change(tmp_path, letters):
    VectorStore(str(tmp_path), letters).fill(SKILLS.items())
    assert len(letters.asked) == 6
    store = VectorStore(str(tmp_path), letters)
    assert store.lacking([*SKILLS, "/new/SKILL.md"]) == ["/new/SKILL.md"]
    changed = {**SKILLS, "/skills/pdf/SKILL.md": ["pdf", "fill in forms"]}
    assert store.fill(changed.items()) == Filled(1, 2, 0)
    assert letters.asked[6:] == ["pdf", "fill in forms"]
    again = VectorStore(str(tmp_path), letters)
    assert again.scores(_query("fill in forms"), SKILLS)["/skills/pdf/SKILL.md"][1] > 0.99
    assert len(again) == 3


def test_texts_are_told_apart_by_where_one_ends(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    store.fill([("/a", ["ab", "c"])])
    assert store.fill([("/a", ["a", "bc"])]).embedded == 1


def test_gone_skills_are_forgotten_and_stay_so(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    store.fill(SKILLS.items())
    store.fill([], gone=["/skills/pdf/SKILL.md", "/never/SKILL.md"])
    for one in (store, VectorStore(str(tmp_path), letters)):
        assert len(one) == 2
        assert one.lacking(SKILLS) == ["/skills/pdf/SKILL.md"]
        assert "/skills/pdf/SKILL.md" not in one.best(_query("pdf"), 9)
    store.fill(SKILLS.items())
    assert "/skills/pdf/SKILL.md" in VectorStore(str(tmp_path), letters).best(_query("pdf"), 9)


def test_what_the_model_does_not_cover_has_no_score_and_is_not_asked_again(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    mixed = ("/skills/mixed/SKILL.md", ["mixed", "把中文写得自然"])
    assert store.fill([CHINESE, mixed]) == Filled(1, 0, 1)
    assert letters.asked == ["mixed"]
    assert store.lacking([CHINESE[0]]) == []
    assert store.fill([CHINESE]) == Filled(0, 1, 0)
    found = store.scores(_query("mixed"), [CHINESE[0], mixed[0]])
    assert found == {mixed[0]: (pytest.approx(1, abs=0.01), 0.0)}
    assert VectorStore(str(tmp_path), letters).lacking([CHINESE[0], mixed[0]]) == []


def test_vectors_of_two_models_are_never_mixed(tmp_path, letters):
    VectorStore(str(tmp_path), letters).fill(SKILLS.items())
    other = VectorStore(str(tmp_path), Letters("letters-2"))
    assert other.lacking(SKILLS) == list(SKILLS)
    assert other.best(_query("pdf")) == {}
    assert len(VectorStore(str(tmp_path), letters)) == 3


def test_a_server_that_changed_its_model_is_noticed_by_the_length(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    store.fill(SKILLS.items())
    query = np.zeros(32, np.float32)
    assert store.best(query) == {}
    assert store.lacking(SKILLS) == list(SKILLS)


def test_many_small_changes_do_not_make_many_files(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    store.fill(_many(300))
    for at in range(40):
        store.fill([(f"/skills/{at}/SKILL.md", [f"changed {at}"])])
    assert len(_files(tmp_path)) <= 6
    again = VectorStore(str(tmp_path), letters)
    assert len(again) == 300
    for at in (0, 39):
        found = again.scores(_query(f"changed {at}"), [f"/skills/{at}/SKILL.md"])
        assert found.popitem()[1][0] > 0.99


def test_large_stores_are_searched_by_signs_with_the_same_answer(tmp_path, monkeypatch):
    wide = Letters("wide", 256)
    store = VectorStore(str(tmp_path), wide)
    store.fill(_many(3_000))
    store.fill([], gone=["/skills/5/SKILL.md"])
    queries = wide.embed([_text(at) for at in (3, 5, 77, 2_900)])
    exact = [list(store.best(query, 10)) for query in queries]
    monkeypatch.setattr(nearest_module, "EXACT", 100)
    monkeypatch.setattr(nearest_module, "SHORTLIST", 500)
    signs = [list(store.best(query, 10)) for query in queries]
    for one, other in zip(exact, signs, strict=True):
        assert len(set(one) & set(other)) >= 8
    assert [one[0] for one in signs] == [one[0] for one in exact]
    assert all("/skills/5/SKILL.md" not in one for one in signs)


def test_only_those_that_are_allowed_are_found_and_enough_of_them(tmp_path, letters, monkeypatch):
    store = VectorStore(str(tmp_path), letters)
    store.fill(_many(900))
    query = _query(_text(3))
    order = list(store.best(query, 900))
    own = set(order[400:700])  # strangers are nearer
    for every in (5_000, 0):
        monkeypatch.setattr(store_module, "_EVERY", every)
        assert list(store.best(query, 50, own)) == order[400:450]
        assert list(store.best(query, 500, own)) == order[400:700]
        assert store.best(query, 5, ["/nowhere"]) == {}
    assert list(store.best(query, 5, set(order))) == order[:5]


def test_what_is_lacking_is_counted_again_only_when_something_changed(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    before = store.changes
    store.lacking(SKILLS)
    store.refresh()
    assert (store.changes, store.losses) == (before, 0)
    store.fill(SKILLS.items())
    assert store.changes > before
    assert sorted(store.held()) == sorted(SKILLS)
    for path in _files(tmp_path):
        os.unlink(path)
    store.refresh()
    assert store.losses == 1
    assert store.lacking(SKILLS) == list(SKILLS)


def test_vectors_made_anew_overrule_the_old_ones(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    store.fill(SKILLS.items())
    told: list[int] = []
    assert store.fill(SKILLS.items(), progress=told.append, anew=True) == Filled(3, 0, 0)
    assert (told, len(letters.asked), len(store)) == ([3], 12, 3)
    more = {**SKILLS, "/new/SKILL.md": ["new"]}
    store.fill(more.items(), progress=told.append)
    assert told == [3, 4]


def test_growth_over_many_segments_keeps_every_key(tmp_path, letters, monkeypatch):
    monkeypatch.setattr(shelf_module, "_FLUSH", 64)
    monkeypatch.setattr(shelf_module, "_LARGE", 20_000)
    store = VectorStore(str(tmp_path), letters)
    skills = _many(1_200)
    for begin in range(0, 1_200, 100):
        store.fill(skills[begin : begin + 100])
    assert 2 < len(_files(tmp_path)) < 12
    again = VectorStore(str(tmp_path), letters)
    assert again.lacking(key for key, _ in skills) == []
    assert len(again.scores(_query("skill"), [key for key, _ in skills])) == 1_200


# --- faults -------------------------------------------------------------------------------


def _spoil(path: str, how: str) -> None:
    with open(path, "rb") as file:
        data = bytearray(file.read())
    if how == "empty":
        data = b""
    elif how == "short":
        data = data[:-100]
    elif how == "head":
        data[30] ^= 0xFF
    elif how == "keys":
        data[len(data) // 4] ^= 0xFF
    elif how == "text":
        data = b"# not vectors\n" * 50
    elif how == "vectors":
        data[-384:] = b"\x7f" * 384
    with open(path, "wb") as file:
        file.write(data)


@pytest.mark.parametrize("how", ["empty", "short", "head", "keys", "text", "vectors"])
@pytest.mark.parametrize("exact", [True, False])
def test_a_damaged_file_is_rebuilt(tmp_path, letters, monkeypatch, how, exact):
    if not exact:
        monkeypatch.setattr(nearest_module, "EXACT", 0)
        monkeypatch.setattr(nearest_module, "SHORTLIST", 1)
    VectorStore(str(tmp_path), letters).fill(SKILLS.items())
    (path,) = _files(tmp_path)
    _spoil(path, how)
    store = VectorStore(str(tmp_path), letters)
    store.best(_query("pdf"), 9)
    store.scores(_query("pdf"), SKILLS)
    assert store.lacking(SKILLS) == list(SKILLS)
    assert _files(tmp_path) == []
    assert store.fill(SKILLS.items()).embedded == 3
    again = VectorStore(str(tmp_path), letters)
    assert _first(again.best(_query("pdf"))) == "/skills/pdf/SKILL.md"


def test_a_join_that_was_cut_off_counts_nothing_twice(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    store.fill(_many(50))
    (first,) = _files(tmp_path)
    with open(first, "rb") as file:
        old = file.read()
    store.fill([("/skills/3/SKILL.md", ["another text"])], gone=["/skills/4/SKILL.md"])
    while os.path.exists(first):
        store.fill([(f"/more/{time.time_ns()}", ["more and more"])] * 30)
    with open(first, "wb") as file:  # as if the crash had come before it was removed
        file.write(old)
    again = VectorStore(str(tmp_path), letters)
    assert not os.path.exists(first)
    assert again.lacking(["/skills/4/SKILL.md"]) == ["/skills/4/SKILL.md"]
    assert again.scores(_query("another text"), ["/skills/3/SKILL.md"]).popitem()[1][0] > 0.99


def test_a_folder_that_cannot_be_written_costs_no_answer(tmp_path, letters):
    (tmp_path / "file").write_text("in the way")
    store = VectorStore(str(tmp_path / "file"), letters)
    store.fill(SKILLS.items())
    assert store.trouble
    assert _first(store.best(_query("pdf"))) == "/skills/pdf/SKILL.md"


def test_strange_keys_come_back_as_they_were(letters, tmp_path):
    keys = ["/a\nb\0c/SKILL.md", "/\udcff/SKILL.md", "/技能/SKILL.md", ""]
    store = VectorStore(str(tmp_path), letters)
    store.fill([(key, [f"text {at}"]) for at, key in enumerate(keys)])
    assert sorted(VectorStore(str(tmp_path), letters).best(_query("text"), 9)) == sorted(keys)


def test_what_was_made_before_a_failure_is_kept(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    skills = _many(600)

    def stop(_done: int) -> None:
        letters.broken = ModelFailed("the server is away")

    with pytest.raises(ModelFailed):
        store.fill(skills, progress=stop)
    letters.broken = None
    again = VectorStore(str(tmp_path), letters)
    assert again.fill(skills).kept == 256


# --- in the background --------------------------------------------------------------------


class Slow(Letters):
    """Waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.begun = threading.Event()

    def embed(self, texts):
        if texts != ["query"]:
            self.begun.set()
            assert self.go.wait(8)
        return super().embed(texts)


def _wait(store: VectorStore) -> None:
    until = time.monotonic() + 8
    while (store.waiting or store.is_filling) and time.monotonic() < until:
        time.sleep(0.01)


def test_a_query_never_waits_for_vectors(tmp_path):
    slow = Slow()
    store = VectorStore(str(tmp_path), slow)
    began = time.monotonic()
    store.fill_soon(SKILLS.items())
    assert store.best(slow.embed(["query"])[0]) == {}
    assert store.scores(_query("pdf"), SKILLS) == {}
    assert time.monotonic() - began < 2
    assert store.waiting == 3
    slow.go.set()
    _wait(store)
    assert len(store) == 3
    assert _first(store.best(_query("pdf"))) == "/skills/pdf/SKILL.md"
    assert len(VectorStore(str(tmp_path), slow)) == 3


def test_queries_see_vectors_as_they_are_made(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    store.fill_soon(_many(400))
    store.fill_soon(SKILLS.items(), gone=["/skills/7/SKILL.md"])
    seen = set()
    while store.waiting:
        seen.add(len(store))
        store.best(_query("skill number"), 5)
    _wait(store)
    assert store.trouble == ""
    assert len(store) == 402
    store.close()


def test_a_skill_that_goes_while_it_is_embedded_is_gone(tmp_path):
    slow = Slow()
    store = VectorStore(str(tmp_path), slow)
    store.fill_soon(SKILLS.items())
    assert slow.begun.wait(8)
    store.fill_soon([], gone=["/skills/pdf/SKILL.md"])
    slow.go.set()
    _wait(store)
    assert store.lacking(SKILLS) == ["/skills/pdf/SKILL.md"]
    assert VectorStore(str(tmp_path), slow).lacking(SKILLS) == ["/skills/pdf/SKILL.md"]


def test_a_failure_in_the_background_is_told_and_tried_again(tmp_path, letters):
    store = VectorStore(str(tmp_path), letters)
    for broken in (ModelFailed("the server is away"), ValueError("odd")):
        letters.broken = broken
        store.fill_soon(SKILLS.items())
        _wait(store)
        assert str(broken) in store.trouble
        assert store.waiting == 0
    letters.broken = None
    store.fill_soon(SKILLS.items())
    _wait(store)
    assert (store.trouble, len(store)) == ("", 3)


def test_closing_stops_the_background_and_keeps_what_was_made(tmp_path):
    slow = Slow()
    store = VectorStore(str(tmp_path), slow)
    store.fill_soon(_many(500))
    assert slow.begun.wait(8)
    threading.Timer(0.1, slow.go.set).start()
    store.close()
    assert store.waiting == 0
    assert 1 <= len(VectorStore(str(tmp_path), slow)) < 500


@pytest.mark.timeout(30)
def test_a_program_that_ends_does_not_hang_and_keeps_what_was_made(tmp_path):
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "import time; from tiny_models import Letters\n"
        "from satchel.detect.vectors.store import VectorStore\n"
        "class Slow(Letters):\n"
        "    def embed(self, texts):\n"
        "        time.sleep(0.2); return super().embed(texts)\n"
        "store = VectorStore(sys.argv[3], Slow())\n"
        "store.fill_soon((f'/{at}', [f'text {at}']) for at in range(5000))\n"
        "time.sleep(0.3)\n"
    )
    tests = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    source = os.path.join(os.path.dirname(tests), "src")
    done = subprocess.run(
        [sys.executable, "-c", code, source, tests, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")
    assert 32 <= len(VectorStore(str(tmp_path), Letters())) < 5_000


def test_two_processes_may_write_at_once(tmp_path, letters):
    one = VectorStore(str(tmp_path), letters)
    other = VectorStore(str(tmp_path), letters)
    one.fill(_many(40)[:20])
    other.fill(_many(40)[20:])
    one.fill([("/skills/1/SKILL.md", ["from one"])])
    other.fill([("/skills/21/SKILL.md", ["from the other"])])
    again = VectorStore(str(tmp_path), letters)
    assert len(again) == 40
    found = again.scores(_query("from one"), ["/skills/1/SKILL.md"])
    assert found["/skills/1/SKILL.md"][0] > 0.99


HANGS = """
import sys, time
sys.path.insert(0, sys.argv[2])
from satchel.detect.vectors.store import VectorStore
from tiny_models import Letters

class Hanging(Letters):
    def hurrying(self, seconds): ...
    def embed(self, texts):
        time.sleep(60)

VectorStore(sys.argv[1], Hanging()).fill_soon([("/skills/a/SKILL.md", ["a", "b"])])
time.sleep(0.2)
"""


def test_a_server_that_hangs_does_not_hold_a_program_that_ends(tmp_path):
    tests = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", HANGS, str(tmp_path), tests], check=True, timeout=50)
    assert time.monotonic() - began < 30


def test_vectors_that_were_lost_to_zeros_are_made_anew(tmp_path, letters):
    VectorStore(str(tmp_path), letters).fill(SKILLS.items())
    (path,) = _files(tmp_path)
    size = os.path.getsize(path)
    rows = 2 * len(SKILLS) * letters.dimensions
    with open(path, "r+b") as file:
        file.seek(size - rows)
        file.write(bytes(rows))
    store = VectorStore(str(tmp_path), letters)
    assert sorted(store.lacking(SKILLS)) == sorted(SKILLS)
