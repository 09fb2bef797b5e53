"""Settings in files: where a value comes from, and writing one value.

`satchel config` and the browser's page of settings use them.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import read_plain, write_atomic
from satchel.errors import Refused
from satchel.i18n import say
from satchel.library.snapshot import Filter
from satchel.settings import load_settings
from satchel.store.disk_errors import disk_errors_as_refusal

if TYPE_CHECKING:
    from satchel.library import Library
    from satchel.settings import Setting, Settings

APPLIED_AT_ONCE = frozenset(("budget", "form", "pin", "include", "exclude", "tags", "model"))
"""Settings that take effect in a running server."""
_PATTERN_SIGNS = frozenset(",*?[")
_MAX_CONFIG_BYTES = 1 << 20
_PROJECT_TABLES = (("pyproject.toml", ("tool", "satchel")), ("satchel.toml", ()))
"""Settings files of a project and the keys of the table in them; the first one precedes."""
_ONLY_TIGHTENED = frozenset(("trust", "strict"))
"""Settings that a project cannot loosen."""


def value_text(value: Any) -> str:
    """Return a value as it is typed and shown."""
    if isinstance(value, str):
        return value
    if hasattr(value, "_asdict"):
        return ", ".join(f"{name} = {value_text(field)}" for name, field in value._asdict().items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, cast("list[Any]", value)))
    return json.dumps(value, ensure_ascii=False, default=str) if value != {} else ""


def find_origin(settings: Settings, setting: Setting) -> str:
    """Return the variable or file that the value in force comes from; empty for the default.

    A project can only tighten `trust` and `strict`: whatever it loosens is not in force.
    """
    value = getattr(settings, setting.name)
    env_value = os.environ.get(setting.env, "").strip()
    is_tightened_by_project = setting.name == "trust" and env_value != value
    if env_value and not is_tightened_by_project:
        return setting.env
    for file, keys in _PROJECT_TABLES if setting.project_may_set else ():
        table = _read_table(os.path.join(settings.project, file), keys)
        if setting.name not in table:
            continue
        if setting.name not in _ONLY_TIGHTENED or table[setting.name] == value:
            return file
    return "config.toml" if setting.name in _read_table(settings.paths.config) else ""


def _read_table(file: str, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a table of a TOML file by its keys; empty when there is none that can be read."""
    try:
        with open(file, "rb") as stream:
            table: Any = tomllib.load(stream)
        for key in keys:
            table = table.get(key, {})
        return dict(table)
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def settings_file(settings: Settings, scope: str) -> str:
    """Return the file of the scope `user` or `project`."""
    if scope == "user":
        return settings.paths.config
    return os.path.join(settings.project, "satchel.toml")


def require_settable(setting: Setting, scope: str) -> None:
    """Check that a scope may have a setting.

    Raises:
        Refused: a project may not set it.
    """
    if scope == "project" and not setting.project_may_set:
        raise Refused(
            say("A project may not set `{name}`", name=setting.name),
            say("Run `{command}`", command=f"satchel config set {setting.name} … --scope user"),
        )


def stored_value(settings: Settings, name: str, scope: str) -> Any:
    """Return the value in the file of a scope; an empty text when it has none."""
    return _read_table(settings_file(settings, scope)).get(name, "")


def convert_value(project: str, setting: Setting, values: tuple[str, ...]) -> Any:
    """Return the value for the file, checked as a value in code is.

    Raises:
        SettingsError: it is not valid.
    """
    raw_value: Any = (
        list(values) if setting.kind == "list" and len(values) > 1 else " ".join(values)
    )
    converted: Any = getattr(load_settings(project, **{setting.name: raw_value}), setting.name)
    return list(converted) if setting.kind == "list" else converted


def write_setting(file: str, name: str, value: Any) -> None:
    """Write a setting, None removes it; everything else in the file stays as it is.

    Raises:
        Refused: the file cannot be changed safely, or cannot be written.
    """
    text = read_plain(file, _MAX_CONFIG_BYTES).decode() if os.path.exists(file) else ""
    line = "" if value is None else f"{name} = {_format_toml(value)}\n"
    try:
        values = {**tomllib.loads(text), name: value}
        changed = _replace_line(text, name, line)
        is_safe = tomllib.loads(changed) == {
            key: values[key] for key in values if line or key != name
        }
    except ValueError:
        is_safe, changed = False, ""
    if not is_safe:
        raise Refused(
            say("`{path}` is written in a way that cannot be changed safely",
                path=file),
            say("Change it by hand:") + " " + (line.rstrip() or name),
        )  # fmt: skip
    with disk_errors_as_refusal(file):
        write_atomic(file, changed.encode())


def change_setting(
    settings: Settings, library: Library, setting: Setting, text: str, scope: str
) -> tuple[str, Settings]:
    """Write a setting as it is typed, and apply it if it is one of `APPLIED_AT_ONCE`.

    Args:
        settings: The settings in force.
        library: The library that they filter.
        setting: The setting.
        text: Its value; empty removes it.
        scope: The file: `user` or `project`.

    Returns:
        What the file had, and the settings now in force.

    Raises:
        SatchelError: the value is not valid, or the file cannot be written.
    """
    require_settable(setting, scope)
    name, project = setting.name, settings.project
    value = convert_value(project, setting, (text,)) if text else None
    previous = stored_value(settings, name, scope)
    write_setting(settings_file(settings, scope), name, value)
    if name in APPLIED_AT_ONCE:
        settings = settings._replace(**{name: getattr(load_settings(project), name)})
        library.change_filter(Filter(settings.include, settings.exclude, settings.tags))
    return value_text(previous), settings


def change_exclusion(settings: Settings, name: str, *, offered: bool) -> str:
    """Return the project's value of `exclude`, so that a skill is offered or not.

    Raises:
        Refused: a pattern excludes it, or its name has signs of patterns.
    """
    text = value_text(stored_value(settings, "exclude", "project"))
    patterns = [part.strip() for part in text.split(",") if part.strip()]
    if _PATTERN_SIGNS.intersection(name) or (offered and name not in patterns):
        raise Refused(
            say("A pattern of the setting `exclude` decides about it"),
            say("Change it in the settings"),
        )
    others = [pattern for pattern in patterns if pattern != name]
    return value_text(others if offered else [*others, name])


def _replace_line(text: str, name: str, line: str) -> str:
    """Replace the line or lines of a top-level key, or add it before the first table."""
    lines = text.splitlines(keepends=True)
    table_starts = (index for index, row in enumerate(lines) if row.lstrip().startswith("["))
    insertion = next(table_starts, len(lines))
    assignment = re.compile(rf"\s*{name}\s*=")
    start = next((index for index in range(insertion) if assignment.match(lines[index])), None)
    if start is not None:
        for end in range(start + 1, len(lines) + 1):
            try:
                tomllib.loads("".join(lines[start:end]))
            except ValueError:
                continue  # the value goes on
            return "".join((*lines[:start], line, *lines[end:]))
    while insertion < len(lines) and insertion and lines[insertion - 1].lstrip().startswith("#"):
        insertion -= 1  # a comment belongs to its table
    before = "".join(lines[:insertion])
    separator = "\n" if before and not before.endswith("\n") else ""
    return before + separator + line + text[len(before) :]


def _format_toml(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        pairs = (f"{json.dumps(key)} = {_format_toml(field)}" for key, field in fields)
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value, ensure_ascii=False)
