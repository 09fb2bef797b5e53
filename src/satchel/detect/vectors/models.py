"""Which models are on this machine? Those that were converted, and packages that carry one."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from satchel._language import say
from satchel.detect.vectors.convert import is_convertible
from satchel.detect.vectors.tokens import read_table
from satchel.errors import SettingsError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Kept(NamedTuple):
    """One converted model."""

    name: str
    folder: str
    bytes: int
    alike: float
    """How near it stays to the original, by the cosine."""


def is_name(text: str) -> bool:
    """Whether a word can be the name of a converted model or of a package."""
    return _NAME.fullmatch(text) is not None


def models_folder(cache: str) -> str:
    """Where converted models are kept.

    Raises:
        SettingsError: there is no cache folder; the one of a project is none.
    """
    if not cache:
        raise SettingsError(
            say("There is no cache folder"), say("Set `{name}` to a whole path", name="HOME")
        )
    return os.path.join(cache, "vectors", "models")


def kept_models(cache: str) -> list[Kept]:
    """Every converted model, by name."""
    found: list[Kept] = []
    try:
        names = sorted(os.listdir(models_folder(cache)))
    except OSError:
        return []
    for name in names:
        folder = os.path.join(models_folder(cache), name)
        path = os.path.join(folder, "model.onnx")
        # While one is being made its folder has another name.
        if is_name(name) and os.path.isfile(path):
            try:
                alike = read_table(folder, "satchel.json").get("alike", 0.0)
            except SettingsError:
                alike = 0.0
            size = os.path.getsize(path)
            found.append(Kept(name, folder, size, float(alike)))
    return found


def packaged_model(name: str) -> str | None:
    """The folder of the model inside an installed package, which is not imported."""
    from importlib import metadata

    try:
        package = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None
    for file in package.files or ():
        if file.name == "model.safetensors":
            folder = os.path.dirname(str(package.locate_file(file)))
            if is_convertible(folder):
                return folder
    return None
