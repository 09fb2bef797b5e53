"""One object for people who want one object. It composes the parts and has no logic of its own.

satchel = Satchel.for_project(".")
satchel.catalogue().text                               # what the model is told
satchel.tools().call("Skill", {"name": "code-review"}) # what it calls
print(satchel.why("code-review"))                      # what became of it
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from satchel._language import say
from satchel.errors import AccessDenied, InvalidInput, NotFound, Refused
from satchel.library import Bounds, Filter, Index, Library, TrustBook, default_locations
from satchel.library.locations import user_folder
from satchel.settings import SETTINGS, load_settings
from satchel.skill.problems import Problem
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from satchel.catalogue import Budget, Catalogue
    from satchel.detect import Answer, Detector, Match, Place
    from satchel.detect.base import Prepared
    from satchel.library import Snapshot
    from satchel.library.seal import Taken
    from satchel.library.tool_snapshot import ToolSnapshot
    from satchel.security import Allowance
    from satchel.settings import Form, Settings
    from satchel.skill.model import Skill
    from satchel.store.scope import Scope
    from satchel.store.store import Store
    from satchel.tools import Toolset
    from satchel.tools.engine import Engine
    from satchel.tools.shortlisting import Shortlist, Shortlister
    from satchel.why import Story

LARGE = 2_000
"""Skills from which on a search is worth an index and an engine made for it."""
NEARLY = 0.95
"""The share of them that an index holds when it is as good as complete."""
NEAR = 0.8
"""How alike two names are, one of which may be a slip for the other."""
VARIABLES = (
    "SATCHEL_ESCAPE_CANARY", "SATCHEL_GIT_PASSWORD", "SATCHEL_GIT_USER",
    "SATCHEL_HOME", "SATCHEL_LANG", "SATCHEL_SCRATCH", "SATCHEL_SKILL_DIR", "SATCHEL_VECTORS_KEY",
    "SATCHEL_WORKSPACE",
)  # fmt: skip
"""Variables of ours that are no settings."""
FIRST = "hello-skill"
"""What `init` writes when it is given no name."""


class Approved(NamedTuple):
    """What is trusted now."""

    folder: str
    """The skill's folder, or the project's when there were several."""
    skills: tuple[Skill, ...]
    refused: tuple[Problem, ...] = ()
    """Skills that cannot be approved as they are, and why."""


class Satchel:
    """The skills of a project, ready for an agent."""

    def __init__(
        self,
        library: Library,
        settings: Settings,
        *,
        detector: Detector | None = None,
        engine: Engine | None = None,
        explicit: bool = True,
    ) -> None:
        """Compose parts made elsewhere; `for_project` makes them all.

        Args:
            library: Which skills there are.
            settings: What was set.
            detector: Who chooses; the one by words and vectors when None.
            engine: Who runs the programs of tool skills.
            explicit: Whether a skill that a request calls by name wins over a detector of your
                own. Ours decide that themselves.
        """
        self._engine = engine
        self.library = library
        self.settings = settings
        self.trace = library.trace
        self._given = detector
        self._explicit = explicit
        self._detector: Detector | None = None
        self._wider: dict[int, Detector] = {}
        self.patience = 0.0
        """Seconds that a choice may wait for an index that is being built. A command that ends
        after it may have some; an agent has none."""
        self._tools: Toolset | None = None
        self._shortlister: Shortlister | None = None
        self._catalogues: dict[tuple[Any, ...], Catalogue] = {}
        self._seen: Snapshot | None = None

    @classmethod
    def for_project(
        cls,
        path: str | os.PathLike[str] = ".",
        *,
        detector: Detector | None = None,
        explicit: bool = True,
        **settings: Any,
    ) -> Satchel:
        """The skills an agent in this folder has.

        Args:
            path: The project's folder.
            detector: Who chooses; the one by words and vectors when None.
            explicit: Whether a skill that a request calls by name wins over that detector.
            settings: Any setting by name (`budget=8_000`, `trust="all"`); they win over files and
                environment.

        Raises:
            SettingsError: a setting cannot be used.
        """
        chosen = load_settings(os.fspath(path), **settings)
        folder = chosen.paths.state
        where = folder or None if chosen.trace == "file" else None
        trace = Trace(where, chosen.project, enabled=chosen.trace != "off")
        remarks = [
            Problem(code, file, values={"name": value, "reason": value})
            for code, file, value in chosen.remarks
        ]
        if not os.path.isdir(chosen.project):
            values = {"reason": "there is no such folder"}
            remarks.append(Problem("unreadable", chosen.project, values=values))
        library = Library(
            default_locations(chosen),
            bounds=Bounds(chosen.max_depth, chosen.max_folders),
            wanted=Filter(chosen.include, chosen.exclude, chosen.tags),
            trust=TrustBook(os.path.join(folder, "trust.json") if folder else None),
            index=Index(chosen.paths.cache) if chosen.use_index and chosen.paths.cache else None,
            trace=trace,
            problems=remarks,
        )
        if chosen.create_missing:
            os.makedirs(user_folder(chosen), exist_ok=True)
        return cls(library, chosen, detector=detector, explicit=explicit)

    def refresh(self) -> Snapshot:
        """Look for changes on disk; reads only what changed."""
        return self.library.refresh()

    def list_skills(self, *, hidden: bool = False) -> list[Skill]:
        """The offered skills; with `hidden` also the shadowed, untrusted and excluded ones."""
        return self.library.list_skills(hidden=hidden)

    def get_skill(self, name: str) -> Skill | None:
        """An offered skill by name, id or path."""
        return self.library.get_skill(name)

    def load_content(self, name: str) -> str:
        """A skill's body, read now.

        Raises:
            NotFound: there is no such skill.
            Changed: it is not what was locked or approved.
        """
        return self.library.load_content(name)

    get_skill_content = load_content

    def get_descriptions(self) -> str:
        """The catalogue's text at the configured budget."""
        return self.catalogue().text

    def catalogue(self, budget: int | Budget | None = None, form: Form | None = None) -> Catalogue:
        """What the model is told, with an account of what was listed, shortened and left out."""
        from satchel.tools.definitions import tell_offer

        catalogue = self.preview(budget, form)
        tell_offer(self.trace, catalogue)
        return catalogue

    def preview(self, budget: int | Budget | None = None, form: Form | None = None) -> Catalogue:
        """The same catalogue for a person to look at: nothing is recorded as offered."""
        from satchel.catalogue import build_catalogue

        fresh = self.settings.refresh_on_call
        snapshot = self.library.refresh() if fresh else self.library.snapshot()
        if snapshot is not self._seen:
            self._seen = snapshot
            self._catalogues.clear()
        chosen = self.settings
        key = (chosen.budget if budget is None else budget, form or chosen.form)
        if key not in self._catalogues:
            self._catalogues[key] = build_catalogue(
                snapshot.skills,
                budget=key[0],
                form=key[1],
                pin=chosen.pin,
                withheld=snapshot.withheld,
                get=snapshot.get,
            )
        return self._catalogues[key]

    def fill(self, template: str) -> str:
        """Put the catalogue in place of `{{skills}}`."""
        from satchel.catalogue import fill_template

        return fill_template(template, self.catalogue())

    def tools(self) -> Toolset:
        """What an agent may call: Skill, ReadFile, SkillSearch, and the tools of tool skills."""
        from satchel.tools import make_toolset

        if self._tools is None:
            self._tools = make_toolset(
                self.library,
                self.settings,
                trace=self.trace,
                detector=self.detector,
                engine=self.engine,
            )
        return self._tools

    @property
    def engine(self) -> Engine:
        """What runs the programs of tool skills; it starts nothing before the first one is called.

        Its `progress`, a function that takes a line, is told what a first use builds.
        """
        if self._engine is None:
            from satchel.tools.engine import LocalEngine

            self._engine = LocalEngine(self.settings, self.trace)
        return self._engine

    def close(self) -> None:
        """End the processes that are kept for tool skills. They end with this process anyway."""
        if self._engine is not None:
            self._engine.close()

    def search(self, words: str, limit: int = 10) -> list[Match]:
        """Skills that fit some words, best first, whether they fit well or not."""
        from satchel.tools.selecting import search

        look = self.library.snapshot()
        return search(self.detector, words, look.skills, limit, look.get(words.strip()))

    def which(
        self,
        goal: str,
        *,
        limit: int | None = None,
        use: Iterable[str | Skill] = (),
        never: Iterable[str | Skill] = (),
        record: bool = True,
    ) -> Answer:
        """The skills for one request and everything about the choice. It is true when one fits.

        Args:
            goal: What somebody wants.
            limit: How many at most; the setting `shortlist` when None. A detector of your own may
                choose fewer.
            use: Choose these, by name, whatever the request says.
            never: Do not choose these, even if the request calls them by name.
            record: Whether the trace says that these were selected; False only looks.

        Raises:
            InvalidInput: a skill is both in `use` and in `never`, the limit is below 1, or a
                detector of yours returned something else than matches.
        """
        from satchel.tools.selecting import select

        detector = self.detector if limit is None else self._detector_for(limit)
        if use or never:
            from satchel.detect.given import overruled

            detector = overruled(detector, use, never)
        snapshot = self.library.snapshot()
        trace = self.trace if record else None
        answer = select(detector, goal, snapshot.for_model, trace, limit=limit)
        if answer.notes and snapshot.withheld:
            from satchel.detect.explicit import set_right

            # A skill that only people may load is not missing.
            told = set_right(answer.notes, snapshot.for_model, snapshot.skills)
            answer = answer._replace(notes=told)
        return answer

    def _detector_for(self, limit: int) -> Detector:
        """Who can choose that many: ours is told how many when it is made."""
        if limit < 1:
            raise InvalidInput(
                say("`limit` is {value}", value=limit), say("Give a number that is at least 1")
            )
        if self._given is not None or limit <= (self.settings.shortlist or 3):
            return self.detector
        if limit not in self._wider:
            from satchel.detect.default import default_detector

            wider = self.settings._replace(shortlist=limit)
            self._wider[limit] = default_detector(wider, self.patience)
        return self._wider[limit]

    def shortlist(self, goal: str, form: Form | None = None, *, record: bool = True) -> Shortlist:
        """The skills that may fit one request, as a short block to put behind it.

        The catalogue does not change with the request, so a provider's prompt cache keeps it; this
        block is for the end of the prompt, which is new in every turn. It never raises: whatever
        goes wrong, its text is empty and the trace says why.

        Args:
            goal: What the user wrote.
            form: How the block is written; as the catalogue when None.
            record: Whether the trace says that these were selected; False only looks.
        """
        if self._shortlister is None:
            from satchel.tools.shortlisting import Shortlister

            self._shortlister = Shortlister(
                self.library, self.settings, lambda: self.detector, self.trace
            )
        return self._shortlister.make(goal, form=form, record=record)

    @overload
    def with_shortlist(self, message: str) -> str: ...
    @overload
    def with_shortlist(self, message: list[dict[str, Any]]) -> list[dict[str, Any]]: ...
    def with_shortlist(self, message: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """The user's message with the shortlist behind it; the message alone when nothing fits.

        Send the result and keep it in the conversation as it was sent: a message that is made anew
        in a later turn may differ, and what comes after it is no longer in the provider's cache.

        Args:
            message: A text, or a list of content blocks as providers have them: then one more
                block of text is put at its end, in a new list.

        Raises:
            InvalidInput: it is neither.
        """
        from satchel.tools.shortlisting import put_behind

        return put_behind(message, self.shortlist)

    def place(self, name: str, goal: str) -> Place:
        """Where one skill stands for a request: its rank, what each field gave, what beat it.

        A skill that is not offered is placed among the offered ones as if it were.

        Raises:
            NotFound: there is no such skill.
        """
        from satchel.detect.placing import place

        skill = self._meant(name)
        return place(self.detector, goal, self.library.snapshot().for_model, skill)

    def prepare(
        self, progress: Callable[[int], None] | None = None, *, rebuild: bool = False
    ) -> Prepared | None:
        """Build the search index, or bring it up to date, and wait for it.

        Args:
            progress: Told how many skills were taken so far.
            rebuild: Throw away what is there first.

        Returns:
            What there is now; None when the detector keeps no index.
        """
        from satchel.detect.abilities import ability

        make = ability(self.detector, "prepare")
        if make is None:
            return None
        skills = self.library.snapshot().skills
        return make(skills, progress=progress, rebuild=rebuild)

    @property
    def detector(self) -> Detector:
        """What picks skills: the one given, or the one by words and vectors.

        Raises:
            InvalidInput: the one given is no detector.
        """
        if self._detector is None and self._given is None:
            from satchel.detect.default import default_detector

            self._detector = default_detector(self.settings, self.patience)
        elif self._detector is None and self._given is not None:
            from satchel.detect.given import given

            self._detector = given(self._given, explicit=self._explicit)
        assert self._detector is not None  # noqa: S101 - made just now
        return self._detector

    def why(self, name: str, budget: int | Budget | None = None) -> Story:
        """The whole story of one skill."""
        from satchel.why import tell_why

        tools = self.library.tools(refresh=True)
        snapshot = self.library.snapshot()
        account = self.preview(budget).account
        way = self.how_to_ask() if self.settings.trust == "none" else ""
        return tell_why(
            name,
            snapshot,
            account,
            self.trace,
            way_to_ask=way,
            seals=self.library.seals,
            tools=tools,
            taken=[
                *(one for one in tools.problems if one.code == "tool-name-taken"),
                *self._names_taken(tools),
            ],
        )

    def problems(
        self, *, deep: bool = False, progress: Iterable[Any] | None = None
    ) -> list[Problem]:
        """Everything that is wrong or odd in any location.

        Args:
            deep: Also read every skill whole and check it as an author would want.
            progress: Wraps the skills to be read, to show how far it is.
        """
        from satchel.tools.packaged import packaged_problems

        tools = self.library.tools(refresh=True)
        snapshot = self.library.snapshot()
        found = [*snapshot.problems, *tools.problems, *packaged_problems(self.settings)]
        found += self._names_taken(tools)
        asking = {**snapshot.asking, **tools.asking}
        if self.settings.trust == "none":  # nobody can be asked, whatever was approved
            found = [one for one in found if one not in asking.values()]
        skills = self.library.every()
        if deep:
            from satchel.errors import SatchelError
            from satchel.skill.validate import check_skill

            for lock in dict.fromkeys(place.lock for place in self.library.locations):
                problem = self.library.seals.lock_problem(lock, deep=True) if lock else None
                if problem is not None and problem not in found:
                    found.append(problem)
            found += self._search_problems()
            found += self._setting_problems()
            for skill in progress if progress is not None else skills:
                try:
                    found += check_skill(skill)
                except SatchelError as exc:
                    values = {"reason": exc.message}
                    found.append(Problem("unreadable", skill.path, values=values))
        else:
            for skill in skills:
                found += skill.problems
        off = self.settings.trust == "none"
        said = {*asking, *tools.refused}
        for skill in skills:
            if skill.state == "shadowed":
                values = {"name": skill.name, "winner": skill.winner}
                found.append(Problem("shadowed", skill.path, values=values))
            elif skill.state == "untrusted" and (off or skill.ref not in said):
                values = {"name": skill.typed, **(self._where_trust_is_set() if off else {})}
                found.append(Problem("trust-off" if off else "untrusted", skill.path, 0, values))
        return found

    def _setting_problems(self) -> Iterator[Problem]:
        """What is set and does nothing: a model that cannot be opened, a variable with a slip."""
        from difflib import get_close_matches

        from satchel.errors import SatchelError

        if self.settings.vectors:
            from satchel.detect.vectors.open import open_embedder

            try:
                open_embedder(self.settings.vectors, cache=self.settings.paths.cache)
            except (SatchelError, OSError, ValueError) as exc:
                reason = " ".join(str(getattr(exc, "message", exc)).split())
                values = {"name": self.settings.vectors, "reason": reason}
                yield Problem("vectors-unusable", self.settings.paths.config, values=values)
        known = {setting.env for setting in SETTINGS}.union(VARIABLES)
        for name in sorted(os.environ):
            if not name.startswith("SATCHEL_") or name in known:
                continue
            near = get_close_matches(name, sorted(known), n=1, cutoff=NEAR)
            values = {"name": name, "near": near[0]} if near else {"name": name}
            code = "variable-near" if near else "variable-unknown"
            yield Problem(code, self.settings.paths.config, values=values)

    def _search_problems(self) -> Iterator[Problem]:
        """What makes the search of a large library slower than it need be."""
        count = len(self.library.snapshot().skills)
        if count <= LARGE:
            return
        from importlib.util import find_spec

        values = {"count": f"{count:,}"}
        if find_spec("tantivy") is None:
            yield Problem("search-plain", self.settings.paths.cache, values=values)
            return
        from satchel.detect.abilities import ability

        indexed = ability(self.detector, "indexed")
        held = count if indexed is None else int(indexed())
        if held < count * NEARLY:
            values["held"] = f"{held:,}"
            yield Problem("search-unindexed", self.settings.paths.cache, values=values)

    def _names_taken(self, tools: ToolSnapshot) -> Iterator[Problem]:
        """Tools of tool skills that an installed package has too: the package's is used."""
        if not tools.tools:
            return
        from satchel.tools.packaged import packaged_tools

        for tool in packaged_tools(self.settings):
            source = tools.tools.get(tool.name)
            if source is not None:
                path = os.path.join(source[0].skill.base_dir, "skill.yaml")
                winner = str(getattr(tool, "owner", ""))
                switch = f"SKILL_{winner.upper()}_ENABLED"
                values = {"name": tool.name, "winner": winner, "switch": switch}
                yield Problem("tool-name-packaged", path, source[1].line, values)

    def how_to_ask(self) -> str:
        """How to be asked about skills of a project, where the setting `trust` is `none`."""
        return Problem("trust-off", values={"name": "", **self._where_trust_is_set()}).fix

    def _where_trust_is_set(self) -> dict[str, str]:
        setting = next(item for item in SETTINGS if item.name == "trust")
        if os.environ.get(setting.env):
            return {"key": setting.env, "where": "the environment"}
        return {"key": setting.name, "where": f"`{self.settings.paths.config}`"}

    def trust(self, skill: Skill | str | None = None, *, always: bool = False) -> Approved:
        """Offer the project's skills as they are now, or one of them. A change asks again.

        Args:
            skill: The very skill that was looked at; a text is looked up by name, id or path.
                None means every skill that waits.
            always: Trust the folder, whatever it will hold: the project's, or the skill's.

        Raises:
            NotFound: there is no such skill.
            Refused: the approval cannot be kept, the skill cannot be bound to its content, or the
                setting `trust` is `none`.
        """
        self._may_trust()
        if skill is not None and not always:
            return self.approve([self.library.seals.take(self._meant(skill))])
        self.library.tools(refresh=True)
        waiting = self.library.waiting()
        if always:
            one = self._meant(skill) if skill is not None else None
            folder = one.base_dir if one is not None else self.settings.project
            self.library.trust.approve(folder, "own" if one is not None else "project")
            self.library.refresh()
            return Approved(folder, tuple(waiting) if one is None else (one,))
        taken, refused = self.take(waiting)
        return self.approve(taken)._replace(folder=self.settings.project, refused=tuple(refused))

    def take(self, skills: Iterable[Skill]) -> tuple[list[Taken], list[Problem]]:
        """What skills are at this moment, for `approve`; also those that cannot be approved so."""
        from satchel.errors import SatchelError

        taken: list[Taken] = []
        refused: list[Problem] = []
        for skill in skills:
            try:
                taken.append(self.library.seals.take(skill))
            except SatchelError as exc:
                values = {"name": skill.typed, "reason": exc.message.partition(": ")[2]}
                refused.append(Problem("not-approvable", skill.path, values=values))
        return taken, refused

    def approve(self, taken: Sequence[Taken]) -> Approved:
        """Trust skills as they were when they were taken, whatever happened since.

        Raises:
            Refused: the approvals cannot be kept, or the setting `trust` is `none`.
        """
        self._may_trust()
        self.library.trust.approve_all(
            (one.skill.base_dir, "skill", one.seal, one.head) for one in taken
        )
        self.library.refresh()
        folder = taken[0].skill.base_dir if len(taken) == 1 else self.settings.project
        return Approved(folder, tuple(one.skill for one in taken))

    def _may_trust(self) -> None:
        if self.settings.trust == "none":
            raise Refused(
                say("The setting `trust` is `none`: skills of a project are never offered"),
                self.how_to_ask(),
            )

    def untrust(self, skill: Skill | str | None = None) -> bool:
        """Take trust back; True when there was any."""
        folder = self._meant(skill).base_dir if skill is not None else self.settings.project
        revoked = self.library.trust.revoke(folder)
        self.library.refresh()
        return revoked

    def _meant(self, skill: Skill | str) -> Skill:
        if isinstance(skill, str):
            self.library.tools(refresh=True)
            found = self.library.find(skill)
            if not found:
                raise NotFound(
                    say("There is no skill `{name}`", name=skill),
                    say("Run `satchel list --all` to see what there is"),
                )
            skill = found[0]
        return skill

    def store(self, scope: Literal["project", "global"] = "project") -> Store:
        """Add, import, update and remove skills of this project, or of the user.

        Raises:
            AccessDenied: the project's folder for skills leads out of the project.
        """
        from satchel.store.scope import scope_of
        from satchel.store.signing import signer_of
        from satchel.store.store import Store

        chosen = scope_of(self.settings, scope)
        return Store(
            chosen,
            trust=self.library.trust,
            library=self.library,
            allow=self._allowances(chosen),
            signer=signer_of,
        )

    def _allowances(self, scope: Scope) -> list[Allowance]:
        """Findings that were accepted, by the user or beside the lockfile."""
        from satchel.security.allow import FILE, gather

        config = self.settings.paths.config
        own = os.path.join(os.path.dirname(config), FILE) if config else ""
        near = os.path.join(scope.root, FILE)
        return gather(own, near, [] if scope.name == "project" else [near])[0]

    def init(self, name: str = FIRST) -> str:
        """Write a first skill into the user's folder and trust it; returns its SKILL.md.

        Raises:
            InvalidInput: the name cannot be a skill's name, or the skill exists.
        """
        from satchel._fs import is_really_inside, write_atomic
        from satchel.skill.interpret import MAX_NAME, NAME, slug

        if not NAME.fullmatch(name):
            raise InvalidInput(
                say(
                    "`{name}` cannot be a skill's name: use a-z, 0-9 and single hyphens", name=name
                ),
                say("Try `{name}`", name=slug(name)),
            )
        if len(name) > MAX_NAME:
            raise InvalidInput(
                say("A skill's name has at most {limit} characters", limit=MAX_NAME),
                say("Try `{name}`", name=slug(name)),
            )
        folder = os.path.join(user_folder(self.settings), name)
        path = os.path.join(folder, "SKILL.md")
        if os.path.lexists(folder):
            # Whatever is in there is not ours: making it trusted would trust that too.
            raise InvalidInput(
                say("The skill `{name}` exists already", name=name),
                say("Edit `{path}`", path=os.path.relpath(path, self.settings.project)),
            )
        title = name.replace("-", " ").capitalize()
        text = _FIRST_SKILL if name == FIRST else _NEW_SKILL
        if not is_really_inside(user_folder(self.settings), self.settings.project):
            raise AccessDenied(
                say("`{path}` leads outside the project", path=user_folder(self.settings)),
                say("Replace the link by a folder"),
            )
        try:
            write_atomic(path, text.format(name=name, title=title).encode())
        except OSError as exc:
            raise Refused(
                say("`{path}` cannot be written: {reason}", path=path, reason=exc.strerror or exc),
                say("Check the permissions of the project's folder"),
            ) from exc
        self.library.trust.approve(folder, "own")
        self.library.refresh()
        return path


_FIRST_SKILL = """\
---
name: {name}
description: Greets somebody by name. Use when the user asks for a greeting or a welcome.
---
# {title}

Write one friendly sentence that greets: $ARGUMENTS

If no name was given, ask for one.
"""
_NEW_SKILL = """\
---
name: {name}
description: To be written. Say what this skill does and when to use it, in one or two sentences.
---
# {title}

To be written: the steps to take, in order, and how to know that the work is done.

What the user gave: $ARGUMENTS
"""
