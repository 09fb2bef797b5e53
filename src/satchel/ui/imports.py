"""Pending imports: uploads, and repositories that are being fetched.

A source that was read has a plan for all its skills, or an `error`. It stays open until its plan is
applied or rejected, or `IMPORT_LIFETIME_S` passed: a skill can be renamed without another upload.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import ExitStack, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING

from satchel.errors import InternalError, NotFound, Refused, SatchelError
from satchel.i18n import join_names, say
from satchel.library.lockfile import LockedSource
from satchel.store.archive.rules import shown
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.planner import select_skills, with_ids
from satchel.store.sources import find_skills, source_of
from satchel.store.sources.parse import ENDINGS, ArchiveSource, FolderSource
from satchel.store.staging import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from satchel.store.plan import ChangePlan
    from satchel.store.planner import SelectedSkill
    from satchel.store.sources import Bundle, Source
    from satchel.store.store import Store
    from satchel.ui.uploads import Upload


IMPORT_LIFETIME_S = 1_800.0
MAX_IMPORTS = 16
"""The oldest is dropped first."""
MAX_FETCHES = 4


class PendingImport:
    """One source to import from."""

    def __init__(self, store: Store, label: str, path: str = "") -> None:
        """Create it before it is read.

        Args:
            store: The target of its skills.
            label: The name of the source.
            path: The folder within it.
        """
        self.key = secrets.token_urlsafe(18)
        self.store = store
        self.label = label
        self.path = path
        self.since = time.monotonic()
        self.line = ""
        """Progress of git."""
        self.error: SatchelError | None = None
        self.plan = ""
        """Key of its plan."""
        self.ids: dict[str, str] | None = None
        """Folder within the source -> id, after a skill was renamed."""
        self.picks: tuple[SelectedSkill, ...] = ()
        self.cancelled = threading.Event()
        self.bundle: Bundle | None = None
        self.resources = ExitStack()
        self.read_lock = threading.Lock()
        """Held while the source is read."""
        self.plan_lock = threading.Lock()
        """Held while a plan is made: one plan at a time."""

    @property
    def is_over(self) -> bool:
        """Whether its time has passed."""
        return time.monotonic() - self.since > IMPORT_LIFETIME_S

    def open(
        self, source: Source, ref: str = "", place: LockedSource | None = None, name: str = ""
    ) -> None:
        """Open the source and find its skills.

        Raises:
            SatchelError: it cannot be read, or holds no skill.
        """
        bundle = self.resources.enter_context(source.fetch(ref=ref, progress=self._report_progress))
        if place is not None:
            bundle = bundle._replace(place=place._replace(path=self.path), name=name)
        with disk_errors_as_refusal(self.label):
            found = find_skills(bundle.tree, self.path or bundle.place.path, name=bundle.name)
        if not found:
            raise NotFound(say("There is no SKILL.md in `{source}`", source=self.label))
        self.bundle = bundle
        self.picks = tuple(with_ids(found))

    def make_plan(self, ids: Mapping[str, str] | None) -> ChangePlan:
        """Return a plan for its skills, with other ids if they are given.

        Raises:
            SatchelError: an id is invalid, or it was closed meanwhile.
        """
        try:
            with self.read_lock:
                if self.bundle is None:
                    raise _not_open()
                wanted = (
                    self.picks
                    if ids is None
                    else select_skills(self.bundle, path=self.path, ids=ids)
                )
                plan = self.store.plan_picked(self.bundle, wanted)
        finally:
            # A concurrent `drop` could not close it while it was held.
            if self.cancelled.is_set():
                self.close()
        if self.cancelled.is_set():
            plan.close()
            raise _not_open()
        return plan

    def close(self) -> None:
        """Release everything, and cancel a fetch."""
        self.cancelled.set()
        with self.read_lock, suppress(OSError):
            self.bundle = None
            self.resources.close()

    def _report_progress(self, line: str) -> None:
        self.line = line
        if self.cancelled.is_set():
            raise Refused(say("It was cancelled"))


class PendingImports:
    """All open sources."""

    def __init__(
        self,
        add_plan: Callable[[Store, ChangePlan, PendingImport], str],
        drop_plan: Callable[[str], None],
    ) -> None:
        """Start without any; plans are stored by `add_plan`, which returns a key."""
        self._add_plan = add_plan
        self._drop_plan = drop_plan
        self._open: dict[str, PendingImport] = {}
        self._hold = threading.Lock()

    def upload(self, store: Store, sent: Upload, spool: str, *, is_archive: bool) -> PendingImport:
        """Open an uploaded archive or folder, and plan it; `spool` is removed with it.

        Raises:
            SatchelError: it is unsafe, or holds no skill.
        """
        label = sent.name
        source = (ArchiveSource if is_archive else FolderSource)(sent.path, label)
        pending = PendingImport(store, label)
        pending.resources.callback(remove_tree, spool)
        try:
            # The lockfile records the sender's name: our copy will be removed.
            pending.open(source, place=LockedSource("upload", label), name=ENDINGS.sub("", label))
            if pending.bundle is not None:
                notes = (*pending.bundle.notes, *_upload_notes(sent))
                pending.bundle = pending.bundle._replace(notes=notes)
            self._add(pending)
            self.plan(pending)
        except BaseException:
            self.drop(pending.key)
            pending.close()
            raise
        return pending

    def fetch(self, store: Store, address: str, ref: str, path: str) -> PendingImport:
        """Fetch a repository in a thread; it can be cancelled.

        Args:
            store: The target of its skills.
            address: URL of the repository, or a path of this machine.
            ref: The branch, tag or commit; empty for the default.
            path: The folder within it.

        Raises:
            SatchelError: the address is invalid, or too many are being fetched.
        """
        source = source_of(address, base=store.scope.root)
        path = path.strip().strip("/") or getattr(source, "path", "")
        pending = PendingImport(store, source.url, path)
        self._add(pending, fetching=True)

        def run() -> None:
            try:
                with pending.read_lock:
                    pending.open(source, ref=ref)
                self.plan(pending)
            except SatchelError as exc:
                pending.error = exc
            except Exception as exc:  # noqa: BLE001 - the page must show why the thread ended
                words = say("Something went wrong here: {reason}", reason=type(exc).__name__)
                pending.error = InternalError(words)
            if pending.cancelled.is_set() or pending.error is not None:
                pending.close()

        # Errors are in the language of the request.
        context = copy_context()
        threading.Thread(
            target=context.run, args=(run,), name="satchel-ui-fetch", daemon=True
        ).start()
        return pending

    def get(self, key: str) -> PendingImport:
        """Return an open source.

        Raises:
            NotFound: there is none with that key.
        """
        with self._hold:
            found = self._open.get(key)
        if found is None or found.is_over:
            raise _not_open()
        return found

    def rename(self, pending: PendingImport, old: str, new: str) -> str:
        """Plan again with another id for one skill; returns the plan's key.

        Raises:
            SatchelError: the id is invalid or taken, or it was closed meanwhile.
        """
        ids = pending.ids or {pick.path: pick.id for pick in pending.picks}
        return self.plan(pending, {path: new if one == old else one for path, one in ids.items()})

    def plan(self, pending: PendingImport, ids: dict[str, str] | None = None) -> str:
        """Make a plan for its skills and drop the previous plan; returns the plan's key.

        Raises:
            SatchelError: as `PendingImport.make_plan`.
        """
        with pending.plan_lock:
            plan, old = pending.make_plan(ids or pending.ids), pending.plan
            pending.since = time.monotonic()
            pending.ids = ids or pending.ids
            pending.plan = made = self._add_plan(pending.store, plan, pending)
            self._drop_plan(old)
        if pending.cancelled.is_set():
            self._drop_plan(made)
            raise _not_open()
        return made

    def drop(self, key: str) -> None:
        """Close a source."""
        with self._hold:
            found = self._open.pop(key, None)
        if found is not None:
            _end(found)

    def close(self) -> None:
        """Close all sources and remove the uploads."""
        with self._hold:
            every, self._open = list(self._open.values()), {}
        for one in every:
            one.cancelled.set()
        for one in every:
            _end(one, wait=2.0)

    def _add(self, pending: PendingImport, *, fetching: bool = False) -> None:
        with self._hold:
            at_work = sum(not one.plan and one.error is None for one in self._open.values())
            if fetching and at_work >= MAX_FETCHES:
                raise Refused(say("Too many requests"), say("Try again later"))
            self._open[pending.key] = pending
        self.sweep()

    def sweep(self) -> None:
        """Close sources that are too old or too many."""
        with self._hold:
            every = list(self._open.values())
            old = every[:-MAX_IMPORTS] + [one for one in every[-MAX_IMPORTS:] if one.is_over]
            for one in old:
                self._open.pop(one.key, None)
        for one in old:
            _end(one)


def _upload_notes(sent: Upload) -> Iterator[str]:
    if sent.programs:
        names = join_names(f"`{shown(one)}`" for one in sent.programs[:20])
        yield say("Marked as programs because of `#!`: {names}", names=names)
    if sent.ignored:
        names = join_names(f"`{shown(one)}`" for one in sent.ignored[:20])
        yield say("Ignored: {names}", names=names)


def _not_open() -> NotFound:
    return NotFound(say("This preview has expired"))


def _end(pending: PendingImport, wait: float = 0.0) -> None:
    """Close it, or leave that to its thread: git is stopped at its next progress line."""
    pending.cancelled.set()
    if pending.read_lock.acquire(timeout=wait):
        pending.read_lock.release()
        pending.close()
