"""Embeddings from an OpenAI-compatible `/embeddings` endpoint, through the standard library.

The key comes from `SATCHEL_EMBEDDINGS_KEY` and is sent only to the host of the address: over HTTPS,
or to this machine. Redirects are not followed, responses are limited in size and time, and only
numbers are read from them.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import math
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NoReturn, cast

from satchel._optional import require
from satchel.detect.embeddings.base import EXTRA, MAX_DIMENSIONS, first_line, normalised
from satchel.errors import ModelFailed, SettingsError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from email.message import Message

    from satchel.detect.embeddings.base import Matrix

KEY = "SATCHEL_EMBEDDINGS_KEY"
_REQUEST_TIMEOUT_S = 10.0
_MAX_ATTEMPTS = 3
_MAX_RETRY_WAIT_S = 5.0
_MAX_BATCH_TEXTS = 64
_MAX_TEXT_CHARS = 2_000
"""Small models reject texts that exceed their window."""
_MAX_RESPONSE_BYTES = 64 << 20
_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))


class Endpoint:
    """Embeds texts with a server."""

    def __init__(self, address: str, *, env: Mapping[str, str] | None = None) -> None:
        """Parse an address; no request is made.

        Args:
            address: Such as `https://host/v1/embeddings#model=NAME`.
            env: Where the key is; the process's environment when None.

        Raises:
            SettingsError: the address cannot be used.
            MissingExtra: numpy is not installed.
        """
        require("numpy", EXTRA)
        self._url, self._model = _split(address)
        self._host = urllib.parse.urlsplit(self._url).netloc
        self._env = os.environ if env is None else env
        self._dimensions = 0
        self._hurry = threading.local()
        self._opener = urllib.request.build_opener(
            _NoRedirect(), *([urllib.request.ProxyHandler({})] if _is_here(self._url) else [])
        )
        said = f"{self._url}\0{self._model}\0"
        self._id = f"endpoint-{hashlib.sha256(said.encode()).hexdigest()[:24]}"

    @property
    def id(self) -> str:
        """By the address and the model's name: its bytes are unseen."""
        return self._id

    @property
    def dimensions(self) -> int:
        """How long a vector is; asked of the server once.

        Raises:
            ModelFailed: the server does not answer.
        """
        if not self._dimensions:
            self.embed(["a trial"])
        return self._dimensions

    def covers(self, text: str) -> bool:
        """Return True: the vocabulary of a server's model is not known."""
        del text
        return True

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One vector for each text."""
        # An empty text is an error to some servers.
        cut = [text[:_MAX_TEXT_CHARS].strip() or "-" for text in texts]
        rows: list[list[float]] = []
        for at in range(0, len(cut), _MAX_BATCH_TEXTS):
            rows += self._ask(cut[at : at + _MAX_BATCH_TEXTS])
        if not rows:
            np: Any = require("numpy", EXTRA)
            return np.zeros((0, self._dimensions), np.float32)
        return normalised(rows, len(rows), self._dimensions, self._model or self._host)

    @contextmanager
    def hurrying(self, seconds: float) -> Generator[None]:
        """Limit requests of this thread to one attempt and `seconds` in total."""
        self._hurry.until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._hurry.until = None

    def _ask(self, texts: list[str]) -> list[list[float]]:
        """Send a request; retry when the server is busy or unreachable for a moment."""
        body: dict[str, Any] = {"input": texts, "model": self._model, "encoding_format": "float"}
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._url, json.dumps(body).encode(), self._headers(), method="POST"
        )
        until: float | None = getattr(self._hurry, "until", None)
        for left in reversed(range(_MAX_ATTEMPTS if until is None else 1)):
            wait = 0.25 * 2 ** (_MAX_ATTEMPTS - left)
            try:
                data = self._send(request) if until is None else self._send_by(request, until)
                return self._read(data, len(texts))
            except urllib.error.HTTPError as exc:
                status, asked = exc.code, exc.headers.get("Retry-After", "")
                exc.close()
                if status not in _AGAIN or not left:
                    self._refused(status, exc)
                if asked.isdecimal():
                    wait = min(float(asked), _MAX_RETRY_WAIT_S)
            except (OSError, HTTPException) as exc:
                if not left:
                    self._fail(_why(exc), exc)
            time.sleep(wait)
        raise AssertionError  # the last round returns or raises

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := self._env.get(KEY, "").strip():
            # The library would repeat a key that it cannot send in its message.
            if not key.isascii() or not key.isprintable():
                raise SettingsError(say("`{value}` is not valid", value=KEY), _key_hint())
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _send_by(self, request: urllib.request.Request, until: float) -> bytes:
        """Send a request within a deadline that also covers name resolution and slow responses."""
        done: list[bytes] = []
        failed: list[BaseException] = []

        def send() -> None:
            try:
                done.append(self._send(request))
            except BaseException as exc:  # noqa: BLE001 - raised again by who waits
                failed.append(exc)

        sender = threading.Thread(target=send, name="satchel-goal", daemon=True)
        try:
            sender.start()
        except RuntimeError as exc:  # no more threads
            self._fail(first_line(exc), exc)
        sender.join(max(0.0, until - time.monotonic()))
        if failed:
            raise failed[0]
        if not done:
            raise TimeoutError("timed out")
        return done[0]

    def _send(self, request: urllib.request.Request) -> bytes:
        until = time.monotonic() + _REQUEST_TIMEOUT_S
        with self._opener.open(request, timeout=_REQUEST_TIMEOUT_S) as answer:
            parts: list[bytes] = []
            size = 0
            while part := answer.read1(1 << 16):
                size += len(part)
                parts.append(part)
                if size > _MAX_RESPONSE_BYTES:
                    self._fail(say("its answer is not usable ({reason})", reason=f"{size} bytes"))
                if time.monotonic() > until:  # each piece came in time, all of them did not
                    raise TimeoutError("timed out")
        return b"".join(parts)

    def _read(self, data: bytes, count: int) -> list[list[float]]:
        try:
            rows: list[Any] = json.loads(data)["data"]
            made = {
                int(row.get("index", at)): self._vector(row["embedding"])
                for at, row in enumerate(rows)
            }
            return [made[at] for at in range(count)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            self._fail(say("its answer is not usable ({reason})", reason=first_line(exc)), exc)

    def _vector(self, row: Any) -> list[float]:
        if not isinstance(row, list) or not 0 < len(cast("list[Any]", row)) <= MAX_DIMENSIONS:
            raise ValueError("no list of numbers")
        vector = [float(value) for value in cast("list[Any]", row)]
        if not all(map(math.isfinite, vector)):
            raise ValueError("values that are no numbers")
        if not any(vector):
            raise ValueError("nothing but zeros")
        self._dimensions = self._dimensions or len(vector)
        if len(vector) != self._dimensions:
            raise ValueError("vectors of several lengths")
        return vector

    def _refused(self, status: int, exc: urllib.error.HTTPError) -> NoReturn:
        is_denied = status in (401, 403)
        hint = _key_hint() if is_denied else say("Check the address and the model's name")
        reason = say("it answers with status {status}", status=status)
        raise ModelFailed(self._words(reason), hint) from exc

    def _fail(self, reason: str, exc: BaseException | None = None) -> NoReturn:
        raise ModelFailed(
            self._words(reason), say("Check the address and the model's name")
        ) from exc

    def _words(self, reason: str) -> str:
        return say("`{path}` cannot be used: {reason}", path=self._host, reason=reason)


def _why(exc: BaseException) -> str:
    """Return the reason without the library's wrapping."""
    inner = exc.reason if isinstance(exc, urllib.error.URLError) else exc
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return first_line(inner) if isinstance(inner, BaseException) else str(inner)[:200]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: texts and key are sent only to the configured host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: Any,
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        """Return None; urllib then reports the status as an error."""


def _split(address: str) -> tuple[str, str]:
    """Return the address of the endpoint, and the model's name."""
    try:
        parts = urllib.parse.urlsplit(address)
        host, port, fragment = parts.hostname, parts.port, parts.fragment
        del port  # requested, so that a wrong one is detected
        options = dict(urllib.parse.parse_qsl(fragment, keep_blank_values=True))
    except ValueError as exc:
        raise _unusable(address) from exc
    if parts.username is not None or parts.password is not None:
        raise SettingsError(
            say("`{value}` is not valid", value=_without_user(address)), _key_hint()
        )
    url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and _is_here(url))
    if not host or not is_safe or options.keys() - {"model"}:
        raise _unusable(address)
    return url, options.get("model", "")


def _unusable(address: str) -> SettingsError:
    return SettingsError(
        say("`{value}` is not valid", value=_without_user(address)),
        say("Write `{value}`", value="https://HOST/v1/embeddings#model=NAME"),
    )


def _key_hint() -> str:
    return say("Put the key into the environment as `{name}`", name=KEY)


def _without_user(address: str) -> str:
    scheme, found, rest = address.partition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}"


def _is_here(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
