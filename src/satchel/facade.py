"""One object for people who want one object. It composes the parts and has no logic of its own.

satchel = Satchel.for_project(".")
satchel.catalogue().text                               # what the model is told
session = satchel.session()                            # one conversation
session.call("Skill", {"name": "code-review"})         # what the model calls
print(satchel.why("code-review"))                      # what became of it
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, overload

from satchel._approval import (
    FolderReview,
    accept_risk,
    find_skill,
    review_folder,
    trust_folder,
    untrust_folder,
)
from satchel._first_skill import FIRST, add_first_skill
from satchel._language import Message
from satchel._notices import Notices, warn_unmatched
from satchel._project import library_for
from satchel.errors import AccessDenied
from satchel.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.catalogue import Budget, Catalogue
    from satchel.detect import Answer, Detector, Match, Place
    from satchel.detect.base import Prepared
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.library import Library, Snapshot
    from satchel.security import Allowance, Report
    from satchel.settings import Form, Settings
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem
    from satchel.standing import Standing
    from satchel.store.scope import Scope
    from satchel.store.store import Store
    from satchel.tools.engine import LocalEngine
    from satchel.tools.gate import Approve
    from satchel.tools.session import Session
    from satchel.tools.shortlisting import Shortlist, Shortlister
    from satchel.why import Story

__all__ = ["FIRST", "FolderReview", "Satchel"]


class Satchel:
    """The skills of a project, ready for an agent."""

    def __init__(
        self,
        library: Library,
        settings: Settings,
        *,
        detector: Detector | None = None,
        engine: LocalEngine | None = None,
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
        self._detector: SelectionPipeline | None = None
        self.patience = 0.0
        """Seconds that a choice may wait for an index that is being built. A command that ends
        after it may have some; an agent has none."""
        self.on_wait: Callable[[int, int], None] | None = None
        """Called while a choice waits, with how many skills are indexed, and of how many."""
        self._shortlister: Shortlister | None = None

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

        What is not offered although it is there (untrusted, hidden, broken) is reported once
        through the logger `satchel`.

        Args:
            path: The project's folder itself; no folder above it is considered.
            detector: Who chooses; the one by words and vectors when None.
            explicit: Whether a skill that a request calls by name wins over that detector.
            settings: Any setting by name (`budget=8_000`, `trust="all"`); they win over files and
                environment.

        Raises:
            SettingsError: a setting cannot be used.
            NotFound: there is no such folder.
        """
        chosen = load_settings(os.fspath(path), **settings)
        library = library_for(chosen)
        library.notify = Notices(library)
        return cls(library, chosen, detector=detector, explicit=explicit)

    def refresh(self) -> Snapshot:
        """Look for changes on disk; reads only what changed."""
        return self.library.refresh()

    def list_skills(self, *, hidden: bool = False) -> list[Skill]:
        """The offered skills; with `hidden` also those that are known and not offered."""
        return self.library.list_skills(hidden=hidden)

    def get_skill(self, name: str) -> Skill | None:
        """An offered skill by name, id or path."""
        return self.library.get_skill(name)

    def load_content(self, name: str) -> str:
        """A skill's body, read now.

        Raises:
            NotFound: there is no such skill.
            SatchelError: it may not be used as it is: not trusted, blocked, not locked.
        """
        return self.library.load_content(name)

    def get_skill_content(self, name: str) -> str | None:
        """A skill's body, read now; None when no skill of that name is offered.

        Raises:
            SatchelError: it may not be used as it is.
        """
        return self.load_content(name) if self.get_skill(name) is not None else None

    def get_descriptions(self) -> str:
        """The catalogue's text at the configured budget."""
        return self.catalogue().text

    def catalogue(self, budget: int | Budget | None = None, form: Form | None = None) -> Catalogue:
        """What the model is told, with an account of what was listed, shortened and left out."""
        from satchel.tools.toolset import tell_offer

        catalogue = self.preview(budget, form)
        tell_offer(self.trace, catalogue)
        return catalogue

    def preview(
        self,
        budget: int | Budget | None = None,
        form: Form | None = None,
        *,
        look: Snapshot | None = None,
    ) -> Catalogue:
        """The same catalogue for a person to look at: nothing is recorded as offered.

        Args:
            budget: How large it may be; the setting `budget` when None.
            form: How it is written; the setting `form` when None.
            look: What to make it of; what there is now when None.
        """
        from satchel.tools.toolset import catalogue_of

        if look is None:
            fresh = self.settings.refresh_on_call
            look = self.library.refresh() if fresh else self.library.snapshot()
        return catalogue_of(look, self.settings, budget, form)

    def fill(self, template: str) -> str:
        """Put the catalogue in place of `{{skills}}`; without that, nothing is offered."""
        from satchel.catalogue import fill_template, has_place

        return fill_template(template, self.catalogue()) if has_place(template) else template

    def tools(self) -> Session:
        """The tools of a new conversation, the same as `session()`; two calls share nothing."""
        return self.session()

    def session(
        self,
        *,
        approve: Approve = None,
        ask: Sequence[str] = (),
        changes: Literal["tail", "rebuild"] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tools: Sequence[str] | None = None,
    ) -> Session:
        """One conversation: a frozen prompt, tools that are checked, loaded skills remembered.

        Args:
            approve: A function that is given an `Ask` and says yes or no, also an asynchronous
                one. True approves everything; None refuses tools that write or use the network.
            ask: Patterns of further tools that need a person's word (`Bash(*)`, `shop_*`).
            changes: How a changed library is told; the setting `changes` when None.
            include: Only skills that match one of these patterns.
            exclude: No skills that match one of these.
            tools: Patterns of the tools that may be called; all of them when None.

        Raises:
            InvalidInput: `changes` is another word, or the patterns are none.
        """
        from satchel.library.narrowed import narrowed
        from satchel.tools.gate import Gate
        from satchel.tools.permits import as_patterns
        from satchel.tools.session import Session

        if changes not in (None, "tail", "rebuild"):
            from satchel.errors import InvalidInput

            raise InvalidInput(
                f"`changes` is `tail` or `rebuild`, not `{changes}`",
                "Leave it out: the setting `changes` counts then",
            )
        settings = self.settings._replace(changes=changes) if changes else self.settings
        warn_unmatched(self.library, include)
        return Session(
            narrowed(self.library, as_patterns(include), as_patterns(exclude)),
            settings,
            detector=lambda: self.detector,
            engine=self.engine,
            gate=Gate(self.trace, approve, ask, () if tools is None else (tools,)),
        )

    def restore(
        self,
        state: Mapping[str, Any],
        *,
        approve: Approve = None,
        ask: Sequence[str] = (),
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tools: Sequence[str] | None = None,
    ) -> Session:
        """Continue a conversation from what `Session.dump` gave, in this process or another one.

        The limits in the state and those given here hold both. A skill that changed since it was
        loaded allows nothing any more, and the next `tail` says that it has to be loaded again.

        Args:
            state: What `dump` returned, perhaps by way of JSON.
            approve: As for `session`: approvals are not part of the state.
            ask: As for `session`.
            include: As for `session`.
            exclude: As for `session`.
            tools: As for `session`.

        Raises:
            InvalidInput: the state is nothing that `dump` returned.
        """
        from satchel.library.narrowed import narrowed
        from satchel.tools.gate import Gate
        from satchel.tools.permits import as_patterns
        from satchel.tools.session import Session
        from satchel.tools.state import limits_in

        limits = limits_in(state)
        library = self.library
        for kept, dropped in ((include, exclude), *limits.filters):
            library = narrowed(library, as_patterns(kept), as_patterns(dropped))
        within = limits.within if tools is None else [*limits.within, tools]
        session = Session(
            library,
            self.settings,
            detector=lambda: self.detector,
            engine=self.engine,
            gate=Gate(self.trace, approve, [*ask, *limits.ask], within),
            stack=limits.stack,
        )
        session.take(state)
        return session

    @property
    def engine(self) -> LocalEngine:
        """What runs the programs of tool skills; it starts nothing before the first one is called.

        Its `progress`, a function that takes a line, is told what a first use builds.
        """
        if self._engine is None:
            from satchel.tools.engine import LocalEngine

            self._engine = LocalEngine(self.settings, self.trace)
        return self._engine

    def close(self) -> None:
        """End programs of tool skills and connections to servers. This process's end does, too."""
        self.library.close()
        if self._engine is not None:
            self._engine.close()

    def search(self, words: str, limit: int = 10, *, reasons: bool = True) -> list[Match]:
        """Skills that fit some words, best first, whether they fit well or not.

        Args:
            words: What is looked for.
            limit: How many at most.
            reasons: Whether each says why it was found. To say it, files are read: who shows a
                long list without reasons gets it sooner.

        Raises:
            InvalidInput: the words are no text, or the limit is no number that is at least 1.
        """
        from satchel.tools.selecting import check_text, search

        check_text(words)
        look = self.library.snapshot()
        called = look.get(words.strip())
        return search(self.detector, words, look.skills, limit, called, reasons=reasons)

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
            InvalidInput: the goal is no text, a skill is both in `use` and in `never`, the limit
                is no number or below 1, or a detector of yours returned something else than
                matches.
        """
        from satchel.tools.selecting import select
        from satchel.tools.waiting import put_right

        barred = (never,) if isinstance(never, str) else tuple(never)
        detector = self.detector.overriding(use, barred)
        snapshot = self.library.snapshot()
        trace = self.trace if record else None

        def amend(answer: Answer) -> Answer:
            return put_right(answer, goal, detector, snapshot, self.settings, barred)

        return select(detector, goal, snapshot.for_model, trace, limit=limit, amend=amend)

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

    def place(self, name: str | Skill, goal: str) -> Place:
        """Where one skill stands for a request: its rank, what each field gave, what beat it.

        A skill that is not offered is placed among the offered ones as if it were.

        Args:
            name: The skill itself, or its name, id or path.
            goal: The request.

        Raises:
            NotFound: there is no such skill.
        """
        skill = find_skill(self.library, name)
        return self.detector.place(goal, self.library.snapshot().for_model, skill)

    def stand(self, skill: Skill, goal: str) -> Standing:
        """Whether one skill would be chosen for a request, and why. Nothing is recorded."""
        from satchel.standing import standing_of

        answer = self.which(goal, record=False)
        return standing_of(skill, goal, None if skill.is_tool else self.place(skill, goal), answer)

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
        return self.detector.prepare(self.library.snapshot().skills, progress, rebuild=rebuild)

    @property
    def detector(self) -> SelectionPipeline:
        """What picks skills: the pipeline around the detector given, or around the default one.

        Raises:
            InvalidInput: the one given is no detector.
        """
        if self._detector is None and self._given is None:
            from satchel.detect.pipeline import default_detector

            self._detector = default_detector(self.settings, self.patience, self.on_wait)
        elif self._detector is None and self._given is not None:
            from satchel.detect.pipeline import as_pipeline

            self._detector = as_pipeline(self._given, mentions=self._explicit)
        assert self._detector is not None  # noqa: S101 - made just now
        return self._detector

    def why(
        self, name: str | Skill, budget: int | Budget | None = None, *, fresh: bool = True
    ) -> Story:
        """The whole story of one skill.

        Args:
            name: The skill itself, or its name, id, ref or path.
            budget: The room of the catalogue that it is told for; the setting `budget` when None.
            fresh: Look for changes first; else it is told as of the last look.
        """
        from satchel._diagnosis import names_taken
        from satchel.why import tell_why

        tools = self.library.tools(refresh=fresh)
        snapshot = self.library.snapshot()
        account = self.preview(budget, look=snapshot).account
        return tell_why(
            name,
            snapshot,
            account,
            self.trace,
            policy="ask" if self.settings.asks else self.settings.trust,
            strays=self.library.strays,
            seals=self.library.seals,
            tools=tools,
            taken=[
                *(one for one in tools.problems if one.code == "tool-name-taken"),
                *names_taken(self.settings, tools),
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
        from satchel._diagnosis import diagnose

        return diagnose(
            self.library, self.settings, lambda: self.detector, deep=deep, progress=progress
        )

    def review(self, progress: Callable[[int, int], None] | None = None) -> FolderReview:
        """Scan the project's skills that are not trusted yet, for the person who decides.

        Args:
            progress: Called with how many were scanned, and how many there are.
        """
        return review_folder(self.library, self.settings, progress)

    def trust(self) -> str:
        """Trust the project's folder, with all that it holds now and later; returns the folder.

        Raises:
            Refused: the decision cannot be kept, or the setting `trust` is `locked`.
        """
        return trust_folder(self.library, self.settings)

    def accept_risk(self, skill: Skill | str, reason: str) -> Skill:
        """Use a skill that the scan blocks, as it is now; another content is blocked again.

        Raises:
            NotFound: there is no such skill.
            InvalidInput: the scan does not block it, or there is no reason.
            Refused: the decision cannot be kept.
        """
        return accept_risk(self.library, skill, reason)

    def untrust(self) -> bool:
        """Trust the project's folder no more; True when it was trusted."""
        return untrust_folder(self.library, self.settings)

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

    def store_of(self, skill: Skill) -> Store:
        """The store that may change this very skill. The other one need not be in order for that.

        Raises:
            Refused: it ships with a product, or lies where Satchel does not write.
            AccessDenied: as `store`.
        """
        from satchel.store.scope import whose

        return self.store(whose(self.settings, skill))

    def scan(self, skill: Skill) -> Report:
        """What is dangerous in one skill, offered or not; what was accepted counts.

        Raises:
            SatchelError: it cannot be read, or lies on a server.
        """
        from satchel.library.seal import tree_of
        from satchel.security import scan_tree
        from satchel.store.scope import scope_of

        scope: Scope | None = None
        with suppress(AccessDenied):  # it leads elsewhere: nothing beside it was accepted here
            scope = scope_of(self.settings, "global" if skill.source == "global" else "project")
        name = os.path.basename(skill.base_dir)
        try:
            report = scan_tree(tree_of(skill), name=name, allow=self._allowances(scope))
            if report.verdict == "blocked":
                self.library.seals.scan(skill)  # remembered for every door
            return report
        except OSError as exc:
            from satchel.errors import Refused

            raise Refused(
                Message(
                    "`{path}` cannot be read: {reason}",
                    path=skill.base_dir,
                    reason=exc.strerror or exc,
                ),
                Message("Check its permissions"),
            ) from exc

    def _allowances(self, scope: Scope | None) -> list[Allowance]:
        """Findings that were accepted, by the user or beside the lockfile."""
        from satchel.security.allow import FILE, gather

        config = self.settings.paths.config
        own = os.path.join(os.path.dirname(config), FILE) if config else ""
        if scope is None:
            return gather(own, "")[0]
        near = os.path.join(scope.root, FILE)
        return gather(own, near, [] if scope.name == "project" else [near])[0]

    def init(self, name: str = FIRST) -> str:
        """Write a first skill into the project's folder and trust it; returns its SKILL.md.

        Raises:
            InvalidInput: the name cannot be a skill's name, or the skill exists.
        """
        return add_first_skill(self.store(), name)
