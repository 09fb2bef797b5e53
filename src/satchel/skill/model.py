"""`Skill`: a header with its location and state."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.errors import Refused
from satchel.i18n import Message
from satchel.skill.document import MANIFEST
from satchel.skill.requirements import SkillRequirements

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.skill.document import SkillDocument, SkillHeader
    from satchel.skill.problems import Problem

Source = Literal[
    "builtin",
    "system",
    "user",
    "project",
    "global",
    "extra",
    "server",
    "code",
    "package",
    "plugin",
]
"""Kind of a location: shipped with Satchel, shipped with the host's product
(`.agents/sys.skills`), the project's user (`.agents/skills`), the project (`skills/`, `.skills/`),
the user's home, a configured path, a server, a `SkillSource`, an installed package, or a plugin of
an agent."""
DEPENDENCIES = frozenset(("package", "plugin"))
"""Sources of skills that came with something else that was installed."""

State = Literal[
    "active", "needs setup", "shadowed", "untrusted", "blocked", "unverified", "excluded"
]
"""Only `active` skills are offered. `needs setup`: something that it requires is missing;
`unverified`: the lockfile beside it is damaged."""
_PROBLEM_CODE_BY_STATE = {
    "blocked": "blocked",
    "unverified": "lock-broken",
    "shadowed": "shadowed",
    "needs setup": "needs-setup",
}


class SkillOrigin(NamedTuple):
    """The location a skill was found in."""

    root: str
    """Absolute folder."""
    source: Source
    label: str
    """Display name: `.agents/skills`, `~/.config/agents/skills`."""
    writable: bool = True
    remote: str = ""
    """The server, such as `mcp docs`; empty when local.

    Programs of served skills are not run, and their `allowed-tools` grants nothing.
    """
    version: str = ""
    """Of the package or plugin that brought the location."""


class Skill(NamedTuple):
    """A skill in a library: what its frontmatter says, where it is, and whether it is offered.

    Example:
        from satchel import Satchel

        skill = Satchel.for_project(".").get_skill("pdf-forms")
        assert skill is not None
        print(skill.name, skill.description, skill.path, skill.state)
    """

    head: SkillHeader
    origin: SkillOrigin
    state: State = "active"
    """`active` when it is offered; the other states say why it is not."""
    shadowed_by: str = ""
    """The `ref` of the skill that shadows it."""

    @property
    def name(self) -> str:
        """The name in its frontmatter."""
        return self.head.name

    @property
    def reference(self) -> str:
        """Its name, or its quoted path where a shell would split the name."""
        if re.fullmatch(r"\w[\w.-]*", self.head.name):
            return self.head.name
        import shlex

        return shlex.quote(self.base_dir)

    @property
    def description(self) -> str:
        """What it does and when to use it."""
        return self.head.description

    @property
    def id(self) -> str:
        """Its folder relative to the location: the folder's name, or a path when nested."""
        return self.head.id or os.path.basename(self.origin.root)

    @property
    def ref(self) -> str:
        """Unique reference: the location's label and the id."""
        return f"{self.origin.label}/{self.head.id}" if self.head.id else f"{self.origin.label}/"

    @property
    def base_dir(self) -> str:
        """Absolute folder of the skill."""
        return os.path.join(self.origin.root, self.head.id) if self.head.id else self.origin.root

    @property
    def path(self) -> str:
        """Absolute path of its SKILL.md."""
        return os.path.join(self.base_dir, self.head.file)

    @property
    def mtime(self) -> float:
        """When the file was last changed, in seconds."""
        return self.head.mtime_ns / 1e9

    @property
    def source(self) -> Source:
        """The kind of location: `project`, `global`, `builtin` and others."""
        return self.origin.source

    @property
    def is_system(self) -> bool:
        """Shipped with a product, and read-only."""
        return self.origin.source in ("builtin", "system")

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems found while reading the frontmatter; `satchel check --spec` finds more."""
        path = self.path
        return tuple(problem.at(path) for problem in self.head.problems)

    @property
    def is_tool(self) -> bool:
        """Whether it has a skill.yaml and no SKILL.md: tools without instructions."""
        return self.head.file == MANIFEST

    @property
    def when_to_use(self) -> str:
        """The `when_to_use` field, or empty."""
        return str((self.head.extra or {}).get("when_to_use", ""))

    @property
    def argument_hint(self) -> str:
        """The `argument-hint` field, or empty."""
        return str((self.head.extra or {}).get("argument-hint", ""))

    @property
    def tags(self) -> tuple[str, ...]:
        """The `tags` field."""
        return tuple((self.head.extra or {}).get("tags", ()))

    @property
    def requirements(self) -> SkillRequirements:
        """What it requires of the machine and of the library."""
        return SkillRequirements(**(self.head.extra or {}).get("requires", {}))

    @property
    def setup_problem(self) -> Problem | None:
        """Why it has the state `needs setup`; None in other states."""
        return next(
            (problem for problem in self.head.problems if problem.code == "needs-setup"), None
        )

    @property
    def for_model(self) -> bool:
        """False when the author set `disable-model-invocation`."""
        return not (self.head.extra or {}).get("disable-model-invocation", False)

    @property
    def for_people(self) -> bool:
        """False when the author set `user-invocable: false`."""
        return bool((self.head.extra or {}).get("user-invocable", True))

    @property
    def shown_state(self) -> str:
        """Its state for people: `withheld` when only a person can load it."""
        if self.state == "active" and not self.for_model and not self.is_tool:
            return "withheld"
        return self.state

    def problem_code(self, *, unpinned: bool) -> str:
        """The code of the problem because of which it is not offered; empty when there is none.

        Args:
            unpinned: Whether an untrusted skill is so because no lockfile pins it.
        """
        if self.state == "untrusted":
            return "unpinned" if unpinned else "untrusted"
        return _PROBLEM_CODE_BY_STATE.get(self.state, "")

    def read(self, verify: Callable[[bytes], None] | None = None) -> SkillDocument:
        """Read the whole file: fields, body and all problems.

        Args:
            verify: Called with the bytes of the document; raises to refuse them.

        Raises:
            NotFound: the file does not exist any more.
            Refused: the operating system denies access, or it is a served skill and `verify` is
                None.
        """
        from satchel.skill.reader import load_document

        if self.origin.remote and verify is None:
            raise Refused(
                Message(
                    "The skill `{name}` lies on a server ({origin}) and is read when it is loaded",
                    name=self.name,
                    origin=self.origin.remote,
                ),
                Message("Run `{command}`", command=f"satchel show {self.reference}"),
            )

        return load_document(self.base_dir, self.head.file, self.head.id, verify)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "is_system": self.is_system,
            "state": self.shown_state,
            "ref": self.ref,
            "path": self.path,
            "base_dir": self.base_dir,
            "mtime": self.mtime,
            "tags": list(self.tags),
            "winner": self.shadowed_by or None,
            **({"origin": self.origin.remote} if self.origin.remote else {}),
            **({"version": self.origin.version} if self.origin.version else {}),
            "problems": [problem.to_dict() for problem in self.problems],
        }
