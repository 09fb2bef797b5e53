"""How does a skill get to where another agent looks, and how does it leave again?

By a symbolic link where the agent is known to follow one, else by a copy. Nothing of anybody else's
is replaced or removed unasked (`link_book.py` knows what is ours), and what is replaced by request
is kept.

Only a skill that is offered here may be linked: another agent's model would read it unasked.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_really_inside
from satchel._language import say
from satchel.errors import Conflict, NotFound, Refused, SatchelError
from satchel.library.seal import clean_seal, tree_of
from satchel.library.supplier import folder_of
from satchel.store.agents import agent_named
from satchel.store.beside import holds_repository
from satchel.store.link_book import LinkBook, Record
from satchel.store.scope import check_id
from satchel.store.visibility import digest_of_folder, digest_of_skill, hindrance

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.store.agents import Agent
    from satchel.store.link_book import How

Action = Literal["made", "replaced", "refreshed", "kept", "seen", "removed", "refused"]


class Done(NamedTuple):
    """What became of one skill and one agent."""

    skill: str
    agent: str
    path: str
    action: Action
    how: How | Literal[""] = ""
    note: str = ""
    """Why nothing was done, or where to find what was replaced."""


class Links(LinkBook):
    """The links of a project, or of a user."""

    def __init__(
        self,
        settings: Settings,
        *,
        user: bool = False,
        check: Callable[[Skill], object] | None = None,
    ) -> None:
        """Links in the folders of a project, or with `user` in those of the user's home.

        Args:
            settings: Of the project.
            user: In the folders of the user's home.
            check: Raises when a skill is not what was approved, as `Library.seals.check` does.

        Raises:
            AccessDenied: a link in the project leads out of it.
            Refused: the user has no home.
        """
        super().__init__(settings, user=user)
        self._check = check

    def link(
        self, skill: Skill, agent: Agent, how: How | Literal[""] = "", *, replace: bool = False
    ) -> Done:
        """Put a skill where an agent looks.

        Args:
            skill: An offered skill.
            agent: For whom.
            how: A link or a copy; what suits the agent when empty.
            replace: Also replace what is not ours; it is kept in the work area.

        Raises:
            Refused: the skill is not offered here, or is not what was approved.
            Conflict: something that is not ours is in the way.
            AccessDenied: the agent's folder leads out of the project.
        """
        if skill.state != "active":
            raise Refused(
                say("`{name}` is not offered here, so no other agent gets it", name=skill.name),
                say("See why with `satchel why {name}`", name=skill.typed),
            )
        folder_of(skill)  # there must be one
        if self._check is not None:
            self._check(skill)
        target = self.target(skill, agent)
        if not how:
            seen = self._seen_in(skill, agent)
            if seen:
                return Done(skill.name, agent.id, seen, "seen")
            how = self._usual(skill, agent)
        if os.path.realpath(target) == os.path.realpath(skill.base_dir) and not os.path.islink(
            target
        ):
            return Done(skill.name, agent.id, target, "seen")
        with self.changing(target) as records:
            done = self._link(skill, agent, target, how, records, replace=replace)
        return self._told(done)

    def _told(self, done: Done) -> Done:
        """With what there was to say about the work area, once."""
        said, self.said = self.said, []
        return done._replace(note="; ".join(filter(None, (done.note, *said))))

    def _seen_in(self, skill: Skill, agent: Agent) -> str:
        """The skill's own folder, when the agent looks there and finds it."""
        parent, name = os.path.split(os.path.realpath(skill.base_dir))
        for place in agent.places(self.project, self.home):
            # For all projects means for all projects: the project's own folders do not count.
            if place.user is self.user and os.path.realpath(place.path) == parent:
                why = hindrance(agent, name, skill.name, skill.description, link=False)
                return skill.base_dir if why is None or not why.hides else ""
        return ""

    def _usual(self, skill: Skill, agent: Agent) -> How:
        if agent.links != "yes" or os.name == "nt":
            return "copy"
        if not skill.head.id:
            return "copy"  # its folder is the whole project
        # A link out of a project would lead nowhere on the next machine.
        near = self.user or is_really_inside(skill.base_dir, self.project)
        return "symlink" if near else "copy"

    def _link(
        self,
        skill: Skill,
        agent: Agent,
        target: str,
        how: How,
        records: dict[str, Record],
        *,
        replace: bool,
    ) -> Done:
        source = skill.base_dir
        path = os.path.relpath(target, self.base)
        tree = digest_of_skill(skill) if how == "copy" else ""
        made = Record(path, agent.id, skill.name, how, tree)
        known = records.get(path)
        there = os.path.lexists(target)
        action: Action = "made"
        note = ""
        ours = False
        if there:
            if self._is_as_wanted(target, source, how, tree):
                records[path] = made
                return Done(skill.name, agent.id, target, "kept", how)
            ours = known is not None and self.state(known, tree) != "edited"
            if not ours and not replace:
                raise self._in_the_way(path, known)
            action = "refreshed" if ours else "replaced"
        new = os.path.join(os.path.dirname(self.place(agent)), f".satchel-{os.urandom(6).hex()}")
        try:
            if how == "symlink":
                self._make_link(source, new, target)
            else:
                _copy(skill, new, tree)
            if there:
                note = self._put_away(target, keep=not ours)
            os.rename(new, target)
        except OSError as exc:
            _remove(new)
            reason = exc.strerror or exc
            raise Refused(
                say("`{path}` cannot be written: {reason}", path=target, reason=reason),
                say("Try `--copy`") if how == "symlink" else say("Check the permissions"),
            ) from exc
        except BaseException:
            _remove(new)
            raise
        records[path] = made
        return Done(skill.name, agent.id, target, action, how, note)

    def _is_as_wanted(self, target: str, source: str, how: How, tree: str) -> bool:
        if how == "symlink":
            return os.path.islink(target) and os.path.realpath(target) == os.path.realpath(source)
        return not os.path.islink(target) and digest_of_folder(target) == tree

    def _make_link(self, source: str, new: str, target: str) -> None:
        near = not self.user and is_really_inside(source, self.project)
        real = os.path.realpath(os.path.dirname(target))
        leads = os.path.relpath(os.path.realpath(source), real) if near else source
        os.symlink(leads, new, target_is_directory=True)

    def _put_away(self, target: str, *, keep: bool) -> str:
        """Clear the way; what is not ours is kept, and where is returned.

        A repository is never ours: no digest tells of it.
        """
        import time

        if not keep and not holds_repository(target):
            away = os.path.join(
                os.path.dirname(os.path.dirname(target)), f".satchel-{os.urandom(6).hex()}"
            )
            os.rename(target, away)
            _remove(away)
            return ""
        import shutil

        # A new folder with a name that nobody guesses: nothing can wait for us there.
        moment = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}"
        folder = os.path.join(self.scope.work, "replaced", moment)
        os.makedirs(folder)
        away = os.path.join(folder, os.path.basename(target))
        shutil.move(target, away)
        return away

    def unlink(self, name: str, agent: Agent, source: str = "", *, replace: bool = False) -> Done:
        """Take a skill away from where an agent looks, if we put it there.

        Args:
            name: The skill's name, or that of its folder there.
            agent: From whom.
            source: The skill's own folder, where it is known.
            replace: Also take away what was changed there; it is kept in the work area.

        Raises:
            NotFound: nothing of that name is there.
            Conflict: it is not ours, or was changed since.
        """
        target = os.path.join(self.place(agent), check_id(name))
        path = os.path.relpath(target, self.base)
        if not os.path.lexists(target) and path not in self.records():
            raise NotFound(
                say("`{name}` is not linked for {agent}", name=name, agent=agent.name),
                say("Run `satchel agents` to see what is"),
            )
        with self.changing(target) as records:
            known = records.pop(path, None)
            if not os.path.lexists(target):  # somebody else removed it
                done = Done(name, agent.id, target, "removed", known.how if known else "")
                return self._told(done)
            ours = known is not None and self.state(known) != "edited"
            if not ours and source and os.path.islink(target):
                ours = os.path.realpath(target) == os.path.realpath(source)
            if os.path.realpath(source or os.sep) == target:
                ours = False  # that is the skill itself
            if not ours and not (replace and known is not None):
                raise self._in_the_way(path, known)
            note = self._put_away(target, keep=not ours)
        done = Done(name, agent.id, target, "removed", known.how if known else "symlink", note)
        return self._told(done)

    def refresh(self, find: Callable[[str], Skill | None]) -> list[Done]:
        """Bring every copy up to date that nobody changed; says what was left alone and why.

        Args:
            find: The offered skill of a name.
        """
        done: list[Done] = []
        for path, one in sorted(self.records().items()):
            skill = find(one.skill)
            full = self.full(path)
            agent = agent_named(one.agent)
            if skill is None:
                note = say("the skill is not offered here any more")
                done.append(Done(one.skill, one.agent, full, "refused", one.how, note))
                continue
            state = self.state(one, digest_of_skill(skill))
            if state == "edited":
                note = say("it was changed there")
                done.append(Done(one.skill, one.agent, full, "refused", one.how, note))
            elif state == "current":
                done.append(Done(one.skill, one.agent, full, "kept", one.how))
            else:
                try:
                    done.append(self.link(skill, agent, one.how))
                except SatchelError as exc:  # one must not stop the others
                    note = exc.message
                    done.append(Done(one.skill, one.agent, full, "refused", one.how, note))
        return done

    def _in_the_way(self, path: str, known: Record | None) -> Conflict:
        shown = f"~/{path}" if self.user else path
        if known is not None:
            return Conflict(
                say("`{path}` was changed since Satchel put it there", path=shown),
                say("Take the changes over into the skill, or give `--yes`: the old one is kept"),
            )
        return Conflict(
            say("`{path}` is there already, and Satchel did not put it there", path=shown),
            say("Look at it; `--yes` replaces it and keeps the old one"),
        )


def _copy(skill: Skill, new: str, tree: str) -> None:
    """Copy a skill's files, and make sure that they are those that were looked at.

    What running the skill left in it stays behind, and so does a project around it.

    Raises:
        Conflict: the skill changed meanwhile.
    """
    files = tree_of(skill)
    wanted = clean_seal(files).files
    os.mkdir(new)
    for file in files.files:
        if file.path not in wanted:
            continue
        path = os.path.join(new, file.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if file.mode == "link":
            os.symlink(os.fsdecode(b"".join(files.chunks(file.path))), path)
            continue
        with open(path, "xb") as stream:
            stream.writelines(files.chunks(file.path))
        os.chmod(path, 0o755 if file.mode == "program" else 0o644)
    if not tree or digest_of_folder(new) != tree:
        raise Conflict(
            say("`{path}` changed while it was copied", path=skill.base_dir), say("Try again")
        )


def _remove(path: str) -> None:
    import shutil

    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
