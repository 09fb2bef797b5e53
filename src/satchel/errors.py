"""The exceptions of Satchel.

    SatchelError                 base: `code`, `message`, `hint`, `exit_code`
    ├── InvalidInput             a parameter, option or pattern is wrong
    │   └── SettingsError        a setting has a value that cannot be used
    ├── NotFound                 no such skill, file or folder
    ├── AccessDenied             a path leads outside its root, or its kind is not allowed
    ├── Refused                  a policy or the operating system denies it
    │   ├── Unsafe               an archive, folder or repository has content that is never unpacked
    │   ├── Blocked              the security scan blocks a skill
    │   ├── Changed              a skill differs from what was locked or checked
    │   ├── Conflict             another change, or the user's own edits, would be lost
    │   │   ├── EditConflict     the user and the source changed the same lines of a skill
    │   │   └── NameTaken        a skill would take the name of an installed one
    │   ├── Incomplete           a change was made only in part
    │   └── Unsandboxed          no sandbox is available, and the user requires one
    ├── SkillBroken              a file that should be a skill cannot be read as one
    │   └── LockBroken           a lockfile is damaged
    ├── MissingExtra             a feature needs a package that is not installed
    │   └── MissingRuntime       a program needs a Python, Node or Go that is not installed
    ├── BuildFailed              a program or its dependencies cannot be built
    ├── ModelFailed              an embedding model cannot be run or reached
    ├── ServerFailed             a server of skills does not answer, or not correctly
    ├── StepFailed               a step of a goal failed; `retryable` if a retry may help
    └── InternalError            a bug in Satchel; please report it

Catch `SatchelError` to catch them all. `code` equals the error code of the response envelope.
`hint` is the next step, in the imperative.
"""

from __future__ import annotations

from satchel.i18n import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class SatchelError(Exception):
    """The base of all exceptions of Satchel; only its subclasses are raised.

    `str()` has the message and the hint.

    Example:
        from satchel import Satchel, SatchelError

        try:
            Satchel.for_project(".").load_content("nothing")
        except SatchelError as error:
            print(error.code, error.message, error.hint)
    """

    code = "INTERNAL_ERROR"
    """Error code of the envelope."""
    exit_code = 1
    """Exit status of the command."""

    def __init__(self, message: str, hint: str = "") -> None:
        """Create an error.

        Args:
            message: What happened, and why.
            hint: What to do.
        """
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def why(self) -> str:
        """The `reason` value of its message; without one, the whole message."""
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
    """No such skill, file or folder."""

    code = "NOT_FOUND"
    exit_code = 3


class AccessDenied(SatchelError):
    """A path leads outside its root, or its kind is not allowed."""

    code = "ACCESS_DENIED"
    exit_code = 4


class Refused(SatchelError):
    """A policy or the operating system denies it."""

    code = "PERMISSION_DENIED"
    exit_code = 4


class Unsafe(Refused):
    """An archive, folder or repository has content that is never unpacked."""

    def __init__(self, rule: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.rule = rule
        """The violated rule, such as `path-escapes`."""


class Blocked(Refused):
    """The security scan blocks a skill."""


class Changed(Refused):
    """A skill differs from what was locked or checked."""

    def __init__(self, message: str, hint: str = "", *, files: Iterable[str] = ()) -> None:
        super().__init__(message, hint)
        self.files = tuple(files)
        """Files that are known to differ."""


class Conflict(Refused):
    """Another change, or the user's own edits, would be lost."""


class EditConflict(Conflict):
    """The user and the source changed the same lines of a skill."""

    def __init__(
        self, message: str, hint: str = "", *, files: Iterable[str] = (), marked: str = ""
    ) -> None:
        super().__init__(message, hint)
        self.files = tuple(files)
        """The files with conflicts."""
        self.marked = marked
        """The conflicts: both versions of the lines."""


class NameTaken(Conflict):
    """A skill would take the name of an installed one."""

    def __init__(self, message: str, hint: str = "", *, suggestion: str = "") -> None:
        super().__init__(message, hint)
        self.suggestion = suggestion
        """A free name."""


class Incomplete(Refused):
    """A change was made only in part, for example without its trust."""

    def __init__(self, message: str, hint: str = "", *, receipt: object = None) -> None:
        super().__init__(message, hint)
        self.receipt = receipt
        """The result that would have been returned."""


class Unsandboxed(Refused):
    """No sandbox is available, and the user requires one."""


class SkillBroken(SatchelError):
    """A file that should be a skill cannot be read as one."""

    code = "INTERNAL_ERROR"
    exit_code = 5


class LockBroken(SkillBroken):
    """A lockfile is damaged or was edited."""


class MissingExtra(SatchelError):
    """A feature needs a package that is not installed."""

    code = "EXECUTION_ERROR"
    exit_code = 6


class MissingRuntime(MissingExtra):
    """A program needs a Python, Node or Go that is not installed."""


class BuildFailed(SatchelError):
    """A program or its dependencies cannot be built."""

    code = "EXECUTION_ERROR"
    exit_code = 7


class ModelFailed(SatchelError):
    """An embedding model cannot be run or reached."""

    code = "EXECUTION_ERROR"
    exit_code = 1


class ServerFailed(SatchelError):
    """A server of skills does not answer, or not correctly."""

    code = "EXECUTION_ERROR"
    exit_code = 1


class StepFailed(SatchelError):
    """A step of a goal failed."""

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
        """Kind of failure, such as `TIMEOUT`; there are more kinds than in the envelope."""
        self.retryable = retryable
        self.after = after
        """Seconds to wait before a retry, as requested by a server."""
        self.usage = usage
        """Usage of the failed attempt: a `satchel.goals.model.Usage`, if known."""


class InternalError(SatchelError):
    """A bug in Satchel."""

    exit_code = 70
