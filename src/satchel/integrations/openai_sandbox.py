"""How does an OpenAI agent in a sandbox get skills? As a source of the SDK's own capability.

    Skills(lazy_from=SkillSource(Satchel.for_project(".")))  # from agents.sandbox.capabilities

Satchel says which skills there are and reads their frontmatter. What a model loads is checked as
always (trust, lockfile, approval), and then its files are written into the sandbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel._optional import require
from satchel.errors import Changed, Refused, SatchelError
from satchel.tools.frame import one_line, size_of

try:
    from agents.sandbox.capabilities import LazySkillSource, SkillMetadata
    from pydantic import PrivateAttr
except ImportError:
    require("agents", "openai-agents")
    raise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
    from agents.sandbox.types import User
    from agents.sandbox.workspace_paths import SandboxPathGrant

    from satchel.facade import Satchel
    from satchel.library import Library
    from satchel.skill.model import Skill

__all__ = ["SkillSource"]

_FOLDER = re.compile(r"[^\W_][\w.-]*")
"""A name that can be a folder's: a stranger wrote it."""
MOST_FILES = 2_000
MOST_BYTES = 50_000_000
"""What a skill may have to be written into a sandbox."""


class SkillSource(LazySkillSource):
    """Skills of a project, for agents in a sandbox."""

    _satchel: Any = PrivateAttr()  # private: the SDK copies fields, and a library is not copied

    def __init__(self, satchel: Satchel) -> None:
        """Take the skills of a project."""
        super().__init__()
        self._satchel = satchel

    def list_skill_metadata(
        self, *, skills_path: str, source_grants: tuple[SandboxPathGrant, ...] = ()
    ) -> list[SkillMetadata]:
        """The skills a model may load, as they are on disk now."""
        del source_grants  # nothing is read on the host but what Satchel reads
        self._satchel.refresh()
        skills: list[Skill] = [one for one in self._satchel.list_skills() if one.for_model]
        odd = [one.name for one in skills if not _FOLDER.fullmatch(one.name)]
        if odd:
            why = "the name cannot be a folder's"
            self._satchel.trace.record("refused", odd, tool="load_skill", reason=why)
        return [
            SkillMetadata(one.name, one_line(one.description), Path(skills_path) / one.name)
            for one in skills
            if one.name not in odd
        ]

    async def load_skill(
        self,
        *,
        skill_name: str,
        session: BaseSandboxSession,
        skills_path: str,
        user: str | User | None = None,
    ) -> dict[str, str]:
        """Check a skill and write its files into the sandbox; or say why not.

        The SDK's own source raises for a name that is not there, and the whole run ends with it.
        """
        # One source serves many conversations, and what is forbidden in one is nothing to another.
        reply = await self._satchel.session().acall("Skill", {"name": skill_name})
        if reply.error is not None or not _FOLDER.fullmatch(reply.data["name"]):
            return {"status": "failed", "message": reply.text, "path": skills_path}
        name = reply.data["name"]
        target = PurePosixPath(skills_path) / name
        root = Path(session.state.manifest.root) / target
        try:
            files = await asyncio.to_thread(_files, self._satchel.library, name)
        except (OSError, SatchelError) as exc:
            message = exc.message if isinstance(exc, SatchelError) else str(exc)
            self._satchel.trace.record("refused", (name,), tool="load_skill", reason=message)
            return {"status": "failed", "message": one_line(message, 600), "path": skills_path}
        for place, data in files:
            await session.mkdir((root / place).parent, parents=True, user=user)
            await session.write(root / place, io.BytesIO(data), user=user)
        return {"status": "loaded", "skill_name": name, "path": str(target)}


def _files(library: Library, name: str) -> list[tuple[str, bytes]]:
    """Every file of a skill, as it was locked or approved.

    Raises:
        SatchelError: it changed this very moment, or is too large.
    """
    skill = library.snapshot().get(name)
    if skill is None:
        raise Changed(say("The skill `{name}` went this very moment", name=name))
    sealed = library.seals.check(skill)
    supply = library.supply_of(skill)
    if supply is not None:
        served = supply.files_of(skill)
        return _within((path, supply.bring(skill, path)) for path in served)
    found = _within(_read(skill.base_dir))
    if sealed is None:
        return found
    kept: list[tuple[str, bytes]] = []
    for place, data in found:
        real = os.path.realpath(os.path.join(skill.base_dir, place))
        if sealed.holds(real, hashlib.sha256(data).hexdigest()):
            kept.append((place, data))
        elif os.path.relpath(real, sealed.real).replace(os.sep, "/") in sealed.seal.files:
            raise Changed(say("`{path}` is not what was approved", path=one_line(place, 200)))
    left_out = sorted({place for place, _ in found} - {place for place, _ in kept})
    if left_out:
        why = f"no part of what was approved: {one_line(', '.join(left_out), 300)}"
        library.trace.record("refused", (name,), tool="load_skill", reason=why)
    return kept


def _within(files: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The files, unless they are too many."""
    found: list[tuple[str, bytes]] = []
    size = 0
    for place, data in files:
        size += len(data)
        found.append((place, data))
        if len(found) > MOST_FILES or size > MOST_BYTES:
            raise Refused(
                say(
                    "The skill is too large for a sandbox: at most {files} files and {size}",
                    files=f"{MOST_FILES:,}",
                    size=size_of(MOST_BYTES),
                )
            )
    return found


def _read(folder: str) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder. Links are not followed: they may lead out of it."""
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(where, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    yield os.path.relpath(path, folder), file.read(MOST_BYTES + 1)
