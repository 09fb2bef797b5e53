"""Who comes in by the word of an issuer: against a real one, with real keys, on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.testclient import TestClient

from satchel.errors import InvalidInput
from satchel.facade import Satchel
from satchel.ui.access import Access
from satchel.ui.app import make_app
from satchel.ui.oidc import Issuer, Oidc

CLIENT, SECRET = "satchel", "s3cret & odd"
CROSS = {
    "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
}  # fmt: skip


@cache
def _keys() -> tuple[rsa.RSAPrivateKey, rsa.RSAPrivateKey]:
    one, other = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    return one, other


class IdentityServer:
    """A small OpenID provider: discovery, keys, codes for tokens. It can lie when asked to."""

    def __init__(self) -> None:
        self.key, self.other = _keys()
        self.codes: dict[str, dict[str, str]] = {}
        self.claims: dict[str, Any] = {}
        """What replaces the truth in a token; None leaves a claim out."""
        self.signed_by: Any = self.key
        self.header: dict[str, str] = {"kid": "one"}
        self.names: tuple[str | None, ...] = ("one",)
        """What its keys are called; the last is that of `key`, another is `other`."""
        self.algorithm = "RS256"
        self.configuration: dict[str, Any] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if self.path.endswith("openid-configuration"):
                    self._say(outer.discovery())
                elif self.path == "/keys":
                    self._say({"keys": outer.public()})
                else:
                    self.send_error(404)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                status, answer = outer.trade(dict(parse_qsl(body)), self.headers)
                self._say(answer, status)

            def _say(self, table: Any, status: int = 200) -> None:
                data = json.dumps(table).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "jwks_uri": f"{self.address}/keys",
            **self.configuration,
        }

    def public(self) -> list[dict[str, str]]:
        """Its keys, as everybody may read them."""
        found: list[dict[str, str]] = []
        for key, name in zip((self.key, self.other), reversed(self.names), strict=False):
            table = json.loads(RSAAlgorithm.to_jwk(key.public_key()))
            named = {"kid": name} if name is not None else {}
            found.insert(0, {**table, **named, "use": "sig", "alg": "RS256"})
        return found

    def sign_in(self, address: str) -> str:
        """What a person does at its page: returns the address that they are sent back to."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        sent = urlencode({"code": code, "state": query["state"]})
        return f"{urlsplit(query['redirect_uri']).path}?{sent}"

    def trade(self, form: dict[str, str], headers: Any) -> tuple[int, dict[str, Any]]:
        from urllib.parse import unquote

        given = base64.b64decode(headers.get("Authorization", "").removeprefix("Basic "))
        name, _, secret = given.decode().partition(":")
        begun = self.codes.pop(form.get("code", ""), None)
        if (unquote(name), unquote(secret)) != (CLIENT, SECRET) or begun is None:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (challenge, form["redirect_uri"]) != (begun["code_challenge"], begun["redirect_uri"]):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.address, "aud": CLIENT, "sub": "user-1", "exp": now + 300, "iat": now,
            "nonce": begun["nonce"], "email": "ada@example.com", "email_verified": True,
            **self.claims,
        }  # fmt: skip
        kept = {key: value for key, value in claims.items() if value is not None}
        token = jwt.encode(kept, self.signed_by, self.algorithm, headers=self.header)
        return 200, {"id_token": token, "access_token": "x", "token_type": "Bearer"}


@pytest.fixture
def provider():
    made = IdentityServer()
    yield made
    made.close()


@pytest.fixture
def door(project, provider):
    satchel = Satchel.for_project(project, trust="all")
    issuer = Issuer(provider.address, CLIENT, SECRET, ("Ada@Example.com", "user-7"))
    access = Access(issued=Oidc(issuer))
    with TestClient(make_app(satchel, access), base_url="http://127.0.0.1",
                    follow_redirects=False) as client:  # fmt: skip
        yield client
    satchel.close()


def _come(door, provider):
    gone = door.get("/enter/go")
    assert gone.status_code == 303, gone.text
    return door.get(provider.sign_in(gone.headers["location"]), headers=CROSS)


