"""What do tool skills tell a model when a call fails, and what is told to a person?

The sentences of `tools/` and `runners/` about programs, for `retelling`. Fields in `NESTED` hold
sentences of their own. `BOUND` ones must be known, or the sentence around them is another one.
"""

from __future__ import annotations

_UNTRUSTED = (
    "The tool `{tool}` belongs to the skill `{name}`, which came with `{where}` and is not trusted "
    "yet"
)
SAME = (
    # What is wrong with arguments (parameters)
    "The arguments are not valid JSON",
    "The arguments are {kind}, not an object",
    "Send one JSON object",
    "there is no parameter `{name}`",
    "`{name}` and `{other}` are the same parameter and differ",
    "`{name}` is missing",
    "must be {kind}, not {other_kind}",
    "must be at least {least}",
    "must be at most {most}",
    "is empty",
    "is too large a number",
    "has {count} characters; at most {most} are taken",
    "The parameters are {names}",
    "It takes no parameters",
    "a text",
    "a whole number",
    "a number",
    "true or false",
    "a list",
    "an object",
    "an array",
    "a string",
    "a boolean",
    # Before a program is run (script_tool, script_tools, toolset, secrets)
    "There is no tool `{name}`",
    "The tools are {names}",
    "The skill `{name}` changed meanwhile",
    "Call it again",
    "The arguments have {size} bytes; at most {limit} are handed over",
    "Write long text to a file and give its path",
    "The tool `{tool}` needs a secret. {why}",
    "Not set: {names}",
    "Put `{name}=…` into `{path}`, or set `{name}` in the environment",
    "Set `{name}` in the environment",
    "The secret `{name}` has fewer than {count} characters, too few to be kept out of answers",
    "Use a longer one",
    "The secret `{name}` contains a NUL character",
    "Remove it",
    "`{path}` cannot be used: {reason}",
    "it is not UTF-8",
    "Correct it",
    "Other users may read `{path}`, so no secret is taken from it",
    "Run `chmod 600 {path}`",
    "The tool `{tool}` belongs to the skill `{name}`, which changed since it was approved",
    _UNTRUSTED,
    "The tool `{tool}` belongs to a skill that is shadowed",
    "Use those of `{name}`",
    "The skill `{name}` came with `{where}` and is not trusted yet",
    "The skill of the tool `{tool}` cannot be read: line {line}: {problem}",
    "The skill of the tool `{tool}` cannot be read: {problem}",
    # What a program did (script_tool)
    "The tool `{tool}` failed: {fault} ({detail})",
    "The tool `{tool}` failed: {fault}",
    "its program cannot be started",
    "its program took too long and was ended",
    "the call was taken back",
    "its program crashed",
    "its program failed",
    "its program took too much memory and was ended",
    "its program started too many processes and was ended",
    "its program said nothing",
    "its program stopped in the middle of its answer",
    "its program's answer is too long",
    "its program's answer is not UTF-8",
    "its program's answer is not JSON",
    "its program's answer is not a JSON object",
    "its program's answer has other fields than `output` and `error`",
    "its program answered more than once",
    "its program answered before it was asked",
    "its program did not read what it was asked",
    "preparing it for its first use took longer than {seconds} seconds",
    "Call it again when it is wanted",
    # Why a call had no turn, and why no process started (pool, launcher)
    "the arguments are no JSON: {reason}",
    "the arguments are not JSON: {reason}",
    "its turn did not come within {seconds} s: {count} calls were running",
    "the call was taken back before its turn came",
    "the pool is closed",
    "there is no sandbox on this system",
    "the program cannot be started: {reason}",
    "`{path}` cannot be started: {reason}",
    "the launcher cannot be started: {reason}",
    "the launcher failed: {reason}",
    "the launcher did not answer in time",
    "the launcher dies whenever it is asked for something",
    "the launcher has too many open files",
    "the working folder cannot be entered: {reason}",
    "bubblewrap failed",
    # How the talk with it ended (exchange)
    "it had written {quote} before it was asked",
    "it answered before it had read the whole request",
    "it wrote a blank line too many",
    "it wrote more after its reply: {quote}",
    "it closed its input before it had read the request",
    "it closed its output without a reply",
    "it and its children held more than {size} MB together",
    "it started more than {count} processes",
    "whoever watched over it was killed",
    "it was ended by {signal} without a reply",
    "it was ended by {signal} after {count} bytes of an unfinished line",
    "{name} (a file grew past its limit)",
    "signal {number}",
    "it exited with status {status} without a reply",
    "it exited with status {status} after {count} bytes of an unfinished line",
    "it did not read the whole request, and ended without a reply",
    "it did not read the whole request, and ended after {count} bytes of an unfinished line",
    "it ended after {count} bytes of an unfinished line: {quote}",
    "it ended without a reply",
    "its reply is longer than {count} bytes",
    "there was no reply within {seconds} s; {so_far}",
    "it had written {count} bytes of an unfinished line",
    "it had not read the last {count} bytes of the request",
    "it had written nothing",
    # What is wrong with its line (reply)
    "byte {count} of its reply is not UTF-8 ({reason})",
    "its reply is an empty line",
    "it wrote something that is not its reply: {quote}; send it to stderr",
    "it wrote something that is not its reply: {quote}",  # a long one is cut
    "its reply is spread over several lines; write it in one",
    "its reply is not JSON: {reason} at character {count}: {quote}",
    "its reply holds a number with too many digits",
    "its reply holds `{word}`, which is not JSON",
    "its reply holds the number `{digits}`, which is too large",
    "its reply is nested deeper than {count}",
    "its reply is {kind}, not an object",
    "its reply has the unknown field `{name}`",
    "its reply has neither `output` nor `error`",
    "its reply has the key `{name}` twice",
    "`data` is {kind}, not an object",
    "`{name}` is {kind}, not a string",
    # What a test shows of a fault (authoring/examples); last, since these fit much
    "{code} ({known}): {quote}",
    "{code} ({known})",
    "`{name}` {slip}",
)
_WITHOUT = "Ask the user, and go on without it meanwhile"
OTHERWISE = {
    f"Only a person can decide about that ({{step}}). {_WITHOUT}": "{step}",
    "Only a person can change that ({step}). Tell the user": "{step}",
    f"Only a person can change that, by running `satchel trust`. {_WITHOUT}": (
        "Read it with `satchel show`, then run `satchel trust`"
    ),
    f"Only a person can change that, by running `satchel trust {{name}}`. {_WITHOUT}": (
        "Read it with `satchel show {name}`, then run `satchel trust {name}`"
    ),
    "Go on without it. The user can repair it: {fix}": "{fix}",
    "This is a fault of the skill: tell the user, and go on": (
        "This is a fault of the skill: read what it wrote to stderr, then mend its program"
    ),
    "It has {seconds} seconds. Ask for less at once, or tell the user": (
        "It had {seconds} seconds; make it faster, or raise `timeout:` in `skill.yaml`"
    ),
    "What was downloaded is kept: call it again later, or tell the user": (
        "What was downloaded is kept: try it again later"
    ),
    "It may hold {size} MB. Ask for less at once, or tell the user": (
        "It may hold {size} MB; hold less at once, or raise the setting `tool_memory`"
    ),
}
NESTED = frozenset((
    "step", "why", "fault", "detail", "kind", "other_kind", "slip", "so_far", "signal", "reason",
    "problem", "fix", "known",
))  # fmt: skip
BOUND = frozenset(("fault", "slip", "known"))
STEPS = {
    "Call ReadFile on its folder to see what is there": (
        "Check the path; it is relative to the project"
    ),
    "Ask the user to check its permissions": "Check its permissions",
    "Give another path, or ask the user to check the folder": "Give another path, or check the "
    "folder",
    "Give another path, or ask the user and set `overwrite` to true to replace it": (
        "Give another path, or set `overwrite` to true to replace it"
    ),
}
"""Steps after a file that cannot be used (workspace), for people."""
