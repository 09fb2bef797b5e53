"""`hub add`, and the commands on a hub that the real writer made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib

import pytest

from satchel.cli.main import run
from satchel.store.hub_client.ed25519 import key_fingerprint


@pytest.fixture
def made(tmp_path, reader, monkeypatch, capsys):
    """A hub that was built from a folder of skills."""
    skill = tmp_path / "skills/acme/pdf-forms"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: pdf-forms\ndescription: Fills in PDF forms. Use for applications.\n"
        'metadata:\n  version: "1.0.0"\n---\nFill in the form.\n'
    )
    monkeypatch.chdir(tmp_path)
    key = str(tmp_path / "hub.key")
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "keeper", "-f", key]
    subprocess.run(words, check=True)
    name = ["--name", "skills.acme.example"]
    assert run(["hub", "init", "hub", *name, "--key", key]) == 0
    assert run(["hub", "build", "hub", "skills", "--key", key]) == 0
    monkeypatch.chdir(reader.project)
    capsys.readouterr()
    return tmp_path


def test_add_asks_for_the_key_and_pins_it(made, reader, capsys):
    hub = str(made / "hub")
    public = (made / "hub.key.pub").read_text()
    mark = key_fingerprint(public)
    assert run(["hub", "add", hub]) == 4  # there is nobody to ask
    assert mark in capsys.readouterr().err
    assert run(["hub", "add", hub, "--key", "SHA256:other"]) == 4
    assert "not SHA256:other" in capsys.readouterr().err
    file = reader.project / "satchel.toml"
    assert run(["hub", "add", "nowhere", "-y"]) == 3
    assert run(["hub", "add", "http://example.com", "-y"]) == 2
    assert not file.exists()
    file.write_text("budget = 9000")
    assert run(["hub", "add", hub, "--key", mark]) == 0
    table = tomllib.loads(file.read_text())
    key = " ".join(public.split()[:2])
    assert table == {"budget": 9000, "hubs": {"skills.acme.example": {"url": hub, "key": key}}}
    assert run(["hub", "add", hub, "--key", str(made / "hub.key.pub")]) == 0  # as it is
    assert tomllib.loads(file.read_text()) == table
    shutil.copytree(hub, made / "copy")
    assert run(["hub", "add", str(made / "copy"), "-y"]) == 4
    assert "another address or key" in capsys.readouterr().err
    file.write_text("hubs = {}\n")
    assert run(["hub", "add", hub, "-y"]) == 2  # an inline table cannot be extended
    assert file.read_text() == "hubs = {}\n"
    assert run(["hub", "add", hub, "-y", "--scope", "user", "--json"]) == 0
    assert (reader.home / "satchel/config.toml").exists()


def test_commands(made, reader, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["hub", "add", "../../hub", "-y"]) == 0
    assert run(["install", "acme/pdf-forms@^1"]) == 0
    err = capsys.readouterr().err
    assert "Version 1.0.0, signed by `acme` with the key SHA256:" in err
    assert "Scan of the hub: no findings (not a promise)" in err
    assert run(["list"]) == 0
    assert "acme/pdf-forms@1.0.0" in capsys.readouterr().out
    assert run(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["hub"] == "acme/pdf-forms@1.0.0"
    assert run(["show", "pdf-forms"]) == 0
    assert "acme/pdf-forms@1.0.0 (SHA256:" in capsys.readouterr().out
    assert run(["verify"]) == 0
    assert run(["update", "-y"]) == 0
    assert run(["search", "--hub", "fill in a pdf form"]) == 0
    out, err = capsys.readouterr()
    assert "acme/pdf-forms" in out
    assert "satchel install acme/pdf-forms" in err
    assert run(["search", "--hub", "--json", "fill in a pdf form"]) == 0
    found = json.loads(capsys.readouterr().out)["skills"][0]
    assert found["ref"] == "skills.acme.example/acme/pdf-forms"
    assert run(["search", "--hub", "--block", "form"]) == 2
    assert run(["undo"]) == 0
    assert not (reader.project / ".agents/skills/pdf-forms").exists()


def test_start_up_loads_no_hub(reader):
    """A project with hubs is listed without the code that reads them."""
    (reader.project / "satchel.toml").write_text('[hubs."x.example"]\nurl = "https://x.example"\n')
    code = (
        "import sys; from satchel import Satchel; from satchel.cli.main import run; run(['list']);"
        "sys.exit([name for name in sys.modules if 'hub' in name or 'download' in name] != [])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=reader.project, env=env)
