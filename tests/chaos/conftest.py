"""One process that forks the children which are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chaos.killing import Server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as ready:
        yield ready
