"""Which projects and skills of somebody else the user approved.

One file in the state folder, readable by people. Approving a project covers what is in it now and
later; approving a skill covers that one folder, not what lies below it. Paths are real paths, so
a link cannot borrow the trust of what it replaced. What a user makes with `init` is approved as it
is made.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from satchel._fs import is_inside, locked, write_atomic
from satchel.errors import Refused, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Kind = Literal["project", "skill"]
_KINDS = ("project", "skill")


class TrustBook:
    """The approved folders."""

    def __init__(self, path: str | None) -> None:
        """Keep approvals in the file `path`; None keeps them in memory."""
        self._path = path
        self._folders: dict[str, Kind] | None = None if path else {}
        self._stamp: tuple[int, int, int] | None = None

    def folders(self) -> dict[str, Kind]:
        """Approved folder -> what it was approved as, read again when the file changed.

        Raises:
            SettingsError: the file is damaged. A damaged file is never a yes.
        """
        if self._path is None:
            return self._folders or {}
        try:
            info = os.stat(self._path)
        except OSError:  # no file, or none to be had: nothing is approved
            self._folders, self._stamp = {}, None
            return self._folders
        stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
        if self._folders is None or stamp != self._stamp:
            self._folders = self._read(self._path)
            self._stamp = stamp
        return self._folders

    def _read(self, path: str) -> dict[str, Kind]:
        import json

        try:
            with open(path, encoding="utf-8") as stream:
                table = json.load(stream)["folders"]
            return {
                str(folder): row["kind"] for folder, row in table.items() if row["kind"] in _KINDS
            }
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as exc:
            raise SettingsError(
                f"The trust file `{path}` cannot be read: {exc}",
                "Correct it, or delete it and trust again",
            ) from exc

    def approve(self, folder: str, kind: Kind) -> None:
        """Trust a project, or one skill.

        Raises:
            Refused: the approval cannot be kept.
        """
        real = os.path.realpath(folder)
        self._change(lambda folders: {**folders, real: kind})

    def revoke(self, folder: str) -> bool:
        """Trust `folder` and what is below it no more; True when something was revoked."""
        real = os.path.realpath(folder)
        before = dict(self.folders())
        self._change(lambda old: {k: v for k, v in old.items() if not is_inside(k, real)})
        return before != self.folders()

    def _change(self, change: Callable[[dict[str, Kind]], dict[str, Kind]]) -> None:
        if self._path is None:
            self._folders = change(dict(self._folders or {}))
            return
        try:
            with locked(self._path + ".lock"):
                self._stamp = None
                self._save(change(dict(self.folders())), self._path)
        except OSError as exc:
            raise Refused(
                f"Trust cannot be kept in `{self._path}`: {exc.strerror or exc}",
                "Make the folder writable, or set `SATCHEL_HOME` to one that is",
            ) from exc

    def _save(self, folders: dict[str, Kind], path: str) -> None:
        import json
        import time

        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        table = {folder: {"kind": kind, "since": now} for folder, kind in folders.items()}
        # ASCII only: folder names that are not UTF-8 come back as they were.
        text = json.dumps({"version": 1, "folders": table}, indent=2)
        write_atomic(path, (text + "\n").encode(), private=True)
        self._stamp = None

    def judge(self, root: str, links: Mapping[str, str]) -> Judge:
        """How the skills below `root` stand; `links` are followed ones, target -> id."""
        return Judge(os.path.realpath(root), self.folders(), links)


class Judge:
    """Trust for the skills of one location, cheap to ask a hundred thousand times."""

    def __init__(self, root: str, folders: Mapping[str, Kind], links: Mapping[str, str]) -> None:
        projects = [folder for folder, kind in folders.items() if kind == "project"]
        self._root = root
        self._projects = projects
        self._skills = {folder for folder, kind in folders.items() if kind == "skill"}
        self._links = {via: target for target, via in links.items()}
        self._all = any(is_inside(root, folder) for folder in projects)
        self.everything = self._all and not links
        """The whole location is approved."""
        self.nothing = not self._all and not self._skills and not links

    def approves(self, skill_id: str) -> bool:
        """Whether the skill in this folder may be offered."""
        real = self._real(skill_id) if self._links else ""
        if real:
            return real in self._skills or any(is_inside(real, one) for one in self._projects)
        if self._all:
            return True
        return (
            bool(self._skills) and os.path.join(self._root, skill_id).rstrip(os.sep) in self._skills
        )

    def _real(self, skill_id: str) -> str:
        """Where a skill behind a link really lies, or nothing when it is behind none."""
        head = skill_id
        while head:
            target = self._links.get(head)
            if target is not None:
                return target + skill_id[len(head) :]
            head = head.rpartition("/")[0]
        return ""
