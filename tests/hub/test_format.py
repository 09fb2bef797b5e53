"""Signatures, beside the `cryptography` package and ssh-keygen; names, versions and ranges."""

from __future__ import annotations

import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from satchel.errors import InvalidInput
from satchel.store.hub_client import signatures
from satchel.store.hub_client import versions as hub_versions
from satchel.store.signing import SshKey
from sizes import sized

ORDER = 2**252 + 27742317777372353535851937790883648493
P = 2**255 - 19


def _signed(chance: random.Random) -> tuple[bytes, bytes, bytes]:
    private = Ed25519PrivateKey.from_private_bytes(chance.randbytes(32))
    message = chance.randbytes(chance.randrange(200))
    return private.public_key().public_bytes_raw(), message, private.sign(message)


def test_it_accepts_what_another_implementation_signs_and_no_flipped_bit():
    chance = random.Random(8032)
    for _ in range(sized(60, 2000)):
        key, message, signature = _signed(chance)
        assert signatures.verify(key, message, signature)
        parts = [bytearray(key), bytearray(message or b"\0"), bytearray(signature)]
        part = chance.choice(parts)
        part[chance.randrange(len(part))] ^= 1 << chance.randrange(8)
        assert not signatures.verify(*map(bytes, parts))


def test_numbers_that_are_not_canonical_and_keys_of_small_order_are_refused():
    key, message, signature = _signed(random.Random(2))
    assert not signatures.verify(b"\1" + bytes(31), message, b"\1" + bytes(63))
    s = int.from_bytes(signature[32:], "little")
    for other in (s + factor * ORDER for factor in range(1, 15)):
        assert not signatures.verify(key, message, signature[:32] + other.to_bytes(32, "little"))
    points = [(P + small).to_bytes(32, "little") for small in (0, 1, 3, 18)]
    points += [b"\xff" * 32, (1 | 1 << 255).to_bytes(32, "little"), key[:-1], key + b"\0"]
    for point in points:
        assert not signatures.verify(point, message, signature)
        assert not signatures.verify(key, message, point + signature[32:])
    for one in (signature[:-1], signature + b"\0", b"", signature[:32]):
        assert not signatures.verify(key, message, one)


def test_signatures_of_ssh_keygen(keys):
    key = SshKey(keys["acme"])
    texts = [b"one\n", b"", b"\0" * 1000, "drei ü\n".encode()]
    for text, made in zip(texts, key.sign(texts, "satchel-release"), strict=True):
        assert signatures.verify_ssh(key.public, "satchel-release", text, made)
        assert not signatures.verify_ssh(key.public, "satchel-state", text, made)
        assert not signatures.verify_ssh(SshKey(keys["hub"]).public, "satchel-release", text, made)
        assert not signatures.verify_ssh(key.public, "satchel-release", text, made + "!")
        assert not signatures.verify_ssh("ssh-rsa AAAA", "satchel-release", text, made)


@pytest.mark.parametrize("name", ["acme/x", "a/b", "a-1/b-2-c", "9/9", "a" * 39 + "/" + "b" * 64])
def test_names(name):
    assert str(hub_versions.parse_name(name)) == name


@pytest.mark.parametrize(
    "name",
    ["acme", "acme/", "/x", "acme/x/y", "Acme/x", "acme/X", "acme/-x", "acme/x-", "acme/a--b",
     "acme/x\n", "acme/x ", "acme/../x", "./x", "../x", "acme/x@1", "ac.me/x", "acme/x.y",
     "acmé/x", "acme/\u0445", "a" * 40 + "/b", "a/" + "b" * 65, ""],
)  # fmt: skip
def test_invalid_names(name):
    assert hub_versions.parse_name(name) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.2.3", (1, 2, 3)), ("0.0.0", (0, 0, 0)), ("10.20.999999999", (10, 20, 999_999_999)),
     ("1.2", None), ("1.2.3.4", None), ("01.2.3", None), ("1.2.3-beta", None), ("v1.2.3", None),
     ("1.2.3\n", None), ("1.2.1000000000", None), ("１.2.3", None), ("", None)],
)  # fmt: skip
def test_versions(text, version):
    assert hub_versions.parse_version(text) == version


@pytest.mark.parametrize(
    ("text", "best"),
    [("", "2.0.1"), ("1.2.3", "1.2.3"), ("1.2.9", None), ("^1", "1.10.0"), ("^1.2", "1.10.0"),
     ("^1.2.4", "1.10.0"), ("^2", "2.0.1"), ("^3", None), ("^0.3", "0.3.5"), ("^0.3.6", None),
     ("^0", "0.4.0"), ("^0.0.1", "0.0.1"), ("^0.0", "0.0.2")],
)  # fmt: skip
def test_the_best_version_of_a_range(text, best):
    words = ["0.0.1", "0.0.2", "0.3.0", "0.3.5", "0.4.0", "1.2.3", "1.9.9", "1.10.0", "2.0.1"]
    versions = [version for word in words if (version := hub_versions.parse_version(word))]
    assert hub_versions.best_version(text, versions) == hub_versions.parse_version(best or "")


@pytest.mark.parametrize("text", ["1", "~1.2", ">=1", "^", "^1.2.3.4", "^01", "latest", "*", "^1 "])
def test_invalid_ranges(text):
    with pytest.raises(InvalidInput):
        hub_versions.best_version(text, ())


def test_requests():
    assert hub_versions.split_request("acme/x@^1.2") == (hub_versions.parse_name("acme/x"), "^1.2")
    assert hub_versions.split_request("acme/x") == (hub_versions.parse_name("acme/x"), "")
    for text in ("git@github.com:acme/x", "./acme/x"):
        assert hub_versions.split_request(text) is None
