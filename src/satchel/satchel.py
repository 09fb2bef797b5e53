"""`Satchel`: the library, catalogue, detector, sessions and store of one project in one object.

satchel = Satchel.for_project(".")
satchel.catalogue().text                               # the list for the prompt
session = satchel.session()                            # one conversation
session.call("Skill", {"name": "code-review"})         # a tool call of the model
print(satchel.why("code-review"))                      # why it is offered or not
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, overload

from satchel._threads import threaded
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.i18n import Message
from satchel.library import Filter
from satchel.library.locations import local_folder
from satchel.project import (
    EXAMPLE_SKILL,
    Notices,
    add_first_skill,
    find_skill,
    library_for,
    warn_about_limits,
)
from satchel.session.options import check_options, read_state_limits
from satchel.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Unpack

    from satchel.catalogue import Budget, Catalogue
    from satchel.detect import Detection, Detector, Match, RankExplanation
    from satchel.detect.base import IndexReport
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.diagnosis.folder_review import FolderReview, ToolRequest
    from satchel.diagnosis.selection import SelectionExplanation
    from satchel.diagnosis.skill_report import SkillReport
    from satchel.library import Library, Snapshot
    from satchel.library.skill_source import SkillSource
    from satchel.security import ScanReport
    from satchel.session.options import SessionOptions, StateLimits
    from satchel.session.session import Session
    from satchel.session.shortlist import Shortlist
    from satchel.settings import Form, SettingOptions, Settings
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem
    from satchel.store.hub_client.hubs import Hubs
    from satchel.store.store import Store
    from satchel.store.workdir import Scope
    from satchel.tools.program_runner import ProgramRunner

__all__ = ["EXAMPLE_SKILL", "Satchel"]


class Satchel:
    """The skills of one project: lists them, selects them for a request, opens sessions and stores.

    Create one for each project, and one session for each conversation. Methods that touch the disk
    have an asynchronous twin.

    Example:
        from satchel import Satchel

        satchel = Satchel.for_project(".", budget=4_000)
        names = [skill.name for skill in satchel.list_skills()]
        assert names == ["code-review", "pdf-forms", "release-notes"]
        assert "pdf-forms" in satchel.catalogue().text
    """

    def __init__(
        self,
        library: Library,
        settings: Settings,
        *,
        detector: Detector | None = None,
        runner: ProgramRunner | None = None,
        explicit: bool = True,
    ) -> None:
        """Compose parts made elsewhere; `for_project` makes them all.

        Args:
            library: The skills.
            settings: The settings in force.
            detector: Selects skills; the default detector when None.
            runner: Runs the programs of tool skills.
            explicit: Whether a mention of a skill in the request overrides a custom detector. The
                built-in detectors handle mentions themselves.
        """
        self._runner = runner
        self.library = library
        self.settings = settings
        self.trace = library.trace
        self._given = detector
        self._explicit = explicit
        self._detector: SelectionPipeline | None = None
        self.index_wait_s = 0.0
        """Seconds that a selection may wait for an index that is being built."""
        self.on_wait: Callable[[int, int], None] | None = None
        """Called while a selection waits, with the number of indexed skills and the total."""

    @classmethod
    def for_project(
        cls,
        path: str | os.PathLike[str] = ".",
        *,
        detector: Detector | None = None,
        explicit: bool = True,
        sources: Sequence[SkillSource] = (),
        **settings: Unpack[SettingOptions],
    ) -> Satchel:
        """Open the skills of a project.

        Skills that are not offered (untrusted, hidden, broken) are reported once through the logger
        `satchel`.

        Args:
            path: The project's folder itself. Of the folders above it, up to the root of its
                repository, the skills are found too.
            detector: Selects skills; the default detector when None.
            explicit: Whether a mention of a skill in the request overrides that detector.
            sources: Skills from code or a database; they come after those of folders.
            settings: Any setting by name (`budget=8_000`, `trust="all"`); overrides files and
                environment.

        Raises:
            SettingsError: a setting cannot be used.
            NotFound: there is no such folder.
        """
        loaded = load_settings(os.fspath(path), **settings)
        library = library_for(loaded, sources)
        library.on_change(Notices(library, loaded.project))
        return cls(library, loaded, detector=detector, explicit=explicit)

    def refresh(self) -> Snapshot:
        """Scan the disk for changes; only changed files are read."""
        return self.library.refresh()

    arefresh = threaded(refresh)

    def list_skills(self, *, hidden: bool = False) -> list[Skill]:
        """The offered skills; with `hidden` also untrusted, blocked, shadowed and excluded ones.

        Args:
            hidden: Also return skills that are not offered.
        """
        return self.library.list_skills(hidden=hidden)

    def get_skill(self, name: str) -> Skill | None:
        """An offered skill by name, id or path.

        Args:
            name: The name, the id, or the path of the folder or its SKILL.md.
        """
        return self.library.get_skill(name)

    def load_content(self, name: str) -> str:
        """A skill's body, read now.

        Args:
            name: The name, id or path of an offered skill.

        Raises:
            NotFound: there is no such skill.
            SatchelError: it may not be used as it is: not trusted, blocked, not locked.
        """
        return self.library.load_content(name)

    def catalogue(self, budget: int | Budget | None = None, form: Form | None = None) -> Catalogue:
        """The list of skills for the prompt, and an account of what was truncated or left out.

        Args:
            budget: Maximum size in characters; the setting `budget` when None.
            form: Output format; the setting `form` when None.
        """
        from satchel.tools.toolset import record_offer

        catalogue = self.preview(budget, form)
        record_offer(self.trace, catalogue)
        return catalogue

    def preview(
        self,
        budget: int | Budget | None = None,
        form: Form | None = None,
        *,
        snapshot: Snapshot | None = None,
    ) -> Catalogue:
        """The same as `catalogue`, without recording in the trace that skills were offered.

        Args:
            budget: Maximum size; the setting `budget` when None.
            form: Output format; the setting `form` when None.
            snapshot: The snapshot to render; a current one when None.
        """
        from satchel.tools.toolset import cached_catalogue

        if snapshot is None:
            fresh = self.settings.refresh_on_call
            snapshot = self.library.refresh() if fresh else self.library.snapshot()
        snapshot = self.library.screened(snapshot)
        return cached_catalogue(snapshot, self.settings, budget, form)

    def fill(self, template: str) -> str:
        """Replace `{{skills}}` in a template with the catalogue.

        Args:
            template: A prompt; one without the placeholder is returned unchanged.

        Example:
            prompt = satchel.fill("You help in this repository. {{skills}}")
            assert "code-review" in prompt
        """
        from satchel.catalogue import fill_template, has_placeholder

        return fill_template(template, self.catalogue()) if has_placeholder(template) else template

    def tools(self) -> Session:
        """The same as `session()`: the tools of a new conversation."""
        return self.session()

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """Start a conversation: its prompt, its tools with their permissions, its loaded skills.

        Args:
            options: Those of `SessionOptions`: `approve`, `ask`, `include`, `exclude`, `tools` and
                `budget`. One text counts as one pattern.

        Raises:
            InvalidInput: there is no such option, or a pattern is not valid.
        """
        session = self._session(options)
        warn_about_limits(self.library, session, options)
        return session

    def _session(self, options: SessionOptions, limits: StateLimits | None = None) -> Session:
        from satchel.session.permissions import PermissionGate
        from satchel.session.session import Session
        from satchel.tools.permission_rules import check_patterns

        check_options(options)
        library, settings = self.library, self.settings
        pairs = [(options.get("include", ()), options.get("exclude", ()))]
        tools, budget = options.get("tools"), options.get("budget")
        for include, exclude in (*pairs, *(limits.filters if limits else ())):
            library = library.filtered(Filter(check_patterns(include), check_patterns(exclude)))
        if budget is not None:
            from satchel.catalogue import Budget

            budget = budget if isinstance(budget, Budget) else Budget.of(budget)
            settings = settings._replace(budget=budget.amount)
        within = [*(limits.within if limits else ()), *([] if tools is None else [tools])]
        ask = (*check_patterns(options.get("ask", ())), *(limits.ask if limits else ()))
        return Session(
            library,
            settings,
            detector=lambda: self.detector,
            runner=self.runner,
            gate=PermissionGate(self.trace, options.get("approve"), ask, within),
            stack=limits.stack if limits else (),
        )

    def restore(self, state: Mapping[str, Any], **options: Unpack[SessionOptions]) -> Session:
        """Restore a conversation from the state that `Session.dump` returned.

        The limits in the state and those given here both apply. A skill that changed since it was
        loaded no longer allows any tool, and the next `tail` asks the model to load it again.

        Args:
            state: The return value of `dump`, also after a round trip through JSON.
            options: As for `session`: approvals and the budget are not part of the state.

        Raises:
            InvalidInput: `dump` did not return this state, or there is no such option.
        """
        session = self._session(options, read_state_limits(state))
        session.load_state(state)
        return session

    arestore = threaded(restore)

    @property
    def runner(self) -> ProgramRunner:
        """Runs the programs of tool skills. Its `progress` is called with each line of a build."""
        if self._runner is None:
            from satchel.tools.program_runner import ProgramRunner

            self._runner = ProgramRunner(self.settings)
        return self._runner

    def close(self) -> None:
        """End the programs of tool skills and the connections to servers."""
        self.library.close()
        if self._runner is not None:
            self._runner.close()

    def search(self, words: str, limit: int = 10, *, reasons: bool = True) -> list[Match]:
        """Rank all skills for some words, best first, without a threshold.

        Args:
            words: The search words.
            limit: How many at most.
            reasons: Whether each match has its reasons, for which files are read.

        Raises:
            InvalidInput: the words are no text, or the limit is no number that is at least 1.

        Example:
            best = satchel.search("pdf form", limit=1)[0]
            print(best.name, best.score, best.reason)
        """
        from satchel.tools.selection import check_text, search

        check_text(words)
        snapshot = self.library.snapshot()
        called = snapshot.get(words.strip())
        return search(self.detector, words, snapshot.skills, limit, called, reasons=reasons)

    asearch = threaded(search)

    def which(
        self,
        goal: str,
        *,
        limit: int | None = None,
        use: Iterable[str | Skill] = (),
        never: Iterable[str | Skill] = (),
        record: bool = True,
    ) -> Detection:
        """Select the skills for a request. The result is true when one matches.

        Args:
            goal: The request.
            limit: Maximum number; the setting `shortlist` when None. A custom detector may select
                fewer.
            use: Skills to select in any case.
            never: Skills not to select, even if the request mentions them.
            record: Whether to record the selection in the trace.

        Raises:
            InvalidInput: the goal is no text, a skill is both in `use` and in `never`, the limit
                is no number or below 1, or a custom detector returned something else than matches.

        Example:
            selection = satchel.which("Can you fill in this PDF form?")
            assert selection.names == ["pdf-forms"]
        """
        from satchel.tools.selection import select

        barred = (never,) if isinstance(never, str) else tuple(never)
        detector = self.detector.overriding(use, barred)
        snapshot, trace = self.library.snapshot(), self.trace if record else None
        line = self.library.untrusted_notice()
        return select(
            detector, goal, snapshot, self.settings, trace, limit=limit, never=barred, waiting=line
        )

    awhich = threaded(which)

    def shortlist(self, goal: str, form: Form | None = None, *, record: bool = True) -> Shortlist:
        """Name the skills that may fit a request, in a short block to append to it.

        The catalogue does not depend on the request, so it stays in the provider's prompt cache;
        this block belongs at the end of the prompt, which changes in every turn. It never raises:
        after an error its text is empty, and the error is in the trace.

        Args:
            goal: The request.
            form: Output format; that of the catalogue when None.
            record: Whether to record the selection in the trace.
        """
        from satchel.session.shortlist import make_shortlist

        return make_shortlist(
            self.library, self.settings, lambda: self.detector, goal, form=form, record=record
        )

    @overload
    def with_shortlist(self, message: str) -> str: ...
    @overload
    def with_shortlist(self, message: list[dict[str, Any]]) -> list[dict[str, Any]]: ...
    def with_shortlist(self, message: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """Append the shortlist to the user's message; unchanged when no skill fits.

        Keep the returned message in the conversation: one that is rebuilt in a later turn may
        differ, which invalidates the provider's cache from there on.

        Args:
            message: A text, or a list of a provider's content blocks, to a copy of which one text
                block is appended.

        Raises:
            InvalidInput: it is neither.

        Example:
            message = satchel.with_shortlist("Can you fill in this PDF form?")
            assert '<skill name="pdf-forms">' in message
        """
        from satchel.session.shortlist import append_shortlist

        return append_shortlist(message, self.shortlist)

    def place(self, name: str | Skill, goal: str) -> RankExplanation:
        """Explain the rank of one skill for a request: its scores, and the skills above it.

        A skill that is not offered is placed among the offered ones as if it were.

        Args:
            name: The skill itself, or its name, id or path.
            goal: The request.

        Raises:
            NotFound: there is no such skill.
        """
        skill = find_skill(self.library, name)
        return self.detector.place(goal, self.library.snapshot().for_model, skill)

    def explain_selection(self, skill: Skill, goal: str) -> SelectionExplanation:
        """Explain whether a skill would be selected for a request; nothing is recorded."""
        from satchel.diagnosis.selection import explain_selection

        answer = self.which(goal, record=False)
        return explain_selection(
            skill, goal, None if skill.is_tool else self.place(skill, goal), answer
        )

    def prepare(
        self, progress: Callable[[int], None] | None = None, *, rebuild: bool = False
    ) -> IndexReport | None:
        """Build or update the search index, and wait until it is done.

        Args:
            progress: Called with the number of skills indexed so far.
            rebuild: Delete the index first.

        Returns:
            The state of the index; None when the detector has none.
        """
        return self.detector.prepare(self.library.snapshot().skills, progress, rebuild=rebuild)

    @property
    def detector(self) -> SelectionPipeline:
        """The pipeline that selects skills, around the given detector or the default one.

        Raises:
            InvalidInput: the given object is no detector.
        """
        if self._detector is None and self._given is None:
            from satchel.detect.pipeline import default_detector

            self._detector = default_detector(self.settings, self.index_wait_s, self.on_wait)
        elif self._detector is None and self._given is not None:
            from satchel.detect.pipeline import as_pipeline

            self._detector = as_pipeline(self._given, mentions=self._explicit)
        assert self._detector is not None  # noqa: S101 - set above
        return self._detector

    def why(
        self, name: str | Skill, budget: int | Budget | None = None, *, fresh: bool = True
    ) -> SkillReport:
        """Explain the status of a skill: where it was found, why it is offered or not, its use.

        Args:
            name: The skill itself, or its name, id, ref or path.
            budget: Budget of the catalogue; the setting `budget` when None.
            fresh: Scan for changes first.

        Example:
            report = satchel.why("code-review")
            print(report)
        """
        from satchel.diagnosis.doctor import tool_name_conflicts
        from satchel.diagnosis.skill_report import report_skill

        snapshot = self.library.refresh() if fresh else self.library.snapshot()
        account = self.preview(budget, snapshot=snapshot).account
        return report_skill(
            name,
            self.library,
            account,
            policy="ask" if self.settings.asks else self.settings.trust,
            tool_problems=[
                *(
                    problem
                    for problem in snapshot.tools.problems
                    if problem.code == "tool-name-taken"
                ),
                *tool_name_conflicts(self.settings, snapshot.tools),
            ],
        )

    def problems(
        self, *, deep: bool = False, progress: Iterable[Any] | None = None
    ) -> list[Problem]:
        """Every problem in the locations, the settings and the environment.

        Args:
            deep: Also read every skill whole and check it.
            progress: Wraps the skills to be read, to show progress.
        """
        from satchel.diagnosis.doctor import diagnose

        if deep and any(
            tool_skill.manifest.runtime == "go" for tool_skill in self.library.tools().skills
        ):
            _ = self.tools().names  # builds what was never built
        return diagnose(self.library, self.settings, deep=deep, progress=progress)

    def review(self, progress: Callable[[int, int], None] | None = None) -> FolderReview:
        """Scan the project's untrusted skills, for a decision about `trust`.

        Args:
            progress: Called with the number of scanned skills and the total.
        """
        from satchel.diagnosis.folder_review import review_folder

        return review_folder(self.library, self.settings, progress)

    def trust(self) -> str:
        """Trust the project's folder with all present and future skills; returns its path.

        Of the levels above and below it in the repository, the folders with untrusted skills are
        trusted too.

        Raises:
            Refused: the decision cannot be saved, or the setting `trust` is `locked`.
        """
        from satchel.diagnosis.folder_review import refuse_locked

        refuse_locked(self.settings)
        self.library.trust.trust(self.settings.project, *self.untrusted_levels())
        self.library.refresh()
        return self.settings.project

    def untrusted_levels(self) -> list[str]:
        """The folders with untrusted skills above and below the project, in its repository."""
        untrusted = {skill.origin.root for skill in self.library.untrusted_skills()}
        return [folder for folder in self._level_folders() if folder in untrusted]

    def _level_folders(self) -> Iterator[str]:
        levels = set(self.settings.levels) - {self.settings.project}
        for location in self.library.locations:
            if location.boundary in levels:
                yield location.path

    def accept_risk(self, skill: Skill | str, reason: str) -> Skill:
        """Allow the present content of a skill that the scan blocks.

        Args:
            skill: The skill itself, or its name, id or path.
            reason: Why it is safe; it is saved with the decision.

        Raises:
            NotFound: there is no such skill.
            InvalidInput: the scan does not block it, or there is no reason.
            Refused: the decision cannot be saved.
        """
        if not reason.strip():
            raise InvalidInput(Message("A risk is accepted with a reason"))
        resolved = find_skill(self.library, skill)
        integrity = self.library.integrity
        if not resolved.origin.remote and integrity.scan(resolved).verdict != "blocked":
            raise InvalidInput(
                Message("The scan does not block the skill `{name}`", name=resolved.name)
            )
        self.library.trust.accept(integrity.digest(resolved), " ".join(reason.split()))
        self.library.refresh()
        return resolved

    def tool_requests(self, skill: Skill | str) -> tuple[ToolRequest, ...]:
        """The tools that a skill asks to call without approval; empty when none are left to grant.

        Args:
            skill: The skill itself, or its name, id or path.

        Raises:
            NotFound: there is no such skill.
        """
        from satchel.diagnosis.folder_review import tool_requests

        return tuple(tool_requests(self.library, (find_skill(self.library, skill),)))

    def grant_tools(self, requests: Iterable[ToolRequest]) -> None:
        """Grant what skills request (`tool_requests`, `review`), for their present content.

        Args:
            requests: The requests to grant.

        Raises:
            Refused: the decision cannot be saved.
        """
        self.library.trust.grant_tools(
            {request.skill.base_dir: request.digest for request in requests}
        )

    def untrust(self) -> bool:
        """Revoke the trust in the project's folder and its levels; True when it was trusted."""
        folders = (self.settings.project, *self._level_folders())
        revoked = any([*map(self.library.trust.revoke, folders)])
        self.library.refresh()
        return revoked

    def store(self, scope: Literal["project", "global"] = "project", *, agent: str = "") -> Store:
        """The store that installs, updates and removes skills of the project or the user.

        Args:
            scope: `project`, or `global` for the skills of the user.
            agent: Use the folder of another agent, such as `claude` for `.claude/skills`.

        Raises:
            AccessDenied: the project's folder for skills leads out of the project.
        """
        from satchel.store.workdir import scope_of

        return self._open_store(scope_of(self.settings, scope, agent))

    def _open_store(self, scope: Scope) -> Store:
        from satchel.store.store import Store

        return Store(scope, trust=self.library.trust, library=self.library, hubs=cache(self._hubs))

    def agent_stores(self) -> Iterator[Store]:
        """The stores of other agents' folders, and of levels, in the order of the locations."""
        from satchel.store.workdir import find_agent_scopes

        yield from map(self._open_store, find_agent_scopes(self.settings, self.library.locations))

    def store_with(self, name: str, scope: Literal["project", "global"] = "project") -> Store:
        """The store in which a skill is changed; that of the scope when none has it.

        It is the store of the scope, or else that of another agent's folder. For `global` only
        folders of the user's home count.

        Args:
            name: The id or name of the skill.
            scope: `project`, or `global` for the skills of the user.
        """
        main = self.store(scope)
        for store in (main, *self.agent_stores()):
            if scope in {"project", store.scope.name}:
                with suppress(NotFound, Refused):
                    store.resolve(name)
                    return store
        return main

    def store_to_undo(
        self, scope: Literal["project", "global"] = "project", *, redo: bool = False
    ) -> Store:
        """The store with the last change: that of a scope, or of another agent's folder there.

        Args:
            scope: `project`, or `global` for the skills of the user.
            redo: Find the last change that was undone.
        """
        others = [store for store in self.agent_stores() if store.scope.name == scope]
        return max((self.store(scope), *others), key=lambda store: store.last_change(redo=redo))

    def _hubs(self) -> Hubs:
        from satchel.store.hub_client.hubs import Hubs

        return Hubs.of(self.settings)

    def store_of(self, skill: Skill) -> Store:
        """The store of the scope that a skill belongs to.

        Raises:
            Refused: it ships with a product, or lies in a folder that Satchel does not write to.
            AccessDenied: as `store`.
        """
        from satchel.store.workdir import check_changeable, scope_name_of

        check_changeable(skill)
        for store in self.agent_stores():
            if store.scope.folder == skill.origin.root:
                return store
        return self.store(scope_name_of(self.settings, skill))

    def scan(self, skill: Skill) -> ScanReport:
        """Scan one skill for security risks.

        Args:
            skill: A skill of `list_skills`.

        Raises:
            SatchelError: it cannot be read, or it is served by a server.
        """
        local_folder(skill)  # a served one has none
        return self.library.integrity.scan(skill)

    def init(self, name: str = EXAMPLE_SKILL) -> str:
        """Write an example skill into the project and trust it; returns the path of its SKILL.md.

        Raises:
            InvalidInput: the name cannot be a skill's name, or the skill exists.
        """
        return add_first_skill(self.store(), name)
