"""Somebody who came in, with a browser that is none: for tests of pages without a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from satchel.facade import Satchel
    from satchel.ui.access import Access

ORIGIN = "http://127.0.0.1"
_marks: dict[tuple[tuple[str, str], ...], str] = {}
"""Cookies of a session -> its mark."""


class Visit(NamedTuple):
    """Somebody who came in, with their browser."""

    client: TestClient
    satchel: Satchel
    access: Access | None

    def get(self, address: str, **more):
        return self.client.get(address, **more)

    def post(self, address: str, **more):
        """As a form of our own page sends it."""
        headers = {"X-Satchel-CSRF": self.csrf, "Origin": ORIGIN, **more.pop("headers", {})}
        return self.client.post(address, headers=headers, **more)

    def part(self, address: str, **more):
        """As htmx asks."""
        return self.client.get(address, headers={"HX-Request": "true"}, **more)

    @property
    def csrf(self) -> str:
        """The mark of this session, as a page shows it; a page is drawn once for it."""
        session = tuple(self.client.cookies.items())
        if not session or session not in _marks:
            found = re.search(r'name="csrf" content="([^"]+)"', self.client.get("/nowhere").text)
            assert found is not None
            _marks[session] = found[1]
        return _marks[session]
