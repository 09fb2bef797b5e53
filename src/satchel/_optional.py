"""Imports of optional packages, with an error that names the extra to install; renamed names."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from satchel.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
        found = find_spec(module)
        return found is not None and found.origin is not None
    except (ImportError, ValueError):
        return False


def available(module: str) -> ModuleType | None:
    """Import `module` if it is installed, else None."""
    try:
        return import_module(module)
    except ImportError:
        return None


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` that serves old names, with a DeprecationWarning.

    Args:
        module: The module, `__name__`.
        names: Old name -> new name.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module `{module}` has no attribute `{name}`")
        _warn(f"`{name}` of `{module}`", names[name])
        return getattr(import_module(module), names[name])

    return find


def renamed_attribute(old: str, new: str) -> property:
    """A property that serves the old name of an attribute, with a DeprecationWarning."""

    def find(self: object) -> Any:
        _warn(f"`{old}` of `{type(self).__name__}`", new)
        return getattr(self, new)

    return property(find)


def _warn(old: str, new: str) -> None:
    text = f"{old} is `{new}` now; the old name goes with version 0.3"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
