"""One run of a case: a fresh workspace, one turn of the agent, and the checks by program.

The workspace has the skill of the arm, without its folder `evals`, and the input files of the case.
So no run sees the files of another, expectations or receipts. The user's other skills and servers
are left out: both arms differ in one skill alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_ai.messages import ModelMessagesTypeAdapter

from satchel._fs import is_really_inside
from satchel.agent.agent import Agent
from satchel.errors import SatchelError
from satchel.goals.output_schema import violations
from satchel.i18n import say
from satchel.project import library_for
from satchel.runners.base import ProgramPermissions, RunRequest, ScriptInput
from satchel.runners.scripts import plan_script
from satchel.satchel import Satchel
from satchel.settings import load_settings
from satchel.skill.eval_file import FOLDER, find_input

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from satchel.session.permissions import ApprovalRequest
    from satchel.skill.eval_file import EvalCase, EvalCheck
    from satchel.skill.model import Skill

SKILL_ARM = "skill"
BASELINE = "without"
AGAINST = "against"
INSTRUCTIONS = (
    "You do one task in the folder of a project, with the skills and tools that you have."
    " You cannot ask back. Say plainly what you could not do."
)
_MAX_EXAMINED_BYTES = 1 << 20
_MAX_FILE_CHARS_SHOWN = 4_000
_MAX_FILES_SHOWN = 10
_MAX_ANSWER_CHARS = 30_000
_NOT_COPIED = (".git", ".hg", ".svn", "__pycache__")


class Arm(NamedTuple):
    """One of the compared conditions."""

    name: str
    folder: str = ""
    """The skill's folder; empty without a skill."""


class RunOutcome(NamedTuple):
    """What came out of one run."""

    text: str
    """The answer, and the text files that were written, as a judge sees them."""
    checks: list[tuple[bool, str]]
    """Of each check by program: whether it passed, and why not."""
    loaded: bool
    """Whether the model loaded the skill by itself."""
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    seconds: float
    transcript: str
    """The path of the messages."""


class RunSettings(NamedTuple):
    """What all runs of an evaluation share."""

    skill: Skill
    model: Model
    allow_tools: bool
    sandbox: str


def run_prompt(case: EvalCase, folder: str) -> str:
    """The user's message: the prompt, and where its input files are."""
    names = [f"`{_place_of(find_input(folder, file))}`" for file in case.files]
    names = [name for name in names if name != "``"]
    return f"{case.prompt}\n\nFiles: {', '.join(names)}" if names else case.prompt


def open_workspace(workspace: str, arm: Arm, settings: RunSettings) -> Satchel:
    """Open the project of a run, with no skill but that of the arm."""
    name = settings.skill.name
    limits: dict[str, Any] = {"include": [name]} if arm.folder else {"exclude": ["*"]}
    loaded = load_settings(
        workspace,
        trust="all",
        builtin=False,
        packaged=False,
        ecosystem=False,
        trace="memory",
        servers={},
        hubs={},
        sandbox=settings.sandbox,
        **limits,
    )
    return Satchel(library_for(loaded), loaded)


def make_workspace(parent: str, case: EvalCase | None, arm: Arm, settings: RunSettings) -> str:
    """Create the folder of a run; returns its path."""
    workspace = os.path.join(parent, "workspace")
    os.makedirs(os.path.join(workspace, ".agents", "skills"))
    if arm.folder:

        def skip(folder: str, names: list[str]) -> list[str]:
            is_top = os.path.samefile(folder, arm.folder)
            return [name for name in names if name in _NOT_COPIED or (is_top and name == FOLDER)]

        target = os.path.join(workspace, ".agents", "skills", os.path.basename(arm.folder))
        shutil.copytree(arm.folder, target, symlinks=True, ignore=skip)
    for file in case.files if case is not None else ():
        source = find_input(settings.skill.base_dir, file)
        if source:
            target = os.path.join(workspace, _place_of(source))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(settings.skill.base_dir, source), target)
    return workspace


def _place_of(source: str) -> str:
    """The place of an input file in the workspace."""
    return source.removeprefix(f"{FOLDER}/").removeprefix("files/")


