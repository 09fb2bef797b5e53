"""The tools of the library's tool skills as they are now: a new one is there when next asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import Message
from satchel.errors import NotFound, Refused, SkillBroken
from satchel.tools.folder import list_folder
from satchel.tools.frame import one_line
from satchel.tools.naming import ask_for_trust, blocked_skill, said_of

if TYPE_CHECKING:
    from satchel.errors import SatchelError
    from satchel.library import Library
    from satchel.library.tool_snapshot import ToolSnapshot
    from satchel.settings import Settings
    from satchel.tools.base import Tool
    from satchel.tools.engine import LocalEngine
    from satchel.trace import Trace


class ScriptTools:
    """Where a toolset gets the tools that come and go."""

    def __init__(
        self,
        library: Library,
        settings: Settings,
        engine: LocalEngine,
        trace: Trace,
    ) -> None:
        """Offer the tools of a library.

        Args:
            library: Whose.
            settings: Limits, and where secrets are.
            engine: What runs their programs.
            trace: Where events go.
        """
        self._library = library
        self._settings = settings
        self._engine = engine
        self._trace = trace
        self._made: tuple[ToolSnapshot, dict[str, Tool]] | None = None

    def current(self) -> dict[str, Tool]:
        """The offered tools by name as of the last look; the same table while nothing changed."""
        look = self._library.tools()
        if self._made is None or self._made[0] is not look:
            self._made = (look, self._make(look))
        return self._made[1]

    def _make(self, look: ToolSnapshot) -> dict[str, Tool]:
        if not look.tools:
            return {}
        from satchel.tools.script_tool import ScriptTool
        from satchel.tools.secrets import Secrets

        secrets = Secrets(self._settings)
        return {
            name: ScriptTool(
                source,
                tool,
                library=self._library,
                settings=self._settings,
                engine=self._engine,
                secrets=secrets,
                trace=self._trace,
            )
            for name, (source, tool) in look.tools.items()
        }

    def refusal(self, name: str) -> SatchelError | None:
        """Why a tool that is known is not offered; None when nobody knows it."""
        look = self._library.tools()
        source = look.withheld(name)
        if source is None:
            return self._broken(look, name)
        skill = source.skill
        shown, whose = one_line(name, 64), one_line(skill.name, 100)
        exc = look.refused.get(skill.ref)
        if exc is not None:
            hint = Message(
                "Only a person can decide about that ({step}). Ask the user, and go on without it "
                "meanwhile",
                people="{step}",
                step=one_line(exc.hint, 300),
            )
            return Refused(one_line(exc.message, 600), hint)
        if skill.state == "untrusted":
            why = Message(
                "The tool `{tool}` belongs to the skill `{name}`, which came with `{where}` and is "
                "not trusted yet",
                tool=shown,
                name=whose,
                where=one_line(skill.origin.label, 200),
            )
            return Refused(why, ask_for_trust())
        if skill.state == "blocked":
            return Refused(*blocked_skill(skill))
        if skill.state == "shadowed":
            return NotFound(
                Message("The tool `{tool}` belongs to a skill that is shadowed", tool=shown),
                Message("Use those of `{name}`", name=one_line(skill.winner, 200)),
            )
        return None

    def _broken(self, look: ToolSnapshot, name: str) -> SatchelError | None:
        """A skill.yaml that cannot be used, in the folder whose tools would be called so."""
        import os

        for problem in look.problems:
            folder = os.path.basename(os.path.dirname(problem.path)).replace("-", "_")
            if problem.severity == "error" and (name == folder or name.startswith(f"{folder}_")):
                wrong, fix = said_of(problem)
                shown = one_line(name, 64)
                why = Message(
                    "The skill of the tool `{tool}` cannot be read: {problem}",
                    tool=shown,
                    problem=wrong,
                )
                step = "Go on without it. The user can repair it: {fix}"
                return SkillBroken(why, Message(step, people="{fix}", fix=fix))
        return None


def revision_of(library: Library, tool: str) -> str:
    """The revision of the skill whose program a tool is, so that an approval is for that one."""
    found = library.tools().tools.get(tool)
    if found is None:
        return ""
    source = found[0]
    return f"{source.digest}/{list_folder(source.skill.base_dir, '').revision}"