def test_somebody_who_is_named_comes_in(door, provider):
    assert "/enter/go" in door.get("/enter").text
    assert door.get("/skills").headers["location"] == "/enter"
    back = _come(door, provider)
    assert back.status_code == 200
    assert 'content="0;url=/skills"' in back.text
    assert door.get("/api/session").json()["name"] == "ada@example.com"
    assert "satchel-begun" not in door.cookies


def test_a_subject_is_as_good_as_an_address(door, provider):
    provider.claims = {"sub": "user-7", "email": None, "email_verified": None}
    assert _come(door, provider).status_code == 200
    assert door.get("/api/session").json()["name"] == "user-7"


def test_an_issuer_may_say_by_a_word_that_it_verified_an_address(door, provider):
    provider.claims = {"email_verified": "true"}
    assert _come(door, provider).status_code == 200


@pytest.mark.parametrize(
    ("names", "header"),
    [(("one",), {}), ((None,), {}), ((None,), {"kid": "one"}), ((None, None), {}),
     ((None, "two"), {}), (("two", "one"), {})],
)  # fmt: skip
def test_an_issuer_need_not_name_its_keys(door, provider, names, header):
    """Ours is the last of them; where there are two, the other is one of somebody else's."""
    provider.names, provider.header = names, header
    assert _come(door, provider).status_code == 200
    provider.signed_by = rsa.generate_private_key(65537, 2048)
    door.cookies.clear()
    assert _come(door, provider).status_code == 403


def test_a_name_that_another_key_has_is_not_stretched(door, provider):
    provider.names, provider.header = ("two", "one"), {"kid": "two"}
    assert _come(door, provider).status_code == 403


def test_who_comes_from_elsewhere_reaches_no_folder_of_this_machine(door, provider, project):
    _come(door, provider)
    mark = {"X-Satchel-CSRF": door.get("/api/session").json()["csrf"]}
    for source in (str(project), ".", f"file://{project}", "../project"):
        form = {"source": source}
        answer = door.post("/skills/import/git", data=form, headers=mark)
        assert answer.status_code == 422, source


LIES = {
    "somebody else": {"email": "eve@example.com"},
    "an address that nobody verified": {"email_verified": False},
    "an address verified by another word": {"email_verified": "yes"},
    "an address verified by a number": {"email_verified": 1},
    "an address as a subject": {"sub": "ada@example.com", "email_verified": False},
    "an address as a subject, without another": {"sub": "Ada@Example.com", "email": None},
    "another issuer": {"iss": "https://evil.example"},
    "for somebody else": {"aud": "other"},
    "for others too": {"aud": [CLIENT, "other"]},
    "handed on": {"azp": "other"},
    "too old": {"exp": 1_000_000_000},
    "of the future": {"iat": 4_000_000_000},
    "without an end": {"exp": None},
    "without a beginning": {"iat": None},
    "another nonce": {"nonce": "guessed"},
    "no nonce": {"nonce": None},
    "no subject": {"sub": None},
}


@pytest.mark.parametrize("case", LIES)
def test_a_token_that_is_not_right_opens_nothing(door, provider, case):
    provider.claims = LIES[case]
    assert _come(door, provider).status_code == 403
    assert door.get("/skills").headers["location"] == "/enter"


def test_a_token_that_somebody_else_signed_opens_nothing(door, provider):
    provider.signed_by = provider.other
    assert _come(door, provider).status_code == 403


@pytest.mark.parametrize("algorithm", ["HS256", "none"])
def test_a_token_with_a_weak_signature_opens_nothing(door, provider, algorithm):
    provider.algorithm = algorithm
    provider.signed_by = "x" * 64 if algorithm == "HS256" else None
    assert _come(door, provider).status_code == 403


def test_a_token_with_a_key_that_nobody_has_opens_nothing(door, provider):
    provider.header = {"kid": "two"}
    assert _come(door, provider).status_code == 403


