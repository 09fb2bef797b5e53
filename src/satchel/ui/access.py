"""Authentication for the web UI: one-time links, a password, and sessions.

Sessions live in memory. A link holds a token that opens one session and is worthless afterwards:
it may be left in a browser's history or in a terminal's scroll. The session's own secret is in a
cookie that scripts cannot read and other sites cannot send. In memory there are only digests.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from contextlib import contextmanager
from hashlib import scrypt, sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

IDLE = 12 * 3_600.0
"""Seconds after which a session ends that nobody uses."""
RENEW = 3_600.0
"""Seconds after which a cookie in use is given anew: a browser throws one away by its age."""
MOST_SESSIONS = 200
"""Sessions at a time; the one that was unused longest gives way."""
LINK = 15 * 60.0
"""Seconds that a link can be used."""
MOST_LINKS = 100
"""Links that are known at a time; the oldest gives way."""
SHORTEST = 10
"""Characters of a password at least."""
ATTEMPT_DELAY_S = 1.0
"""Seconds after a wrong password in which no other is compared."""
MAX_ATTEMPTS = 20
"""Wrong passwords in a row after which signing in is closed for `LOCKOUT_S`."""
LOCKOUT_S = 600.0
MOST_STREAMS = 16
"""Pages of one session that are told what changes, at a time."""
_COST = 1 << 14


class Session(NamedTuple):
    """Somebody who came in."""

    digest: str
    csrf: str
    """What a form of this session carries, and a page of another site cannot know."""


class Access:
    """Links, the password, and the sessions that they opened."""

    def __init__(
        self,
        *,
        password: str = "",
        announce: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let in whoever has a link, or the password where there is one.

        Args:
            password: Asked for instead of a link; nobody gets a link then.
            announce: Told each new link's token, since one can be used only once.
            clock: For tests.

        Raises:
            InvalidInput: the password is too short.
        """
        if password and len(password) < SHORTEST:
            raise InvalidInput(
                say("The password has less than {least} characters", least=SHORTEST),
                say("Make one with `{command}`", command="openssl rand -base64 18"),
            )
        self._clock = clock
        self._salt = os.urandom(16)
        self._password = _hard(password, self._salt) if password else b""
        self._links: dict[str, float] = {}
        self._sessions: dict[str, tuple[Session, float]] = {}
        self._given: dict[str, float] = {}
        self._hold = threading.Lock()
        self._wrong = 0
        self._closed_till = 0.0
        self._streams: dict[str, int] = {}
        self.announce = announce
        self.known_elsewhere = False
        """People reach the server through a proxy, or under a name that other machines know."""

    @property
    def by_password(self) -> bool:
        """Whether people are asked for a password."""
        return bool(self._password)

    def new_link(self) -> str:
        """A token that opens one session, within the next quarter of an hour."""
        token = secrets.token_urlsafe(24)
        with self._hold:
            now = self._clock()
            # One that is too old is still known as ours: who opens it gets a new one printed.
            kept = {one: till for one, till in self._links.items() if till + IDLE > now}
            self._links = dict(list(kept.items())[-MOST_LINKS:])
            self._links[_digest(token)] = now + LINK
        return token

    @property
    def by_link(self) -> bool:
        """Whether people come in by a link."""
        return not self._password

    @property
    def strangers(self) -> bool:
        """Whether people may sit elsewhere: the folders of this machine are not theirs then."""
        return not self.by_link or self.known_elsewhere

    def enter_by_link(self, token: str) -> tuple[Session, str] | None:
        """Open a session by a link's token; None when it is used, too old, or nobody's.

        Returns:
            The session and the secret for its cookie.
        """
        with self._hold:
            till = self._links.pop(_digest(token), None)
        if till is None:
            return None
        opened = self.open() if till >= self._clock() else None
        if self.announce is not None:
            # For the next browser; or for this one, where the link was ours and is too old.
            try:
                self.announce(self.new_link())
            except Exception:  # whoever came in is in, even if nobody can be told
                logging.getLogger(__name__).exception("a new link cannot be told")
        return opened

    def enter_by_password(self, password: str) -> tuple[Session, str] | None:
        """Open a session by the password; None when it is wrong, or signing in is closed."""
        now = self._clock()
        with self._hold:
            if not self._password or now < self._closed_till:
                return None
            # Counted before it is compared: parallel requests count as wrong attempts.
            self._wrong += 1
            self._closed_till = now + ATTEMPT_DELAY_S
            if self._wrong >= MAX_ATTEMPTS:
                self._wrong, self._closed_till = 0, now + LOCKOUT_S
        if not compare_digest(_hard(password, self._salt), self._password):
            return None
        with self._hold:
            self._wrong, self._closed_till = 0, 0.0
        return self.open()

    def closed_for(self) -> float:
        """Seconds until the next password is compared."""
        return max(0.0, self._closed_till - self._clock())

    def open(self) -> tuple[Session, str]:
        """A new session for somebody who proved who they are, and the secret for its cookie."""
        secret = secrets.token_urlsafe(32)
        session = Session(_digest(secret), secrets.token_urlsafe(24))
        with self._hold:
            self._sessions[session.digest] = (session, self._clock())
            self._given[session.digest] = self._clock()
            while len(self._sessions) > MOST_SESSIONS:
                oldest = min(self._sessions, key=lambda one: self._sessions[one][1])
                self._end(oldest)
        return session, secret

    def session(self, secret: str) -> Session | None:
        """The session of a cookie; None when there is none, or it ended."""
        if not secret:
            return None
        digest, now = _digest(secret), self._clock()
        with self._hold:
            found = self._sessions.get(digest)
            if found is None:
                return None
            if now - found[1] > IDLE:
                self._end(digest)
                return None
            self._sessions[digest] = (found[0], now)
            return found[0]

    def leave(self, session: Session) -> None:
        """End a session."""
        with self._hold:
            self._end(session.digest)

    def _end(self, digest: str) -> None:
        self._sessions.pop(digest, None)
        self._given.pop(digest, None)

    def renews(self, session: Session) -> bool:
        """Whether a browser gets its cookie anew now, so that it lives as long as the session."""
        with self._hold:
            given, now = self._given.get(session.digest), self._clock()
            if given is None or now - given < RENEW:
                return False
            self._given[session.digest] = now
            return True

    def holds(self, session: Session) -> bool:
        """Whether a session has not ended; asking does not prolong it."""
        with self._hold:
            found = self._sessions.get(session.digest)
            return found is not None and self._clock() - found[1] <= IDLE

    def may_listen(self, session: Session) -> bool:
        """Whether one more page of a session can be told what changes."""
        return self._streams.get(session.digest, 0) < MOST_STREAMS

    @contextmanager
    def listening(self, session: Session) -> Generator[None]:
        """One more page of a session is open meanwhile."""
        with self._hold:
            self._streams[session.digest] = self._streams.get(session.digest, 0) + 1
        try:
            yield
        finally:
            with self._hold:
                self._streams[session.digest] -= 1
                if not self._streams[session.digest]:
                    del self._streams[session.digest]


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _hard(password: str, salt: bytes) -> bytes:
    """A digest that takes long to make, so that guessing does, too."""
    return scrypt(password.encode("utf-8", "replace"), salt=salt, n=_COST, r=8, p=1, maxmem=1 << 26)
