"""Evaluation cases of real skills: nearly all folders become cases, the rest say why not."""

from __future__ import annotations

import os
import tarfile

from satchel.skill.eval_file import load_cases

MIN_READ_SHARE = 0.95


def test_real_folders_of_cases_are_read(shared, tmp_path):
    with tarfile.open(os.path.join(shared, "corpus", "skills-sample.tar.xz")) as archive:
        members = [member for member in archive.getmembers() if "/evals/" in member.name]
        archive.extractall(tmp_path, members, filter="data")
    folders = [os.path.dirname(path) for path, _, _ in os.walk(tmp_path) if path.endswith("/evals")]
    assert len(folders) == 82
    suites = [load_cases(folder) for folder in folders]
    assert all(suite.cases or suite.problems for suite in suites)
    assert sum(bool(suite.cases) for suite in suites) >= MIN_READ_SHARE * len(suites)
    assert sum(len(suite.tasks) for suite in suites) > 450
