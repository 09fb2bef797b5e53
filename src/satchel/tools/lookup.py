"""Finds the skill that a call names, and builds the reply when there is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from satchel.errors import Refused, SatchelError
from satchel.i18n import Message, join_names
from satchel.skill.problems import Problem
from satchel.tools.framing import attribute, one_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Library, Snapshot
    from satchel.library.trust_store import ScriptGrant
    from satchel.skill import Skill
    from satchel.tools.base import ToolCall

_MAX_NAMES_LISTED = 20
_MAX_NAMES_COMPARED = 1_000
"""Comparing names for similarity is slow."""


def find_skill(snapshot: Snapshot, reference: str, project: str) -> Skill | None:
    """The skill of that name, id, ref or path; of several, an offered one.

    A leading `$` or `/`, as in mentions, is ignored.
    """
    reference = reference.strip()
    if reference.endswith("]"):
        # The catalogue adds this suffix to skills of a server.
        reference = reference.partition(" [mcp ")[0]
    plain = reference.lstrip("$/").rstrip("/")
    exact_match = snapshot.get(reference) or snapshot.get(plain)
    if exact_match is not None:
        return exact_match
    keys = [reference, plain]
    if "/" in reference or os.sep in reference:
        keys.append(os.path.normpath(os.path.join(project, os.path.expanduser(reference))))
    skills = (skill for key in keys for skill in snapshot.find(key) if not skill.is_tool)
    return next(skills, None)


def not_offered(call: ToolCall, library: Library, skill: Skill, waiting: str = "") -> Envelope:
    """The reply for a skill that exists but is not active."""
    if skill.state == "untrusted":
        return call.fail("PERMISSION_DENIED", *untrusted_skill(library, skill))
    if skill.state == "blocked":
        return call.fail("PERMISSION_DENIED", *blocked_skill(skill))
    if skill.state == "unverified":
        return refuse_use(call, unverified_skill(library, skill))
    if skill.state == "needs setup":
        return call.fail("EXECUTION_ERROR", *skill_without_setup(skill))
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
    reference = str(call.arguments.get("name") or call.arguments.get("path") or "")
    return unknown_skill(call, library.snapshot(), reference, waiting)


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


def skill_without_setup(skill: Skill) -> tuple[str, Message]:
    """Message and next step for a skill whose requirements are not met."""
    problem = skill.setup_problem
    wrong, fix = problem.for_model() if problem else (Message("It needs setup"), Message(""))
    return one_line(wrong, 600), for_person(fix)


def ended_grant(library: Library, skill: Skill, digest: str = "") -> Problem | None:
    """The problem of a skill that was granted something before its content changed.

    Args:
        library: The library of the skill.
        skill: The skill.
        digest: The digest of its content; of its present content when empty.
    """
    former, tools, scripts = library.trust.former_grant(skill.base_dir)
    if not former or skill.origin.remote:
        return None
    digest = digest or library.integrity.digest(skill)
    now = library.trust.script_grant(skill.base_dir, digest, skill.name)
    options = _lost_options(scripts, now)
    words = [" ".join(options)] if options else []
    if tools and not library.integrity.grants_tools(skill, digest):
        words.append("--grant-tools")
    if former == digest or not words:
        return None
    commands = join_names(
        f"`satchel trust {printable(skill.reference)} {option}`" for option in words
    )
    return Problem("grant-ended", skill.path, values={"name": skill.name, "commands": commands})


def _lost_options(former: ScriptGrant, now: ScriptGrant) -> list[str]:
    """The options of `satchel trust` for what scripts were granted and are not any more."""
    options = ["--network"] if former.network and not now.network else []
    options += [f"--secret {name}" for name in former.secrets if name not in now.secrets]
    options += [f"--variable {name}" for name in former.variables if name not in now.variables]
    return options


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


def unknown_skill(
    call: ToolCall, snapshot: Snapshot, reference: str, waiting: str = ""
) -> Envelope:
    """The reply for an unknown name, or for the name of a broken skill."""
    broken = _broken(snapshot.problems, reference)
    label = one_line(reference, 100)
    if broken is not None:
        return _broken_skill(call, broken, label)
    names = [skill.name for skill in snapshot.skills if skill.for_model or call.as_person]
    near, others = nearest(reference, names)
    listed = [one_line(name, 100) for name in (*near, *others)]
    data = {"available": listed, "available_total": len(names)}
    shown_names = [_quoted(name) for name in listed]
    steps: list[str] = []
    if near:
        steps.append(Message("Nearest: {names}", names=shown_names[: len(near)]))
    unlisted_count = len(names) - len(listed)
    if unlisted_count > 0:
        template = "Available: {names}, and {count} more skills. Find others with SkillSearch"
        if unlisted_count == 1:
            template = "Available: {names}, and 1 more skill. Find it with SkillSearch"
        steps.append(Message(template, names=shown_names, count=f"{unlisted_count:,}"))
    elif names:
        steps.append(Message("Available: {names}", names=shown_names))
    else:
        steps.append(Message("There are none at all"))
    if waiting:
        steps.append(waiting)
        data["notes"] = [waiting]
    step = steps.pop()
    while steps:
        step = Message("{first}. {rest}", first=steps.pop(), rest=step)
    return call.fail("NOT_FOUND", Message("There is no skill `{name}`", name=label), step, data)


def _quoted(name: str) -> str:
    """A skill's name in a sentence for the model, quoted and escaped unless it is plain."""
    plain = all(sign.isalnum() or sign in "-_.:/" for sign in name)
    return name if plain else f'"{attribute(name)}"'


def nearest(reference: str, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The most similar names, and others in their order to fill the list."""
    from difflib import get_close_matches

    low = reference.casefold()
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
    others = [name for name in names[: _MAX_NAMES_LISTED + len(near)] if name not in near]
    return near, others[: _MAX_NAMES_LISTED - len(near)]


def _broken(problems: Iterable[Problem], name: str) -> Problem | None:
    """The problem of a folder of that name whose SKILL.md is broken."""
    name = name.strip().strip("$/").rpartition("/")[2]
    for problem in problems:
        if problem.severity != "error":
            continue
        folder, file = os.path.split(problem.path)
        if file.lower() == "skill.md" and os.path.basename(folder) == name:
            return problem
    return None


def _broken_skill(call: ToolCall, problem: Problem, label: str) -> Envelope:
    reason = problem.values.get("reason", "")
    code = "INTERNAL_ERROR"
    if problem.code == "unreadable":
        denied = os.strerror(13) in reason or os.strerror(1) in reason
        code = "PERMISSION_DENIED" if denied else "EXECUTION_ERROR"
    path = printable(problem.path)
    wrong, fix = describe_problem(problem)
    message = Message("The skill `{name}` cannot be read: {problem}", name=label, problem=wrong)
    step = for_person(Message("{fix} (`{path}`)", fix=fix, path=path))
    return call.fail(code, message, step, path=path)


def describe_problem(problem: Problem) -> tuple[str, str]:
    """What is wrong with a file, with its line, and how to fix it."""
    wrong, fix = (one_line(text, 300) for text in problem.for_model())
    if problem.line:
        wrong = Message("line {line}: {problem}", line=problem.line, problem=wrong)
    return wrong, fix
