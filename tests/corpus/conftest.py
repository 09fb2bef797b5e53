"""The real skills, unpacked once for all tests of this folder."""

from __future__ import annotations

import base64
import json
import lzma
import os

import pytest


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
    """39,996 frontmatters exactly as their authors wrote them."""
    return rows(os.path.join(shared, "corpus", "raw-frontmatter.jsonl.xz"))


@pytest.fixture(scope="session")
def real_skills(shared) -> list[dict]:
    """69,568 real names and descriptions."""
    return rows(os.path.join(shared, "corpus", "skills.jsonl.xz"))
