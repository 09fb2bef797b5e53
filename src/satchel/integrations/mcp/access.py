"""Who comes in over HTTP, and as whom? Bearer tokens, or the tokens of an OAuth server.

Tokens come from the environment or from a file, never from a command line, which every process of
the machine can read. In memory there are only their digests; a comparison takes the same time
whatever it finds. The table of clients:

    [clients.laptop]
    token-env = "LAPTOP_TOKEN"          # or token-file, or token-sha256
    include = ["pdf-*"]                 # and exclude, tags: as the settings of these names
    tools = false                       # the extension and prompts only

    [clients.build]
    subject = "ci@example.com"          # of a token that the OAuth server issued
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import read_plain
from satchel._language import say
from satchel.errors import InvalidInput, NotFound, SettingsError
from satchel.integrations.mcp.issuer import IssuerKeys
from satchel.integrations.mcp.views import Part
from satchel.library.filters import Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.integrations.mcp.issuer import OAuth

SHORTEST = 16
"""Characters of a token at least: a shorter one can be guessed."""
_MOST = 1 << 20
_HEX = re.compile(r"[0-9a-f]{64}")
_SIGNED = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
_KEYS = {
    "token-env",
    "token-file",
    "token-sha256",
    "subject",
    "include",
    "exclude",
    "tags",
    "tools",
}


class Client(NamedTuple):
    """Somebody who may come in."""

    part: Part
    digest: str = ""
    """The hexadecimal SHA-256 of the token; empty for clients of an OAuth server."""
    subject: str = ""
    file: str = ""
    """Where the token was read, if in a file."""


def token_from(variable: str = "", file: str = "") -> str:
    """The digest of a token in the environment or in a file.

    Raises:
        NotFound: it is not there.
        InvalidInput: it is too short.
    """
    if variable:
        token = os.environ.get(variable, "")
        if not token:
            raise NotFound(
                say("The environment variable `{name}` is not set", name=variable),
                say("Set it to a token of at least {least} characters", least=SHORTEST),
            )
    else:
        try:
            token = read_plain(file, _MOST).decode().strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise NotFound(
                say("The file `{path}` cannot be read", path=file), say("Write a token into it")
            ) from exc
    if len(token) < SHORTEST:
        raise InvalidInput(
            say("The token has less than {least} characters", least=SHORTEST),
            say("Make one with `{command}`", command="openssl rand -hex 32"),
        )
    return sha256(token.encode()).hexdigest()


def others_can_read(path: str) -> bool:
    """Whether other people of this machine can read a file with a token."""
    try:
        return os.name == "posix" and bool(os.stat(path).st_mode & 0o077)
    except OSError:
        return False


def read_clients(path: str) -> list[Client]:
    """The table of clients.

    Raises:
        NotFound: there is no such file, or a token is missing.
        SettingsError: it is not what it should be.
    """
    import tomllib

    try:
        table = tomllib.loads(read_plain(path, _MOST).decode())
    except OSError as exc:
        raise NotFound(
            say("The file `{path}` cannot be read", path=path), say("Give a table of clients")
        ) from exc
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise SettingsError(
            say("`{path}` is not TOML: {reason}", path=path, reason=exc), ""
        ) from exc
    rows = cast("Mapping[str, Any]", table.get("clients"))
    if set(table) != {"clients"} or not isinstance(rows, dict) or not rows:
        raise SettingsError(
            say("`{path}` has no table of clients", path=path),
            say("Begin it with `{line}`", line="[clients.NAME]"),
        )
    folder = os.path.dirname(os.path.abspath(path))
    found = [_client(name, row, folder) for name, row in rows.items()]
    digests = [one.digest for one in found if one.digest]
    if len(set(digests)) != len(digests):
        raise SettingsError(
            say("Two clients in `{path}` have the same token", path=path),
            say("Give each a token of its own"),
        )
    return found


def _client(name: str, row: Any, folder: str) -> Client:
    if not isinstance(row, dict):
        raise _wrong(name, say("it is no table"))
    table = cast("Mapping[str, Any]", row)
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise _wrong(name, say("nobody knows `{key}`", key=unknown[0]))
    lists: dict[str, Any] = {key: table.get(key, []) for key in ("include", "exclude", "tags")}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):  # pyright: ignore[reportUnknownVariableType]
            raise _wrong(name, say("`{key}` is no list of texts", key=key))
    if not isinstance(table.get("tools", True), bool):
        raise _wrong(name, say("`{key}` is neither true nor false", key="tools"))
    ways = [key for key in ("token-env", "token-file", "token-sha256", "subject") if key in table]
    if len(ways) != 1 or not isinstance(table[ways[0]], str):
        raise _wrong(
            name, say("it needs one of `token-env`, `token-file`, `token-sha256` and `subject`")
        )
    wanted = Filter(*(tuple(lists[key]) for key in ("include", "exclude", "tags")))
    part = Part(name, wanted, bool(table.get("tools", True)))
    way, value = ways[0], str(table[ways[0]])
    if way == "subject":
        return Client(part, subject=value)
    if way == "token-sha256":
        if not _HEX.fullmatch(value):
            raise _wrong(name, say("`{key}` is no SHA-256 in hexadecimal digits", key=way))
        return Client(part, value)
    if way == "token-env":
        return Client(part, token_from(value))
    file = os.path.join(folder, os.path.expanduser(value))
    return Client(part, token_from(file=file), file=file)


def _wrong(name: str, reason: str) -> SettingsError:
    return SettingsError(
        say("The client `{name}` cannot be used: {reason}", name=name, reason=reason),
        say("Look at the guide `serve-over-mcp`"),
    )


class Tokens:
    """Bearer tokens that were given out by hand. A `TokenVerifier` of the SDK."""

    def __init__(self, clients: list[Client], scopes: tuple[str, ...] = ()) -> None:
        """Take the tokens of some clients.

        Args:
            clients: Those with a digest count.
            scopes: What a token of an OAuth server would have to have; these have it.
        """
        self._clients = [(one.digest.encode(), one.part.name) for one in clients if one.digest]
        self._scopes = scopes

    async def verify_token(self, token: str) -> Any:
        """Whose token it is, or None. All are compared, so that time tells nothing."""
        from mcp.server.auth.provider import AccessToken

        given = sha256(token.encode("utf-8", "surrogateescape")).hexdigest().encode()
        found = None
        for digest, name in self._clients:
            if compare_digest(given, digest):
                found = name
        if found is None:
            return None
        return AccessToken(token="-", client_id=found, scopes=list(self._scopes))  # noqa: S106 - it is not kept


class Either:
    """Tokens that were given out by hand, and those of an OAuth server."""

    def __init__(self, tokens: Tokens, issued: Issued) -> None:
        self._tokens = tokens
        self._issued = issued

    async def verify_token(self, token: str) -> Any:
        """Whose token it is, or None."""
        return await self._tokens.verify_token(token) or await self._issued.verify_token(token)


class Issued:
    """Tokens of an OAuth server, checked by its public keys. A `TokenVerifier` of the SDK."""

    def __init__(self, oauth: OAuth, clients: list[Client], *, closed: bool = False) -> None:
        """Take the tokens of an OAuth server.

        Args:
            oauth: Which one.
            clients: Those with a subject have a part of their own.
            closed: Nobody else comes in.
        """
        self._oauth = oauth
        self._names = {one.subject: one.part.name for one in clients if one.subject}
        self._closed = closed
        self._keys = IssuerKeys(oauth)

    async def verify_token(self, token: str) -> Any:
        """Whose token it is, or None when it is not from there, not for us, or too old."""
        import jwt
        from mcp.server.auth.provider import AccessToken

        try:
            # What cannot be one of the issuer's tokens costs nobody a look at its keys.
            header = jwt.get_unverified_header(token)
            kid: object = header.get("kid")
            if header.get("alg") not in _SIGNED or not isinstance(kid, str):
                return None
            rough: Any = jwt.decode(token, options={"verify_signature": False})
            if rough.get("iss") != self._oauth.issuer:
                return None
            key = await self._keys.get(kid)
            if key is None:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(_SIGNED),
                issuer=self._oauth.issuer,
                audience=self._oauth.audience,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
            return None
        subject = str(claims.get("sub", ""))
        name = self._names.get(subject)
        if self._closed and name is None:
            return None
        scopes = str(claims.get("scope", "")).split()
        return AccessToken(
            token="-",  # noqa: S106 - it is not kept
            client_id=name or str(claims.get("client_id") or claims.get("azp") or subject or "-"),
            scopes=scopes,
            expires_at=int(claims["exp"]),
            resource=self._oauth.audience,
            subject=subject or None,
            claims={"iss": claims["iss"]},
        )
