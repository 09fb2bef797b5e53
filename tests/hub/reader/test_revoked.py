"""An installed skill that its hub revoked later: every view says so, and no model gets it."""

from __future__ import annotations

import json
import shutil

import pytest

from hub.reader.test_hub_source import write_hub
from satchel.cli.main import run
from satchel.errors import SatchelError

GREET = "acme/greet"


@pytest.fixture
def revoked(hub, reader, monkeypatch):
    """A project with two skills of a hub, which has revoked one of them since."""
    write_hub(reader.project / "satchel.toml", hub)
    monkeypatch.chdir(reader.project)
    monkeypatch.setenv("COLUMNS", "300")
    reader.install(GREET)
    reader.install("acme/part")
    hub.revoked.append({"tree": hub.releases[1]["tree"], "reason": "steals keys"})
    hub.build()
    assert "greet" in [skill.name for skill in reader.satchel.library.snapshot().skills]
    return hub


def _offered(reader) -> list[str]:
    return [skill.name for skill in reader.satchel.library.snapshot().skills]


def test_every_view_shows_it(revoked, reader, capsys):
    assert run(["verify", "--revoked", "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["reason"], row["folder"]) == (
        "greet",
        "steals keys",
        str(reader.project),
    )
    assert row["source"].endswith("acme/greet@1.1.0")
    assert _offered(reader) == ["part"]
    error = reader.satchel.session().call("Skill", {"name": "greet"}).error
    assert error is not None
    for words, status in (
        (["list", "--all"], 0), (["why", "greet"], 0), (["verify"], 1), (["doctor"], 1),
    ):  # fmt: skip
        assert run(words) == status, words
        shown = "".join(capsys.readouterr())
        assert "revoked" in shown, words
        assert "steals keys" in shown, words
    assert run(["list"]) == 0
    assert "1 revoked (`satchel verify`)" in capsys.readouterr().err
    assert run(["verify", "--json"]) == 1
    skills = {row["id"]: row for row in json.loads(capsys.readouterr().out)["skills"]}
    assert (skills["greet"]["revoked"], skills["part"]["revoked"]) == ("steals keys", None)
    assert run(["scan", "--all"]) == 0
    assert _offered(reader) == ["part"], "a scan does not clear it"


def test_an_update_finds_out_and_a_newer_version_is_offered(revoked, reader):
    with pytest.raises(SatchelError, match="was revoked by the hub"):
        reader.update()
    assert _offered(reader) == ["part"]
    revoked.release(GREET, "1.2.0", "Say hello politely.")
    revoked.build()
    reader.update()
    assert sorted(_offered(reader)) == ["greet", "part"]
    assert reader.store.find_revoked() == {}
    reader.store.undo()
    assert reader.satchel.session().call("Skill", {"name": "greet"}).error is not None
    assert _offered(reader) == ["part"]


def test_an_edit_makes_no_other_skill_of_it(revoked, reader):
    path = reader.project / ".agents/skills/greet/SKILL.md"
    path.write_text(path.read_text() + "More.\n")
    assert reader.store.find_revoked() == {"greet": "steals keys"}
    assert _offered(reader) == ["part"]
    copy = reader.project / ".agents/skills/hello"
    shutil.copytree(path.parent, copy)
    text = path.read_text().removesuffix("More.\n")
    (copy / "SKILL.md").write_text(text)
    error = reader.satchel.session().call("Skill", {"name": "greet"}).error
    assert error is not None


def test_projects_at_once(revoked, reader, tmp_path, capsys):
    for name in ("second", "gone"):
        shutil.copytree(reader.project, tmp_path / name)
    (tmp_path / "gone/satchel.toml").unlink()
    (tmp_path / "empty").mkdir()
    folders = [str(tmp_path / name) for name in ("second", "gone", "empty")]
    assert run(["verify", "--revoked", "--json", *folders]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(row["folder"], row["id"]) for row in rows] == [(folders[0], "greet"), (folders[1], "")]
    assert "which is not configured" in rows[1]["reason"]
    assert run(["verify", "--revoked", folders[0]]) == 1
    assert "steals keys" in capsys.readouterr().out
    assert run(["verify", "--revoked", folders[2]]) == 0
    assert "No installed skill is revoked" in capsys.readouterr().err
