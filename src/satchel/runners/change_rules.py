"""Rules for the changes that a program proposes: what is never applied, what needs consent.

git, Satchel, agents, editors and shells run what their files name: a program that could write them
would leave the sandbox with the user's next command. Names are compared as a file system would that
ignores case and Unicode forms. `changes` reads the rules of paths and files, and afterwards
`planted_repositories` looks at all changes together.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from satchel._fs import is_inside
from satchel._unicode import INVISIBLE, replace_unprintable
from satchel.i18n import Message
from satchel.settings import parse_toml
from satchel.skill.file_tree import folded_name

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION_CONTROL = frozenset((
    ".git", ".hg", ".svn", ".bzr", ".jj", ".sl", ".pijul", "_darcs", ".fslckout", "_fossil_",
    ".repo",
))  # fmt: skip
"""Never applied, nor anything below: their configuration names commands."""
OWN_FILES = frozenset((".satchel", "satchel.toml", "satchel.lock"))
"""Never applied: they decide what Satchel trusts."""
STAGE_PREFIX = ".satchel-change-"
"""Never applied: folders in which Satchel prepares changes, and finds them after a crash."""
PROJECT_FILE = "pyproject.toml"
"""Never applied where the change touches settings of Satchel."""
CONSENT_FILES = frozenset((
    # agents
    "agents.md", "agents.override.md", "agent.md", "claude.md", "claude.local.md", "gemini.md",
    "qwen.md", "warp.md", "crush.md", "copilot-instructions.md", ".cursorrules", ".windsurfrules",
    ".clinerules", ".roorules", ".roomodes", ".kilocodemodes", ".goosehints", ".rules", ".mcp.json",
    "mcp.json", "opencode.json", "opencode.jsonc", ".aider.conf.yml", ".cursorignore", ".aiexclude",
    # Python at its start, test runners
    "conftest.py", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg", ".pythonrc", ".pdbrc",
    # shells and the environment
    ".envrc", ".env", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
    ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".tmux.conf",
    ".screenrc", ".tool-versions", ".cshrc", ".tcshrc",
    # git, and its hooks wherever `core.hooksPath` points
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout",
    "post-commit", "post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update",
    "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase",
    "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout",
    "reference-transaction", "sendemail-validate", ".lfsconfig",
    ".gitconfig", ".gitmodules", ".gitattributes", ".pre-commit-config.yaml", "lefthook.yml",
    ".lefthook.yml", "lefthook.yaml", ".lefthook.yaml", ".overcommit.yml",
    # debuggers, editors, interpreters
    ".gdbinit", ".lldbinit", ".vimrc", ".nvimrc", ".exrc", ".nvim.lua", ".vim.lua", ".emacs",
    ".dir-locals.el", ".dir-locals-2.el", ".rprofile", ".renviron", ".irbrc", ".pryrc", ".gemrc",
    ".octaverc", ".ghci", ".rspec", ".pylintrc", "pylintrc", ".sqliterc", ".psqlrc", ".my.cnf",
    ".flake8", "mypy.ini", ".mypy.ini", ".rubocop.yml", ".formatter.exs", ".iex.exs", ".ocamlinit",
    ".lintr", ".luacheckrc", ".ycm_extra_conf.py", "rust-toolchain", "rust-toolchain.toml",
    # package managers: they name registries, and programs that they run
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pypirc", "pip.conf", "pip.ini",
    "uv.toml", ".netrc", "pnpm-workspace.yaml", ".pnp.cjs", ".pnp.loader.mjs", "bunfig.toml",
    "nuget.config",
    # what a server runs: after a push, or for each page
    ".htaccess", ".user.ini", ".cirrus.yml", ".woodpecker.yml", ".appveyor.yml", "appveyor.yml",
    ".gitlab-ci.yml", "jenkinsfile", ".travis.yml", "azure-pipelines.yml", ".drone.yml",
    ".devcontainer.json", ".gitpod.yml", ".replit", "bitbucket-pipelines.yml",
))  # fmt: skip
"""Names of files that run automatically or change how other programs behave."""
CONSENT_FOLDERS = frozenset((
    ".claude", ".claude-plugin", ".agents", ".codex", ".cursor", ".gemini", ".qwen", ".windsurf",
    ".continue", ".cline", ".clinerules", ".roo", ".kiro", ".amazonq", ".augment", ".opencode",
    ".goose", ".junie", ".trae", ".crush", ".factory", ".openhands", ".aider", ".copilot", ".pi",
    ".kilocode", ".aiassistant", ".agent", ".amp", ".github", ".gitlab", ".gitea", ".forgejo",
    ".circleci", ".buildkite", ".woodpecker", ".husky", ".githooks",
    ".vscode", ".vscode-server", ".idea", ".zed", ".helix", ".fleet", ".nova", ".vim", ".nvim",
    ".devcontainer", ".direnv", ".mise", ".cargo", ".bundle", ".yarn", ".ipython", ".jupyter",
    ".config", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".gradle", ".mvn", ".local",
    ".emacs.d", ".bsp", ".vs", "sitecustomize", "usercustomize",
))  # fmt: skip
"""Folders in which every file needs consent."""
INSTALLED_FOLDERS = frozenset((".venv", "venv", "site-packages", "node_modules"))
"""Likewise: installed packages, which no review of the project shows."""
CONSENT_SUFFIXES = (".pth", ".pyc", ".code-workspace", ".sublime-project")
CONSENT_PREFIXES = (
    ".env.", "sitecustomize.", "usercustomize.", "mise.", ".mise.", ".golangci.", ".eslintrc",
    "eslint.config.", ".prettierrc", "prettier.config.", ".stylelintrc", "stylelint.config.",
    ".lintstagedrc", "lint-staged.config.", ".commitlintrc", "commitlint.config.", ".huskyrc",
)  # fmt: skip
"""Beginnings of names: configuration that editors, hooks and shells run by themselves."""

MAX_PATH_CHARS = 1_000
MAX_LINK_DEPTH, MAX_LINK_FOLDERS = 4, 1_000
"""How deep links of the user may lie to be found, and in how many folders."""
_MAX_PROJECT_FILE_BYTES = 1 << 20
_REPOSITORY_ENTRIES = frozenset(("HEAD", "objects", "refs", "commondir"))
_FOLDED_REPOSITORY_ENTRIES = {name.lower() for name in _REPOSITORY_ENTRIES}

_REPOSITORY_REASON = Message("git would take its folder for a repository")


class ChangeRules:
    """The rules for one workspace."""

    def __init__(self, protected: Iterable[str] = (), consent_paths: Iterable[str] = ()) -> None:
        """Set up.

        Args:
            protected: Further paths, relative to the workspace, that are never changed.
            consent_paths: Further paths at and below which every file needs consent.
        """
        self._protected = tuple(map(_folded_parts, protected))
        self._consent_paths = tuple(map(_folded_parts, consent_paths))

    def refusal(self, path: str) -> Message | None:
        """Why nothing is ever applied at a path and below; by its name alone."""
        name = os.path.basename(path)
        if len(path) > MAX_PATH_CHARS:
            return Message("its path is too long")
        if not _is_printable(name):
            return Message("its name has characters that are invisible or are not text")
        folded = folded_name(name)
        if folded in VERSION_CONTROL:
            return Message("version control runs commands that are named there")
        if folded in OWN_FILES or folded.startswith(STAGE_PREFIX):
            return Message("it decides what Satchel trusts")
        if folded == PROJECT_FILE and name != PROJECT_FILE:
            return Message("its name differs from `{name}` only to the eye", name=PROJECT_FILE)
        parts = _folded_parts(path)
        if any(parts[: len(protected)] == protected for protected in self._protected):
            return Message("skills and their lockfiles are changed by their own commands")
        return None

    def file_refusal(self, path: str) -> Message | None:
        """Why a path cannot become a file or a link: what is protected may lie below it."""
        parts = _folded_parts(path)
        if any(protected[: len(parts)] == parts for protected in self._protected):
            return Message("skills and their lockfiles are changed by their own commands")
        return None

    def link_refusal(self, path: str, target: str) -> Message | None:
        """Why a link with this target is not applied.

        A target goes up first and down afterwards. So links in a row stay in the workspace, too.
        """
        target_parts = target.split("/")
        leading_count = 0
        while leading_count < len(target_parts) and target_parts[leading_count] in ("..", "."):
            leading_count += 1
        parent_count = target_parts[:leading_count].count("..")
        inner_parts = target_parts[leading_count:]
        folder = path.split("/")[:-1]
        climbs_too_far = parent_count > len(folder) or ".." in inner_parts
        if not target or target.startswith("/") or climbs_too_far:
            return Message("the link leads out of the workspace")
        if folded_name(os.path.basename(path)) == PROJECT_FILE:
            return Message("it decides what Satchel trusts")
        names = [part for part in inner_parts if part not in ("", ".")]
        parts = [*folder[: len(folder) - parent_count], *names]
        for count in range(1, len(parts) + 1):
            target_path = "/".join(parts[:count])
            if self.refusal(target_path) or self.needs_consent(target_path):
                return Message("the link leads to a protected path")
        return None

    def needs_consent(self, path: str) -> bool:
        """Whether a file runs automatically or changes how other programs behave."""
        parts = _folded_parts(path)
        name = parts[-1]
        return (
            name in CONSENT_FILES
            or name.endswith(CONSENT_SUFFIXES)
            or name.startswith(CONSENT_PREFIXES)
            or not CONSENT_FOLDERS.isdisjoint(parts)
            or not INSTALLED_FOLDERS.isdisjoint(parts)
            or any(parts[: len(prefix)] == prefix for prefix in self._consent_paths)
        )


def _folded_parts(path: str) -> tuple[str, ...]:
    return tuple(map(folded_name, path.split("/")))


def consent_targets(workspace: str) -> list[str]:
    """Paths to which the user's links with such names lead, relative to the workspace.

    These are links in the workspace, such as `CLAUDE.md`, in its folders of agents and editors, and
    hooks of git.
    """
    rules = ChangeRules()
    targets: list[str] = []
    folders = [(workspace, 0), (os.path.join(workspace, ".git", "hooks"), MAX_LINK_DEPTH)]
    for folder, depth in folders:  # grows while it is read
        # The user's own may be missing, or impossible to list.
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                path = os.path.relpath(entry.path, workspace)
                if not rules.needs_consent(path) or folded_name(entry.name) in INSTALLED_FOLDERS:
                    continue
                if entry.is_symlink():
                    target = os.path.realpath(entry.path)
                    if target != workspace and is_inside(target, workspace):
                        targets.append(os.path.relpath(target, workspace))
                    continue
                is_within_limits = depth < MAX_LINK_DEPTH and len(folders) < MAX_LINK_FOLDERS
                if is_within_limits and entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, depth + 1))
    return targets


def mode_refusal(mode: int) -> Message | None:
    """Why an entry of this type is not applied; None for files and links."""
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        return None
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return Message("it is a named pipe or a socket")
    return Message("it is a device")


def settings_refusal(path: str, old: bytes | None, new: bytes | None) -> Message | None:
    """Why a `pyproject.toml` is not applied: its settings of Satchel would differ."""
    if os.path.basename(path) != PROJECT_FILE or _satchel_table(old) == _satchel_table(new):
        return None
    return Message("it decides what Satchel trusts")


def _satchel_table(data: bytes | None) -> object:
    """What a project file says about Satchel; a unique value when that cannot be known."""
    # The settings loader looks for the word first; an escape of TOML could hide it from others.
    if data is None or (b"satchel" not in data and b"\\" not in data):
        return None
    if len(data) > _MAX_PROJECT_FILE_BYTES:
        return object()
    try:
        table: Any = parse_toml(data.decode()).get("tool", {})
    except (ValueError, RecursionError):
        return object()
    return cast("dict[str, Any]", table).get("satchel") if isinstance(table, dict) else None


def planted_repositories(paths: Iterable[str], workspace: int) -> dict[str, Message]:
    """Find changes in folders that git takes for a repository, or would afterwards.

    Args:
        paths: The changed paths.
        workspace: The opened workspace, with what exists.

    Returns:
        Folders, with the reason why nothing below them is applied.
    """
    names_by_folder: dict[str, set[str]] = {}
    folded_folders: dict[str, str] = {}
    for path in paths:
        folder = ""
        for part in path.split("/"):
            folded_folder = folded_folders.get(folder)
            if folded_folder is None:
                folded_folder = folded_folders[folder] = "/".join(_folded_parts(folder))
                names_by_folder.setdefault(folded_folder, set()).update(
                    name.lower()
                    for name in _REPOSITORY_ENTRIES
                    if _exists_below(workspace, folder, name)
                )
            folded = folded_name(part)
            if folded in _FOLDED_REPOSITORY_ENTRIES:
                names_by_folder[folded_folder].add(folded)
            folder = f"{folder}/{part}" if folder else part
    repositories = {
        folded_folder
        for folded_folder, names in names_by_folder.items()
        if names >= {"head", "objects", "refs"} or names >= {"head", "commondir"}
    }
    return {
        folder: _REPOSITORY_REASON
        for folder, folded_folder in folded_folders.items()
        if folded_folder in repositories
    }


def _exists_below(workspace: int, folder: str, name: str) -> bool:
    path = f"{folder}/{name}" if folder else name
    try:
        os.stat(path, dir_fd=workspace, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_printable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return replace_unprintable(name, "") == name and not INVISIBLE.search(name)
