"""Imports of optional packages, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from satchel.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import `module`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as exc:
        if exc.name is not None and exc.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the package is installed but broken
        raise _missing(module, extra) from exc


def _missing(module: str, extra: str) -> MissingExtra:
    return MissingExtra(
        f"This needs the package `{module}`, which is not installed",
        hint=f'Run `pip install "satchel[{extra}]"`',
    )


def must_be_installed(module: str, extra: str) -> None:
    """Check that `module` is installed, without importing it.

    Raises:
        MissingExtra: it is not installed.
    """
    if not installed(module):
        raise _missing(module, extra)


def installed(module: str) -> bool:
    """Whether `module` is installed and more than an empty folder; it is not imported."""
    from importlib.util import find_spec

    try:
        spec = find_spec(module)
        return spec is not None and spec.origin is not None
    except (ImportError, ValueError):
        return False


def available(module: str) -> ModuleType | None:
    """Import `module` if it is installed, else None."""
    try:
        return import_module(module)
    except ImportError:
        return None
