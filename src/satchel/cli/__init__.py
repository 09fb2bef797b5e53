"""THE TERMINAL: one file per group of commands.

Reading order: `main` (the entry, and the fast lane around click), `app` (the commands and global
options), `session` (what every command shares), `output` (how words reach a terminal), `helping`
(how `--help` looks), `values` (what may follow an option), then the groups: `listing`, `showing`,
`inspecting`, `explaining`, `checking`, `managing`, `trusting` and the rest.
"""

COMPLETE = "_SATCHEL_COMPLETE"
"""The variable by which a shell asks for completions."""


class Run:
    """What this run has done so far."""

    colour: bool | None = None
    """What `--color` or `--no-color` said; None when neither was given."""
    answered = False
    """Whether it has printed a value for scripts: they get one, not two."""
