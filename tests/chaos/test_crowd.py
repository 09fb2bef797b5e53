"""Many writers and readers at once: no torn read, no deadlock, nothing lost."""

from __future__ import annotations

import pytest

from chaos.crowd import gather

pytestmark = pytest.mark.timeout(300)


def test_eight_writers_and_two_readers(tmp_path):
    outcome = gather(str(tmp_path), writers=8, operations=25, readers=2, limit=240)
    assert outcome.harm == []
    assert outcome.operations + outcome.conflicts == 8 * 25
    assert outcome.operations > 80
    assert outcome.reads > 300
