"""What we sign `ssh-keygen` verifies, what it signs we verify, and nothing else passes."""

from __future__ import annotations

import random
import subprocess
from base64 import b64decode, b64encode

import pytest

from satchel.errors import Changed, InvalidInput, MissingExtra, Refused, SettingsError
from satchel.skill.file_tree import FolderTree, MemoryTree
from satchel.store.signing import (
    SIGNATURE,
    Signers,
    SshKey,
    add_signer,
    check_signature,
    list_signers,
    plain_key,
    revoke_signer,
    sign_folder,
    signed_digest,
    signer_of,
    statement,
    verify_tree,
)
from sizes import sized

ADA = "ada@example.org"


def keygen(*words, stdin=b"", cwd=None):
    """The real program, as a person runs it."""
    return subprocess.run(
        ["ssh-keygen", *map(str, words)], input=stdin, capture_output=True, check=False, cwd=cwd
    )


@pytest.fixture
def key(tmp_path):
    """Ada's private key."""
    path = tmp_path / "ada"
    assert keygen("-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", path).returncode == 0
    return path


@pytest.fixture
def folder(tmp_path):
    """A skill with a program and a file in a folder."""
    path = tmp_path / "pdf-forms"
    (path / "scripts").mkdir(parents=True)
    (path / "SKILL.md").write_text("---\nname: pdf-forms\ndescription: Fills forms.\n---\nFill.\n")
    (path / "scripts" / "fill.py").write_text("print(1)\n")
    (path / "scripts" / "fill.py").chmod(0o755)
    return path


@pytest.fixture
def signers(tmp_path):
    """An empty list of signers."""
    return Signers(str(tmp_path / "config"))


@pytest.fixture
def trusted(signers, key):
    """A list with Ada on it."""
    add_signer(signers, ADA, public(key))
    return signers


def public(key):
    return key.with_suffix(".pub").read_text()


def state(folder, signers):
    return check_signature(FolderTree(str(folder)), signers).state


def verify(folder, signers):
    return verify_tree(FolderTree(str(folder)), signers)


# --- together with ssh-keygen -------------------------------------------------------------


def test_ssh_keygen_verifies_what_we_sign(folder, key, trusted):
    path = sign_folder(str(folder), str(key))
    assert path == str(folder / SIGNATURE)
    done = keygen(
        "-Y", "verify", "-f", trusted.allowed, "-I", ADA, "-n", "satchel", "-s", path,
        stdin=statement(FolderTree(str(folder))),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b'Good "satchel" signature for ada@example.org')


def test_we_verify_what_ssh_keygen_signs(folder, key, trusted):
    text = statement(FolderTree(str(folder)))
    made = keygen("-Y", "sign", "-f", key, "-n", "satchel", stdin=text)
    (folder / SIGNATURE).write_bytes(made.stdout)
    found = verify(folder, trusted)
    assert found.identity == ADA
    shown = keygen("-l", "-f", f"{key}.pub").stdout.decode().split()[1]
    assert found.key == shown
    assert list_signers(trusted)[0].key == shown


# --- what does not pass -------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "SKILL.md").write_text("---\nname: other\n---\n"),
        lambda folder: (folder / "extra.txt").write_text(""),
        lambda folder: (folder / "scripts" / "fill.py").unlink(),
        lambda folder: (folder / "scripts" / "fill.py").chmod(0o644),
        lambda folder: (folder / "scripts" / "fill.py").rename(folder / "scripts" / "fill2.py"),
    ],
)
def test_any_change_after_signing_is_noticed(folder, key, trusted, change):
    sign_folder(str(folder), str(key))
    assert state(folder, trusted) == "valid"
    change(folder)
    with pytest.raises(Changed, match="not those that were signed"):
        verify(folder, trusted)
    assert state(folder, trusted) == "invalid"


def test_a_stranger_is_not_the_same_as_a_forgery(folder, key, signers):
    sign_folder(str(folder), str(key))
    with pytest.raises(Refused, match="unknown key") as caught:
        verify(folder, signers)
    assert not isinstance(caught.value, Changed)
    assert state(folder, signers) == "unknown-signer"


def test_a_key_counts_until_its_day(folder, key, signers):
    sign_folder(str(folder), str(key))
    add_signer(signers, ADA, public(key))
    with open(signers.allowed, encoding="utf-8") as file:
        line = file.read()
    dated = line.replace('namespaces="satchel"', 'namespaces="satchel",valid-before="20200101"')
    with open(signers.allowed, "w", encoding="utf-8") as file:
        file.write(dated)
    assert [one.until for one in list_signers(signers)] == ["2020-01-01"]
    with pytest.raises(Refused, match="has expired"):
        verify(folder, signers)
    assert state(folder, signers) == "unknown-signer"


def test_a_signature_made_for_something_else_does_not_count(folder, key, trusted):
    text = statement(FolderTree(str(folder)))
    made = keygen("-Y", "sign", "-f", key, "-n", "git", stdin=text)
    (folder / SIGNATURE).write_bytes(made.stdout)
    with pytest.raises(Refused, match="made for `git`"):
        verify(folder, trusted)


