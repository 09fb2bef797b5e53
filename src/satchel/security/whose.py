"""Whose is it? The user's home or work by its path, and whether the skill itself names an address.

A script that deletes `build/` tidies up after itself; one that deletes `~/Documents` does not. An
address that the user gives is the user's choice; one that is written into the skill is its
author's.
"""

from __future__ import annotations

import re

_OWN = re.compile(
    r"(?:^|/)(?:\.?(?:cache|caches|tmp|temp|build|dist|out|output|node_modules|\.?venv|target|logs?|coverage"
    r"|__pycache__|\.\w[\w.-]*|generated|artifacts?|downloads/\w+|var/(?:cache|tmp)|library))(?:/|$)"
    r"|\.(?:pyc|pyo|tmp|temp|log|bak|o|class|swp|orig|rej|lock|pid|egg-info|DS_Store|map)['\"]?$|mktemp"
    r"|\btest|DS_Store|__pycache__",
    re.IGNORECASE,
)
_HOME = re.compile(
    r"(?:~|\$HOME|\$\(echo ~\)|/home/(?:\*|\$\w+|\w+)|/Users/(?:\*|\$\w+|\w+)|/root|%USERPROFILE%)"
    r"(?:/?|/\*+|/\*\*/\*|/(?:Documents|Desktop|Pictures|Photos|Downloads|Music|Movies|Videos|Projects|Work"
    r"|work|projects|documents|repos|src|code)(?:/.{0,80})?|/(?:\*\*/)?\*\.\w{1,5}|/\.(?:ssh|gnupg|aws|kube))/?$"
    r"|/(?:\*)?$|/(?:home|Users|etc|usr|mnt|media|Volumes)(?:/\*?)?$"
)
_DOCUMENTS = re.compile(
    r"(?:\./|\$PWD/|\*\*/){0,2}\*\.\{?(?:docx?|xlsx?|pptx?|pdf|odt|ods|csv|txt|md|jpe?g|png|heic|mp4|py|js|ts|java|go|rs|c|cpp"
    r"|sql|db|sqlite|json|ipynb|tex|key|pages|numbers|eml|pst)\b",
    re.IGNORECASE,
)
_WORK = re.compile(
    r"(?:\.|\./|\./\*|\*|\.\.|\$PWD|\$\(pwd\)|\$\(git rev-parse --show-toplevel\)|/workspaces?"
    r"|\$\{?(?:WORKSPACE|PROJECT_ROOT|PROJECT_DIR|REPO_ROOT|GITHUB_WORKSPACE|CLAUDE_PROJECT_DIR)\}?"
    r"|\.git)(?:/\*?|/\*\*(?:/\*)?)?$"
)
_ADDRESS = re.compile(
    r"(?:https?|ftps?|wss?|tcp|ssh|git|sftp)://(?:[^\s/@'\"]{1,80}@)?([A-Za-z0-9][\w.-]{2,200})"
    r"|@([A-Za-z0-9][\w-]*(?:\.[\w-]+)+):"
    r"|\b((?:\d{1,3}\.){3}\d{1,3})\b"
)
_NOBODY = re.compile(
    r"(?:^|\.)(?:localhost|example\.(?:com|org|net)|local|internal|test)$|^(?:127|10|192\.168|0)\."
    r"|your|my-?(?:server|host|site|app)|placeholder|<|\{|\$|xxx|acme|company|domain\.|^host$|^server"
    r"|^user|^remote|^api\.(?:github|openai|anthropic|slack)\.com$|(?:^|\.)slack\.com$|amazonaws\.com$"
    r"|googleapis\.com$",
    re.IGNORECASE,
)


def is_own(path: str) -> bool:
    """Whether a path is one that programs make for themselves: a cache, a build, a log."""
    return bool(_OWN.search(path))


def is_home(path: str) -> bool:
    """Whether a path is the user's home, a whole folder of documents in it, or the system."""
    path = path.strip("'\"")
    return any(bool(_HOME.match(one)) and not _OWN.search(one) for one in path.split()[:20])


def is_work(path: str) -> bool:
    """Whether a path is the folder that is worked in, or all documents of one kind."""
    path = path.strip("'\"")
    for one in path.split()[:20]:
        if _OWN.search(one) and one != ".git":
            continue
        if _WORK.match(one) or _DOCUMENTS.match(one):
            return True
    return False


def is_fixed_place(text: str) -> bool:
    """Whether a text names a host on the network that is written down, and is somebody's."""
    for found in _ADDRESS.finditer(text):
        host = found[1] or found[2] or found[3]
        if not _NOBODY.search(host):
            return True
    return False
