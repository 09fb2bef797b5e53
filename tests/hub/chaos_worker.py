"""A process that publishes, or builds, until it is done or killed.

    python chaos_worker.py STORE KEY NAME COUNT START

It waits for the file START, then prints a line for each acknowledged release. The name `build`
means to build COUNT times. Every publisher also tries to release `acme/shared` with content of its
own: for each version one of them wins.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from hub.conftest import write_skill_at
from satchel.errors import SatchelError
from satchel.hub.build import build
from satchel.hub.ledger import open_ledger
from satchel.hub.publish import publish, read_draft
from satchel.hub.storage import open_storage
from satchel.store.signing import SshKey


def main(store: str, key: str, name: str, count: int, start: str) -> None:
    signer = SshKey(key)
    skills = Path(tempfile.mkdtemp()) / "acme"
    drafts = []
    for number in range(0 if name == "build" else count):
        own = write_skill_at(skills / f"{name}-{number}", "1.0.0", "Go.")
        version = f"{name[1:].partition('p')[0]}.{number}.0"
        shared = write_skill_at(skills / str(number) / "shared", version, f"By {name}.")
        drafts += [read_draft(str(own), "acme"), read_draft(str(shared), "acme")]
    print("ready", flush=True)  # noqa: T201 - for the test
    while not os.path.exists(start):
        time.sleep(0.005)
        if os.getppid() == 1:
            return  # the test is gone
    for _ in range(count if name == "build" else 0):
        with open_storage(store) as storage:
            build(storage, signer)
    for draft in drafts:
        try:
            with open_storage(store) as storage:
                publish(open_ledger(storage), [draft], signer)
        except SatchelError as exc:
            if "exists already" not in exc.message:
                raise
        else:
            print(draft.title, draft.change["tree"], flush=True)  # noqa: T201 - for the test


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