def test_only_ed25519_signs_and_counts(folder, tmp_path, trusted):
    other = tmp_path / "rsa"
    keygen("-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", other)
    with pytest.raises(InvalidInput, match="ssh-rsa"):
        sign_folder(str(folder), str(other))
    assert not (folder / SIGNATURE).exists()
    with pytest.raises(InvalidInput, match="ed25519"):
        add_signer(trusted, "rsa@example.org", public(other))
    text = statement(FolderTree(str(folder)))
    made = keygen("-Y", "sign", "-f", other, "-n", "satchel", stdin=text)
    (folder / SIGNATURE).write_bytes(made.stdout)
    with pytest.raises(Refused, match="ssh-rsa"):
        verify(folder, trusted)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n",
        b"-----BEGIN SSH SIGNATURE-----\n!!!!\n-----END SSH SIGNATURE-----\n",
        b"-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n",
        b"-----BEGIN SSH SIGNATURE-----\nU1NIU0lHAAAAAf////8=\n-----END SSH SIGNATURE-----\n",
        b"x" * (20 << 10),
    ],
)
def test_a_damaged_signature_is_a_change(folder, trusted, data):
    (folder / SIGNATURE).write_bytes(data)
    with pytest.raises(Changed, match="damaged"):
        verify(folder, trusted)
    assert state(folder, trusted) == "invalid"


def test_a_link_is_no_signature(folder, key, trusted):
    sign_folder(str(folder), str(key))
    (folder / SIGNATURE).rename(folder / "other.sig")
    (folder / SIGNATURE).symlink_to("other.sig")
    assert state(folder, trusted) == "invalid"


@pytest.mark.timeout(120)
def test_no_flipped_bit_passes(folder, key, trusted):
    """In the files and in the signature, with the real `ssh-keygen`."""
    sign_folder(str(folder), str(key))
    chance = random.Random(7)
    paths = [folder / SIGNATURE, folder / "SKILL.md"]
    for turn in range(sized(40, 200)):
        path = paths[turn % 2]
        whole = path.read_bytes()
        at = chance.randrange(len(whole))
        if path.name == SIGNATURE and whole[at : at + 1] in b"\r\n":
            continue  # where a line breaks is not part of the signature
        broken = bytearray(whole)
        broken[at] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        assert state(folder, trusted) != "valid", (path.name, at)
        path.write_bytes(whole)
    assert state(folder, trusted) == "valid"


# --- signing ------------------------------------------------------------------------------


def test_a_missing_program_is_said_with_what_to_install(folder, key, trusted, monkeypatch):
    sign_folder(str(folder), str(key))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtra, match="ssh-keygen") as caught:
        verify(folder, trusted)
    assert "openssh-client" in caught.value.hint
    found = check_signature(FolderTree(str(folder)), trusted)
    assert found.state == "unknown-signer"
    assert "ssh-keygen" in found.reason


def test_signing_replaces_a_link_and_not_what_it_leads_to(folder, tmp_path, key):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / SIGNATURE).symlink_to("SKILL.md")
    sign_folder(str(folder), str(key))
    assert not (folder / SIGNATURE).is_symlink()
    assert "name: pdf-forms" in (folder / "SKILL.md").read_text()


# --- signers ------------------------------------------------------------------------------


def test_a_revoked_key_never_counts_again(folder, key, trusted):
    sign_folder(str(folder), str(key))
    revoke_signer(trusted, ADA)
    assert state(folder, trusted) == "unknown-signer"
    with pytest.raises(Refused, match="revoked"):
        add_signer(trusted, "somebody@example.org", public(key))
    with open(trusted.allowed, "a", encoding="utf-8") as file:
        file.write(f"{ADA} {public(key)}")
    with pytest.raises(Refused, match="was revoked"):
        verify(folder, trusted)


def test_a_revocation_list_of_openssh_is_obeyed(folder, key, trusted):
    sign_folder(str(folder), str(key))
    assert keygen("-k", "-f", trusted.revoked, f"{key}.pub").returncode == 0
    with pytest.raises(Refused, match="was revoked"):
        verify(folder, trusted)
    with pytest.raises(SettingsError, match="cannot be read"):
        revoke_signer(trusted, ADA)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "*", "a\nb", '"a', "#a", "!a"])
def test_an_identity_cannot_say_more_than_a_name(key, signers, name):
    with pytest.raises(InvalidInput):
        add_signer(signers, name, public(key))


def test_the_lock_gets_a_signer_and_a_wrong_signature_stops(folder, key, tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "satchel"))
    assert signer_of(FolderTree(str(folder))) == ""
    sign_folder(str(folder), str(key))
    assert signer_of(FolderTree(str(folder))) == ""
    add_signer(Signers(str(tmp_path / "satchel")), ADA, public(key))
    assert signer_of(FolderTree(str(folder))) == ADA
    (folder / "SKILL.md").write_text("x")
    with pytest.raises(Changed):
        signer_of(FolderTree(str(folder)))


def test_only_the_signature_of_the_skill_itself_is_left_out():
    one = MemoryTree({"SKILL.md": b"a"})
    two = MemoryTree({"SKILL.md": b"a", f"references/{SIGNATURE}": b"b"})
    three = MemoryTree({"SKILL.md": b"a", SIGNATURE.lower(): b"b"})
    assert len({signed_digest(tree) for tree in (one, two, three)}) == 3


def test_a_public_key_has_one_spelling(key):
    line = public(key)
    kind, text = line.split()[:2]
    assert plain_key(line) == f"{kind} {text}" == SshKey(str(key)).public
    blob = b64decode(text)
    ends = [b64encode(one).decode() for one in (blob + b"\0", blob[:-1])]
    for wrong in ("", kind, f"{kind} !", f"ssh-rsa {text}", *(f"{kind} {one}" for one in ends)):
        with pytest.raises(InvalidInput):
            plain_key(wrong)
