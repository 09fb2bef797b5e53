"""The command line.

Reading order: `main` (entry point), `app` (the commands and global options), `context` (project,
streams and the `@command` decorator), `console` (output), `options` (parameter types, shared
options and the layout of `--help`), then `commands`.

Every function below may raise a `SatchelError`; `main.guarded` prints it and sets the exit code.
"""

COMPLETION_VARIABLE = "_SATCHEL_COMPLETE"
"""Environment variable by which a shell requests completions."""
EXIT_FAILED = 1
EXIT_INCOMPLETE = 8
"""Nothing failed, but a limit, a missing file or an open question ended the work."""
EXIT_INTERRUPTED = 130


class CommandRun:
    """State of this process that is needed before click has parsed its options."""

    colour: bool | None = None
    """Value of `--color`; None when it was not given."""
    answered = False
    """Whether JSON was printed already: scripts get one value, not two."""
