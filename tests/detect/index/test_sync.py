"""The index follows the library, and nobody waits for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from satchel import Library
from satchel._fs import locked
from satchel.detect.index import IndexRow
from satchel.detect.index.sync import (
    FORMAT_VERSION,
    MIN_TANTIVY_SKILLS,
    IndexSync,
    choose_engine,
    open_index,
    remove_indexes,
)
from satchel.errors import Conflict, NotFound
from satchel.library import Location
from satchel.skill import Skill, SkillHeader, SkillOrigin
from satchel.testing import make_skill

MANY = MIN_TANTIVY_SKILLS + 50


def make_row(skill: Skill) -> IndexRow:
    head = skill.head
    text = head.description.lower().replace(".", "")
    return IndexRow(
        skill.path, (head.mtime_ns, head.ctime_ns, head.size), (skill.name, text, "", "", "")
    )


def counted():
    """The names of the skills that were read, and what reads them."""
    made: list[str] = []

    def read(skill: Skill) -> IndexRow:
        made.append(skill.name)
        return make_row(skill)

    return made, read


def slow_row(skill: Skill) -> IndexRow:
    time.sleep(0.004)
    return make_row(skill)


def some_skills(count: int, word: str = "pdf", stamp: int = 1) -> tuple[Skill, ...]:
    origin = SkillOrigin("/nowhere", "project", "skills")
    return tuple(
        Skill(
            SkillHeader(f"s{n}", f"{word} number{n}", f"s{n}", "SKILL.md", stamp, stamp, stamp),
            origin,
        )
        for n in range(count)
    )


def library(folder, count: int = 3) -> Library:
    for number in range(count):
        make_skill(folder, f"s{number}", f"Reads number{number}.")
    time.sleep(0.1)  # what is younger than 50 ms is not believed, and read again
    return Library([Location(str(folder))])


def found(answer, term: str) -> set[str]:
    assert answer.field_index is not None
    keys = answer.field_index.search_signals([(term, 1.0)], {"all": {"description": 1.0}}, 100_000)[
        "all"
    ]
    return {os.path.basename(os.path.dirname(key)) for key in keys}


def settled(upkeep: IndexSync, skills):
    answer = upkeep.current(skills, timeout_s=9)
    assert upkeep.current(skills) is answer
    assert (list(answer.unindexed), answer.note) == ([], "")
    return answer


# --- a few --------------------------------------------------------------------------------


def test_a_changed_skill_is_indexed_alone(tmp_path):
    made, counting = counted()
    books = library(tmp_path / "skills")
    upkeep = IndexSync(str(tmp_path / "index"), counting, make_row)
    assert found(upkeep.current(books.snapshot().skills), "reads") == {"s0", "s1", "s2"}
    assert sorted(made) == ["s0", "s1", "s2"]
    made.clear()
    make_skill(tmp_path / "skills", "s1", "Writes number1 now.")
    shutil.rmtree(tmp_path / "skills" / "s2")
    make_skill(tmp_path / "skills", "s3", "Writes number3.")
    answer = upkeep.current(books.refresh().skills)
    assert sorted(made) == ["s1", "s3"]
    assert found(answer, "writes") == {"s1", "s3"}
    assert found(answer, "reads") == {"s0"}


def test_a_smaller_view_does_not_empty_the_index(tmp_path):
    made, counting = counted()
    books = library(tmp_path / "skills")
    upkeep = IndexSync(str(tmp_path / "index"), counting, make_row)
    everybody = books.snapshot().skills
    some = tuple(everybody[:1])
    for skills in (everybody, some, everybody, some, tuple(everybody)):
        answer = upkeep.current(skills)
        assert (tuple(answer.unindexed), answer.note) == ((), "")
    assert len(made) == 3
    assert found(upkeep.build(some), "reads") == {"s0", "s1", "s2"}
    assert len(made) == 3
    assert found(upkeep.build(some, rebuild=True), "reads") == {"s0"}
    assert found(upkeep.current(everybody), "reads") == {"s0", "s1", "s2"}


# --- many ---------------------------------------------------------------------------------


def test_many_are_left_to_the_background(tmp_path):
    skills = some_skills(MANY)
    gate = threading.Event()

    def waiting(skill):
        gate.wait(8)
        return make_row(skill)

    upkeep = IndexSync(str(tmp_path), waiting, make_row)
    answer = upkeep.current(skills)
    assert answer.field_index is None
    assert len(answer.unindexed) == MANY
    assert answer.note == f"The index is being built: 0 of {MANY} skills"
    assert upkeep.current(skills) is answer
    gate.set()
    answer = settled(upkeep, skills)
    assert answer.field_index.engine == "tantivy"
    assert found(answer, "number7") == {"s7"}


def test_waiting_for_the_index_reports_progress(tmp_path):
    skills = some_skills(MANY)
    gate = threading.Event()
    told = []

    def waiting(skill):
        gate.wait(8)
        return make_row(skill)

    def on_wait(done, total):
        told.append((done, total))
        gate.set()

    IndexSync(str(tmp_path), waiting, make_row).current(skills, 60.0, on_wait)
    assert told[0] == (0, MANY)
    assert told[-1] == (MANY, MANY)


def test_each_batch_is_searched_and_kept_before_all_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr("satchel.detect.index.sync.MIN_BATCH_SKILLS", 100)
    gate, begun = threading.Event(), threading.Event()

    def waiting(skill):
        if skill.name == "s100":
            begun.set()
            gate.wait(8)
        return make_row(skill)

    skills = some_skills(MANY)
    upkeep = IndexSync(str(tmp_path), waiting, make_row)
    upkeep.current(skills)
    assert begun.wait(8)
    answer = upkeep.current(skills)
    assert len(answer.unindexed) == MANY - 100
    assert answer.note == f"The index is being built: 100 of {MANY} skills"
    assert found(answer, "pdf") == {f"s{n}" for n in range(100)}
    gate.set()
    settled(upkeep, skills)


# --- trouble ------------------------------------------------------------------------------


def test_a_skill_that_cannot_be_read_is_found_by_its_head(tmp_path):
    def failing(skill):
        if skill.name in ("s1", "s2"):
            raise NotFound("it is gone") if skill.name == "s1" else OSError(5, "Input/output error")
        return make_row(skill)

    skills = some_skills(4)
    answer = IndexSync(str(tmp_path), failing, make_row).current(skills)
    assert found(answer, "pdf") == {"s0", "s1", "s2", "s3"}
    assert answer.note == (
        "Skills that could not be read: 2, such as `/nowhere/s1/SKILL.md` (it is gone)"
    )


@pytest.mark.parametrize("count", [5, MANY])
def test_a_bug_becomes_a_note_and_is_tried_again(tmp_path, count, monkeypatch):
    broken = [True]

    def failing(skill):
        if broken:
            raise ValueError("this is a bug")
        return make_row(skill)

    skills = some_skills(count)
    upkeep = IndexSync(str(tmp_path), failing, make_row)
    answer = upkeep.current(skills, timeout_s=9)
    assert answer.note == "The index cannot be written: this is a bug"
    assert len(answer.unindexed) == count
    assert upkeep.current(skills) is answer
    broken.clear()
    monkeypatch.setattr("satchel.detect.index.sync.time.monotonic", lambda: 1e12)
    upkeep.current(skills, timeout_s=9)
    monkeypatch.undo()
    settled(upkeep, skills)


def test_a_folder_that_cannot_be_written_is_noted(tmp_path):
    (tmp_path / "file").write_text("in the way")
    skills = some_skills(10)
    answer = IndexSync(str(tmp_path / "file" / "index"), make_row, make_row).current(skills)
    assert answer.note.startswith("The index cannot be written: ")
    assert found(answer, "number7") == {"s7"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_starts_afresh(tmp_path):
    code = (
        "skills = some_skills(MANY)\n"
        "upkeep = IndexSync(folder, slow_row, make_row)\n"
        "upkeep.current(skills)\n"  # the thread is at work when the process forks
        "child = os.fork()\n"
        "if child == 0:\n"
        "    answer = upkeep.current(skills, timeout_s=9)\n"
        "    os._exit(0 if not answer.unindexed and found(answer, 'number7') == {'s7'} else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "settled(upkeep, skills)\n"
    )
    with _python(tmp_path, code) as done:
        assert done.wait(9) == 0, done.stderr.read()


@pytest.mark.parametrize("count", [20, MANY])
def test_a_rebuild_waits_for_its_turn_and_keeps_the_lock(tmp_path, count):
    made, counting = counted()
    skills = some_skills(count)
    upkeep = IndexSync(str(tmp_path), counting, make_row)
    upkeep.build(skills)
    lock = tmp_path / "writer.lock"
    number = lock.stat().st_ino
    with locked(str(lock)), pytest.raises(Conflict, match="Another process is writing the index"):
        upkeep.build(skills, rebuild=True)
    assert found(
        IndexSync(str(tmp_path), counting, make_row).current(some_skills(count)), "number7"
    ) == {"s7"}
    assert len(made) == count
    answer = upkeep.build(skills, rebuild=True)
    assert len(made) == 2 * count
    assert found(answer, "number7") == {"s7"}
    assert upkeep.current(skills) is answer
    assert lock.stat().st_ino == number


# --- two that share an index --------------------------------------------------------------


@pytest.fixture(params=["memory", "tantivy"])
def any_engine(request, monkeypatch):
    """A small library that is kept by each of the engines."""
    least = 1 if request.param == "tantivy" else 1_000_000
    monkeypatch.setattr("satchel.detect.index.sync.MIN_TANTIVY_SKILLS", least)
    return request.param


@pytest.mark.req("C3")
def test_changes_of_another_process_are_noticed(tmp_path, any_engine):
    folder = str(tmp_path / "index")
    skills, one = some_skills(30), IndexSync(folder, make_row, make_row)
    everybody = {f"s{n}" for n in range(30)}
    assert one.current(skills).field_index.engine == any_engine
    other = IndexSync(folder, make_row, make_row)
    other.build(skills[:3], rebuild=True)  # narrowed
    assert found(one.current(skills), "pdf") == everybody
    other.build(skills[:5])  # whose files are not there: dropped
    assert found(one.current(skills), "pdf") == everybody
    shutil.rmtree(folder)
    assert found(one.current(skills), "pdf") == everybody
    shutil.rmtree(folder, ignore_errors=True)  # made anew by somebody else
    IndexSync(folder, make_row, make_row).build(skills[5:8])
    answer = one.current(skills)
    assert found(answer, "pdf") == everybody
    assert one.current(skills) is answer


# --- two processes ------------------------------------------------------------------------


def _python(folder, code: str) -> subprocess.Popen[str]:
    """A process of its own; `with` closes its pipes."""
    begin = (
        "import os, sys, time\n"
        f"sys.path[:0] = {[os.path.dirname(__file__), *sys.path]!r}\n"
        "from test_sync import *\n"
        "from test_sync import MANY, found, make_row, settled, slow_row, some_skills\n"
        f"folder = {str(folder)!r}\n"
    )
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", begin + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


BUILD = (
    "def telling(skill):\n"
    "    print(skill.name, flush=True)\n"
    "    return slow_row(skill)\n"
    "IndexSync(folder, telling, make_row).build(some_skills(MANY))\n"
)


def test_a_process_that_ends_keeps_its_index(tmp_path):
    code = (
        "sync = IndexSync(folder, slow_row, make_row)\n"
        "sync.current(some_skills(MANY))\n"
        "time.sleep(0.4)\n"
    )
    with _python(tmp_path, code) as other:
        assert other.wait(30) == 0, other.stderr.read()
    made, read = counted()
    skills = some_skills(MANY)
    IndexSync(str(tmp_path), read, make_row).build(skills)
    assert 0 < len(made) < MANY


@pytest.mark.parametrize("after", [1, 150])
def test_a_killed_build_leaves_a_usable_index(tmp_path, after):
    with _python(tmp_path, BUILD) as other:
        for _ in range(after):
            other.stdout.readline()
        other.send_signal(signal.SIGKILL)
    skills = some_skills(MANY)
    upkeep = IndexSync(str(tmp_path), make_row, make_row)
    upkeep.current(skills)
    answer = settled(upkeep, skills)
    assert found(answer, "pdf") == {f"s{n}" for n in range(MANY)}
    assert IndexSync(str(tmp_path), slow_row, make_row).current(some_skills(MANY)).note == ""


# --- engines and folders ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "engine"), [(MIN_TANTIVY_SKILLS - 1, "memory"), (10**6, "tantivy")]
)
def test_the_engine_follows_the_number_of_skills(count, engine, tmp_path):
    index = open_index(str(tmp_path / "made"), count)
    assert index.engine == engine == choose_engine(str(tmp_path / "made"), count)
    index.update([IndexRow("/a", (1, 1, 1), ("pdf", "", "", "", ""))])
    assert os.listdir(tmp_path / "made") == [f"{engine}-{FORMAT_VERSION}"]
    assert open_index(str(tmp_path / "made"), count).stamps() == {"/a": (1, 1, 1)}


def test_without_tantivy_plain_python_takes_any_number(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tantivy", None)
    assert open_index(str(tmp_path), 10**6).engine == "memory"


def test_replaced_indexes_and_older_formats_are_removed(tmp_path):
    kept = ["mine", f"tantivy-{FORMAT_VERSION}", f"tantivy-{FORMAT_VERSION + 1}"]
    for name in (*kept, "memory-0", f"memory-{FORMAT_VERSION}", "tantivy-0", "fts5-2"):
        os.mkdir(tmp_path / name)
    remove_indexes(str(tmp_path), "tantivy")
    assert sorted(os.listdir(tmp_path)) == kept
    remove_indexes(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["mine", f"tantivy-{FORMAT_VERSION + 1}"]
