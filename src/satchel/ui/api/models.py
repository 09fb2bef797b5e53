"""What the JSON endpoints take and give. One shape for every error.

{"error": {"code": "NOT_FOUND", "message": "There is no skill `x`", "hint": "…"}}
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from satchel.goals.model import GoalState, StepState

Scope = Literal["project", "global"]
Name = Annotated[str, StringConstraints(max_length=256)]
Ref = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Id = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]+(-[a-z0-9]+)*)?$", max_length=64)]


class _Asked(BaseModel):
    """A question: what nobody knows is refused, so that nobody misspells in vain."""

    model_config = ConfigDict(extra="forbid")


class Trouble(BaseModel):
    """What went wrong, for programs and for people."""

    code: str
    message: str
    hint: str


class Failed(BaseModel):
    """The answer of everything that failed."""

    error: Trouble


class Entering(_Asked):
    """Who wants to come in: by a link's token, or by the password."""

    token: Annotated[str, StringConstraints(max_length=256)] = ""
    password: Annotated[str, StringConstraints(max_length=1024)] = ""


class Entered(BaseModel):
    """Somebody came in; the cookie is in the answer's headers."""

    csrf: str
    """Send it as `X-Satchel-CSRF` with everything that changes something."""
    name: str
    """Who it is, as far as is known."""


class SkillRow(BaseModel):
    """One skill of the list."""

    ref: str
    name: str
    id: str
    description: str
    source: str
    place: str
    is_system: bool
    state: str
    hidden_by: str


class SkillPage(BaseModel):
    """One page of the list."""

    skills: list[SkillRow]
    total: int
    page: int
    pages: int
    more: bool
    """There may be more than were found: say more words."""


class OneSkill(SkillRow):
    """A skill as it is on disk."""

    path: str
    editable: bool
    """It is the user's own, and may be changed and removed."""
    problems: list[Ill]


class Ill(BaseModel):
    """One thing that is wrong or odd."""

    code: str
    severity: Literal["error", "warning", "note"]
    message: str
    fix: str
    path: str
    line: int


class FileEntry(BaseModel):
    """A file or a folder of a skill."""

    name: str
    path: str
    kind: Literal["file", "program", "link", "odd", "folder"]
    size: str
    said: str
    inside: list[FileEntry]


class FileTree(BaseModel):
    """The files of a skill."""

    entries: list[FileEntry]
    total: int
    size: str
    more: int
    failed: str


class FileText(BaseModel):
    """What a file holds, as far as it is shown."""

    path: str
    size: int
    kind: Literal["text", "picture", "binary"]
    text: str
    cut: bool
    said: str


class Chapter(BaseModel):
    """A part of a story."""

    title: str
    lines: list[str]
    mood: str


class Why(BaseModel):
    """What became of a skill, and what to do next."""

    name: str
    verdict: str
    chapters: list[Chapter]
    advice: list[str]


