"""Removes paths of this machine from the replies to remote clients."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, cast

from satchel.integrations.mcp.skill_uri import SCHEME, make_uri
from satchel.tools.framing import attribute, encodable, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.envelope import Envelope
    from satchel.library import Library
    from satchel.settings import Settings

_PUBLIC_KEYS = frozenset((
    # of Skill
    "name", "base_dir", "content", "files", "files_total", "revision",
    "changed_since_loaded", "disallowed_tools", "available", "available_total",
    # of ReadFile
    "path", "first_line", "last_line", "lines", "entries", "entries_total",
    # of SkillSearch
    "matches", "notes",
    # of tool skills: not their tier, limits, denied paths, raw answers or standard error
    "tool", "skill", "output", "data", "exit", "fault", "failure",
    # of several
    "truncated", "fallback",
))  # fmt: skip
"""The keys of a tool's data that leave this machine."""


class PathRedactor:
    """Replaces paths of this machine by URIs in replies to a client."""

    def __init__(self, library: Library, settings: Settings) -> None:
        self._library = library
        self._settings = settings

    def redact(self, tool: str, reply: Envelope) -> Envelope:
        """Return the reply of a tool without paths of this machine and without private data."""
        data = {key: value for key, value in reply.data.items() if key in _PUBLIC_KEYS}
        if reply.error is None and tool == "ReadFile":
            return reply._replace(data=data)  # the content of a file is not changed
        if reply.error is None and tool == "Skill":
            return self._redact_skill(reply, data)
        error = reply.error
        # The client's own values are returned unchanged.
        context = {
            key: value if key == "params_input" else self._redact_value(value)
            for key, value in reply.context.items()
        }
        return reply._replace(
            data=cast("dict[str, Any]", self._redact_value(data)),
            text=self._redact_text(reply.text),
            error=error and error._replace(message=self._redact_text(error.message), hint=""),
            context=context,
        )

    def _redact_skill(self, reply: Envelope, data: dict[str, Any]) -> Envelope:
        """Redact the reply with a loaded skill; its author's text is not changed."""
        base, uri = str(data["base_dir"]), make_uri(str(data["name"]))

        def with_uri(text: str) -> str:
            text = _replace_path(text, base, uri)
            # `${SKILL_DIR}-forms` is beside the skill, and not part of its URI.
            return _replace_path(text, os.path.dirname(base), f"{uri}/..")

        context = dict(reply.context)
        if isinstance(context.get("path_resolved"), str):
            context["path_resolved"] = with_uri(context["path_resolved"])
        data = {**data, "base_dir": uri, "content": with_uri(str(data.get("content", "")))}
        return reply._replace(data=data, text=with_uri(reply.text), context=context)

    def _redact_value(self, value: Any) -> Any:
        """Redact all texts of a JSON value."""
        if isinstance(value, str):
            return self._redact_text(value)
        if isinstance(value, dict):
            fields = cast("dict[Any, Any]", value)
            return {self._redact_value(key): self._redact_value(fields[key]) for key in fields}
        if isinstance(value, list | tuple):
            return [self._redact_value(element) for element in cast("list[Any]", value)]
        return value

    def _redact_text(self, text: str) -> str:
        for folder, replacement in self._replacements():
            if folder in text or printable(folder) in text:
                text = _replace_path(text, folder, replacement)
        return text

    def _replacements(self) -> Iterator[tuple[str, str]]:
        """Yield the folders of this machine with their replacements, innermost first."""
        settings = self._settings
        paths = settings.paths
        folders = [
            (location.path + os.sep, SCHEME)
            for location in self._library.locations
            if location.path != settings.project
        ]
        folders += [(paths.cache, "(cache)"), (paths.state, "(state)")]
        folders += [(os.path.dirname(paths.config), "(config)")]
        folders += [(settings.project, "."), (os.path.expanduser("~"), "~")]
        for folder, replacement in folders:
            if len(folder) > 1:
                yield folder, replacement
                separator = os.sep if folder.endswith(os.sep) else ""
                yield os.path.realpath(folder) + separator, replacement


def _replace_path(text: str, path: str, replacement: str) -> str:
    """Replace a path in all its spellings, except where a longer name continues."""
    end = "" if path.endswith(os.sep) else r"(?![\w-])(?!\.\w)"
    for spelling in dict.fromkeys((path, encodable(path), printable(path), attribute(path))):
        if spelling in text:
            pattern = rf"(?<![\w.-]){re.escape(spelling)}{end}"
            text = re.sub(pattern, lambda _: replacement, text)
    return text
