"""Which library does a project get, by what was set?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel.library import Bounds, Filter, Index, Library, TrustBook, default_locations
from satchel.library.locations import user_folder
from satchel.library.scans import ScanCache
from satchel.settings import SERVER
from satchel.skill.problems import Problem
from satchel.trace import Trace

if TYPE_CHECKING:
    from satchel.library.locations import Location
    from satchel.settings import Settings


def library_for(settings: Settings) -> Library:
    """The library of these settings; what is odd about them is among its problems."""
    state, cache = settings.paths.state, settings.paths.cache
    where = state or None if settings.trace == "file" else None
    trace = Trace(where, settings.project, enabled=settings.trace != "off")
    served, wrong = _served(settings)
    library = Library(
        [*default_locations(settings), *served],
        bounds=Bounds(settings.max_depth, settings.max_folders),
        wanted=Filter(settings.include, settings.exclude, settings.tags),
        trust=TrustBook(
            os.path.join(state, "trust.json") if state else None, locked=settings.trust == "locked"
        ),
        scans=ScanCache(cache, _exceptions(settings)),
        index=Index(cache) if settings.use_index and cache else None,
        trace=trace,
        problems=[*_remarks(settings), *wrong],
    )
    if settings.create_missing:
        os.makedirs(user_folder(settings), exist_ok=True)
    return library


def _exceptions(settings: Settings) -> str:
    """The user's own list of accepted findings, if there is one."""
    path = os.path.join(os.path.dirname(settings.paths.config), "satchel-scan.toml")
    return path if settings.paths.config and os.path.isfile(path) else ""


def _served(settings: Settings) -> tuple[list[Location], list[Problem]]:
    """The servers that are set. Where none is, nothing of that kind is even imported."""
    if not settings.servers and not any(one.startswith(SERVER) for one in settings.locations):
        return [], []
    from satchel.remote import served_locations

    return served_locations(settings)


def _remarks(settings: Settings) -> list[Problem]:
    """What was odd about the settings, and a project's folder that is not there."""
    remarks = [
        Problem(code, file, values={"name": value, "reason": value})
        for code, file, value in settings.remarks
    ]
    if not os.path.isdir(settings.project):
        values = {"reason": "there is no such folder"}
        remarks.append(Problem("unreadable", settings.project, values=values))
    return remarks
