"""What does a client see that may be on another machine? Addresses of skills, no paths of this one.

A skill's base directory is `skill://pdf` there: joined with the path of a file it is the address
that `ReadFile` and `resources/read` take. Of what a tool says about itself only the known parts go
out: how a program ran, and what it wrote for people, is for those who run the server. On stdio the
client is on this machine, and paths are what they are.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, cast

from satchel.integrations.mcp.addresses import address
from satchel.tools.frame import attribute, encodable, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.envelope import Envelope
    from satchel.integrations.mcp.served import Served
    from satchel.library import Library
    from satchel.settings import Settings

READ = (
    "Read a text file of a skill: join the skill's base directory and the file's path. On a folder "
    "it answers with what is in it."
)
"""What `ReadFile` is to such a client: it has no project here."""
_SAID = frozenset((
    # of Skill
    "name", "base_dir", "content", "files", "files_total", "files_complete", "revision",
    "changed_since_loaded", "disallowed_tools", "available", "available_total",
    # of ReadFile
    "path", "first_line", "last_line", "lines", "entries", "entries_total",
    # of SkillSearch
    "matches",
    # of tool skills: not their tier, way, limits, denied paths, raw answers or standard error
    "tool", "skill", "output", "data", "exit", "fault", "failure",
    # of several
    "truncated", "fallback",
))  # fmt: skip
"""What of a tool's data leaves this machine."""


class Outside:
    """Between the tools, which speak of paths, and a client, which has addresses."""

    def __init__(self, library: Library, settings: Settings, served: Served) -> None:
        self._library = library
        self._settings = settings
        self._served = served

    def outward(self, tool: str, reply: Envelope) -> Envelope:
        """A reply as it leaves.

        Args:
            tool: Who said it.
            reply: What it said.
        """
        data = {key: value for key, value in reply.data.items() if key in _SAID}
        if reply.error is None and tool == "ReadFile":
            return reply._replace(data=data)  # a file says what it says
        if reply.error is None and tool == "Skill":
            return self._loaded(reply, data)
        error = reply.error
        # What the client sent comes back as it sent it.
        context = {
            key: value if key == "params_input" else self._clean(value)
            for key, value in reply.context.items()
        }
        return reply._replace(
            data=cast("dict[str, Any]", self._clean(data)),
            text=self._without(reply.text),
            error=error and error._replace(message=self._without(error.message), hint=""),
            context=context,
        )

    def _loaded(self, reply: Envelope, data: dict[str, Any]) -> Envelope:
        """A skill with its address for its folder; the rest are the words of its author."""
        base, name = str(data["base_dir"]), str(data["name"])
        # By the folder that the reply itself has: the skill may be gone by now, or another one.
        skill = self._library.snapshot().get(name)
        uri = address(name)
        if skill is not None and encodable(skill.base_dir) == base:
            uri = self._served.uri(skill).removesuffix("/SKILL.md")

        def put(text: str) -> str:
            text = _replaced(text, base, uri)
            # `${SKILL_DIR}-forms` is beside the skill, and no address of anybody.
            return _replaced(text, os.path.dirname(base), f"{uri}/..")

        context = dict(reply.context)
        if isinstance(context.get("path_resolved"), str):
            context["path_resolved"] = put(context["path_resolved"])
        data = {**data, "base_dir": uri, "content": put(str(data.get("content", "")))}
        return reply._replace(data=data, text=put(reply.text), context=context)

    def _clean(self, value: Any) -> Any:
        """Whatever a tool handed over, each text in it without paths of this machine."""
        if isinstance(value, str):
            return self._without(value)
        if isinstance(value, dict):
            table = cast("dict[Any, Any]", value)
            return {self._clean(key): self._clean(one) for key, one in table.items()}
        if isinstance(value, list | tuple):
            return [self._clean(one) for one in cast("list[Any]", value)]
        return value

    def _without(self, text: str) -> str:
        """A text without paths of this machine."""
        for root, name in self._known():
            if root in text or printable(root) in text:
                text = _replaced(text, root, name)
        return text

    def _known(self) -> Iterator[tuple[str, str]]:
        """Folders of this machine, and what stands for them, the innermost first."""
        settings = self._settings
        paths = settings.paths
        own = [(paths.cache, "(cache)"), (paths.state, "(state)")]
        own += [(os.path.dirname(paths.config), "(config)")]
        places = [one.path for one in self._library.locations if one.path != settings.project]
        found = [(one + os.sep, "skill://") for one in places] + own
        found += [(settings.project, "."), (os.path.expanduser("~"), "~")]
        for root, name in found:
            if len(root) > 1:
                yield root, name
                end = os.sep if root.endswith(os.sep) else ""
                yield os.path.realpath(root) + end, name


def _replaced(text: str, old: str, new: str) -> str:
    """A text without a path, however the tools write one; not where a longer name goes on."""
    after = "" if old.endswith(os.sep) else r"(?![\w-])(?!\.\w)"
    for form in dict.fromkeys((old, encodable(old), printable(old), attribute(old))):
        if form in text:
            text = re.sub(rf"(?<![\w.-]){re.escape(form)}{after}", lambda _: new, text)
    return text
