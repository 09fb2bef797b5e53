"""Ed25519 verification: RFC 8032, the `cryptography` package, ssh-keygen, and forgeries."""

from __future__ import annotations

import base64
import random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from satchel.errors import InvalidInput
from satchel.store.hub_client import ed25519
from satchel.store.signing import SshKey
from sizes import sized

ORDER = 2**252 + 27742317777372353535851937790883648493
P = 2**255 - 19

RFC_8032 = """
9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60
d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a
e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155
5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b

4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb
3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c
72
92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da
085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00

c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7
fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025
af82
6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac
18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a

833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42
ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf
ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a
2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f
dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589
09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704
"""
"""Section 7.1: secret key, public key, message, two lines of signature."""


@pytest.mark.parametrize("vector", RFC_8032.strip().split("\n\n"))
def test_the_vectors_of_rfc_8032(vector):
    secret, key, *parts = (bytes.fromhex(line) for line in vector.split())
    text, made = b"".join(parts[:-2]), b"".join(parts[-2:])
    assert Ed25519PrivateKey.from_private_bytes(secret).sign(text) == made
    assert ed25519.verify(key, text, made)
    assert not ed25519.verify(key, text + b"x", made)


def _accepted_elsewhere(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed(chance: random.Random) -> tuple[bytes, bytes, bytes]:
    private = Ed25519PrivateKey.from_private_bytes(chance.randbytes(32))
    message = chance.randbytes(chance.randrange(200))
    return private.public_key().public_bytes_raw(), message, private.sign(message)


def test_it_agrees_with_another_implementation():
    chance = random.Random(8032)
    for _ in range(sized(60, 2000)):
        key, message, signature = _signed(chance)
        assert ed25519.verify(key, message, signature)
        parts = [bytearray(key), bytearray(message or b"\0"), bytearray(signature)]
        part = chance.choice(parts)
        part[chance.randrange(len(part))] ^= 1 << chance.randrange(8)
        changed = tuple(bytes(one) for one in parts)
        assert ed25519.verify(*changed) == _accepted_elsewhere(*changed) is False


def test_every_flipped_bit_of_a_signature_counts():
    key, message, signature = _signed(random.Random(1))
    for bit in sized(range(0, 512, 7), range(512)):
        changed = bytearray(signature)
        changed[bit // 8] ^= 1 << bit % 8
        assert not ed25519.verify(key, message, bytes(changed)), bit


def test_a_second_form_of_a_signature_is_refused():
    """S + L is the same number modulo the order: RFC 8032 forbids it."""
    chance = random.Random(2)
    for _ in range(8):
        key, message, signature = _signed(chance)
        s = int.from_bytes(signature[32:], "little")
        for factor in range(1, 16):
            if s + factor * ORDER < 2**256:
                other = signature[:32] + (s + factor * ORDER).to_bytes(32, "little")
                assert not ed25519.verify(key, message, other)


SMALL_ORDER = [
    (1).to_bytes(32, "little"),
    (P - 1).to_bytes(32, "little"),
    bytes(32),
    bytes(31) + b"\x80",
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
]
NOT_CANONICAL = [(P + small).to_bytes(32, "little") for small in (0, 1, 3, 18)] + [
    b"\xff" * 32,
    (1 | 1 << 255).to_bytes(32, "little"),  # x = 0 with a sign
]


@pytest.mark.parametrize("key", SMALL_ORDER + NOT_CANONICAL)
def test_keys_that_sign_anything_are_refused(key):
    """With a key of small order, R = the neutral point and S = 0 would fit many messages."""
    for point in (*SMALL_ORDER, *NOT_CANONICAL):
        for number in range(4):
            message = number.to_bytes(4, "big")
            assert not ed25519.verify(key, message, point + bytes(32))


@pytest.mark.parametrize("point", NOT_CANONICAL)
def test_points_that_are_not_canonical_are_refused(point):
    key, message, signature = _signed(random.Random(3))
    assert not ed25519.verify(key, message, point + signature[32:])


def test_wrong_sizes_are_refused():
    key, message, signature = _signed(random.Random(4))
    for one in (signature[:-1], signature + b"\0", b"", signature[:32]):
        assert not ed25519.verify(key, message, one)
    assert not ed25519.verify(key[:-1], message, signature)
    assert not ed25519.verify(key + b"\0", message, signature)


def test_signatures_of_ssh_keygen(keys):
    key = SshKey(keys["acme"])
    texts = [b"one\n", b"", b"\0" * 1000, "drei ü\n".encode()]
    for text, made in zip(texts, key.sign(texts, "satchel-release"), strict=True):
        assert ed25519.verify_ssh(key.public, "satchel-release", text, made)
        assert not ed25519.verify_ssh(key.public, "satchel-state", text, made)
        assert not ed25519.verify_ssh(key.public, "satchel-release", text + b"\n", made)
        assert not ed25519.verify_ssh(SshKey(keys["hub"]).public, "satchel-release", text, made)
        assert not ed25519.verify_ssh(key.public, "satchel-release", text, made + "!")
        assert not ed25519.verify_ssh("ssh-rsa AAAA", "satchel-release", text, made)


def test_a_key_has_one_spelling(keys):
    with open(keys["acme"] + ".pub", encoding="utf-8") as stream:
        line = stream.read()
    data = ed25519.public_key(line)
    assert ed25519.key_text(data) == " ".join(line.split()[:2]) == SshKey(keys["acme"]).public
    blob = base64.b64decode(line.split()[1])
    for wrong in (
        "", "ssh-ed25519", "ssh-ed25519 !", "ssh-rsa " + line.split()[1],
        "ssh-ed25519 " + base64.b64encode(blob + b"\0").decode(),
        "ssh-ed25519 " + base64.b64encode(blob[:-1]).decode(),
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            ed25519.public_key(wrong)
