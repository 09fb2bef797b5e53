"""Finds the skill that a call names, and builds the reply when there is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from satchel.errors import Refused, SatchelError
from satchel.i18n import Message
from satchel.tools.framing import attribute, one_line, plural, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Library, Snapshot
    from satchel.skill import Problem, Skill
    from satchel.tools.base import ToolCall

_MAX_NAMES_LISTED = 20
_MAX_NAMES_COMPARED = 1_000
"""Comparing names for similarity is slow."""


def find_skill(snapshot: Snapshot, wanted: str, project: str) -> Skill | None:
    """The skill of that name, id, ref or path; of several, an offered one.

    A leading `$` or `/`, as in mentions, is ignored.
    """
    wanted = wanted.strip()
    if wanted.endswith("]"):
        wanted = wanted.partition(" [mcp ")[0]  # the catalogue's suffix for skills of a server
    plain = wanted.lstrip("$/").rstrip("/")
    found = snapshot.get(wanted) or snapshot.get(plain)
    if found is not None:
        return found
    path = ""
    if "/" in wanted or os.sep in wanted:
        path = os.path.normpath(os.path.join(project, os.path.expanduser(wanted)))
    for skill in (*snapshot.skills, *snapshot.hidden):
        head = skill.head
        if head.id == plain or (skill.state != "active" and head.name in (wanted, plain)):
            return skill
        if path and (skill.ref in (wanted, plain) or path in (skill.base_dir, skill.path)):
            return skill
    return None


def not_offered(call: ToolCall, library: Library, skill: Skill, waiting: str = "") -> Envelope:
    """The reply for a skill that exists but is not active."""
    if skill.state == "untrusted":
        return call.fail("PERMISSION_DENIED", *untrusted_skill(library, skill))
    if skill.state == "blocked":
        return call.fail("PERMISSION_DENIED", *blocked_skill(skill))
    if skill.state == "unverified":
        return refuse_use(call, unverified_skill(library, skill))
    if skill.state == "shadowed":
        return call.fail(
            "NOT_FOUND",
            Message("The skill at `{ref}` is shadowed", ref=one_line(skill.ref, 200)),
            Message(
                "Load `{name}`: that is the one at `{ref}`",
                name=one_line(skill.name, 100),
                ref=one_line(skill.shadowed_by, 200),
            ),
        )
    # A skill that a filter excludes is not named.
    given = call.arguments
    wanted = str(given.get("name") or given.get("path") or "")
    return unknown_skill(call, library.snapshot(), wanted, waiting)


def untrusted_skill(library: Library, skill: Skill) -> tuple[Message, Message]:
    """Message and next step for a skill that is not trusted, or that no lockfile pins."""
    name, command = one_line(skill.name, 100), "satchel trust"
    why = Message("The skill `{name}` is not trusted yet", name=name)
    if library.is_unpinned(skill):
        why = Message("`{name}` is not offered: no lockfile pins it as it is", name=name)
        command = "satchel verify"
    return why, for_person(Message("Run `{command}`", command=command))


def blocked_skill(skill: Skill) -> tuple[Message, Message]:
    """Message and next step for a skill that the scan blocks."""
    return (
        Message("The scan blocks the skill `{name}`", name=one_line(skill.name, 100)),
        for_person(
            Message(
                "Read the findings with `satchel scan {name}`. To use it anyway: "
                "`satchel trust {name} --accept-risk WHY`",
                name=one_line(skill.reference, 100),
            )
        ),
    )


def unverified_skill(library: Library, skill: Skill) -> SatchelError:
    """Why a skill beside a damaged lockfile cannot be used."""
    try:
        library.integrity.check(skill)
    except SatchelError as exc:
        return exc
    return Refused(  # repaired since the last refresh
        Message("`{path}` changed meanwhile", path=one_line(skill.reference, 100)),
        Message("Try again"),
    )


def refuse_use(call: ToolCall, exc: SatchelError) -> Envelope:
    """The reply for a skill that may not be used in its current state."""
    return call.fail(cast("ErrorCode", exc.code), one_line(exc.message, 600), for_person(exc.hint))


def for_person(step: str) -> Message:
    """A next step that only a person can take."""
    return Message(
        "Only a person can change that ({step}). Tell the user, and go on without it",
        people="{step}",
        step=one_line(step, 300),
    )


def unknown_skill(call: ToolCall, snapshot: Snapshot, wanted: str, waiting: str = "") -> Envelope:
    """The reply for an unknown name, or for the name of a broken skill."""
    broken = _broken(snapshot.problems, wanted)
    shown = one_line(wanted, 100)
    if broken is not None:
        return _broken_skill(call, broken, shown)
    names = [skill.name for skill in snapshot.skills if skill.for_model or call.as_person]
    near, rest = nearest(wanted, names)
    listed = [one_line(name, 100) for name in (*near, *rest)]
    data = {"available": listed, "available_total": len(names)}
    shown_names = [_quoted(name) for name in listed]
    steps = f"Available: {', '.join(shown_names)}" if names else "There are none at all"
    if len(names) > len(listed):
        steps += f", and {plural(len(names) - len(listed), 'more skill')}"
        steps += ". Find others with SkillSearch"
    if near:
        steps = f"Nearest: {', '.join(shown_names[: len(near)])}. {steps}"
    if waiting:
        steps += f". {waiting}"
        data["notes"] = [waiting]
    return call.fail("NOT_FOUND", Message("There is no skill `{name}`", name=shown), steps, data)


def _quoted(name: str) -> str:
    """A skill's name in a sentence for the model, quoted and escaped unless it is plain."""
    plain = all(sign.isalnum() or sign in "-_.:/" for sign in name)
    return name if plain else f'"{attribute(name)}"'


