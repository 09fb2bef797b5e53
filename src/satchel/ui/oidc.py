"""Who is it, by the word of an issuer (OpenID Connect)? Only those who are named come in.

The authorization code flow with PKCE, as every issuer has it: the browser goes there with a riddle
(`state`, `nonce`, the digest of a `verifier`), comes back with a code, and we trade the code and
the riddle's answer for an ID token. The token is checked by the issuer's public keys: its
signature, who issued it, for whom, till when, and the nonce. The issuer's other tokens are thrown
away at once.

Nothing is remembered of those who went there: anybody can go, and many would push out the others.
The browser keeps the `state`, its time and a seal; nonce and verifier are made of the state and a
secret of this process.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as digest_with
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit

import anyio.to_thread

from satchel._language import say
from satchel._optional import require
from satchel.errors import InvalidInput, Refused, ServerFailed
from satchel.integrations.mcp.issuer import IssuerKeys, OAuth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WAIT = 5.0
"""Seconds for one answer of the issuer."""
PATIENCE = 600.0
"""Seconds that somebody may take at the issuer's page."""
MOST = 1_000
"""Ways back that are known as used; an issuer takes no code twice anyhow."""
LEEWAY = 60
"""Seconds that two clocks may differ."""
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
_LIMIT = 1 << 20
_HERE = ("127.0.0.1", "::1", "localhost")


class Issuer(NamedTuple):
    """Who vouches for people, and for which."""

    address: str
    client: str
    """What we are called there."""
    secret: str = ""
    """What proves it; issuers that know a public client need none."""
    allow: tuple[str, ...] = ()
    """Subjects, and e-mail addresses that the issuer verified."""


class Begun(NamedTuple):
    """Somebody who is to go to the issuer's page."""

    address: str
    kept: str
    """What their browser keeps meanwhile, and brings back."""


class _Places(NamedTuple):
    ask: str
    trade: str
    basic: bool


