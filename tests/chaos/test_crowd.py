"""Many writers and readers at once: no torn read, no deadlock, nothing lost."""

from __future__ import annotations

import pytest

from chaos.crowd import gather
from sizes import sized

pytestmark = pytest.mark.timeout(300)


def test_writers_and_readers_at_once(tmp_path):
    writers, operations = sized((3, 10), (8, 25))
    outcome = gather(str(tmp_path), writers=writers, operations=operations, readers=2, limit=240)
    assert outcome.harm == []
    assert outcome.operations + outcome.conflicts == writers * operations
    assert outcome.operations > writers * operations / 3
    assert outcome.reads > sized(20, 300)
