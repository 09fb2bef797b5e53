"""Builds the library of a project from its settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import NotFound
from satchel.library import Bounds, Filter, Index, Library, TrustBook, default_locations
from satchel.library.locations import user_folder
from satchel.library.scans import ScanCache
from satchel.settings import SERVER, similar_setting
from satchel.skill.problems import Problem
from satchel.trace import Trace

if TYPE_CHECKING:
    from satchel.library.locations import Location
    from satchel.settings import Settings


def library_for(settings: Settings) -> Library:
    """The library of these settings; ignored settings are among its problems.

    Raises:
        NotFound: the project's folder does not exist.
    """
    if not os.path.isdir(settings.project):
        raise NotFound(
            say("There is no folder `{path}`", path=settings.project),
            say("Create it, or give a folder that exists"),
        )
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
        problems=[*setting_problems(settings), *wrong],
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


def setting_problems(settings: Settings) -> list[Problem]:
    """What was ignored or refused in the settings files."""
    found: list[Problem] = []
    for code, file, value in settings.remarks:
        near = similar_setting(value) if code == "setting-unknown" else ""
        values = {"name": value, "reason": value, "near": near}
        found.append(Problem("setting-near" if near else code, file, values=values))
    return found
