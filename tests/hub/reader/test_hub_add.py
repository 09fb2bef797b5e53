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
from satchel.store.signing import key_fingerprint


@pytest.fixture
def made(tmp_path, reader, monkeypatch, shell, write_skill):
    """The folder of a hub that was built from a folder of skills."""
    write_skill("acme/pdf-forms", text="Fill in the form.")
    shell.init("hub")
    shell.build("hub", "skills")
    monkeypatch.chdir(reader.project)
    return tmp_path


def test_add_asks_for_the_key_and_pins_it(made, reader, capsys, keys):
    hub = str(made / "hub")
    with open(keys["hub"] + ".pub") as stream:
        public = stream.read()
    mark = key_fingerprint(public)
    assert run(["hub", "add", hub]) == 4  # there is nobody to ask
    assert mark in capsys.readouterr().err
    assert run(["hub", "add", hub, "--key", "SHA256:other"]) == 4
    assert "not SHA256:other" in capsys.readouterr().err
    file = reader.project / "satchel.toml"
    assert run(["hub", "add", "nowhere", "-y"]) == 3
    for url, words in (
        ("http://example.com", "Plain http is only for this machine"),
        ("git+ssh://git@host.example/x.git", "or a folder"),
        ("s3://skills", "or a folder"),
    ):
        capsys.readouterr()
        assert run(["hub", "add", url, "-y"]) == 2
        assert words in capsys.readouterr().err
    assert run(["hub", "add", hub, "--key", "nofile.pub"]) == 3
    assert "There is no file `nofile.pub`" in capsys.readouterr().err
    assert not file.exists()
    file.write_text("budget = 9000")
    assert run(["hub", "add", hub, "--key", mark]) == 0
    table = tomllib.loads(file.read_text())
    key = " ".join(public.split()[:2])
    assert table == {"budget": 9000, "hubs": {"skills.acme.example": {"url": hub, "key": key}}}
    assert run(["hub", "add", hub, "--key", keys["hub"] + ".pub"]) == 0  # as it is
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
    assert run(["search", "--hub", "pdf forms from merged pull requests"]) == 0
    out, err = capsys.readouterr()
    assert "acme/pdf-forms" in out
    assert "→ `acme/pdf-forms` is installed" in err
    assert run(["search", "--hub", "--json", "pdf forms from merged pull requests"]) == 0
    found = json.loads(capsys.readouterr().out)["skills"][0]
    assert found["ref"] == "skills.acme.example/acme/pdf-forms"
    assert run(["undo"]) == 0
    assert not (reader.project / ".agents/skills/pdf-forms").exists()
    capsys.readouterr()
    assert run(["search", "--hub", "pdf forms from merged pull requests"]) == 0
    assert "→ Run `satchel install acme/pdf-forms`" in capsys.readouterr().err


def test_start_up_loads_no_hub(reader):
    """A project with hubs is listed without the code that reads them."""
    (reader.project / "satchel.toml").write_text('[hubs."x.example"]\nurl = "https://x.example"\n')
    code = (
        "import sys; from satchel import Satchel; from satchel.cli.main import run; run(['list']);"
        "sys.exit([name for name in sys.modules if 'hub' in name or 'download' in name] != [])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=reader.project, env=env)
