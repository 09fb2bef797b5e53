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


class NewSession(NamedTuple):
    """A session that was just opened."""

    session: UiSession
    secret: str
    """The value of its cookie."""


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
        self._password = _password_digest(password, self._salt) if password else b""
        self._links: dict[str, float] = {}
        """Digest of a token -> when it expires."""
        self._sessions: dict[str, tuple[UiSession, float]] = {}
        """Digest of a secret -> its session, and when it was last used."""
        self._lock = threading.Lock()
        self._failed_attempts = 0
        self._locked_until = 0.0
        self.announce = announce
        self.is_reachable_remotely = False
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
            links = {
                digest: expires_at
                for digest, expires_at in self._links.items()
                if expires_at + SESSION_IDLE_S > now
            }
            self._links = dict(list(links.items())[-MAX_LINKS:])
            self._links[_digest_of(token)] = now + LINK_LIFETIME_S
        return token

    @property
    def by_link(self) -> bool:
        """Whether sign-in needs a link."""
        return not self._password

    @property
    def has_remote_users(self) -> bool:
        """Whether clients may be on other machines, and must not reach folders of this one."""
        return not self.by_link or self.is_reachable_remotely

    def enter_by_link(self, token: str) -> NewSession | None:
        """Open a session by a link's token; None when it is used, expired or unknown."""
        with self._lock:
            expires_at = self._links.pop(_digest_of(token), None)
        if expires_at is None:
            return None
        new_session = self.open() if expires_at >= self._clock() else None
        if self.announce is not None:
            # For the next browser; or for this one, if its link was ours and has expired.
            try:
                self.announce(self.new_link())
            except Exception:  # the session is open, even if the next link cannot be printed
                logging.getLogger(__name__).exception("a new link cannot be told")
        return new_session

    def enter_by_password(self, password: str) -> NewSession | None:
        """Open a session by the password; None when it is wrong, or sign-in is closed."""
        now = self._clock()
        with self._lock:
            if not self._password or now < self._locked_until:
                return None
            # Counted before it is compared: parallel requests count as wrong attempts.
            self._failed_attempts += 1
            self._locked_until = now + ATTEMPT_DELAY_S
            if self._failed_attempts >= MAX_ATTEMPTS:
                self._failed_attempts, self._locked_until = 0, now + LOCKOUT_S
        if not compare_digest(_password_digest(password, self._salt), self._password):
            return None
        with self._lock:
            self._failed_attempts, self._locked_until = 0, 0.0
        return self.open()

    def lockout_remaining_s(self) -> float:
        """Return the seconds until the next password is compared."""
        return max(0.0, self._locked_until - self._clock())

    def open(self) -> NewSession:
        """Open a session; the oldest ones are dropped when there are too many."""
        secret = secrets.token_urlsafe(32)
        session = UiSession(_digest_of(secret))
        with self._lock:
            self._sessions[session.digest] = (session, self._clock())
            while len(self._sessions) > MAX_SESSIONS:
                oldest = min(self._sessions, key=lambda digest: self._sessions[digest][1])
                del self._sessions[oldest]
        return NewSession(session, secret)

    def session(self, secret: str) -> UiSession | None:
        """Return the session of a cookie; None when there is none, or it ended."""
        if not secret:
            return None
        digest, now = _digest_of(secret), self._clock()
        with self._lock:
            session, used_at = self._sessions.get(digest, (None, 0.0))
            if session is None:
                return None
            if now - used_at > SESSION_IDLE_S:
                del self._sessions[digest]
                return None
            self._sessions[digest] = (session, now)
            return session

    def end_session(self, session: UiSession) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(session.digest, None)

    def is_valid(self, session: UiSession) -> bool:
        """Whether a session has not ended; does not prolong it."""
        with self._lock:
            known_session, used_at = self._sessions.get(session.digest, (None, 0.0))
            return known_session is not None and self._clock() - used_at <= SESSION_IDLE_S


def _digest_of(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _password_digest(password: str, salt: bytes) -> bytes:
    """Return a digest that is slow to compute, so that guessing takes long."""
    return scrypt(
        password.encode("utf-8", "replace"), salt=salt, n=_SCRYPT_COST, r=8, p=1, maxmem=1 << 26
    )
