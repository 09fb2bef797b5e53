"""Shared fixtures: a small project, and a server of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mcp_talk import serving, write_skill

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three skills with files in folders, one of them only for people, and one with arguments."""
    folder = str(tmp_path_factory.mktemp("project"))
    write_skill(
        folder,
        "pdf-forms",
        "license: MIT\nmetadata:\n  version: '2.1'\nallowed-tools: Read Grep\n",
        **{
            "references/forms.md": "# Forms\n",
            "references/deep/more words.md": "more\n",
            "scripts/fill.py": "print('fill')\n",
            "assets/logo.png": b"\x89PNG\r\n\x1a\n\xff\xfe",
        },
    )
    write_skill(
        folder, "changelog", "argument-hint: '[version]'\n", **{"references/style.md": "short\n"}
    )
    write_skill(folder, "release", "arguments: [version, channel]\n")
    write_skill(folder, "deploy", "disable-model-invocation: true\n")
    os.makedirs(os.path.join(folder, "notes"))
    with open(os.path.join(folder, "notes", "secret.md"), "w", encoding="utf-8") as file:
        file.write("a file of the project\n")
    return folder


@pytest.fixture(scope="module")
def url(project: str) -> Iterator[str]:
    """A server of the project, for all tests of a module."""
    with serving(project) as address:
        yield address
