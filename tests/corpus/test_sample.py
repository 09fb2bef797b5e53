"""2,000 whole skills from real repositories, as folders, through the library."""

from __future__ import annotations

import os
import tarfile

import pytest

from satchel import Library

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def sample(shared, tmp_path_factory) -> str:
    folder = str(tmp_path_factory.mktemp("sample"))
    with tarfile.open(os.path.join(shared, "corpus", "skills-sample.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return os.path.join(folder, "skills-sample")


@pytest.mark.req("A1", "A7")
def test_nearly_all_load_and_the_rest_say_why(sample):
    snapshot = Library([sample]).snapshot()
    loaded = {skill.base_dir for skill in (*snapshot.skills, *snapshot.hidden)}
    files = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(sample)
        for name in names
        if name.lower() == "skill.md"
    ]
    top = [path for path in files if os.path.relpath(path, sample).count(os.sep) == 2]
    assert len(top) == 2000
    silent = []
    for path in top:
        folder = os.path.dirname(path)
        if folder not in loaded:
            reasons = [problem for problem in snapshot.problems if problem.path.startswith(folder)]
            if not any(problem.severity == "error" for problem in reasons):
                silent.append(path)
    assert not silent
    assert sum(os.path.dirname(path) in loaded for path in top) >= 1972
