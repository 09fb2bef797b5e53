"""A bad file of a hub: check and build name it, say what follows, and what the keeper does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from satchel.store.hub_client import format as hub_format

if TYPE_CHECKING:
    from typing import Any

BAD = {"missing": None, "empty": b"", "junk": b"[" * 2_000, "large": b" " * 5_000}


@pytest.fixture
def hub(shell, store, write_skill) -> str:
    """A hub with one release, and one in commit 4 that no build has read."""
    shell.publish(store, write_skill())
    shell.build(store)
    shell.publish(store, write_skill(version="1.1.0"))
    return store


def _spoil(hub: str, name: str, data: bytes | None) -> None:
    path = Path(hub, name)
    path.unlink()
    if data is not None:
        path.write_bytes(data)


def _commit(hub: str, number: int) -> Any:
    return json.loads(Path(hub, hub_format.commit_path(number)).read_bytes())


def _fails(shell: Any, hub: str, *expected: str, rebuild: bool = False) -> None:
    words = ["--rebuild"] if rebuild else []
    assert shell.run("hub", "build", hub, "--key", shell.keys["hub"], *words)[0] == 4
    text = " ".join(shell.err.split())
    assert [part for part in expected if part not in text] == [], text
    assert "Try again later" not in text


@pytest.mark.parametrize("bad", BAD)
def test_changes_that_no_build_has_read(bad, shell, hub, write_skill):
    path = hub_format.content_path("changes", _commit(hub, 4)["changes"])
    _spoil(hub, path, BAD[bad])
    last = hub_format.commit_path(4)
    _fails(shell, hub, path, "commit 4 and every later one cannot be read", "satchel hub repair")
    os.unlink(os.path.join(hub, last))
    shell.publish(hub, write_skill(version="1.1.0"))
    assert shell.build(hub)["state"]["count"] == 4
    assert shell.check(hub)["releases"] == 2


@pytest.mark.parametrize("bad", ["empty", "junk", "large"])
def test_a_commit_that_no_build_has_read(bad, shell, hub):
    path = hub_format.commit_path(4)
    _spoil(hub, path, BAD[bad])
    _fails(shell, hub, path, "commit 4 and every later one cannot be read", "satchel hub repair")


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("bad", BAD)
def test_a_commit_that_readers_have_seen(number, bad, shell, hub):
    path = hub_format.commit_path(number)
    data = Path(hub, path).read_bytes()
    _spoil(hub, path, BAD[bad])
    expected = (path, f"commit {number} and every later one cannot be read",
                "Put the file back from a backup or a mirror")  # fmt: skip
    _fails(shell, hub, *expected, rebuild=True)
    assert shell.run("hub", "check", hub)[0] == 4
    assert path in shell.err
    Path(hub, path).write_bytes(data)
    shell.build(hub)
    shell.check(hub)


@pytest.mark.parametrize(
    ("folder", "consequence"),
    [
        ("state", "readers refuse the hub"),
        ("index", "readers cannot install the skills that it lists"),
        ("revoked", "readers install nothing"),
        ("search", "searches in the hub fail"),
    ],
)
@pytest.mark.parametrize("bad", ["empty", "junk"])
def test_a_file_that_is_made_again(folder, consequence, bad, shell, hub):
    state = shell.check(hub)["state"]
    path = folder if folder == "state" else hub_format.content_path(folder, state[folder])
    _spoil(hub, path, BAD[bad])
    assert shell.run("hub", "check", hub)[0] == 4
    text = " ".join(shell.err.split())
    assert f"`{path}`" in text
    assert consequence in text
    assert "satchel hub build --rebuild" in text
    shell.build(hub, "--rebuild")
    assert shell.check(hub)["releases"] == 2


@pytest.mark.parametrize("bad", BAD)
def test_a_lost_blob_is_published_again(bad, shell, hub, write_skill):
    shell.build(hub)
    shell.publish(hub, write_skill("acme/plan"))
    shell.build(hub)
    blob = shell.publish(hub, write_skill("acme/plan"))["blob"]
    path = hub_format.content_path("blobs", blob)
    _spoil(hub, path, BAD[bad])
    status, out = shell.run("hub", "check", hub, "--json")
    (problem,), (fix,) = json.loads(out)["problems"], json.loads(out)["fixes"]
    assert (status, path in problem) == (1, True)
    assert problem.endswith("`acme/plan@1.0.0` cannot be installed")
    assert "publish the release again" in fix
    assert shell.run("hub", "check", hub)[0] == 1
    assert "publish the release again" in " ".join(shell.err.split())
    if bad in ("missing", "junk"):  # after a build that withdrew the release
        shell.build(hub, "--rebuild")
    shell.publish(hub, write_skill("acme/plan"))
    assert shell.build(hub)["ignored"] == []
    assert shell.check(hub)["releases"] == 3