class NewSkill(_Asked):
    """A skill that somebody writes."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    id: Id = ""
    """Needed where none can be made of the name; else made of it when empty."""
    description: Annotated[str, StringConstraints(max_length=4096)] = ""
    body: Annotated[str, StringConstraints(max_length=200_000)] = ""
    scope: Scope = "project"


class FromGit(_Asked):
    """Skills of a repository."""

    address: Annotated[str, StringConstraints(min_length=1, max_length=2048)]
    ref: Annotated[str, StringConstraints(max_length=256)] = ""
    path: Annotated[str, StringConstraints(max_length=1024)] = ""
    skill_id: Id = ""
    names: Annotated[
        list[Annotated[str, StringConstraints(max_length=256)]], Field(max_length=1000)
    ] = []
    everything: bool = False
    scope: Scope = "project"


class Fetching(BaseModel):
    """A repository that is being fetched. Why it failed is an error of the address in `ask`."""

    key: str
    state: Literal["fetching", "choosing", "planned"]
    """`choosing`: it was begun in a page, and somebody chooses there."""
    line: str
    """What git says it is doing."""
    ask: str
    """The address to ask again; DELETE it to cancel."""
    plan: str
    """The key of the change that waits for a yes; empty while it is fetched."""


class Step(BaseModel):
    """What a change does to one skill."""

    id: str
    name: str
    action: Literal["add", "replace", "remove", "same", "refused"]
    added: list[str]
    removed: list[str]
    changed: list[str]
    verdict: str
    """Of the scan; empty when nothing was scanned."""
    findings: list[dict[str, Any]]
    notes: list[str]
    error: str


class Planned(BaseModel):
    """A change that waits for a yes."""

    key: str
    op: str
    scope: Scope
    steps: list[Step]
    blocked: bool
    """The scan found what must not be installed unseen: it needs `accept_risk`."""
    replaces: bool
    """It takes away something that is there now."""
    overwrites: list[str]
    """Skills that an import would overwrite: a yes names them in `overwrite`."""


class Yes(_Asked):
    """Carry it out."""

    accept_risk: Annotated[str, StringConstraints(max_length=500)] = ""
    """Why it is installed although the scan says no."""
    overwrite: Annotated[list[Name], Field(max_length=10_000)] = []
    """The skills that may be overwritten, each by its id; `*` for all of them."""


class Done(BaseModel):
    """What was done."""

    number: int
    """Its place in the history; 0 when there was nothing to do."""
    ids: list[str]
    left: list[str]
    """Skills that the scan blocked and nobody accepted."""
    trouble: list[str] = []
    """What of it could not be done all the same, such as its approval, and what to do."""
    notes: list[str] = []
    """What else is worth knowing, such as a repository that went with its skill."""


class Which(_Asked):
    """Which change of the history: the last one, or nothing is done."""

    number: Annotated[int, Field(ge=1)]
    """As the answer of the change, or of the undoing, or the history says it."""
    scope: Scope = "project"


class Past(BaseModel):
    """A change of the past."""

    number: int
    op: str
    summary: str
    time: str
    ids: list[str]
    state: Literal["done", "undone", "past", "damaged"]


class History(BaseModel):
    """The changes that are remembered, newest first."""

    changes: list[Past]


class Told(BaseModel):
    """What the model is told at a budget."""

    text: str
    budget: int
    used: int
    unit: str
    total: int
    full: int
    shortened: int
    named: int
    unlisted: int
    withheld: int
    summary: str


class Problems(BaseModel):
    """What is wrong here."""

    problems: list[Ill]
    total: int


class GoalRow(BaseModel):
    """One goal of the list."""

    id: str
    state: GoalState
    text: str
    engine: str
    started: float
    """Seconds since the epoch."""
    seconds: float
    done: int
    steps: int


class GoalPage(BaseModel):
    """Goals, the latest first."""

    goals: list[GoalRow]
    before: float | None
    """Ask for older ones with this; null when there are none."""


class GoalStep(BaseModel):
    """A step of a goal."""

    id: str
    state: StepState
    output: Any
    error: str
    attempts: int
    seconds: float
    skills: list[str]
    tools: list[str]
    notes: list[str]


class OneGoal(BaseModel):
    """A goal as it stands."""

    id: str
    state: GoalState
    text: str
    engine: str
    revision: int
    started: float
    ended: float
    seconds: float
    reason: str
    steps: list[GoalStep]


class Answering(_Asked):
    """A person's word to a step that asks."""

    step: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    approve: bool = True
    value: Any = None
    """The step's output; a plain yes when null."""
    note: Annotated[str, StringConstraints(max_length=20_000)] = ""
    allow: bool = False
    """Tools that write or use the network may be called."""


class Again(_Asked):
    """Do again what failed, or all from a step on."""

    from_step: Annotated[str, StringConstraints(max_length=256)] = ""
    allow: bool = False
    """As in an answer."""


OneSkill.model_rebuild()
FileEntry.model_rebuild()
