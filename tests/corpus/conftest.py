"""The real skills, unpacked once for all tests of this folder."""

from __future__ import annotations

import base64
import json
import lzma
import os
import tarfile

import pytest

from sizes import sample


def rows(path: str) -> list[dict]:
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@pytest.fixture(scope="session")
def broken_heads(shared) -> list[tuple[dict, bytes]]:
    """2,925 heads of real files with what is wrong with them."""
    found = rows(os.path.join(shared, "corpus", "frontmatter-edge-cases.jsonl.xz"))
    return [
        (row, base64.b64decode(row["raw"]) if row["encoding"] != "utf-8" else row["raw"].encode())
        for row in found
    ]


@pytest.fixture(scope="session")
def raw_frontmatters(shared) -> list[dict]:
    """Frontmatters exactly as their authors wrote them: 39,996 in soak, a tenth in CI."""
    found = rows(os.path.join(shared, "corpus", "raw-frontmatter.jsonl.xz"))
    assert len(found) == 39_996
    return list(sample(found, 10))


@pytest.fixture(scope="session")
def real_skills(shared) -> list[dict]:
    """69,568 real names and descriptions."""
    return rows(os.path.join(shared, "corpus", "skills.jsonl.xz"))


@pytest.fixture(scope="session")
def whole_skills(shared, tmp_path_factory) -> str:
    """A folder of whole skills from real repositories: 2,000 in soak, a fifth in CI."""
    folder = str(tmp_path_factory.mktemp("sample"))
    with tarfile.open(os.path.join(shared, "corpus", "skills-sample.tar.xz")) as archive:
        members = [one for one in archive.getmembers() if one.name.count("/") >= 2]
        names = sorted({"/".join(one.name.split("/")[:3]) for one in members})
        chosen = set(sample(names, 5))
        members = [one for one in members if "/".join(one.name.split("/")[:3]) in chosen]
        archive.extractall(folder, members, filter="data")
    return os.path.join(folder, "skills-sample")
