"""What did Satchel put into the folders of other agents, and how does it stand now?

`links.json` in the work area says what was put where. A link is ours when it is in the record, a
copy while it has the digest it was made with; everything else is somebody else's. The record is
sealed (`library/marks.py`), so that one which came with a project says nothing.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._fs import is_really_inside, read_plain, write_atomic
from satchel._language import say
from satchel.errors import AccessDenied, Refused, SatchelError
from satchel.library.marks import LINKS, SEAL, is_sealed, own_key, seal_of
from satchel.skill.interpret import NAME
from satchel.store.agents import agent_named, below_home, user_home
from satchel.store.recovery import writing
from satchel.store.scope import check_id, scope_of
from satchel.store.visibility import digest_of_folder

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.store.agents import Agent

How = Literal["symlink", "copy"]
_MAX_FILE = 64 << 20


class Record(NamedTuple):
    """Something that we put into an agent's folder."""

    path: str
    """Relative to the project, or to the user's home."""
    agent: str
    skill: str
    how: How
    tree: str = ""
    """Digest of a copy as it was made."""


class LinkBook:
    """What was put into the agents' folders of a project, or of a user's home."""

    def __init__(self, settings: Settings, *, user: bool = False) -> None:
        """Links in the folders of a project, or with `user` in those of the user's home.

        Raises:
            AccessDenied: a link in the project leads out of it.
            Refused: the user has no home.
        """
        self.user = user
        self.project = settings.project
        self.home = user_home()
        if user and not self.home:
            raise Refused(say("There is no home folder"), say("Set `HOME`"))
        self.base = self.home if user else settings.project
        self.scope = scope_of(settings, "global" if user else "project")
        self._file = os.path.join(self.scope.work, "links.json")
        self.said: list[str] = []
        """What there was to say about the work area: somebody else's was set aside."""

    def records(self) -> dict[str, Record]:
        """What we put where, by path.

        A damaged record knows nothing: then everything is somebody else's, and is left alone.
        """
        import json

        try:
            table: dict[str, Any] = json.loads(read_plain(self._file, _MAX_FILE))
            marks, work = self.scope.marks, self.scope.work
            if marks and not is_sealed(table, marks, work, LINKS):
                return {}
            rows: dict[str, Any] = table["links"]
            found = {path: Record(path, **row) for path, row in rows.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}
        # A project may bring a record of its own: only paths that we would choose count.
        return {path: one for path, one in found.items() if self._is_sane(one)}

    def _is_sane(self, one: Record) -> bool:
        try:
            place = self.place(agent_named(str(one.agent)))
            name = check_id(os.path.basename(str(one.path)))
        except SatchelError:
            return False
        return self.full(one.path) == os.path.join(place, name)

    def full(self, path: str) -> str:
        """The whole path of a record; `.config` may lie outside the home."""
        return os.path.normpath(os.path.join(self.base, path))

    def place(self, agent: Agent) -> str:
        """The folder that skills for an agent are put into."""
        if self.user:
            return below_home(agent.user[0], self.home)
        return os.path.join(self.project, agent.project[0])

    def target(self, skill: Skill, agent: Agent) -> str:
        """Where a skill would be for an agent: in a folder that is called as it is."""
        fits = NAME.fullmatch(skill.name)
        name = skill.name if fits else os.path.basename(skill.base_dir)
        return os.path.join(self.place(agent), check_id(name))

    def state(self, record: Record, tree: str = "") -> Literal["current", "old", "edited", "gone"]:
        """How a copy stands to the skill it was made from; a link is always current.

        Args:
            record: What was put there.
            tree: The skill's digest now, by `digest_of_skill`.
        """
        path = self.full(record.path)
        if not os.path.lexists(path):
            return "gone"
        if record.how == "symlink":
            return "current" if os.path.islink(path) else "edited"
        if os.path.islink(path) or digest_of_folder(path) != record.tree:
            return "edited"
        return "current" if tree == record.tree else "old"

    @contextmanager
    def changing(self, target: str) -> Generator[dict[str, Record]]:
        """Hold the writers' lock; what is in the record afterwards is kept."""
        import json

        place = os.path.dirname(target)
        if not self.user and not is_really_inside(place, self.project):
            raise AccessDenied(
                say("`{path}` leads outside the project", path=place),
                say("Replace the link by a folder"),
            )
        try:
            os.makedirs(place, exist_ok=True)
            with writing(self.scope) as said:
                self.said += (text for text in said if text not in self.said)
                records = self.records()
                before = dict(records)
                yield records
                if records != before:
                    rows = {
                        path: {key: value for key, value in one._asdict().items() if key != "path"}
                        for path, one in sorted(records.items())
                    }
                    table: dict[str, Any] = {"version": 1, "links": rows}
                    if self.scope.marks:
                        key, _ = own_key(self.scope.marks)
                        table[SEAL] = seal_of(table, key, self.scope.work, LINKS)
                    write_atomic(self._file, (json.dumps(table, indent=1) + "\n").encode())
        except OSError as exc:
            raise Refused(
                say("`{path}` cannot be written: {reason}", path=place, reason=exc.strerror or exc),
                say("Check the permissions"),
            ) from exc
