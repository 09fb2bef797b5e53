"""Skills of strangers: the check-list's own example, and files made to hurt whoever reads them."""

from __future__ import annotations

import os
import time

import pytest
from wrong import write_good

from satchel.authoring.check_skill import check_folder
from satchel.errors import NotFound
from seed import MANIFEST, PYTHON


@pytest.mark.req("E5", "E9")
def test_the_example_of_the_check_list_meets_its_own_rules_for_texts(tmp_path):
    folder = tmp_path / "excel"
    folder.mkdir()
    (folder / "skill.yaml").write_text(MANIFEST, encoding="utf-8")
    (folder / "main.py").write_text(PYTHON, encoding="utf-8")
    (report,) = check_folder(str(folder), language="zh")
    # The template catches nothing, and says nowhere that it wants to see a file.
    assert report.failing == {"no-uncaught", "files-declared"}


def _timed(folder) -> float:
    """The processor's seconds: others may use the machine too."""
    began = time.process_time()
    check_folder(str(folder))
    return time.process_time() - began


@pytest.mark.parametrize(
    ("kind", "file", "text"),
    [
        ("python", "main.py", "x = " + "(" * 150 + "1" + ")" * 150 + "\n"),
        ("python", "main.py", "x = " + "1 + " * 20_000 + "1\n"),
        ("python", "main.py", 'x = {"error": ' + '"a" + ' * 300 + '"b"}\n'),
        ("python", "main.py", "\0" * 1000),
        ("skill", "SKILL.md", "---\nname: a\ndescription: b\n---\n" + "\n" * 900_000),
        ("skill", "SKILL.md", "---\nname: a\ndescription: b\n---\n" + "```\n" * 300_000),
        ("skill", "SKILL.md", "---\nname: a\ndescription: " + "1" * 60_000 + "\n---\n"),
    ],
)
def test_no_file_makes_the_check_wait(kind, file, text, tmp_path):
    skill = write_good(tmp_path, kind)
    skill.write(file, text)
    assert _timed(skill.folder) < 5


def test_odd_files_are_told_and_not_opened(tmp_path):
    skill = write_good(tmp_path, "python")
    (skill.folder / "main.py").unlink()
    os.mkfifo(skill.folder / "main.py")
    (report,) = check_folder(str(skill.folder))
    assert "entry-exists" in report.failing
    with pytest.raises(NotFound, match=r"no SKILL\.md and no skill\.yaml"):
        check_folder(str(tmp_path))
