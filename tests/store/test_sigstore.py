"""Sigstore bundles, verified for real against a Sigstore of our own: its authority, its two logs.

Everything that the public one signs is signed here with keys made for the test: the certificate of
the signer, the timestamp of the certificate log inside it, the entry in the signature log, its
inclusion proof and its checkpoint. The library verifies all of it as it does for the public one.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import logging
import struct
import subprocess
import sys
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from satchel.errors import Changed, MissingExtra, Refused, SettingsError
from satchel.skill.tree import FolderTree
from satchel.store.signers import Signers, add_signer, add_sigstore_signer
from satchel.store.signing import check_signature, sign_folder
from satchel.store.sigstore import verify_bundle
from satchel.store.statement import BUNDLE, statement

ADA = "ada@example.org"
ISSUER = "https://issuer.example.org"
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
MINUTE = dt.timedelta(minutes=1)
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def canonical(value: Any) -> bytes:
    """JSON as RFC 8785 writes it, for plain texts and whole numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def spki(key: Any) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: Any) -> bytes:
    return hashlib.sha256(spki(key)).digest()


def sign(key: Any, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=ca, crl_sign=ca,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


class OwnSigstore:
    """An authority and two logs."""

    def __init__(self) -> None:
        self.authority, self.certificates, self.entries = (
            ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
        )
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "our authority")])
        builder = (
            self._certificate(self.name, self.authority, days=365)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage(ca=True), critical=True)
        )
        self.root = builder.sign(self.authority, hashes.SHA256())

    def _certificate(self, name: x509.Name, key: Any, days: float) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - MINUTE)
            .not_valid_after(NOW + dt.timedelta(days=days))
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )

    def trusted_root(self) -> str:
        """What a client has to know of us."""

        def log(key: Any, url: str) -> dict[str, Any]:
            return {
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": b64(spki(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": "2020-01-01T00:00:00Z"},
                },
                "logId": {"keyId": b64(key_id(key))},
            }

        root = b64(self.root.public_bytes(Encoding.DER))
        return json.dumps({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.entries, "https://entries.example.org")],
            "ctlogs": [log(self.certificates, "https://certificates.example.org")],
            "certificateAuthorities": [{
                "subject": {"organization": "us", "commonName": "our authority"},
                "uri": "https://authority.example.org",
                "certChain": {"certificates": [{"rawBytes": root}]},
                "validFor": {"start": "2020-01-01T00:00:00Z"},
            }],
            "timestampAuthorities": [],
        })  # fmt: skip

    def certify(self, key: Any, identity: str, issuer: str) -> x509.Certificate:
        """A certificate for ten minutes, with the timestamp of the log of certificates in it."""
        builder = (
            self._certificate(x509.Name([]), key, days=10 / 1440)
            .add_extension(usage(ca=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([x509.RFC822Name(identity)]), critical=True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER, issuer.encode()), critical=False)
        )
        body = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        when = int(NOW.timestamp() * 1000)
        entry = key_id(self.authority) + struct.pack("!I", len(body))[1:] + body
        stamp = sign(
            self.certificates, struct.pack("!BBQH", 0, 0, when, 1) + entry + struct.pack("!H", 0)
        )
        sct = struct.pack("!B32sQHBBH", 0, key_id(self.certificates), when, 0, 4, 3, len(stamp))
        sct += stamp
        listed = struct.pack("!HH", len(sct) + 2, len(sct)) + sct
        extension = x509.UnrecognizedExtension(_SCT_LIST, _octets(listed))
        return builder.add_extension(extension, critical=False).sign(
            self.authority, hashes.SHA256()
        )

    def bundle(self, text: bytes, identity: str = ADA, issuer: str = ISSUER) -> dict[str, Any]:
        """What `sigstore sign --bundle` would write."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certify(key, identity, issuer)
        signature = sign(key, text)
        digest = hashlib.sha256(text).digest()
        body = canonical({
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": {"hash": {"algorithm": "sha256", "value": digest.hex()}},
                "signature": {
                    "content": b64(signature),
                    "publicKey": {"content": b64(certificate.public_bytes(Encoding.PEM))},
                },
            },
        })  # fmt: skip
        leaf = hashlib.sha256(b"\0" + body).digest()  # the only entry: its hash is the root
        note = f"entries.example.org - 1\n1\n{b64(leaf)}\n"
        mark = b64(key_id(self.entries)[:4] + sign(self.entries, note.encode()))
        when = int(NOW.timestamp())
        promise = canonical(
            {
                "body": b64(body),
                "integratedTime": when,
                "logID": key_id(self.entries).hex(),
                "logIndex": 0,
            }
        )
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": b64(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [{
                    "logIndex": "0",
                    "logId": {"keyId": b64(key_id(self.entries))},
                    "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
                    "integratedTime": str(when),
                    "inclusionPromise": {"signedEntryTimestamp": b64(sign(self.entries, promise))},
                    "inclusionProof": {
                        "logIndex": "0",
                        "rootHash": b64(leaf),
                        "treeSize": "1",
                        "hashes": [],
                        "checkpoint": {"envelope": f"{note}\n\u2014 entries.example.org {mark}\n"},
                    },
                    "canonicalizedBody": b64(body),
                }],
            },
            "messageSignature": {
                "messageDigest": {
                    "algorithm": "SHA2_256", "digest": b64(digest),
                },
                "signature": b64(signature),
            },
        }  # fmt: skip


def _octets(data: bytes) -> bytes:
    """An OCTET STRING in DER."""
    assert len(data) < 256
    return b"\x04" + (b"\x81" if len(data) > 127 else b"") + bytes([len(data)]) + data


@pytest.fixture(scope="module")
def ours() -> OwnSigstore:
    return OwnSigstore()


@pytest.fixture
def signers(tmp_path, ours):
    """Signers who have our trust root, and Ada on their list."""
    found = Signers(str(tmp_path / "config"))
    add_sigstore_signer(found, ADA, ISSUER)
    (tmp_path / "config" / "sigstore_root.json").write_text(ours.trusted_root())
    return found


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "pdf-forms"
    path.mkdir()
    (path / "SKILL.md").write_text("---\nname: pdf-forms\ndescription: Fills forms.\n---\nFill.\n")
    return path


def write(folder, bundle: dict[str, Any]) -> FolderTree:
    (folder / BUNDLE).write_text(json.dumps(bundle))
    return FolderTree(str(folder))


def text_of(folder) -> bytes:
    return statement(FolderTree(str(folder)))


def test_a_bundle_over_the_statement_is_verified_without_a_network(folder, ours, signers, caplog):
    caplog.set_level(logging.WARNING)
    tree = write(folder, ours.bundle(text_of(folder)))
    assert verify_bundle(tree, signers) == (ADA, ISSUER)
    found = check_signature(tree, signers)
    assert (found.state, found.identity, found.key, found.kind) == (
        "valid", ADA, ISSUER, "sigstore",
    )  # fmt: skip
    assert caplog.records == []


@pytest.mark.parametrize(
    ("identity", "issuer"), [("mallory@example.org", ISSUER), (ADA, "https://other.example.org")]
)
def test_another_identity_or_another_issuer_does_not_count(folder, ours, signers, identity, issuer):
    tree = write(folder, ours.bundle(text_of(folder), identity, issuer))
    with pytest.raises(Refused, match=identity) as caught:
        verify_bundle(tree, signers)
    assert not isinstance(caught.value, Changed)
    assert check_signature(tree, signers).state == "unknown-signer"


def test_a_change_after_signing_is_noticed(folder, ours, signers):
    tree = write(folder, ours.bundle(text_of(folder)))
    (folder / "SKILL.md").write_text("---\nname: pdf-forms\ndescription: x\n---\n")
    with pytest.raises(Changed, match="does not fit"):
        verify_bundle(tree, signers)
    assert check_signature(FolderTree(str(folder)), signers).state == "invalid"


def test_another_sigstore_does_not_count(folder, signers):
    tree = write(folder, OwnSigstore().bundle(text_of(folder)))
    with pytest.raises(Changed, match="chain"):
        verify_bundle(tree, signers)


def test_by_default_the_public_trust_root_counts(folder, ours, tmp_path):
    """The one inside the package; our own authority means nothing to it."""
    public = Signers(str(tmp_path / "other"))
    add_sigstore_signer(public, ADA, ISSUER)
    tree = write(folder, ours.bundle(text_of(folder)))
    with pytest.raises(Changed, match="chain"):
        verify_bundle(tree, public)


@pytest.mark.parametrize(
    "path",
    [
        ("messageSignature", "signature"),
        ("verificationMaterial", "certificate", "rawBytes"),
        ("verificationMaterial", "tlogEntries", 0, "canonicalizedBody"),
        ("verificationMaterial", "tlogEntries", 0, "inclusionPromise", "signedEntryTimestamp"),
        ("verificationMaterial", "tlogEntries", 0, "inclusionProof", "rootHash"),
    ],
)
def test_every_part_of_a_bundle_is_verified(folder, ours, signers, path):
    bundle = ours.bundle(text_of(folder))
    part: Any = bundle
    for step in path[:-1]:
        part = part[step]
    data = bytearray(base64.b64decode(part[path[-1]]))
    data[len(data) // 2] ^= 1
    part[path[-1]] = b64(bytes(data))
    with pytest.raises(Changed):
        verify_bundle(write(folder, bundle), signers)


def test_the_checkpoint_of_the_log_is_verified(folder, ours, signers):
    bundle = ours.bundle(text_of(folder))
    proof = bundle["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]
    proof["checkpoint"]["envelope"] = proof["checkpoint"]["envelope"].replace("- 1\n", "- 2\n", 1)
    with pytest.raises(Changed):
        verify_bundle(write(folder, bundle), signers)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"\xff\xfe", b"[" * 100_000, b"x" * (1 << 21), b'{"mediaType": "x"}'],
)
def test_what_is_no_bundle_is_a_change_and_no_crash(folder, signers, data):
    (folder / BUNDLE).write_bytes(data)
    with pytest.raises(Changed):
        verify_bundle(FolderTree(str(folder)), signers)
    assert check_signature(FolderTree(str(folder)), signers).state == "invalid"


def test_without_a_bundle_there_is_nothing_to_verify(folder, signers):
    with pytest.raises(Refused, match="no Sigstore bundle"):
        verify_bundle(FolderTree(str(folder)), signers)


def test_one_wrong_signature_outweighs_a_good_one(folder, ours, signers, tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    add_signer(signers, ADA, key.with_suffix(".pub").read_text())
    tree = write(folder, ours.bundle(text_of(folder)))
    sign_folder(str(folder), str(key))
    tree = FolderTree(str(folder))
    assert check_signature(tree, signers).state == "valid"
    write(folder, ours.bundle(b"something else"))
    assert check_signature(FolderTree(str(folder)), signers).state == "invalid"


def test_a_damaged_trust_root_of_ones_own_is_said(folder, ours, signers):
    tree = write(folder, ours.bundle(text_of(folder)))
    with open(signers.root, "w", encoding="utf-8") as file:
        file.write("{}")
    with pytest.raises(SettingsError, match="sigstore_root"):
        verify_bundle(tree, signers)


def test_without_the_extra_the_install_line_is_said(folder, ours, signers, monkeypatch):
    tree = write(folder, ours.bundle(text_of(folder)))
    for name in [*sys.modules]:
        if name == "sigstore" or name.startswith("sigstore."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sigstore", None)
    with pytest.raises(MissingExtra) as caught:
        verify_bundle(tree, signers)
    assert 'pip install "satchel[sigstore]"' in caught.value.hint
    found = check_signature(tree, signers)
    assert found.state == "unknown-signer"
    assert "satchel[sigstore]" in found.hint
