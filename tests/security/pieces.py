"""One file of a skill, as the samples write it."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """One file of a skill."""

    path: str
    content: str | bytes

    @property
    def data(self) -> bytes:
        return self.content.encode() if isinstance(self.content, str) else self.content


def page(text: str) -> Sample:
    return Sample("SKILL.md", f"---\nname: demo\ndescription: A demo.\n---\n# Demo\n\n{text}\n")


def shell(text: str) -> Sample:
    return Sample("scripts/run.sh", f"#!/bin/bash\n{text}\n")


def py(text: str) -> Sample:
    return Sample("scripts/run.py", text + "\n")


def js(text: str) -> Sample:
    return Sample("scripts/run.js", text + "\n")
