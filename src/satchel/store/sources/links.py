"""Where do the links of a skill lead, and which files stand in for them?

Links are followed by their text, step by step as a kernel would, but inside the skill only: they
never touch the disk. A link to a file becomes a copy of it, a link to a folder a copy of all in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.store.archive.rules import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from satchel.skill.tree import File, Limits

_MAX_HOPS = 40


class Expansion:
    """The files of a skill, each link replaced by what it leads to."""

    def __init__(
        self, files: Iterable[File], target_of: Callable[[File], str], limits: Limits
    ) -> None:
        self._limits = limits
        self._plain = {file.path: file for file in files if file.mode != "link"}
        links = [file for file in files if file.mode == "link"]
        self._links = {file.path: target_of(file) for file in links}
        self._folders: dict[str, dict[str, None]] = {}
        self.files: list[File] = list(self._plain.values())
        self.origin: dict[str, str] = {}
        """Copy -> the file it is a copy of."""
        self.copied: dict[str, str] = {}
        """Link -> where it leads; for people."""
        if links:
            for path in (*self._plain, *self._links):
                folder, _, last = path.rpartition("/")
                while last not in (inside := self._folders.setdefault(folder, {})):
                    inside[last] = None
                    if not folder:
                        break
                    folder, _, last = folder.rpartition("/")
        for link in sorted(self._links):
            self.copied[link] = self._resolve(link)
            self._copy(link, link, ())

    def _copy(self, link: str, name: str, active: tuple[str, ...]) -> None:
        """Put what `link` leads to in place at `name`."""
        if link in active or len(active) > self._limits.depth:
            raise refuse("link-loop", link)
        target = self._resolve(link)
        if not target or link.startswith(f"{target}/"):
            raise refuse("link-loop", link)
        self._place(target, name, (*active, link))

    def _place(self, target: str, name: str, active: tuple[str, ...]) -> None:
        if target in self._plain:
            if len(self.files) >= self._limits.files:
                raise refuse("too-many-files", name, str(self._limits.files))
            self.files.append(self._plain[target]._replace(path=name))
            self.origin[name] = target
        elif target in self._links:
            self._copy(target, name, active)
        elif name.count("/") > self._limits.depth:
            raise refuse("path-too-deep", name)
        else:
            for last in self._folders[target]:
                self._place(f"{target}/{last}", f"{name}/{last}", active)

    def _resolve(self, link: str) -> str:
        """The path a link finally leads to; empty for the skill's own folder."""
        here: list[str] = link.split("/")[:-1]
        todo = self._steps(link)
        hops = 1
        while todo:
            part = todo.pop()
            if part == "..":
                if not here:
                    raise refuse("link-escapes", link, self._links[link])
                here.pop()
                continue
            path = "/".join((*here, part))
            if path in self._links:
                hops += 1
                if hops > _MAX_HOPS:
                    raise refuse("link-loop", link)
                todo += self._steps(path)
                continue
            if path not in self._folders and (todo or path not in self._plain):
                raise refuse("link-broken", link, self._links[link])
            here.append(part)
        return "/".join(here)

    def _steps(self, link: str) -> list[str]:
        """The parts of a link's text, the last one first."""
        text = self._links[link]
        if text.startswith(("/", "\\")) or "\0" in text or text[1:2] == ":":
            raise refuse("link-escapes", link, text)
        return [part for part in text.split("/") if part not in {"", "."}][::-1]
