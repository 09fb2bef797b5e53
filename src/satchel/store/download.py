"""Reads files over https or from a folder: bounded in size and time, from one host alone.

What is read is verified by the caller; the limits protect against servers that send too much or
never end. Plain http is for this machine only. A redirect is followed, once, for files whose digest
the caller knows. A credential belongs to one host and port, and is sent nowhere else.
"""

from __future__ import annotations

import errno
import os
import re
import time
from base64 import b64encode
from contextvars import copy_context
from http.client import HTTPException
from netrc import NetrcParseError, netrc
from ssl import SSLCertVerificationError
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from satchel._fs import read_plain
from satchel._optional import available
from satchel.errors import InvalidInput, NotFound, Refused, ServerFailed
from satchel.i18n import say
from satchel.store.archive.rules import shown

if TYPE_CHECKING:
    from urllib.parse import SplitResult

TIMEOUT_S = 20.0
"""For the connection, and for each part of an answer."""
MAX_SECONDS = 120.0
"""For a whole answer."""
_EXTRA_PER_FILE_S = 2.0
_EXTRA_PER_BYTE_S = 1 / 8192
"""All answers of a reader may take `MAX_SECONDS`, and this for what came: a slow server must not
hold a command for `MAX_SECONDS` with each of many files."""
_CHUNK_BYTES = 64 << 10
_CREDENTIALS_VARIABLE = "SATCHEL_HUB_CREDENTIALS"
_KEYRING_SERVICE = "satchel-hub"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z")
LOOPBACK_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))


def is_address(text: str) -> bool:
    """Whether a text is an address rather than a path."""
    return text.lower().startswith(("https://", "http://"))


def check_address(url: str) -> str:
    """Return an address without its last slash; raises `InvalidInput` for one that is not used."""
    parts, host, port = _split_address(url)
    if parts.scheme == "http" and host and host not in LOOPBACK_HOSTS:
        address = f"https://{host}{f':{port}' if port else ''}{parts.path}"
        raise InvalidInput(
            say("Plain http is only for this machine: `{url}`", url=f"http://{shown(host)}"),
            say("Write `{value}`", value=address),
        )
    extra = parts.username or parts.password or parts.query or parts.fragment
    is_plain = url.isprintable() and url.isascii() and " " not in url
    if not host or parts.scheme not in ("https", "http") or extra or not is_plain:
        raise InvalidInput(
            say("`{value}` is not valid", value=shown(url.rpartition("@")[2].partition("?")[0])),
            say("Give an address such as `https://skills.example.com`, or a folder"),
        )
    return url.rstrip("/")


def _split_address(url: str) -> tuple[SplitResult, str, int | None]:
    """The parts, the host and the port of an address; empty for one that cannot be parsed."""
    try:
        parts = urlsplit(url)
        return parts, parts.hostname or "", parts.port
    except ValueError:
        return urlsplit(""), "", None


def find_credential(base: str) -> str:
    """Return the credential for an address, a token or `user:password`; empty without one.

    It comes from the environment, the keyring or `~/.netrc`, where it is kept for one host. A port
    that is not the usual one is a part of the host, so another program on it gets nothing.

    Raises:
        InvalidInput: it cannot be sent.
    """
    parts = urlsplit(base)
    usual_port = {"https": 443, "http": 80}.get(parts.scheme)
    host = parts.hostname or ""
    if parts.port not in (None, usual_port):
        host = f"{host}:{parts.port}"
    items = os.environ.get(_CREDENTIALS_VARIABLE, "").split()
    pairs = (item.partition("=") for item in items)
    secret = next((text for name, _, text in pairs if name.lower() == host), "")
    secret = secret or _read_keyring(host) or _read_netrc(host)
    if secret and not (secret.isprintable() and (":" in secret or _TOKEN.match(secret))):
        raise InvalidInput(
            say("The credential for `{name}` cannot be sent", name=shown(host)),
            say("Use a token, or `user:password`"),
        )
    return secret


