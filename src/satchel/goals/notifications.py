"""Sends notifications of goals: HTTP requests that are signed as Standard Webhooks does it.

`webhook-id` is the same for all attempts, so that a receiver can drop a request that it has already
handled. A request has the id of the goal, never its texts or outputs. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from satchel.errors import StepFailed
from satchel.goals.model import Done
from satchel.i18n import Message
from satchel.tools.secrets import read_keyring

if TYPE_CHECKING:
    from email.message import Message as Headers
    from typing import IO

    from satchel.goals.model import Work

_TIMEOUT_S = 15.0
_SECRET_PREFIX = "whsec_"  # noqa: S105 - the mark of a secret in base64
_RETRYABLE_STATUSES = frozenset((408, 425, 429))
"""And those from 500 on."""


async def send_notification(work: Work) -> Done:
    """Send the notification of a step.

    Raises:
        StepFailed: it was not accepted, or its secret is not set.
    """
    url, secret_name = str(work.arguments["url"]), str(work.arguments["secret"])
    secret = await asyncio.to_thread(_find_secret, secret_name)
    timestamp = int(time.time())
    body = json.dumps({**work.arguments["body"], "timestamp": timestamp}).encode()
    headers = {
        "content-type": "application/json",
        "user-agent": "satchel",
        "webhook-id": work.key,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, work.key, timestamp, body),
    }
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - checked
    await asyncio.to_thread(_send, request)
    return Done(None)


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a request.

    Args:
        secret: Any text, or `whsec_` and the secret in base64.
        message_id: The header `webhook-id`.
        timestamp: The header `webhook-timestamp`.
        body: The body.
    """
    key = secret.encode()
    if secret.startswith(_SECRET_PREFIX):
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    digest = hmac.digest(key, b"%b.%d.%b" % (message_id.encode(), timestamp, body), hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def _find_secret(name: str) -> str:
    """Return a secret of the keyring, or of the environment.

    Raises:
        StepFailed: it is not set.
    """
    secret = read_keyring(name) or os.environ.get(name, "")
    if not secret:
        raise StepFailed(
            Message("The secret `{name}` is not set where the worker runs", name=name),
            Message("Set it in the keyring or the environment of the worker"),
            code="NO_SECRET",
            retryable=False,
        )
    return secret


def _send(request: urllib.request.Request) -> None:
    is_temporary = True
    try:
        with urllib.request.build_opener(_RefuseRedirects()).open(request, timeout=_TIMEOUT_S):
            return
    except urllib.error.HTTPError as exc:
        with exc:
            reason = f"HTTP {exc.code}"
            is_temporary = exc.code >= 500 or exc.code in _RETRYABLE_STATUSES
    except OSError as exc:  # also an error of urllib
        reason = str(getattr(exc, "reason", exc))[:200]
    raise StepFailed(
        Message("`{host}` did not accept the notification: {why}", host=request.host, why=reason),
        Message("Check the address and the secret of `notify`"),
        code="NOT_NOTIFIED",
        retryable=is_temporary,
    )


class _RefuseRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: the request is for the address of the plan alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Headers,
        newurl: str,
    ) -> None:
        """Return None; urllib then reports the status as an error."""
