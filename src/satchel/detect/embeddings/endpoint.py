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
from satchel.detect.embeddings import EXTRA, MAX_DIMENSIONS, normalise, read_first_line
from satchel.errors import ModelFailed, SettingsError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from email.message import Message

    from satchel.detect.embeddings import Matrix

KEY_VARIABLE = "SATCHEL_EMBEDDINGS_KEY"
_REQUEST_TIMEOUT_S = 10.0
_MAX_ATTEMPTS = 3
_MAX_RETRY_WAIT_S = 5.0
_MAX_BATCH_TEXTS = 64
_MAX_TEXT_CHARS = 2_000
"""Small models reject texts that exceed their window."""
_MAX_RESPONSE_BYTES = 64 << 20
_RETRY_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504))


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
        self._url, self._model = _parse_address(address)
        self._host = urllib.parse.urlsplit(self._url).netloc
        self._env = os.environ if env is None else env
        self._dimensions = 0
        self._hurry = threading.local()
        self._opener = urllib.request.build_opener(
            _NoRedirect(), *([urllib.request.ProxyHandler({})] if _is_local(self._url) else [])
        )
        identity = f"{self._url}\0{self._model}\0"
        self._id = f"endpoint-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"

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

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return one vector for each text."""
        # An empty text is an error to some servers.
        truncated_texts = [text[:_MAX_TEXT_CHARS].strip() or "-" for text in texts]
        rows: list[list[float]] = []
        for start in range(0, len(truncated_texts), _MAX_BATCH_TEXTS):
            rows += self._request(truncated_texts[start : start + _MAX_BATCH_TEXTS])
        if not rows:
            np: Any = require("numpy", EXTRA)
            return np.zeros((0, self._dimensions), np.float32)
        return normalise(rows, len(rows), self._dimensions, self._model or self._host)

    @contextmanager
    def hurrying(self, seconds: float) -> Generator[None]:
        """Limit requests of this thread to one attempt and `seconds` in total."""
        self._hurry.deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._hurry.deadline = None

    def _request(self, texts: list[str]) -> list[list[float]]:
        """Send a request; retry when the server is busy or unreachable for a moment."""
        body: dict[str, Any] = {"input": texts, "model": self._model, "encoding_format": "float"}
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._url, json.dumps(body).encode(), self._headers(), method="POST"
        )
        deadline: float | None = getattr(self._hurry, "deadline", None)
        for retries_left in reversed(range(_MAX_ATTEMPTS if deadline is None else 1)):
            wait = 0.25 * 2 ** (_MAX_ATTEMPTS - retries_left)
            try:
                data = self._send(request) if deadline is None else self._send_by(request, deadline)
                return self._parse(data, len(texts))
            except urllib.error.HTTPError as exc:
                status, retry_after = exc.code, exc.headers.get("Retry-After", "")
                exc.close()
                if status not in _RETRY_STATUSES or not retries_left:
                    self._fail_with_status(status, exc)
                if retry_after.isdecimal():
                    wait = min(float(retry_after), _MAX_RETRY_WAIT_S)
            except (OSError, HTTPException) as exc:
                if not retries_left:
                    self._fail(_describe_error(exc), exc)
            time.sleep(wait)
        raise AssertionError  # the last round returns or raises

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := self._env.get(KEY_VARIABLE, "").strip():
            # The library would repeat a key that it cannot send in its message.
            if not key.isascii() or not key.isprintable():
                raise SettingsError(say("`{value}` is not valid", value=KEY_VARIABLE), _key_hint())
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _send_by(self, request: urllib.request.Request, deadline: float) -> bytes:
        """Send a request within a deadline that also covers name resolution and slow responses."""
        responses: list[bytes] = []
        failed: list[BaseException] = []

        def send() -> None:
            try:
                responses.append(self._send(request))
            except BaseException as exc:  # noqa: BLE001 - raised again by who waits
                failed.append(exc)

        sender = threading.Thread(target=send, name="satchel-goal", daemon=True)
        try:
            sender.start()
        except RuntimeError as exc:  # no more threads
            self._fail(read_first_line(exc), exc)
        sender.join(max(0.0, deadline - time.monotonic()))
        if failed:
            raise failed[0]
        if not responses:
            raise TimeoutError("timed out")
        return responses[0]

    def _send(self, request: urllib.request.Request) -> bytes:
        deadline = time.monotonic() + _REQUEST_TIMEOUT_S
        with self._opener.open(request, timeout=_REQUEST_TIMEOUT_S) as response:
            chunks: list[bytes] = []
            size = 0
            while chunk := response.read1(1 << 16):
                size += len(chunk)
                chunks.append(chunk)
                if size > _MAX_RESPONSE_BYTES:
                    self._fail(say("its answer is not usable ({reason})", reason=f"{size} bytes"))
                if time.monotonic() > deadline:  # each piece came in time, all of them did not
                    raise TimeoutError("timed out")
        return b"".join(chunks)

    def _parse(self, data: bytes, count: int) -> list[list[float]]:
        try:
            rows: list[Any] = json.loads(data)["data"]
            vectors = {
                int(row.get("index", index)): self._parse_vector(row["embedding"])
                for index, row in enumerate(rows)
            }
            return [vectors[index] for index in range(count)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            self._fail(say("its answer is not usable ({reason})", reason=read_first_line(exc)), exc)

    def _parse_vector(self, row: Any) -> list[float]:
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

    def _fail_with_status(self, status: int, exc: urllib.error.HTTPError) -> NoReturn:
        is_denied = status in (401, 403)
        hint = _key_hint() if is_denied else say("Check the address and the model's name")
        reason = say("it answers with status {status}", status=status)
        raise ModelFailed(self._message(reason), hint) from exc

    def _fail(self, reason: str, exc: BaseException | None = None) -> NoReturn:
        raise ModelFailed(
            self._message(reason), say("Check the address and the model's name")
        ) from exc

    def _message(self, reason: str) -> str:
        return say("`{path}` cannot be used: {reason}", path=self._host, reason=reason)


def _describe_error(exc: BaseException) -> str:
    """Return the reason without the library's wrapping."""
    inner = exc.reason if isinstance(exc, urllib.error.URLError) else exc
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return read_first_line(inner) if isinstance(inner, BaseException) else str(inner)[:200]


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


def _parse_address(address: str) -> tuple[str, str]:
    """Return the address of the endpoint, and the model's name."""
    try:
        parts = urllib.parse.urlsplit(address)
        host, port, fragment = parts.hostname, parts.port, parts.fragment
        del port  # requested, so that a wrong one is detected
        options = dict(urllib.parse.parse_qsl(fragment, keep_blank_values=True))
    except ValueError as exc:
        raise _invalid_address(address) from exc
    if parts.username is not None or parts.password is not None:
        raise SettingsError(
            say("`{value}` is not valid", value=_without_user(address)), _key_hint()
        )
    url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and _is_local(url))
    if not host or not is_safe or options.keys() - {"model"}:
        raise _invalid_address(address)
    return url, options.get("model", "")


def _invalid_address(address: str) -> SettingsError:
    return SettingsError(
        say("`{value}` is not valid", value=_without_user(address)),
        say("Write `{value}`", value="https://HOST/v1/embeddings#model=NAME"),
    )


def _key_hint() -> str:
    return say("Put the key into the environment as `{name}`", name=KEY_VARIABLE)


def _without_user(address: str) -> str:
    scheme, separator, location = address.partition("://")
    return f"{scheme}{separator}{location.rpartition('@')[2]}"


def _is_local(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