def _read_keyring(host: str) -> str:
    module: Any = available("keyring")
    try:
        return str(module.get_password(_KEYRING_SERVICE, host) or "") if module else ""
    except Exception:  # noqa: BLE001 - a locked or absent keyring has no credentials
        return ""


def _read_netrc(host: str) -> str:
    try:
        login, _, password = netrc().hosts.get(host) or ("", "", "")  # never that of `default`
    except (OSError, NetrcParseError):
        return ""
    return f"{login}:{password}" if password else ""


class FileReader:
    """Reads the files below one address or folder."""

    def __init__(self, base: str, *, is_hub: bool = False) -> None:
        """Read below `base`, an address that `check_address` returned, or an absolute folder.

        Hubs may need a credential.
        """
        self.base = base
        self._credential = find_credential(base) if is_hub and is_address(base) else ""
        is_local = is_address(base) and urlsplit(base).hostname in LOOPBACK_HOSTS
        proxies = [ProxyHandler({})] if is_local else []
        self._remaining_seconds = MAX_SECONDS
        """Seconds for what is read from now on."""
        self._opener = build_opener(_RedirectRefuser(), *proxies)
        self._opener.addheaders = [("User-Agent", "satchel"), ("Accept-Encoding", "identity")]

    def read(self, path: str, limit: int, *, has_digest: bool = False) -> bytes:
        """The content of a file.

        Args:
            path: The path below the address or folder.
            limit: The largest number of bytes.
            has_digest: Whether the caller knows what it must be: then it may be elsewhere.

        Raises:
            NotFound: there is no such file.
            ServerFailed: the server does not answer, or with an error.
            Refused: the file is larger than `limit`, does not end in time, or is elsewhere.
        """
        if is_address(self.base):
            return self._download(f"{self.base}/{path}", limit, has_digest=has_digest)
        absolute_path = os.path.join(self.base, *path.split("/"))
        try:
            return read_plain(absolute_path, limit)
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise _missing_error(absolute_path) from exc
        except OSError as exc:
            if exc.errno == errno.EFBIG:
                raise _too_large_error(absolute_path, limit) from exc
            raise _server_error(absolute_path, exc.strerror or str(exc)) from exc

    def _download(self, url: str, limit: int, *, has_digest: bool) -> bytes:
        """Transfer in a thread: a server may send even its headers without an end."""
        results: list[bytes | BaseException] = []
        started = time.monotonic()
        seconds = min(MAX_SECONDS, self._remaining_seconds)

        def run() -> None:
            try:
                results.append(self._transfer(url, limit, seconds, may_redirect=has_digest))
            except BaseException as exc:  # noqa: BLE001 - raised by the thread that waits
                results.append(exc)

        # Errors are in the language of the caller.
        thread = Thread(target=copy_context().run, args=(run,), daemon=True)
        thread.start()
        thread.join(seconds + 1)
        result = results[0] if results else _timeout_error(url, seconds)
        self._remaining_seconds = max(
            self._remaining_seconds - (time.monotonic() - started), TIMEOUT_S
        )
        if isinstance(result, BaseException):
            raise result
        self._remaining_seconds += _EXTRA_PER_FILE_S + len(result) * _EXTRA_PER_BYTE_S
        self._remaining_seconds = min(self._remaining_seconds, MAX_SECONDS)
        return result

    def _transfer(
        self,
        url: str,
        limit: int,
        seconds: float,
        *,
        may_redirect: bool,
        has_moved: bool = False,
    ) -> bytes:
        request = Request(url)  # noqa: S310 - `check_address` allows https, and http to this machine
        if self._credential and not has_moved:
            request.add_unredirected_header("Authorization", _authorization(self._credential))
        url = url.partition("?")[0]  # for errors: what follows may be a credential
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return _read_response(response, url, limit, seconds)
        except HTTPError as exc:
            exc.close()
            if exc.code in (404, 410):
                raise _missing_error(url) from exc
            if exc.code == 401:
                raise self._credential_error(url) from exc
            if target := exc.headers.get("Location"):
                target = urljoin(url, target)
                if may_redirect and self._may_follow(target):
                    return self._transfer(
                        target, limit, seconds, may_redirect=False, has_moved=True
                    )
                target = self._hide_credential(target.partition("?")[0])
                raise Refused(
                    say("`{url}` redirects to another address: `{target}`",
                        url=shown(url), target=shown(target)),
                    say("Do not use it; ask its keeper"),
                ) from exc  # fmt: skip
            raise _server_error(
                url, say("it answers with status {status}", status=exc.code)
            ) from exc
        except (OSError, HTTPException, ValueError) as exc:
            cause = exc.reason if isinstance(exc, URLError) else exc
            if isinstance(cause, SSLCertVerificationError):
                raise _certificate_error(url, cause.verify_message) from None
            reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
            raise _server_error(url, self._hide_credential(reason)[:200]) from None

    def _may_follow(self, target: str) -> bool:
        """Whether a redirect leads to an address that could be read: https, no user."""
        parts, host, _ = _split_address(target)
        is_local = urlsplit(self.base).hostname in LOOPBACK_HOSTS and host in LOOPBACK_HOSTS
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_local)
        return bool(host) and is_safe and parts.username is None

    def _hide_credential(self, text: str) -> str:
        """Replace the credential in a text that comes from the server."""
        header = _authorization(self._credential)
        password = self._credential.partition(":")[2]
        for secret in (header.partition(" ")[2], self._credential, password):
            text = text.replace(secret, "…") if secret else text
        return text

    def _credential_error(self, url: str) -> Refused:
        if self._credential:
            text = say("`{url}` refuses the credential for its host", url=shown(url))
        else:
            text = say("`{url}` needs a credential", url=shown(url))
        return Refused(
            text,
            say("Put it into `{name}` as `host=token` or `host=user:password`, into the keyring "
                "or into `~/.netrc`", name=_CREDENTIALS_VARIABLE),
        )  # fmt: skip


