"""Every page put together, behind the gate."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from satchel._optional import require

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from satchel.facade import Satchel
    from satchel.ui.access import Access
    from satchel.ui.gate import Gate

PAGES = (
    "door", "live", "skills", "adding", "plans", "editing", "one_skill", "catalogue", "goals",
    "health",
)  # fmt: skip
"""Modules of `pages`, each with a `router`."""
LOCAL = ("127.0.0.1", "[::1]", "localhost")
"""Names of this machine that every server answers to."""


def is_home(name: str) -> bool:
    """Whether a name is of the kind that a machine gives itself; cookies for it go nowhere else."""
    return name.lower().endswith(".localhost")


def make_app(
    satchel: Satchel,
    access: Access,
    *,
    hosts: Sequence[str] = (),
    homes: Sequence[str] = (),
    cookie: str = "satchel",
    https: bool = False,
) -> Gate:
    """The pages as an ASGI application.

    Args:
        satchel: Whose skills and goals.
        access: Who may come in.
        hosts: Names that it answers to, besides those of this machine.
        homes: Those of them under which alone sessions count; all where there are none.
        cookie: The name of the session's cookie.
        https: Whether something in front of us speaks TLS with the browsers.

    Raises:
        MissingExtra: the extra `ui` is not installed.
    """
    for package in ("fastapi", "jinja2", "python_multipart", "markdown_it", "pygments", "nh3"):
        require(package, "ui")
    from fastapi import Depends, FastAPI
    from starlette.staticfiles import StaticFiles

    from satchel.ui.failing import catch_all
    from satchel.ui.gate import Gate
    from satchel.ui.house import House
    from satchel.ui.pages.door import too_late
    from satchel.ui.pages.live import begun
    from satchel.ui.view import STATIC

    known = [one.lower() for one in hosts]
    access.known_elsewhere = https or any(one not in LOCAL and not is_home(one) for one in known)
    house = House(satchel, access)

    @asynccontextmanager
    async def life(_: Any) -> AsyncGenerator[None]:
        house.live.start()
        cleaning = asyncio.create_task(house.keep_clean())
        try:
            yield
        finally:
            cleaning.cancel()
            await house.leave()

    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=life,
        redirect_slashes=False,
    )
    app.state.house = house
    app.state.cookie = cookie
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    first = [Depends(begun)]
    for name in PAGES:
        app.include_router(import_module(f"satchel.ui.pages.{name}").router, dependencies=first)
    catch_all(app)
    return Gate(app, house, [*LOCAL, *known], cookie, too_late=too_late, homes=homes, https=https)