def test_only_the_browser_that_went_there_comes_back(door, provider):
    back = provider.sign_in(door.get("/enter/go").headers["location"])
    door.cookies.clear()
    assert door.get(back, headers=CROSS).status_code == 403
    assert door.get(back.replace("state=", "state=x"), headers=CROSS).status_code == 403
    assert door.get("/enter/back", headers=CROSS).status_code == 403


def test_whoever_is_at_the_issuer_is_not_pushed_out_by_others(door, provider):
    back = provider.sign_in(door.get("/enter/go").headers["location"])
    mine = door.cookies["satchel-begun"]
    for _ in range(1_100):
        door.get("/enter/go")
    door.cookies.clear()
    door.cookies.set("satchel-begun", mine)
    assert door.get(back, headers=CROSS).status_code == 200


def test_what_a_browser_keeps_meanwhile_cannot_be_made_or_changed(door, provider, monkeypatch):
    back = provider.sign_in(door.get("/enter/go").headers["location"])
    kept = door.cookies["satchel-begun"]
    state, since, seal = kept.split(".")
    query = parse_qs(urlsplit(back).query)
    assert query["state"] == [state]
    later = f"{state}.{int(since) + 1_000}.{seal}"
    for said in (state, "", "..", f"{state}.{since}.", later, f"{state}.x.{seal}", kept + "x"):
        door.cookies.clear()
        headers = {**CROSS, "Cookie": f"satchel-begun={said}"}
        assert door.get(back, headers=headers).status_code == 403, said
    headers = {**CROSS, "Cookie": f"satchel-begun={kept}"}
    elsewhere = {**headers, "Host": "localhost"}
    assert door.get(back, headers=elsewhere).status_code == 403
    with monkeypatch.context() as patch:
        patch.setattr("satchel.ui.oidc.PATIENCE", -1.0)
        assert door.get(back, headers=headers).status_code == 403
    assert door.get(back, headers=headers).status_code == 200


def test_a_way_back_is_used_once(door, provider):
    back = provider.sign_in(door.get("/enter/go").headers["location"])
    cookies = dict(door.cookies)
    assert door.get(back, headers=CROSS).status_code == 200
    door.cookies.clear()
    for name, value in cookies.items():
        door.cookies.set(name, value)
    assert door.get(back, headers=CROSS).status_code == 403


def test_a_no_of_the_issuer_is_said_and_not_repeated(door, provider):
    gone = door.get("/enter/go").headers["location"]
    state = parse_qs(urlsplit(gone).query)["state"][0]
    answer = door.get("/enter/back", headers=CROSS,
                      params={"state": state, "error": "access_denied<x-evil>"})  # fmt: skip
    assert answer.status_code == 403
    assert "x-evil" not in answer.text


def test_an_issuer_that_names_another_is_not_believed(door, provider):
    provider.configuration = {"issuer": "https://evil.example"}
    answer = door.get("/enter/go")
    assert answer.status_code == 502
    assert "does not answer as it should" in answer.text


def test_an_issuer_that_leads_to_plain_http_elsewhere_is_not_followed(door, provider):
    provider.configuration = {"token_endpoint": "http://evil.example/token"}
    assert door.get("/enter/go").status_code == 502


def test_links_and_passwords_open_nothing_where_an_issuer_vouches(door):
    assert "set-cookie" not in door.get("/enter?token=x").headers
    assert door.post("/enter", data={"password": "x" * 20}).status_code == 403


@pytest.mark.parametrize(
    "issuer",
    [
        Issuer("https://id.example", CLIENT), Issuer("https://id.example", "", allow=("a",)),
        Issuer("http://id.example", CLIENT, allow=("a",)), Issuer("", CLIENT, allow=("a",)),
        Issuer("javascript:x", CLIENT, allow=("a",)), Issuer("https://[", CLIENT, allow=("a",)),
    ],
)  # fmt: skip
def test_an_issuer_that_cannot_be_used_is_refused_at_the_start(issuer):
    with pytest.raises(InvalidInput):
        Oidc(issuer)
