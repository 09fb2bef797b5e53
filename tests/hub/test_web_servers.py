"""Web servers in front of a hub: the configuration of the guide, and a bad certificate."""

from __future__ import annotations

import subprocess
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import page_blocks
from hub import servers
from needs import needs
from ports import free_port
from satchel.store.hub_client import format as hub_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GUIDE = Path(__file__).parents[2] / "docs/guides/host-a-hub.md"
TOKEN = "tok-7f3a91c2d4e5"


def _file_of_guide(title: str) -> str:
    blocks = page_blocks.parse(GUIDE.read_text(encoding="utf-8"))
    (text,) = [block.text for block in blocks if block.title == title]
    return text


@contextmanager
def _caddy_of_guide(folder: Path, store: str, further: str = "") -> Iterator[str]:
    """Run Caddy with the file of the guide; yields its address."""
    port = free_port()
    root = f"root * {store}\n{further}"
    site = _file_of_guide("Caddyfile").replace("root * /srv/hub", root)
    address = f"http://127.0.0.1:{port}"
    with closing(
        servers.caddy_site(folder, port, site.replace("skills.acme.example", address))
    ) as running:
        next(running)
        yield address


def _headers(url: str) -> tuple[int, str, str, str]:
    """The status of a file, its type, how long caches keep it, and its compression."""
    request = Request(url, headers={"Accept-Encoding": "gzip"})
    try:
        with urlopen(request) as response:
            status, headers = response.status, response.headers
    except HTTPError as exc:
        status, headers = exc.code, exc.headers
    names = ("Content-Type", "Cache-Control", "Content-Encoding")
    kind, cache, encoding = (headers.get(name, "") for name in names)
    return status, kind.partition(";")[0], cache, encoding


def test_caddy_sends_the_headers_of_the_guide(shell, store, write_skill, tmp_path):
    made = shell.publish(store, write_skill())
    state = shell.build(store)["state"]
    for_ever = "max-age=31536000, immutable"
    with _caddy_of_guide(tmp_path, store) as address:
        for folder in ("index", "revoked", "search"):
            path = hub_format.content_path(folder, state[folder])
            assert _headers(f"{address}/{path}") == (200, "application/gzip", for_ever, "")
        blob = f"{address}/{hub_format.content_path('blobs', made['blob'])}"
        assert _headers(blob) == (200, "application/gzip", for_ever, "")
        for path in ("state", hub_format.commit_path(3)):
            assert _headers(f"{address}/{path}")[:3] == (200, "text/plain", "max-age=60")
        page = (200, "text/html", "max-age=600", "gzip")
        assert _headers(f"{address}/") == _headers(f"{address}/acme/notes/") == page
        script = (200, "text/javascript", "max-age=600", "gzip")
        assert _headers(f"{address}/assets/hub.js") == script
        index = f"{address}/acme/notes/.well-known/agent-skills/index.json"
        assert _headers(index)[:3] == (200, "application/json", "max-age=600")
        status, _, cache, _ = _headers(f"{address}/index/00/{'0' * 64}")
        assert (status, "immutable" in cache) == (404, False)
        assert shell.run("hub", "add", address, "--yes")[0] == 0, shell.err
        assert shell.run("install", "acme/notes", "--yes")[0] == 0, shell.err


@pytest.mark.parametrize("kind", ["token", "basic"])
def test_caddy_protects_a_hub_as_the_guide_says(kind, shell, store, tmp_path, monkeypatch):
    rules = _file_of_guide(f"{kind}.caddy")
    secret = TOKEN
    if kind == "token":
        monkeypatch.setenv("HUB_TOKEN", TOKEN)
    else:
        secret = f"reader:{TOKEN}"
        words = [needs("caddy"), "hash-password", "--plaintext", TOKEN, "--bcrypt-cost", "4"]
        digest = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        rules = rules.replace("$2a$14$…", digest)
    with _caddy_of_guide(tmp_path, store, rules) as address:
        shell.fails(4, "needs a credential", "hub", "add", address, "--yes")
        monkeypatch.setenv("SATCHEL_HUB_CREDENTIALS", f"{address[7:]}={secret}x")
        shell.fails(4, "refuses the credential", "hub", "add", address, "--yes")
        monkeypatch.setenv("SATCHEL_HUB_CREDENTIALS", f"{address[7:]}={secret}")
        assert shell.run("hub", "add", address, "--yes")[0] == 0, shell.err
        assert _headers(f"{address}/blobs/x")[0] == 401


@pytest.fixture
def certify(tmp_path) -> Callable[..., tuple[Path, Path]]:
    """Write a certificate for `localhost` and its key; returns their paths."""

    def write(first_day: int, last_day: int) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now + timedelta(first_day))
            .not_valid_after(now + timedelta(last_day))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        form = serialization.PrivateFormat.PKCS8
        pem = serialization.Encoding.PEM
        paths = tmp_path / "server.pem", tmp_path / "server.key"
        paths[0].write_bytes(certificate.public_bytes(pem))
        paths[1].write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
        return paths

    return write


@pytest.mark.parametrize(
    ("days", "is_known", "reason"),
    [((-30, -1), True, "has expired"), ((-1, 30), False, "self-signed"), ((-1, 30), True, "")],
)
def test_a_certificate_that_cannot_be_verified_is_named(
    days, is_known, reason, certify, tmp_path, shell, store, monkeypatch
):
    certificate, key = certify(*days)
    if is_known:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    port = free_port()
    site = f"https://localhost:{port} {{\ntls {certificate} {key}\nroot * {store}\nfile_server\n}}"
    with closing(servers.caddy_site(tmp_path, port, site)) as running:
        next(running)
        status = shell.run("hub", "add", f"https://localhost:{port}", "--yes")[0]
    assert status == (4 if reason else 0), shell.err
    assert reason in shell.err
    assert ("`SSL_CERT_FILE`" in shell.err) is bool(reason)
