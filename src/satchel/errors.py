"""Every exception Satchel raises.

    SatchelError                 base: `code`, `message`, `hint`, `exit_code`
    ├── InvalidInput             a parameter, option or pattern is wrong
    │   └── SettingsError        a setting has a value that cannot be used
    ├── NotFound                 no such skill, file or folder
    ├── AccessDenied             a path leads outside its root, or its kind is not allowed
    ├── Refused                  a policy says no: the skill is not trusted, or reading is denied
    │   ├── Unsafe               an archive, a folder or a repository holds what is never unpacked
    │   ├── Blocked              a scan found what must not be installed unseen
    │   ├── Changed              a skill is not what was locked or checked
    │   ├── Conflict             somebody else's change, or the user's own edits, would be lost
    │   ├── Incomplete           a change was made, but not everything that belongs to it
    │   └── Unsandboxed          no sandbox here, and nobody agreed to run a program without one
    ├── SkillBroken              a file that should be a skill cannot be read as one
    │   └── LockBroken           a lockfile is damaged
    ├── MissingExtra             a feature needs a package that is not installed
    │   └── MissingRuntime       a program needs a Python, Node or Go that is not here
    ├── BuildFailed              a program's dependencies cannot be had, or it does not build
    ├── ModelFailed              a model of embeddings cannot be run or reached
    ├── ServerFailed             a server of skills does not answer, or not as it should
    ├── StepFailed               a step of a goal cannot be done; it says whether to try again
    └── InternalError            a bug in Satchel; please report it

Catch `SatchelError` to catch them all. `code` is the word the response envelope carries, so a
script, a person and a model read the same thing. `hint` is the next step, in the imperative.
"""

from __future__ import annotations

from satchel._language import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class SatchelError(Exception):
    """Base of all errors; never raised itself."""

    code = "INTERNAL_ERROR"
    """The envelope's error code."""
    exit_code = 1
    """What the terminal exits with."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def why(self) -> str:
        """The `reason` that its message was made with; without one, the whole message."""
        values = self.message.values if isinstance(self.message, Message) else {}
        return values.get("reason", self.message)

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


class InvalidInput(SatchelError):
    """A parameter, option or pattern is wrong."""

    code = "INVALID_PARAM"
    exit_code = 2


class SettingsError(InvalidInput):
    """A setting has a value that cannot be used."""


class NotFound(SatchelError):
    """There is no such skill, file or folder."""

    code = "NOT_FOUND"
    exit_code = 3


class AccessDenied(SatchelError):
    """A path leads outside its root, or to a kind of file that may not be read."""

    code = "ACCESS_DENIED"
    exit_code = 4


class Refused(SatchelError):
    """A policy or the operating system says no."""

    code = "PERMISSION_DENIED"
    exit_code = 4


class Unsafe(Refused):
    """An archive, a folder or a repository holds something that is never unpacked."""

    def __init__(self, rule: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.rule = rule
        """Which rule of the reader it broke, such as `path-escapes`."""


class Blocked(Refused):
    """A scan found something that must not be installed unseen."""


class Changed(Refused):
    """A skill is not what was locked or checked."""

    def __init__(self, message: str, hint: str = "", *, files: Iterable[str] = ()) -> None:
        super().__init__(message, hint)
        self.files = tuple(files)
        """Which files differ, as far as that is known."""


class Conflict(Refused):
    """A change would lose somebody else's, or the user's own edits."""


class Incomplete(Refused):
    """A change was made, but not everything that belongs to it, such as its trust."""

    def __init__(self, message: str, hint: str = "", *, receipt: object = None) -> None:
        super().__init__(message, hint)
        self.receipt = receipt
        """What was done, as it would have been returned."""


class Unsandboxed(Refused):
    """There is no sandbox here, and the user did not agree to run a program without one."""


class SkillBroken(SatchelError):
    """A file that should be a skill cannot be read as one."""

    code = "INTERNAL_ERROR"
    exit_code = 5


class LockBroken(SkillBroken):
    """A lockfile is damaged, or is not as Satchel wrote it."""


class MissingExtra(SatchelError):
    """A feature needs a package that is not installed."""

    code = "EXECUTION_ERROR"
    exit_code = 6


class MissingRuntime(MissingExtra):
    """A program needs a Python, Node or Go that is not here."""


class BuildFailed(SatchelError):
    """A program's dependencies cannot be had, or it does not build."""

    code = "EXECUTION_ERROR"
    exit_code = 7


class ModelFailed(SatchelError):
    """A model of embeddings cannot be run or reached."""

    code = "EXECUTION_ERROR"
    exit_code = 1


class ServerFailed(SatchelError):
    """A server of skills does not answer, or not as it should."""

    code = "EXECUTION_ERROR"
    exit_code = 1


class StepFailed(SatchelError):
    """A step of a goal cannot be done."""

    code = "EXECUTION_ERROR"
    exit_code = 1

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        code: str = "EXECUTION_ERROR",
        retryable: bool = True,
        after: float | None = None,
        usage: object = None,
    ) -> None:
        super().__init__(message, hint)
        self.code = code
        """What kind of failure, such as `TIMEOUT`; more kinds than the envelope has."""
        self.retryable = retryable
        """Whether another try may succeed."""
        self.after = after
        """Seconds that a server asked to wait before it."""
        self.usage = usage
        """What this try took all the same: a `satchel.goals.model.Usage`, if it is known."""


class InternalError(SatchelError):
    """A bug in Satchel."""

    exit_code = 70
