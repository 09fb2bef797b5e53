"""What was a program refused, as far as one can tell?

The kernel refuses silently: a program gets an error number and says what it likes about it. So this
reads what it said, in `error` and on stderr, and names the refusals that leave a plain mark there:
`seen`, never "all". A program that hides its errors is refused just the same.

Each denial is one line, `kind: what was seen; what would allow it`. It stands in the result, for
the person and the model who wonder why a tool does not work.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel._language import say

if TYPE_CHECKING:
    from satchel.runners.base import Powers, RunRequest, RunResult, Tier

_MOST = 5
_LONGEST = 64 * 1024
"""Characters of each end of the text that are looked at."""
_SIGSYS = -31

_NETWORK = re.compile(
    r"address family not supported|EAFNOSUPPORT|network is unreachable|ENETUNREACH"
    r"|temporary failure in name resolution|EAI_AGAIN|name or service not known"
    r"|failed to resolve|no such host",
    re.IGNORECASE,
)
_FILE = re.compile(
    r"(?P<why>permission denied|read-only file system|EACCES|EROFS)[^\n/'\"]{0,40}"
    r"['\"]?(?P<path>/[^\n'\"]{1,300})",
    re.IGNORECASE,
)
"""Python and Node: the reason, then the path."""
_FILE_FIRST = re.compile(
    r"(?P<path>/[^\n'\":]{1,300})['\"]?: (?P<why>permission denied|read-only file system)",
    re.IGNORECASE,
)
"""Go and the shell: the path, then the reason."""
_READ_ONLY = re.compile(r"read-only file system|EROFS", re.IGNORECASE)
_NO_RIGHT = re.compile(r"permission denied|EACCES", re.IGNORECASE)
_FULL = re.compile(r"no space left on device|ENOSPC|file too large|EFBIG", re.IGNORECASE)
_OPERATION = re.compile(r"operation not permitted|\bEPERM\b", re.IGNORECASE)


def seen_denials(
    text: str, tier: Tier, powers: Powers, folder: str = "", exit_code: int | None = None
) -> tuple[str, ...]:
    """What the sandbox was seen to refuse.

    Args:
        text: The program's own error and what it wrote to stderr.
        tier: How it was held; nothing is refused where it was not.
        powers: What it was allowed.
        folder: The skill's folder.
        exit_code: How it ended, negative for a signal.
    """
    if tier == "none":
        return ()
    if len(text) > 2 * _LONGEST:
        text = text[:_LONGEST] + "\n" + text[-_LONGEST:]
    found: dict[str, None] = {}
    if exit_code == _SIGSYS:
        found[say("system call: it was ended for a call in another architecture's numbers")] = None
    if not powers.network and (match := _NETWORK.search(text)):
        seen = match.group()
        found[say("network: `{seen}`; it is not declared in skill.yaml (`network: true`)",
                  seen=seen)] = None  # fmt: skip
    for pattern in (_FILE, _FILE_FIRST):
        for match in pattern.finditer(text):
            path = match["path"].rstrip(" .,)")
            found[_of_file(path, match["why"], powers, folder, tier)] = None
            if len(found) >= _MOST:
                break
    if not (_FILE.search(text) or _FILE_FIRST.search(text)) and _READ_ONLY.search(text):
        found[say("files: something was written where only reading is allowed")] = None
    elif not found and tier == "landlock" and powers.guard and _NO_RIGHT.search(text):
        found[say("files: something was refused in the workspace; {limit}", limit=_beside())] = None
    if match := _FULL.search(text):
        found[say("size: `{seen}`; the scratch folder and each file have a limit",
                  seen=match.group())] = None  # fmt: skip
    if not found and (match := _OPERATION.search(text)):
        found[say("operation: `{seen}`; the sandbox answers so to calls that no tool needs",
                  seen=match.group())] = None  # fmt: skip
    return tuple(found)[:_MOST]


def with_denials(request: RunRequest, result: RunResult) -> RunResult:
    """The same result, with what its sandbox was seen to refuse."""
    text = f"{result.error}\n{result.stderr}"
    found = seen_denials(
        text, result.tier, request.powers, request.program.folder, result.exit_code
    )
    return result._replace(denied=found) if found else result


def _of_file(path: str, why: str, powers: Powers, folder: str, tier: Tier) -> str:
    # The path is the program's word: it is named, never looked at.
    if folder and _beneath(path, folder):
        return say("files: `{path}`: {why}; the skill's own folder is read-only",
                   path=path, why=why)  # fmt: skip
    workspace = powers.workspace
    if workspace and _beneath(path, os.path.realpath(workspace)):
        if powers.writable and tier == "landlock" and not _is_guarded(path, powers.guard):
            return say("files: `{path}`: {why}; {limit}", path=path, why=why, limit=_beside())
        if powers.writable:
            return say("files: `{path}`: {why}; git, skills and settings in the workspace are "
                       "read-only", path=path, why=why)  # fmt: skip
        return say("files: `{path}`: {why}; skill.yaml declares reading only (`files: write`)",
                   path=path, why=why)  # fmt: skip
    return say("files: `{path}`: {why}; it is outside of what the skill may see",
               path=path, why=why)  # fmt: skip


def _is_guarded(path: str, guard: tuple[str, ...]) -> bool:
    return any(_beneath(path, one) for one in guard)


def _beside() -> str:
    return say("in the tier `landlock` nothing is made, renamed or removed directly in a folder "
               "that holds `.git`, skills or settings: write to a folder beside them, or install "
               "bubblewrap")  # fmt: skip


def _beneath(path: str, root: str) -> bool:
    path = os.path.normpath(path)
    return path == root or path.startswith(root.rstrip("/") + "/")
