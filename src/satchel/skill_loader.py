"""`SkillLoader`: the skills of one folder as text, for an agent loop that has its own Skill tool.

skills = SkillLoader(".skills")
skills.get_descriptions()              # for the system prompt
skills.get_skill_content("pdf-forms")  # for the result of a tool call

`Satchel` adds what this leaves out: more locations, settings, a budget, arguments and permissions.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from satchel.catalogue.budget import sentence_ends, shorten
from satchel.catalogue.render import clean
from satchel.errors import NotFound, SatchelError
from satchel.library import Library, TrustStore
from satchel.library.verdict_cache import VerdictCache
from satchel.project import Notices
from satchel.settings import find_paths

if TYPE_CHECKING:
    from satchel.skill.model import Skill

_MAX_DESCRIPTION_CHARS = 1_024
"""As the format allows; a longer one is truncated."""


class SkillLoader:
    """The skills below one folder, which is trusted. Each call sees the folder as it is now.

    Example:
        from satchel import SkillLoader

        skills = SkillLoader("skills")
        system = "You help in this repository." + skills.get_descriptions()
        answer = skills.get_skill_content("code-review") or "There is no such skill"
        assert answer.startswith("Read the change")
    """

    def __init__(self, skills_dir: str | os.PathLike[str]) -> None:
        """Read the frontmatter of all skills; those that cannot be used are logged.

        Args:
            skills_dir: A folder whose folders are skills. There are no skills if it is missing.
        """
        paths = find_paths(os.environ)  # where accepted risks and earlier scans are
        trust = TrustStore(os.path.join(paths.state, "trust.json") if paths.state else None)
        self._library = Library([skills_dir], trust=trust, scans=VerdictCache(paths.cache))
        self._library.on_change(Notices(self._library, os.fspath(skills_dir)))
        self._library.refresh()

    def get_descriptions(self) -> str:
        """One line for each skill, `- name: description`; empty without skills."""
        return "\n".join(
            f"- {clean(skill.name)}: {_description(skill)}" for skill in self._offered()
        )

    def get_skill_content(self, name: str) -> str | None:
        """The text of a skill without its frontmatter, read now; None without such a skill.

        None also for a skill that the scan blocks, or that cannot be read; the reason is logged.

        Args:
            name: The name of a skill, as the model writes it.
        """
        self._library.refresh()
        name = str(name)  # a model may send anything
        skill = self._library.get_skill(name)
        if skill is not None and not skill.for_model:
            return None
        try:
            return self._library.load_content(name).strip()
        except NotFound:
            return None
        except SatchelError as exc:
            logging.getLogger("satchel").warning("%s", exc.message)
            return None

    def list_skills(self) -> list[str]:
        """The names of the skills."""
        return [skill.name for skill in self._offered()]

    def _offered(self) -> list[Skill]:
        return [skill for skill in self._library.refresh().skills if skill.for_model]


def _description(skill: Skill) -> str:
    text = clean(skill.description)
    return shorten(text, _MAX_DESCRIPTION_CHARS, sentence_ends(text))