def nearest(wanted: str, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The most similar names, and others in their order to fill the list."""
    from difflib import get_close_matches

    low = wanted.casefold()
    pool: Sequence[str] = names
    if len(names) > _MAX_NAMES_COMPARED:
        pieces = [piece for piece in low.replace("_", "-").split("-") if len(piece) > 2]
        start = low[:2]
        # Names that share a word or the first letters.
        alike = [name for name in names if any(piece in name for piece in pieces)]
        alike += [name for name in names if name.startswith(start)]
        pool = list(dict.fromkeys(alike))[:_MAX_NAMES_COMPARED]
    folded = {name.casefold(): name for name in reversed(pool)}
    near = [folded[key] for key in get_close_matches(low, list(folded), n=5, cutoff=0.6)]
    rest = [name for name in names[: _MAX_NAMES_LISTED + len(near)] if name not in near]
    return near, rest[: _MAX_NAMES_LISTED - len(near)]


def _broken(problems: Iterable[Problem], wanted: str) -> Problem | None:
    """The problem of a folder of that name whose SKILL.md is broken."""
    wanted = wanted.strip().strip("$/").rpartition("/")[2]
    for problem in problems:
        if problem.severity != "error":
            continue
        folder, file = os.path.split(problem.path)
        if file.lower() == "skill.md" and os.path.basename(folder) == wanted:
            return problem
    return None


def _broken_skill(call: ToolCall, problem: Problem, shown: str) -> Envelope:
    reason = problem.values.get("reason", "")
    code = "INTERNAL_ERROR"
    if problem.code == "unreadable":
        denied = os.strerror(13) in reason or os.strerror(1) in reason
        code = "PERMISSION_DENIED" if denied else "EXECUTION_ERROR"
    path = printable(problem.path)
    wrong, fix = describe_problem(problem)
    message = Message("The skill `{name}` cannot be read: {problem}", name=shown, problem=wrong)
    step = for_person(Message("{fix} (`{path}`)", fix=fix, path=path))
    return call.fail(code, message, step, path=path)


def describe_problem(problem: Problem) -> tuple[str, str]:
    """What is wrong with a file, with its line, and how to fix it."""
    wrong, fix = (one_line(text, 300) for text in problem.for_model())
    if problem.line:
        wrong = Message("line {line}: {problem}", line=problem.line, problem=wrong)
    return wrong, fix
