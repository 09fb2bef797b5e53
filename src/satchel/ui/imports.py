"""Imports: plans for uploads, and repositories that are fetched in the background."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING

from satchel.errors import InternalError, Refused, SatchelError
from satchel.i18n import join_names, say
from satchel.library.lockfile import LockedSource
from satchel.store.archive.rules import shown
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.skill_names import check_new_id
from satchel.store.skill_selection import select_skills
from satchel.store.sources import source_of
from satchel.store.sources.local import ARCHIVE_ENDINGS, ArchiveSource, FolderSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from satchel.store.plan import ChangePlan
    from satchel.store.sources import Bundle
    from satchel.store.store import Store
    from satchel.ui.uploads import Upload

MAX_FETCHES = 4


def plan_upload(store: Store, upload: Upload, *, is_archive: bool) -> ChangePlan:
    """Return a plan for all skills of an uploaded archive or folder.

    Raises:
        SatchelError: it is unsafe, or holds no skill.
    """
    source = (ArchiveSource if is_archive else FolderSource)(upload.path, upload.name)
    with source.fetch() as bundle:
        return _plan_all(
            store,
            bundle._replace(
                # The lockfile records the sender's name: our copy will be removed.
                place=LockedSource("upload", upload.name),
                name=ARCHIVE_ENDINGS.sub("", upload.name),
                notes=(*bundle.notes, *_upload_notes(upload)),
            ),
            skill_id=upload.skill_id,
        )


def _plan_all(store: Store, bundle: Bundle, path: str = "", *, skill_id: str = "") -> ChangePlan:
    if skill_id:
        check_new_id(skill_id)
    with disk_errors_as_refusal(bundle.place.url):
        selection = select_skills(bundle, path=path, skill_id=skill_id, everything=True)
    return store.plan_picked(bundle, selection)


def _upload_notes(upload: Upload) -> Iterator[str]:
    if upload.programs:
        names = join_names(f"`{shown(name)}`" for name in upload.programs[:20])
        yield say("Marked as programs because of `#!`: {names}", names=names)
    if upload.ignored:
        names = join_names(f"`{shown(name)}`" for name in upload.ignored[:20])
        yield say("Ignored: {names}", names=names)


class SourceFetch:
    """A repository that is fetched in a thread; it can be cancelled."""

    def __init__(
        self, store: Store, address: str, ref: str = "", path: str = "", *, skill_id: str = ""
    ) -> None:
        """Parse the address.

        Args:
            store: The target of its skills.
            address: URL of the repository, or a path of this machine.
            ref: The branch, tag or commit; empty for the default.
            path: The folder within it.
            skill_id: The id to install under; only for a single skill.

        Raises:
            SatchelError: the address is invalid.
        """
        self.store = store
        self._source = source_of(address, base=store.scope.root)
        self._ref = ref
        self._path = path.strip().strip("/")
        self._skill_id = skill_id
        self.label = self._source.url
        self.progress_line = ""
        """Progress of git."""
        self.error: SatchelError | None = None
        self.plan = ""
        """Key of its plan."""
        self._cancelled = False
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has neither a plan nor an error."""
        return not self.plan and self.error is None

    def start(self, add_plan: Callable[[ChangePlan], str]) -> None:
        """Start the thread; `add_plan` stores the plan and returns its key."""
        context = copy_context()  # errors are in the language of the request
        self._thread = threading.Thread(
            target=context.run, args=(self._run, add_plan), name="satchel-ui-fetch", daemon=True
        )
        self._thread.start()

    def cancel(self) -> None:
        """Stop git at its next progress line."""
        self._cancelled = True

    def wait(self, seconds: float) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, add_plan: Callable[[ChangePlan], str]) -> None:
        try:
            with self._source.fetch(ref=self._ref, progress=self._report) as bundle:
                plan = _plan_all(self.store, bundle, self._path, skill_id=self._skill_id)
            if self._cancelled:
                plan.close()
            else:
                self.plan = add_plan(plan)
        except SatchelError as exc:
            self.error = exc
        except Exception as exc:  # noqa: BLE001 - the page must show why the thread ended
            message = say("Something went wrong here: {reason}", reason=type(exc).__name__)
            self.error = InternalError(message)

    def _report(self, line: str) -> None:
        self.progress_line = line
        if self._cancelled:
            raise Refused(say("It was cancelled"))
