"""What is recorded of a goal, and told to people in their language when they look.

Steps and goals say in English why they ended: that runs inside workflows, on other machines, and
is read years later by somebody else.
"""

from __future__ import annotations

GOALS = (
    "Step `{name}`: {why}",
    "Step `{name}` failed, which stops the goal",
    "It needs step `{name}`, which failed",
    "It needs step `{name}`, which was skipped",
    "It needs step `{name}`, which was cancelled",
    "`{tool}` needs a person's approval, and nobody can be asked here",
    "The budget of {count} tokens is used up",
    "The budget of ${cost} is used up",
    "The budget of {count} seconds is used up",
    "before it was tried again it took {amount}",
    "Give the goal a larger `budget`, with `satchel goal retry --plan`: all its tries count",
    "The goal's budget of `seconds` ran out meanwhile",
    "Give the goal more of them, with `satchel goal retry --plan`",
    "It took longer than {count} seconds",
    "Give the step a longer `timeout`, or less to do",
    "Say in the prompt what the output must look like",
    "What it called was cancelled",
    "No worker brought it to an end: {why}",
    "Look at the workers' logs: the step may take their memory, or kill them",
    "The output `{digest}` is not there",
    "The output `{digest}` is not what was written",
    "Do the step that made it again, with `satchel goal retry --from`",
    "Look at what the step before it gave",
    "The engine was closed",
    "answered by {name}",
    "A person said no: {answer}",
    "A person said no",
    "{name} said no: {answer}",
    "{name} said no",
)