def _authorization(credential: str) -> str:
    """Return the header for a credential: basic for `user:password`, else a bearer token."""
    if ":" in credential:
        return f"Basic {b64encode(credential.encode()).decode()}"
    return f"Bearer {credential}"


class _RedirectRefuser(HTTPRedirectHandler):
    """Reports redirects as errors: a hub has one host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none."""


def _read_response(response: Any, url: str, limit: int, seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(_CHUNK_BYTES):
        size += len(chunk)
        chunks.append(chunk)
        if size > limit:
            raise _too_large_error(url, limit)
        if time.monotonic() > deadline:  # each chunk came in time, all of them did not
            raise _timeout_error(url, seconds)
    return b"".join(chunks)


def _missing_error(path: str) -> NotFound:
    return NotFound(say("There is no `{path}`", path=shown(path)), say("Check the path"))


def _timeout_error(url: str, seconds: float) -> Refused:
    return Refused(
        say("`{url}` did not end within {seconds} seconds",
            url=shown(url), seconds=round(seconds)),
        say("Try again later"),
    )  # fmt: skip


def _too_large_error(url: str, limit: int) -> Refused:
    return Refused(
        say("`{url}` is larger than the {limit} bytes that it may have",
            url=shown(url), limit=f"{limit:,}"),
        say("Report it to the operator of the server"),
    )  # fmt: skip


def _server_error(url: str, reason: str) -> ServerFailed:
    return ServerFailed(
        say("`{path}` cannot be used: {reason}", path=shown(url), reason=shown(reason)),
        say("Try again later"),
    )


def _certificate_error(url: str, reason: str) -> Refused:
    return Refused(
        say("The certificate of `{url}` cannot be verified: {reason}",
            url=shown(url), reason=shown(reason)),
        say("Tell its operator; if the authority is your company's own, set `{name}` to the file "
            "with its certificate", name="SSL_CERT_FILE"),
    )  # fmt: skip
