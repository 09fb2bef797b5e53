"""An index that nobody uses any more goes; one that is used, written or of a stranger stays."""

from __future__ import annotations

import os
import time

import pytest

from satchel import Satchel
from satchel._fs import locked
from satchel.detect.default import index_folder
from satchel.detect.index.sweep import DAY, STAMP, SWEPT, Use
from satchel.testing import make_skill

OWN = "0" * 16


@pytest.fixture
def shelf(tmp_path):
    folder = tmp_path / "cache" / "search"
    (folder / OWN).mkdir(parents=True)
    return folder


@pytest.fixture
def use(shelf, tmp_path):
    return Use(str(shelf / OWN), str(tmp_path))


def put(shelf, name, days, project: object = "/there/is/no/such/project", *, written=None):
    """An index folder that was used, and written, so many days ago."""
    folder = shelf / (name * 16)
    (folder / "plain/memory-1").mkdir(parents=True)
    (folder / "plain/writer.lock").touch()
    (folder / "plain/memory-1/index").write_text("words")
    if project is not None:
        (folder / STAMP).write_text(str(project))
    for here, _, names in os.walk(folder, topdown=False):
        for one in names:
            age(os.path.join(here, one), days if one == STAMP or written is None else written)
        age(here, days)
    return folder


def age(path, days):
    then = time.time() - days * DAY
    os.utime(path, (then, then))


@pytest.mark.parametrize(
    ("days", "there", "swept"),
    [(29, False, 0), (31, False, 1), (31, True, 0), (89, True, 0), (91, True, 1)],
)
def test_what_is_unused_goes_the_sooner_if_its_project_is_gone(
    shelf, use, tmp_path, days, there, swept
):
    folder = put(shelf, "a", days, tmp_path if there else tmp_path / "gone")
    use.sweep()
    assert use.swept == swept
    assert folder.exists() == (not swept)
    assert sorted(os.listdir(shelf)) == sorted([OWN, SWEPT, *([] if swept else [folder.name])])


def test_one_without_a_stamp_goes_when_it_is_old(shelf, use):
    young, old = put(shelf, "a", 31, None), put(shelf, "b", 91, None)
    use.sweep()
    assert (young.exists(), old.exists(), use.swept) == (True, False, 1)


def test_one_that_an_older_version_still_writes_stays(shelf, use):
    folder = put(shelf, "a", 200, written=3)
    use.sweep()
    assert folder.exists()


def test_one_that_is_being_written_stays(shelf, use):
    folder = put(shelf, "a", 200)
    lock = folder / "plain/writer.lock"
    with locked(str(lock)):
        age(lock, 200)
        use.sweep()
        assert folder.exists()
    age(lock, 200)
    use.sweep()
    assert (folder.exists(), use.swept) == (False, 1)


def test_only_index_folders_are_touched(shelf, use, tmp_path):
    aside = tmp_path / "aside"
    put(aside, "a", 200)
    (shelf / ("b" * 16)).symlink_to(aside / ("a" * 16))
    mine = put(shelf, "notes", 200)
    half = put(shelf, "c", 0).rename(shelf / ("c" * 16 + ".gone"))
    use.sweep()
    assert (aside / ("a" * 16) / "plain/memory-1/index").exists()
    assert mine.exists()
    assert not half.exists()  # what a sweep has left that was cut short


def test_its_own_folder_stays_however_old(shelf, use):
    age(shelf / OWN, 200)
    use.sweep()
    assert (shelf / OWN / STAMP).exists()


def test_the_stamp_is_left_once_a_day(shelf, tmp_path):
    stamp = shelf / OWN / STAMP
    Use(str(shelf / OWN), str(tmp_path)).mark()
    assert stamp.read_text() == str(tmp_path)
    age(stamp, 0.9)
    before = stamp.stat().st_mtime
    Use(str(shelf / OWN), str(tmp_path)).mark()
    assert stamp.stat().st_mtime == before
    age(stamp, 1.1)
    Use(str(shelf / OWN), str(tmp_path)).mark()
    assert time.time() - stamp.stat().st_mtime < 60


def test_a_folder_that_is_not_there_is_not_made_for_a_stamp(shelf, tmp_path):
    Use(str(shelf / ("9" * 16)), str(tmp_path)).mark()
    assert not (shelf / ("9" * 16)).exists()


def test_whoever_writes_sweeps_once_a_day(shelf, tmp_path):
    put(shelf, "a", 200)
    Use(str(shelf / OWN), str(tmp_path)).sweep_daily()
    assert not (shelf / ("a" * 16)).exists()
    put(shelf, "b", 200)
    Use(str(shelf / OWN), str(tmp_path)).sweep_daily()
    assert (shelf / ("b" * 16)).exists()
    age(shelf / SWEPT, 1.1)
    Use(str(shelf / OWN), str(tmp_path)).sweep_daily()
    assert not (shelf / ("b" * 16)).exists()


def test_a_project_that_searches_marks_its_index_and_sweeps_others(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    make_skill(project / ".agents/skills", "pdf-forms")
    satchel = Satchel.for_project(project, trust="all")
    folder = index_folder(satchel.settings)
    assert folder is not None
    shelf = tmp_path / "cache/satchel/search"
    assert os.path.dirname(folder) == str(shelf)
    unused = put(shelf, "a", 31)
    satchel.which("fill in a pdf form")
    assert not unused.exists()
    with open(os.path.join(folder, STAMP)) as file:
        assert file.read() == satchel.settings.project
    put(shelf, "b", 31)
    prepared = satchel.prepare()
    assert prepared is not None
    assert prepared.swept == 1
