"""The command `sign`, with the real `ssh-keygen`."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

ADA = "ada@example.org"

pytestmark = pytest.mark.timeout(60)  # each test starts the terminal many times


@pytest.fixture
def signed(terminal):
    """Ada's key is in the home; nothing is signed yet."""
    folder = terminal.home / ".ssh"
    folder.mkdir(mode=0o700)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada"]
    subprocess.run([*words, "-f", str(folder / "id_ed25519")], check=True)
    return terminal


def check(terminal, name, run):
    """Compare with a snapshot; keys are new in every run."""
    out = re.sub(r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:<key>", run.out)
    err = re.sub(r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:<key>", run.err)
    terminal.check(name, run._replace(out=out, err=err))


def test_signing_and_checking(signed):
    check(signed, "sign-check-unsigned", signed.run("sign", "release-notes", "--check"))
    check(signed, "sign", signed.run("sign", "skills/release-notes"))
    check(signed, "sign-check-stranger", signed.run("sign", "release-notes", "--check"))
    added = signed.run("sign", "--trust-key", "~/.ssh/id_ed25519.pub", "--as", ADA)
    check(signed, "signers-add", added)
    check(signed, "sign-check-valid", signed.run("sign", "release-notes", "--check"))
    check(signed, "signers-list", signed.run("sign", "--signers"))
    script = signed.project / "skills/release-notes/scripts/collect.py"
    script.write_text("print(2)\n")
    check(signed, "sign-check-changed", signed.run("sign", "release-notes", "--check"))


def test_what_cannot_be_signed_is_said(signed):
    assert signed.run("sign", "nothing-like-it").status == 3
    assert signed.run("sign", "./nowhere").status == 3
    assert signed.run("sign", "release-notes", "--key", "nokey").status == 3
    assert signed.run("sign", "write-a-skill", SATCHEL_BUILTIN="true").status == 4


def test_signers_come_and_go(signed):
    assert "No trusted signers" in signed.run("sign", "--signers").err
    key = (signed.home / ".ssh/id_ed25519.pub").read_text()
    reply = signed.run("sign", "--trust-key", "-", "--as", ADA, "--json", stdin=key)
    assert json.loads(reply.out)["added"]["identity"] == ADA
    gone = signed.run("sign", "--revoke", ADA)
    assert gone.status == 0
    assert "Revoked: ada@example.org" in gone.err
    refused = signed.run("sign", "--trust-key", "~/.ssh/id_ed25519.pub", "--as", ADA)
    assert refused.status == 4
    assert signed.run("sign", "--revoke", ADA).status == 3
    assert signed.run("sign", "--trust-key", "x.pub").status == 2
    assert signed.run("sign", "release-notes", "--signers").status == 2


def test_a_project_cannot_bring_its_own_signers(signed):
    assert signed.run("sign", "release-notes").status == 0
    key = (signed.home / ".ssh/id_ed25519.pub").read_text()
    for name in ("allowed_signers", ".agents/allowed_signers", ".config/satchel/allowed_signers"):
        path = signed.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{ADA} {key}")
    found = json.loads(signed.run("sign", "release-notes", "--check", "--json").out)
    assert found["state"] == "unknown-signer"