async def run_case(case: EvalCase, arm: Arm, settings: RunSettings, transcript: str) -> RunOutcome:
    """Run a case once in one arm.

    Raises:
        SatchelError: the provider cannot be reached or refuses.
        EvaluationStopped: the budget allows no more requests.
    """
    parent = await asyncio.to_thread(tempfile.mkdtemp, prefix="satchel-eval-")
    try:
        workspace = await asyncio.to_thread(make_workspace, parent, case, arm, settings)
        before = await asyncio.to_thread(_list_files, workspace)
        satchel = await asyncio.to_thread(open_workspace, workspace, arm, settings)
        try:
            session = satchel.session(approve=True if settings.allow_tools else _approve_changes)
            agent = Agent(satchel, settings.model, instructions=INSTRUCTIONS, session=session)
            text, report = await agent.run(run_prompt(case, settings.skill.base_dir))
            messages = ModelMessagesTypeAdapter.dump_json(agent.history, indent=1)
            await asyncio.to_thread(_write, transcript, messages)
            bench = CheckBench(satchel, settings.skill, workspace, text)
            checks = await asyncio.to_thread(
                lambda: [bench.examine(check) for check in case.checks]
            )
            changed = await asyncio.to_thread(_show_changes, workspace, before)
        finally:
            await asyncio.to_thread(satchel.close)
    finally:
        await asyncio.to_thread(shutil.rmtree, parent, ignore_errors=True)
    return RunOutcome(
        text[:_MAX_ANSWER_CHARS] + changed,
        checks,
        settings.skill.name in report.skills,
        report.requests,
        input_tokens=report.input_tokens,
        output_tokens=report.output_tokens,
        cost=report.cost,
        seconds=report.seconds,
        transcript=transcript,
    )


def _approve_changes(request: ApprovalRequest) -> bool:
    """Approve changes of the workspace, which is a copy, and nothing else."""
    return bool(request.changes) and not any(change.needs_consent for change in request.changes)


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _list_files(workspace: str) -> dict[str, tuple[int, int]]:
    """The files of a workspace without its skills: path -> time and size."""
    files: dict[str, tuple[int, int]] = {}
    for folder, names, leaves in os.walk(workspace):
        names[:] = [name for name in names if name != ".agents"]
        for path in [os.path.join(folder, leaf) for leaf in leaves]:
            info = os.lstat(path)
            files[os.path.relpath(path, workspace)] = (info.st_mtime_ns, info.st_size)
    return files


def _show_changes(workspace: str, before: dict[str, tuple[int, int]]) -> str:
    """The files that a run wrote, as text for the judge."""
    after = _list_files(workspace)
    changed = sorted(path for path, stamp in after.items() if before.get(path) != stamp)
    parts: list[str] = []
    for path in changed[:_MAX_FILES_SHOWN]:
        text = _read_text(workspace, path) or ""
        parts.append(f"\n\n[file {path}]\n{text[:_MAX_FILE_CHARS_SHOWN]}")
    return "".join(parts)


def _read_text(workspace: str, path: str) -> str | None:
    """The text of a file in the workspace; None where there is none."""
    full_path = os.path.join(workspace, path)
    if not is_really_inside(full_path, workspace) or not os.path.isfile(full_path):
        return None
    with open(full_path, "rb") as file:
        return file.read(_MAX_EXAMINED_BYTES).decode("utf-8", "replace")


class CheckBench(NamedTuple):
    """What checks by program examine."""

    satchel: Satchel
    skill: Skill
    workspace: str
    answer: str

    def examine(self, check: EvalCheck) -> tuple[bool, str]:
        """Whether a check passes, and why not."""
        if check.kind == "script":
            return self._run_script(check)
        path = check.value if check.kind == "file" else check.file
        text = _read_text(self.workspace, path) if path else self.answer
        if text is None:
            return False, say("There is no `{path}`", path=path)
        if check.kind == "schema":
            return _check_schema(text, check.value)
        if check.kind == "contains":
            return check.value in text, say("it does not contain the text")
        if check.kind == "matches":
            return bool(re.search(check.value, text, re.MULTILINE)), say("it does not match")
        return True, ""

    def _run_script(self, check: EvalCheck) -> tuple[bool, str]:
        """Run a script of the skill in the sandbox, where it reads the workspace and the answer."""
        runner, folder = self.satchel.runner, self.skill.base_dir
        try:
            plan = plan_script(folder, check.value)
            if plan.packages and not runner.is_built(folder, plan):
                return False, say("a script that checks cannot install packages")
            result = runner.run(
                RunRequest(
                    self.skill.ref,
                    "eval",
                    {},
                    runner.prepare_script(folder, plan),
                    permissions=ProgramPermissions(self.workspace),
                    script=ScriptInput(check.args, self.answer),
                )
            )
        except (SatchelError, OSError) as exc:
            return False, str(getattr(exc, "message", exc))
        output = (result.stderr or result.output or result.detail).strip()
        return result.fault is None and result.exit_code == 0, output[-300:]


def _check_schema(text: str, schema: dict[str, Any]) -> tuple[bool, str]:
    fence = re.search(r"```(?:json)?\s*\n(.*?)```", text, re.DOTALL)
    try:
        value: Any = json.loads(fence.group(1) if fence else text)
    except ValueError as exc:
        return False, say("It is not valid JSON: {reason}", reason=exc)
    faults = violations(value, schema)
    return not faults, "; ".join(faults)
