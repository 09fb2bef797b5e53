"""Authentication for the web UI: one-time links, a password, and sessions.

Sessions are kept in memory. A link holds a token that opens one session and is worthless
afterwards, so it may stay in a browser's history or in a terminal's scrollback. The session secret
is in a cookie that scripts cannot read and other sites cannot send. Memory holds only digests.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from hashlib import scrypt, sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION_IDLE_S = 12 * 3_600.0
COOKIE_LIFETIME_S = 30 * 24 * 3_600.0
"""Longer than any session is used; the server ends sessions."""
MAX_SESSIONS = 200
"""The session that was unused longest is dropped first."""
LINK_LIFETIME_S = 15 * 60.0
MAX_LINKS = 100
MIN_PASSWORD_CHARS = 10
ATTEMPT_DELAY_S = 1.0
"""No other password is compared during this time after a wrong one."""
MAX_ATTEMPTS = 20
"""Wrong passwords in a row after which sign-in is closed for `LOCKOUT_S`."""
LOCKOUT_S = 600.0
_SCRYPT_COST = 1 << 14


class UiSession(NamedTuple):
    """A signed-in browser."""

    digest: str


class UiAccess:
    """Links, the password, and the sessions that they opened."""

    def __init__(
        self,
        *,
        password: str = "",
        announce: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Accept one-time links, or the password if there is one.

        Args:
            password: Required instead of a link.
            announce: Called with each new token, since a link can be used only once.
            clock: For tests.

        Raises:
            InvalidInput: the password is too short.
        """
        if password and len(password) < MIN_PASSWORD_CHARS:
            raise InvalidInput(
                say("The password has fewer than {least} characters", least=MIN_PASSWORD_CHARS),
                say("Make one with `{command}`", command="openssl rand -base64 18"),
            )
        self._clock = clock
        self._salt = os.urandom(16)
        self._password = _slow_digest(password, self._salt) if password else b""
        self._links: dict[str, float] = {}
        self._sessions: dict[str, tuple[UiSession, float]] = {}
        self._lock = threading.Lock()
        self._wrong = 0
        self._closed_till = 0.0
        self.announce = announce
        self.known_elsewhere = False
        """The server is reached through a proxy, or under a name that other machines know."""

    @property
    def by_password(self) -> bool:
        """Whether sign-in needs a password."""
        return bool(self._password)

    def new_link(self) -> str:
        """Return a token that opens one session within `LINK_LIFETIME_S`."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            now = self._clock()
            # An expired token is still recognised: opening it prints a new link.
            kept = {one: till for one, till in self._links.items() if till + SESSION_IDLE_S > now}
            self._links = dict(list(kept.items())[-MAX_LINKS:])
            self._links[_digest(token)] = now + LINK_LIFETIME_S
        return token

    @property
    def by_link(self) -> bool:
        """Whether sign-in needs a link."""
        return not self._password

    @property
    def has_remote_users(self) -> bool:
        """Whether clients may be on other machines, and must not reach folders of this one."""
        return not self.by_link or self.known_elsewhere

    def enter_by_link(self, token: str) -> tuple[UiSession, str] | None:
        """Open a session by a link's token; None when it is used, expired or unknown.

        Returns:
            The session and the secret for its cookie.
        """
        with self._lock:
            till = self._links.pop(_digest(token), None)
        if till is None:
            return None
        opened = self.open() if till >= self._clock() else None
        if self.announce is not None:
            # For the next browser; or for this one, if its link was ours and has expired.
            try:
                self.announce(self.new_link())
            except Exception:  # the session is open, even if the next link cannot be printed
                logging.getLogger(__name__).exception("a new link cannot be told")
        return opened

    def enter_by_password(self, password: str) -> tuple[UiSession, str] | None:
        """Open a session by the password; None when it is wrong, or sign-in is closed."""
        now = self._clock()
        with self._lock:
            if not self._password or now < self._closed_till:
                return None
            # Counted before it is compared: parallel requests count as wrong attempts.
            self._wrong += 1
            self._closed_till = now + ATTEMPT_DELAY_S
            if self._wrong >= MAX_ATTEMPTS:
                self._wrong, self._closed_till = 0, now + LOCKOUT_S
        if not compare_digest(_slow_digest(password, self._salt), self._password):
            return None
        with self._lock:
            self._wrong, self._closed_till = 0, 0.0
        return self.open()

    def closed_for(self) -> float:
        """Seconds until the next password is compared."""
        return max(0.0, self._closed_till - self._clock())

    def open(self) -> tuple[UiSession, str]:
        """Open a session; returns it and the secret for its cookie."""
        secret = secrets.token_urlsafe(32)
        session = UiSession(_digest(secret))
        with self._lock:
            self._sessions[session.digest] = (session, self._clock())
            while len(self._sessions) > MAX_SESSIONS:
                oldest = min(self._sessions, key=lambda one: self._sessions[one][1])
                del self._sessions[oldest]
        return session, secret

    def session(self, secret: str) -> UiSession | None:
        """Return the session of a cookie; None when there is none, or it ended."""
        if not secret:
            return None
        digest, now = _digest(secret), self._clock()
        with self._lock:
            found = self._sessions.get(digest)
            if found is None:
                return None
            if now - found[1] > SESSION_IDLE_S:
                del self._sessions[digest]
                return None
            self._sessions[digest] = (found[0], now)
            return found[0]

    def end_session(self, session: UiSession) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(session.digest, None)

    def is_valid(self, session: UiSession) -> bool:
        """Whether a session has not ended; does not prolong it."""
        with self._lock:
            found = self._sessions.get(session.digest)
            return found is not None and self._clock() - found[1] <= SESSION_IDLE_S


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _slow_digest(password: str, salt: bytes) -> bytes:
    """A slow digest, against guessing."""
    return scrypt(
        password.encode("utf-8", "replace"), salt=salt, n=_SCRYPT_COST, r=8, p=1, maxmem=1 << 26
    )
