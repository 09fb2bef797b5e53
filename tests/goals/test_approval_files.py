"""Requests for approval that wait in files for another process."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from satchel.errors import Conflict
from satchel.goals.approval_files import FileApproval, answer_request, open_requests
from satchel.goals.step_runner import pausing
from satchel.session.permissions import ApprovalRequest
from satchel.tools.proposed_changes import ProposedChange

CHANGE = ProposedChange("a\udc80.txt", "created", None, 3, "--- a\n+++ a\n@@ -0,0 +1 @@\n+hi")
REQUEST = ApprovalRequest("note_add", {"path": "a.txt"}, "note", ("write",), changes=(CHANGE,))


async def _ask(folder, *, approved, seconds=60.0):
    async with asyncio.timeout(seconds) as timer:
        with pausing(timer):
            asked = asyncio.ensure_future(FileApproval(folder)(REQUEST))
            await asyncio.sleep(0)  # it is written at once
            [found] = open_requests(folder)
            await asyncio.sleep(2 * min(seconds, 0.1))
            answer_request(folder, found.key, approved=approved)
            assert open_requests(folder) == ()
            return found.request, await asked


@pytest.mark.parametrize("approved", [True, False])
def test_a_request_is_read_and_answered_by_another_process(tmp_path, approved):
    folder = str(tmp_path / "asks")
    read, answer = asyncio.run(_ask(folder, approved=approved, seconds=0.1))
    assert answer is approved
    assert read == REQUEST._replace(changes=(CHANGE._replace(path="a?.txt"),))
    assert not os.path.exists(folder)


def test_only_an_open_request_is_answered(tmp_path):
    orphan = tmp_path / f"1-{'0' * 16}.json"
    orphan.write_text(json.dumps(REQUEST._replace(changes=())._asdict()))
    for key in (orphan.stem, f"2-{'0' * 16}", "../../x", ""):
        with pytest.raises(Conflict):
            answer_request(str(tmp_path), key, approved=True)
    assert os.listdir(tmp_path) == []


def test_a_cancelled_request_leaves_nothing(tmp_path):
    async def cancel():
        asked = asyncio.ensure_future(FileApproval(str(tmp_path / "asks"))(REQUEST))
        await asyncio.sleep(0.05)
        asked.cancel()
        await asyncio.wait([asked])

    asyncio.run(cancel())
    assert os.listdir(tmp_path) == []