class Oidc:
    """The way to an issuer and back."""

    def __init__(self, issuer: Issuer) -> None:
        """Ask an issuer for names.

        Raises:
            InvalidInput: something is missing, or the issuer's address is not safe.
            MissingExtra: the extra `oidc` is not installed.
        """
        require("jwt", "oidc")
        require("cryptography", "oidc")
        if not issuer.client or not issuer.allow:
            raise InvalidInput(
                say("An issuer needs `--client-id`, and `--allow` for those who may come in"),
                say("Give both; `--allow` takes an e-mail address or a subject"),
            )
        _safe(issuer.address)
        self._issuer = issuer
        self._keys = IssuerKeys(OAuth(issuer.address, issuer.client))
        # What looks like an address is one: whoever may choose their subject must not become it.
        self._mails = frozenset(one.casefold() for one in issuer.allow if "@" in one)
        self._subjects = frozenset(one for one in issuer.allow if "@" not in one)
        self._secret = secrets.token_bytes(32)
        self._used: dict[str, None] = {}
        self._hold = threading.Lock()
        self._places: _Places | None = None

    async def begin(self, back: str) -> Begun:
        """The address at which the issuer asks who somebody is.

        Args:
            back: Where it sends them afterwards.

        Raises:
            ServerFailed: the issuer does not answer.
        """
        places = await self._find()
        state, since = secrets.token_urlsafe(32), str(int(time.monotonic()))
        verifier = self._made("verifier", state)
        digest = _text(sha256(verifier.encode()).digest())
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._issuer.client,
                "redirect_uri": back,
                "scope": "openid email",
                "state": state,
                "nonce": self._made("nonce", state),
                "code_challenge": digest,
                "code_challenge_method": "S256",
            }
        )
        kept = f"{state}.{since}.{self._made('seal', state, since, back)}"
        return Begun(f"{places.ask}{'&' if '?' in places.ask else '?'}{query}", kept)

    def _made(self, *words: str) -> str:
        """What nobody else can make of these words."""
        return _text(digest_with(self._secret, "\0".join(words).encode(), "sha256"))

    def _began_here(self, kept: str, state: str, back: str) -> bool:
        """Whether this browser went to the issuer from here, not too long ago, for this."""
        mine, _, rest = kept.partition(".")
        since, _, seal = rest.partition(".")
        made = self._made("seal", mine, since, back)
        sealed = compare_digest(seal.encode("utf-8", "replace"), made.encode())
        same = compare_digest(state.encode("utf-8", "replace"), mine.encode("utf-8", "replace"))
        return sealed and same and time.monotonic() - int(since) <= PATIENCE

    async def finish(self, kept: str, state: str, code: str, back: str) -> str:
        """Who came back: their e-mail address, or the issuer's name for them.

        Args:
            kept: What their browser kept.
            state: What the issuer sent back with them.
            code: What the issuer takes for an ID token.
            back: Where it sent them.

        Raises:
            Refused: nobody went there, the issuer did not vouch, or they are not named.
            ServerFailed: the issuer does not answer.
        """
        known = self._began_here(kept, state, back)
        with self._hold:
            if not known or state in self._used:  # a way back is used once
                raise Refused(say("This did not begin here. Try it again"))
            self._used[state] = None
            while len(self._used) > MOST:
                del self._used[next(iter(self._used))]
        if not code:
            raise Refused(say("The issuer did not say who you are"))
        places = await self._find()
        token = await self._trade(places, code, back, self._made("verifier", state))
        claims = await self._check(token, self._made("nonce", state))
        return self._named(claims)

    def _named(self, claims: Mapping[str, Any]) -> str:
        subject, mail = str(claims.get("sub", "")), str(claims.get("email", ""))
        # Somebody may claim an address that is not theirs, till the issuer has looked. Some
        # issuers say so by a word.
        said = claims.get("email_verified")
        if (said is True or said == "true") and mail.casefold() in self._mails:
            return mail
        if subject and subject in self._subjects:
            return subject
        raise Refused(say("The issuer knows you, but you are not among those who may come in"))

    async def _check(self, token: str, nonce: str) -> dict[str, Any]:
        """What an ID token says, if it is the issuer's, for us, and for this one way."""
        import jwt

        no = Refused(say("What the issuer says of you cannot be verified"))
        try:
            header = jwt.get_unverified_header(token)
            kid = header.get("kid", "")
            if header.get("alg") not in _ALGORITHMS or not isinstance(kid, str):
                raise no
            claims = self._read(token, await self._keys.fitting(kid))
            if claims is None:
                raise no
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as exc:
            raise no from exc
        said, audience = claims["nonce"], claims["aud"]
        if not isinstance(said, str) or not compare_digest(said.encode(), nonce.encode()):
            raise no
        shared = isinstance(audience, list) and len(cast("list[Any]", audience)) > 1
        if (shared or "azp" in claims) and claims.get("azp") != self._issuer.client:
            raise no  # made for somebody else, who might hand it on
        return claims

    def _read(self, token: str, keys: Iterable[Any]) -> dict[str, Any] | None:
        """What a token says that one of these keys signed; None when none of them did."""
        import jwt

        for key in keys:
            with suppress(jwt.InvalidSignatureError, jwt.InvalidKeyError, TypeError):
                return jwt.decode(
                    token,
                    key.key,
                    algorithms=list(_ALGORITHMS),
                    issuer=self._issuer.address,
                    audience=self._issuer.client,
                    leeway=LEEWAY,
                    options={"require": ["exp", "iat", "iss", "aud", "sub", "nonce"]},
                )
        return None

    async def _trade(self, places: _Places, code: str, back: str, verifier: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self._issuer.client,
            "code_verifier": verifier,
        }
        headers = {"Accept": "application/json"}
        secret = self._issuer.secret
        if secret and places.basic:
            pair = f"{quote(self._issuer.client, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        elif secret:
            form["client_secret"] = secret
        found = await _ask(places.trade, urlencode(form).encode(), headers)
        token = found.get("id_token")
        if not isinstance(token, str):
            raise Refused(say("The issuer did not say who you are"))
        return token

    async def _find(self) -> _Places:
        """Where the issuer has its pages; asked for once."""
        if self._places is None:
            base = self._issuer.address.rstrip("/")
            found = await _ask(f"{base}/.well-known/openid-configuration")
            said = found.get("issuer")
            ask, trade = found.get("authorization_endpoint"), found.get("token_endpoint")
            if said != self._issuer.address or not isinstance(ask, str):
                raise _silent(base)
            if not isinstance(trade, str):
                raise _silent(base)
            _safe(ask)
            _safe(trade)
            ways: Any = found.get("token_endpoint_auth_methods_supported")
            ways = cast("Iterable[Any]", ways) if isinstance(ways, list) else ()
            known = [str(one) for one in ways]
            basic = not known or "client_secret_basic" in known
            self._places = _Places(ask, trade, basic)
        return self._places


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


async def _ask(
    place: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One answer of the issuer, as JSON."""
    sent = dict(headers or {})
    return await anyio.to_thread.run_sync(_fetch, place, body, sent, abandon_on_cancel=True)


def _fetch(place: str, body: bytes | None, headers: Mapping[str, str]) -> dict[str, Any]:
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        """A code or a secret goes to the address that was named, and to no other."""

        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    asked = Request(place, body, dict(headers))  # noqa: S310 - checked by `_safe`
    try:
        with build_opener(Stay).open(asked, timeout=WAIT) as answer:
            found: Any = json.loads(answer.read(_LIMIT))
    except (OSError, ValueError) as exc:
        raise _silent(place) from exc
    if not isinstance(found, dict):
        raise _silent(place)
    return cast("dict[str, Any]", found)


def _silent(place: str) -> ServerFailed:
    host = urlsplit(place).netloc
    return ServerFailed(
        say("The issuer `{host}` does not answer as it should", host=host),
        say("Look at its address: it is where `/.well-known/openid-configuration` is"),
    )


def _safe(place: str) -> None:
    """An address that nobody on the way can read or change."""
    try:
        parts = urlsplit(place)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in _HERE)):
        raise InvalidInput(
            say("`{address}` is no address of an issuer", address=place),
            say("Give one that begins with `https://`"),
        )
