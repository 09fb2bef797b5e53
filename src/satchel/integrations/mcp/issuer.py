"""Where are the public keys of an OAuth server, and how often is it asked for them?

Anybody can send a token that names a key nobody has. So the issuer is asked by one at a time and
at most every half minute, whatever came of it; who comes with a key that is known never waits.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple, cast

WAIT = 5.0
"""Seconds for one answer of the issuer."""
LONGEST = 12.0
"""Seconds for all of them."""
PAUSE = 30.0
"""Seconds between two questions about keys that are not known."""
FRESH = 300.0
"""Seconds after which known keys are asked for again."""
OLDEST = 3_600.0
"""Seconds that known keys are used while the issuer does not answer."""
_MOST = 1 << 20


class OAuth(NamedTuple):
    """The server whose tokens are taken."""

    issuer: str
    audience: str
    keys: str = ""
    """Where its public keys are; found through the issuer when empty."""
    scopes: tuple[str, ...] = ()


class IssuerKeys:
    """The public keys of one issuer, by name."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._place = oauth.keys
        self._known: dict[str, Any] = {}
        self._fetched = 0.0
        self._asked = 0.0
        self._lock: Any = None

    async def get(self, kid: str) -> Any:
        """The key of that name; None when the issuer has none, or cannot be asked now."""
        import anyio

        if self._lock is None:
            self._lock = anyio.Lock()
        key = self._usable(kid)
        if key is not None and (self._age() < FRESH or self._lock.locked() or not self._may_ask()):
            return key
        if key is None and not self._lock.locked() and not self._may_ask():
            return None
        async with self._lock:
            if self._may_ask():  # else somebody asked while we waited
                await self._ask()
        return self._usable(kid)

    def _age(self) -> float:
        return time.monotonic() - self._fetched if self._fetched else OLDEST

    def _usable(self, kid: str) -> Any:
        return self._known.get(kid) if self._age() < OLDEST else None

    def _may_ask(self) -> bool:
        return not self._asked or time.monotonic() - self._asked >= PAUSE

    async def _ask(self) -> None:
        import anyio
        import anyio.to_thread

        self._asked = time.monotonic()
        found: dict[str, Any] | None = None
        # Not the threads that answer everybody's requests.
        limiter = anyio.CapacityLimiter(1)
        with anyio.move_on_after(LONGEST):
            found = await anyio.to_thread.run_sync(
                self._fetch, abandon_on_cancel=True, limiter=limiter
            )
        self._asked = time.monotonic()
        if found is not None:
            self._known, self._fetched = found, self._asked

    def _fetch(self) -> dict[str, Any] | None:
        """All keys, or None when they cannot be had: whatever an issuer says, nothing breaks."""
        import jwt

        try:
            place = self._place or self._find()
            client = jwt.PyJWKClient(place, cache_jwk_set=False, timeout=WAIT)
            every = client.get_jwk_set().keys
            keys = [key for key in every if key.public_key_use in {"sig", None}]
        except Exception:  # noqa: BLE001 - see above
            return None
        if not keys:
            return None
        self._place = place
        return {str(key.key_id or f"\0{at}"): key for at, key in enumerate(keys)}

    def _find(self) -> str:
        """Where the issuer says that its keys are."""
        import json
        from urllib.parse import urlsplit
        from urllib.request import urlopen

        issuer = self._oauth.issuer.rstrip("/")
        parts = urlsplit(issuer)
        origin = f"{parts.scheme}://{parts.netloc}"
        tries = (
            f"{origin}/.well-known/oauth-authorization-server{parts.path}",
            f"{issuer}/.well-known/openid-configuration",
        )
        for place in tries:
            try:
                with urlopen(place, timeout=WAIT) as answer:  # noqa: S310 - an address the user gave
                    found: Any = json.loads(answer.read(_MOST))
            except (OSError, ValueError):
                continue
            if not isinstance(found, dict):
                continue
            table = cast("dict[str, Any]", found)
            said, keys = table.get("issuer"), table.get("jwks_uri")
            if isinstance(said, str) and isinstance(keys, str) and said.rstrip("/") == issuer:
                return keys
        raise OSError(f"{issuer} does not say where its keys are")
