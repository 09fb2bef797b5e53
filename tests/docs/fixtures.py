"""Prepares the folder of a page before its first block: one function for each fixture.

A page asks with `<!-- fixture: NAME -->`. Prefer a block with a title: the reader sees that file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_server import Request


class Service(Protocol):
    """Something that runs beside a page until its end, and what the page's programs need for it."""

    def environment(self) -> dict[str, str]: ...

    def close(self) -> None: ...


EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")
ASSETS = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "assets")


def three_skills(folder: str) -> None:
    """The project that the guides use: three small skills in the folder `skills`."""
    shutil.copytree(os.path.join(EXAMPLES, "guide"), folder, dirs_exist_ok=True)


def git(folder: str) -> None:
    """The folder is a git repository."""
    subprocess.run(["git", "init", "--quiet", folder], check=True)


def model(folder: str) -> Service:
    """A scripted model where each SDK looks for its provider; for a review it loads a skill."""
    from model_server import ModelServer, Reply

    def script(request: Request) -> Reply:
        if "final_answer" in request.tools:  # smolagents: results are words, an answer is a call
            if request.messages[-1].text.startswith("Observation:"):
                return Reply(calls=[("final_answer", {"answer": "Nothing can break."})])
            return Reply(calls=[("Skill", {"name": "code-review"})])
        if request.results:
            return Reply("Nothing can break.")
        if "review" in request.last_user.partition("\n")[0]:
            (tool,) = (name for name in request.tools if name.endswith("Skill"))  # or MCP's name
            return Reply(calls=[(tool, {"name": "code-review"})])
        return Reply("Hello.")

    return ModelServer(script).start()


def hello_model(folder: str) -> Service:
    """A scripted model that loads `hello-skill` and greets."""
    from model_server import ModelServer, Reply

    def script(request: Request) -> Reply:
        if request.results:
            return Reply("Hello, Ada!")
        return Reply(calls=[("Skill", {"name": "hello-skill", "args": "Ada"})])

    return ModelServer(script).start()


def _follows(skill: str, given: str, file: str, *said: str) -> Callable[[str], Service]:
    """A scripted model that loads a skill, reads a file and answers in the skill's language."""

    def start(folder: str) -> Service:
        from model_server import ModelServer, Reply

        def script(request: Request) -> Reply:
            called = [call.name for message in request.messages for call in message.calls]
            if request.step == 0 and "skill-loaded" not in request.last_user:
                return Reply(calls=[("Skill", {"name": skill, "args": given})])
            if "ReadFile" not in called:
                return Reply(calls=[("ReadFile", {"path": file})])
            read = "".join(request.last_user + result.text for result in request.all_results)
            return Reply(said[any("\u4e00" <= sign <= "\u9fff" for sign in read)])

        return ModelServer(script).start()

    return start


def weekly_report(folder: str) -> Service:
    """The example of that name, with a scripted model beside it."""
    import weekly_model
    from model_server import ModelServer

    left_out = shutil.ignore_patterns("reports", "__pycache__")
    source = os.path.join(EXAMPLES, "weekly_report")
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=left_out)
    return ModelServer(weekly_model.answer).start()


def pdf_form(folder: str) -> Service:
    """The form of the tutorial, and a scripted model that fills it with a script of a skill."""
    from model_server import ModelServer, Reply

    shutil.copy(os.path.join(ASSETS, "form.pdf"), folder)
    arguments = (
        {"script": "scripts/fields.py", "args": ["form.pdf"]},
        {"script": "scripts/fill.py", "args": ["form.pdf", "filled.pdf", "name=Ada Lovelace"]},
    )
    calls = [("RunScript", {"skill": "pdf-forms", **row}) for row in arguments]
    steps = [("Skill", {"name": "pdf-forms"}), *calls]

    def script(request: Request) -> Reply:
        count = len(request.all_results)
        if count < len(steps):
            return Reply(calls=[steps[count]])
        return Reply("The form is filled in: `filled.pdf`.")

    return ModelServer(script).start()


def invoice_model(folder: str) -> Service:
    """A scripted model that seldom writes the line `Total:` without the skill, and its judge."""
    from collections import Counter

    from evals_world import answers_of, grade, is_judge
    from model_server import ModelServer, Reply

    counts: Counter[tuple[str, bool]] = Counter()

    def script(request: Request) -> Reply:
        if is_judge(request):
            return grade(*("Total:" in answer for answer in answers_of(request)))
        has_skill = "Skill" in request.tools
        if has_skill and request.step == 0:
            return Reply(calls=[("Skill", {"name": "invoice-total"})])
        prompt = request.last_user.partition("\n")[0]
        number = counts[prompt, has_skill]
        counts[prompt, has_skill] += 1
        is_good = (number < 4 or "tea" not in prompt) if has_skill else number == 0
        return Reply("Added up.\nTotal: 12.00" if is_good else "It comes to 12.")

    return ModelServer(script).start()


FIXTURES: dict[str, Callable[[str], Service | None]] = {
    "three-skills": three_skills,
    "git": git,
    "model": model,
    "hello-model": hello_model,
    "notes-model": _follows(
        "release-notes",
        "1.2",
        "changes.txt",
        "## 1.2\n\n- Added: it starts faster\n- Fixed: empty files no longer crash it",
        "## 1.2\n\n- 新增：启动更快\n- 修复：遇到空文件不再崩溃",
    ),
    "meeting-model": _follows(
        "meeting-notes",
        "call.txt",
        "call.txt",
        "Decision: version 2.0 is released on Friday.\n\n"
        "Task: Ada writes the release notes, by Thursday.",
        "决定：周五发布 2.0。\n\n任务：小李写发布说明，周四前完成。",
    ),
    "invoice-model": invoice_model,
    "weekly-report": weekly_report,
    "pdf-form": pdf_form,
}
