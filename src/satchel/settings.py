"""The settings, their sources, and the paths of Satchel's own files.

Order, last wins: defaults, the user's `config.toml`, the project's `satchel.toml` (or
`[tool.satchel]` in `pyproject.toml`), the environment, arguments in code. A project is untrusted
input: its settings about trust are refused. An unknown key or wrong value in a file is ignored and
becomes a remark, except where that would offer more skills (`_STRICT`).
"""

# Without `from __future__ import annotations`: NamedTuple would compile each annotation at import.
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, cast

from satchel._fs import is_inside, is_really_inside, read_small
from satchel.errors import NotFound, SettingsError
from satchel.i18n import Message, did_you_mean, join_names, render, say, similar_names

TrustPolicy = Literal["all", "ask", "locked"]
Form = Literal["xml", "markdown", "paths"]


class Setting(NamedTuple):
    """Definition of one setting."""

    name: str
    env: str
    kind: Literal["integer", "flag", "text", "list", "table", "record"]
    default: Any
    description: str
    project_may_set: bool = True
    choices: tuple[str, ...] = ()


class ToolSettings(NamedTuple):
    """The table `tools`: limits of tool skills."""

    timeout: int = 30
    processes: int = 0
    """0 means twice the processors, at least 4."""
    output: int = 8_000
    memory: int = 512
    script_timeout: int = 120


class ReadSettings(NamedTuple):
    """The table `reading`: limits of ReadFile."""

    scope: Literal["project", "skills"] = "project"
    extensions: tuple[str, ...] = (
        "md", "markdown", "txt", "rst", "json", "jsonl", "yaml", "yml", "toml", "ini", "cfg", "csv",
        "tsv", "xml", "html", "css", "py", "js", "mjs", "cjs", "ts", "tsx", "jsx", "sh", "bash",
        "ps1", "go", "rs", "rb", "java", "kt", "c", "h", "cpp", "hpp", "cs", "php", "pl", "lua",
        "r", "sql", "tex", "svg", "tmpl",
    )  # fmt: skip
    limit: int = 40_000


SETTINGS = (
    Setting("budget", "SKILLS_PROMPT_CHAR_BUDGET", "integer", 12_000,
            "Characters of the catalogue in the prompt."),
    Setting("form", "SATCHEL_FORM", "text", "xml",
            "Form of the catalogue; `paths` is for agents without the Skill tool.",
            choices=("xml", "markdown", "paths")),
    Setting("refresh_on_call", "SKILLS_REFRESH_ON_CALL", "flag", default=True,
            description="Refresh at every call of the Skill tool."),
    Setting("trust", "SATCHEL_TRUST", "text", "all",
            "Offered skills: `ask` (of trusted folders; default of the commands), `all` (default in Python), `locked` (pinned in `satchel.lock`).",
            choices=("ask", "all", "locked")),
    Setting("strict", "SATCHEL_STRICT", "flag", default=False,
            description="Skip skills whose frontmatter is not valid YAML or has no `name`, instead of repairing it."),
    Setting("builtin", "SATCHEL_BUILTIN", "flag", default=False,
            description="Offer Satchel's built-in skills; `satchel chat` does by default."),
    Setting("ecosystem", "SATCHEL_ECOSYSTEM", "flag", default=True,
            description="Also read other agents' folders, such as `.claude/skills`.",
            project_may_set=False),
    Setting("locations", "SATCHEL_LOCATIONS", "list", (),
            "Further folders."),
    Setting("servers", "SATCHEL_SERVERS", "table", {},
            "MCP servers by name: `address` or `command`; `token`, `headers`, `env`.",
            project_may_set=False),
    Setting("hubs", "SATCHEL_HUBS", "table", {},
            "Hubs by name: `url`, `key`, and optionally `publishers`; see `satchel hub add`."),
    Setting("include", "SATCHEL_INCLUDE", "list", (),
            "Offer only skills that match one of these patterns, such as `git-*`."),
    Setting("exclude", "SATCHEL_EXCLUDE", "list", (),
            "Never offer skills that match one of these patterns."),
    Setting("tags", "SATCHEL_TAGS", "list", (),
            "Offer only skills with one of these tags."),
    Setting("pin", "SATCHEL_PIN", "list", (),
            "Skills that are listed first and in full."),
    Setting("shortlist", "SATCHEL_SHORTLIST", "integer", 3,
            "Skills suggested beside a request; 0 for none."),
    Setting("embeddings", "SATCHEL_EMBEDDINGS", "text", "",
            "Address of an endpoint for embeddings, with `#model=NAME`.",
            project_may_set=False),
    Setting("model", "SATCHEL_MODEL", "text", "",
            "Model of the agent, such as `anthropic:claude-sonnet-5`.",
            project_may_set=False),
    Setting("engine", "SATCHEL_ENGINE", "text", "local",
            "Engine of goals: `local`, `dbos`, `dbos:URL`, `temporal` or `temporal:HOST:PORT/NAMESPACE/QUEUE`.",
            project_may_set=False, choices=("local", "dbos", "temporal")),
    Setting("limits", "SATCHEL_LIMITS", "table", {},
            "Rate limits of model providers by name: `per_second`, `at_once`.",
            project_may_set=False),
    Setting("trace", "SATCHEL_TRACE", "text", "file",
            "Where trace events go; `satchel why` reads the file.",
            choices=("file", "memory", "off"), project_may_set=False),
    Setting("reading", "SATCHEL_READING", "record", ReadSettings(),
            "Limits of ReadFile: `scope` (`project` or `skills`), `extensions`, `limit` (characters).",
            project_may_set=False),
    Setting("packaged", "SATCHEL_PACKAGED", "flag", default=True,
            description="Offer packaged skills, of which `SKILL_<NAME>_ENABLED` turns one off, and the skills that installed packages ship.", project_may_set=False),
    Setting("tools", "SATCHEL_TOOLS", "record", ToolSettings(),
            "Limits of tool skills and scripts: `timeout` and `script_timeout` (seconds), `processes` (0: automatic), `output` (characters), `memory` (MB).",
            project_may_set=False),
    Setting("grants", "SATCHEL_GRANTS", "table", {},
            "Grants by the name of a skill: `tools`, which it may call without approval while it is loaded; for its scripts `network`, `secrets` and `variables`.",
            project_may_set=False),
    Setting("create_missing", "SATCHEL_CREATE_MISSING", "flag", default=False,
            description="Create the user's skills folder at start-up.", project_may_set=False),
    Setting("sandbox", "SATCHEL_SANDBOX", "text", "required",
            "Programs of skills: `required` (only in a sandbox), `own` (your own skills also without), `off` (no sandbox).",
            choices=("required", "own", "off"), project_may_set=False),
)  # fmt: skip
"""Every setting; the reference page is made from this table. Tables are JSON in the environment."""


class DiskPaths(NamedTuple):
    """Paths of Satchel's own files."""

    config: str
    """The file `config.toml`."""
    cache: str
    """Folder of the indexes; may be deleted at any time."""
    state: str
    """Folder of the trust file and the trace."""


class SettingOptions(TypedDict, total=False):
    """The settings by name, as keyword arguments of `Satchel.for_project`.

    Each has the type that is written here; the page on settings describes them.

    Example:
        from satchel import Satchel

        satchel = Satchel.for_project(".", trust="ask", budget=8_000, exclude=["draft-*"])
        assert satchel.settings.budget == 8_000
    """

    budget: int
    form: Form
    refresh_on_call: bool
    trust: TrustPolicy
    strict: bool
    builtin: bool
    ecosystem: bool
    locations: Sequence[str | os.PathLike[str]]
    servers: Mapping[str, Any]
    hubs: Mapping[str, Any]
    include: Sequence[str]
    exclude: Sequence[str]
    tags: Sequence[str]
    pin: Sequence[str]
    shortlist: int
    embeddings: str
    model: str
    engine: str
    limits: Mapping[str, Any]
    trace: Literal["file", "memory", "off"]
    reading: ReadSettings | Mapping[str, Any]
    packaged: bool
    tools: ToolSettings | Mapping[str, Any]
    grants: Mapping[str, Any]
    create_missing: bool
    sandbox: Literal["required", "own", "off"]


class Settings(NamedTuple):
    """The settings in force, from keyword arguments, the environment and the settings files."""

    project: str
    """Absolute folder of the project."""
    paths: DiskPaths
    budget: int = 12_000
    form: Form = "xml"
    refresh_on_call: bool = True
    trust: TrustPolicy = "all"
    strict: bool = False
    builtin: bool = False
    ecosystem: bool = True
    locations: tuple[str, ...] = ()
    servers: Mapping[str, Any] = {}
    hubs: Mapping[str, Any] = {}
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    pin: tuple[str, ...] = ()
    shortlist: int = 3
    embeddings: str = ""
    model: str = ""
    engine: str = "local"
    limits: Mapping[str, Any] = {}
    trace: Literal["file", "memory", "off"] = "file"
    create_missing: bool = False
    sandbox: Literal["required", "own", "off"] = "required"
    reading: ReadSettings = ReadSettings()
    packaged: bool = True
    tools: ToolSettings = ToolSettings()
    grants: Mapping[str, Mapping[str, Any]] = {}
    asks: bool = False
    """Only skills of trusted folders are offered. It stays True when a project chooses `locked`,
    since the lockfile is the project's own."""
    project_locations: tuple[str, ...] = ()
    """Folders inside the project that its settings file names: as untrusted as the project."""
    project_hubs: tuple[str, ...] = ()
    """Names of the hubs that only the project's settings file names."""
    levels: tuple[str, ...] = ()
    """The project and the other folders from the working folder up to the root of the repository,
    nearest first."""
    remarks: tuple[tuple[str, str, str], ...] = ()
    """Ignored or notable settings of files: (problem code, file, name or reason)."""


_MAX_FILE_BYTES = 256 * 1024
_FAR_REACHING = frozenset(("include", "exclude", "tags", "builtin", "budget", "strict"))
"""Settings of a project that affect the user's own skills too: allowed, and reported."""
_STRICT = frozenset(("include", "exclude", "tags", "trust", "strict"))
"""Settings that restrict which skills are offered: a wrong value is an error."""
_SKILL_FILES = ("SKILL.md", "skill.yaml")
_ROOT_ENTRIES = ("satchel.toml", ".agents", "satchel.lock", ".git")
_SIMILAR_NAME_RATIO = 0.75
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_FLAGS: dict[str, bool] = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


COMMAND_DEFAULTS = {"trust": "ask"}
"""Defaults of the commands that differ from the library: they run in untrusted folders."""
_STRICTNESS = ("all", "ask", "locked")
"""Values of `trust`, the strictest last."""
_READ_SCOPES = ("project", "skills")
_GRANT_DEFAULTS: dict[str, Any] = {"tools": (), "network": False, "secrets": (), "variables": ()}
"""The keys of a row of `grants`, and their defaults."""
_KIND_BY_TYPE: dict[type, Any] = {int: "integer", str: "text", tuple: "list", bool: "flag"}
_KIND_WORDS = {
    "integer": Message("a whole number that is at least 0"),
    "flag": Message("true or false"),
    "list": Message("a list of texts"),
}
_KEY_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.){0,200}+"|'[^'\n]{0,200}+')"""
_LONG_KEY = re.compile(
    rf"(?<![\w-]){_KEY_PART}(?:[ \t]{{0,200}}+\.[ \t]{{0,200}}+{_KEY_PART}){{50}}"
)
"""A TOML key of more than 50 parts."""


def find_project(folder: str = ".") -> str:
    """Find the root of the project that a folder belongs to.

    It is the nearest folder, `folder` itself or a parent, with a `satchel.toml`, `.agents`,
    `satchel.lock` or `.git` owned by the user or by the owner of `folder`; else `folder`. A folder
    with skills in `skills` or `.skills`, such as a part of a larger repository, is a root itself.
    The search ends at the home folder, which counts only with a `satchel.toml`: its `.agents` holds
    the user's own skills, and its `.git` only tracks configuration files.
    """
    try:
        start = current = os.path.abspath(os.path.expanduser(folder))
    except FileNotFoundError as exc:
        raise NotFound(
            Message("The current folder does not exist any more"), Message("Change the folder")
        ) from exc
    if _has_skills(start):
        return start
    home = os.path.realpath(os.path.expanduser("~"))
    owners = {_find_owner(start), os.geteuid() if hasattr(os, "geteuid") else None}
    while True:
        at_home = os.path.realpath(current) == home
        entries = _ROOT_ENTRIES[:1] if at_home else _ROOT_ENTRIES
        entry_owners = {_find_owner(f"{current}/{entry}") for entry in entries}
        if (entry_owners & owners) - {None}:
            return current
        parent = os.path.dirname(current)
        if at_home or parent == current:
            return start
        current = parent


def _find_levels(start: str, project: str) -> tuple[str, ...]:
    """The folders from `start` up to the root of the repository, nearest first.

    The root is the nearest folder with a `.git`. Folders above the project count only if that
    `.git` and the folder belong to the user or to the owner of the project. The home folder is no
    root, and nothing above it is searched.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    owners = {_find_owner(project), os.geteuid() if hasattr(os, "geteuid") else None}
    levels: list[str] = []
    current = start if is_inside(start, project) else project
    while os.path.realpath(current) != home:
        levels.append(current)
        git_owner = _find_owner(f"{current}/.git")
        if git_owner is not None:
            if not is_inside(project, current):
                return (project,)  # a repository inside the project, which is not the project's
            if git_owner in owners:
                return tuple(
                    level for level in levels if level == project or _find_owner(level) in owners
                )
            break
        parent = os.path.dirname(current)
        if parent == current:
            break
        current = parent
    inner_levels = (level for level in levels if level != project and is_inside(level, project))
    return (*inner_levels, project)


def _has_skills(folder: str) -> bool:
    for name in ("skills", ".skills"):
        try:
            with os.scandir(os.path.join(folder, name)) as entries:
                paths = [entry.path for entry in entries]
        except OSError:
            continue
        if any(os.path.exists(f"{path}/{file}") for path in paths for file in _SKILL_FILES):
            return True
    return False


def _find_owner(path: str) -> int | None:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def load_settings(
    project: str = ".",
    env: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    start: str = "",
    **overrides: Any,
) -> Settings:
    """Load the settings for a project folder.

    Args:
        project: The project's folder.
        env: The environment; the process's own when None.
        defaults: Defaults of this program where they differ from those of `SETTINGS`.
        start: The working folder, inside the project; the project's folder when empty.
        overrides: Settings from code; they override all others.

    Raises:
        SettingsError: a file cannot be read, or a value that is not in a file cannot be used.
    """
    env = os.environ if env is None else env
    project = os.path.abspath(os.path.expanduser(project))
    paths = find_paths(env)
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    values.update(defaults or {})
    remarks: list[tuple[str, str, str]] = []
    _update(values, _read_values(paths.config, (), remarks))
    project_trust, project_locations, hubs = _read_project(project, values, remarks)
    _update(values, _read_env_values(env))
    asks = values["trust"] == "ask" or (values["trust"], project_trust) == ("all", "ask")
    values["trust"] = _choose_stricter_trust(values["trust"], project_trust, project, remarks)
    for name, value in overrides.items():
        if name not in _BY_NAME:
            raise _unknown_setting_error(name)
        _update(values, {name: _convert(_BY_NAME[name], value, name)})
    if "trust" in overrides:
        asks = values["trust"] == "ask"
    project_hubs = _add_hubs(values, hubs, project, remarks)
    return Settings(
        project=project,
        paths=paths,
        asks=asks,
        project_locations=tuple(project_locations),
        project_hubs=project_hubs,
        levels=_find_levels(start, project),
        remarks=tuple(remarks),
        **values,
    )


def _read_project(
    project: str, values: dict[str, Any], remarks: list[tuple[str, str, str]]
) -> tuple[str, list[str], dict[str, Any]]:
    """Update the values from a project's files; returns its trust, locations and hubs."""
    trust = ""
    locations: list[str] = []
    hubs: dict[str, Any] = {}
    for file, table in (("satchel.toml", ()), ("pyproject.toml", ("tool", "satchel"))):
        path = os.path.join(project, file)
        for name, value in _read_values(path, table, remarks, in_project=True).items():
            if name == "trust":
                trust = max(trust or value, value, key=_STRICTNESS.index)
            elif not _BY_NAME[name].project_may_set:
                remarks.append(("setting-refused", path, name))
            elif name == "locations":
                locations += _select_inner_locations(value, project, path, remarks)
            elif name == "hubs":
                hubs |= value
            elif name == "strict" and not value:
                continue  # a project cannot take back what the user set
            else:
                values[name] = value
                if name in _FAR_REACHING:
                    remarks.append(("project-setting", path, name))
    return trust, locations, hubs


def _read_env_values(env: Mapping[str, str]) -> dict[str, Any]:
    return {
        setting.name: _convert(setting, text, setting.env)
        for setting in SETTINGS
        if (text := env.get(setting.env, "")).strip()
    }


def _update(values: dict[str, Any], new_values: Mapping[str, Any]) -> None:
    """Set values; a record is changed key by key."""
    for name, value in new_values.items():
        is_record = _BY_NAME[name].kind == "record"
        values[name] = values[name]._replace(**value) if is_record else value


def _select_inner_locations(
    value: tuple[str, ...], project: str, path: str, remarks: list[tuple[str, str, str]]
) -> list[str]:
    """The folders inside a project among its `locations`; others are refused with a remark."""
    inner_folders: list[str] = []
    for folder in value:
        if is_really_inside(os.path.join(project, folder), project):
            inner_folders.append(folder)
        else:
            remarks.append(("setting-refused", path, f"locations: {folder}"))
    return inner_folders


def _add_hubs(
    values: dict[str, Any],
    hubs: Mapping[str, Any],
    project: str,
    remarks: list[tuple[str, str, str]],
) -> tuple[str, ...]:
    """Add the hubs of a project to the user's, which it cannot change; returns their names."""
    own_hubs = values["hubs"]
    for name, row in hubs.items():
        if own_hubs.get(name, row) != row:
            remarks.append(("setting-refused", project, f"hubs: {name}"))
    values["hubs"] = {**hubs, **own_hubs}
    return tuple(name for name in hubs if name not in own_hubs)


def _choose_stricter_trust(
    trust: str, project_trust: str, project: str, remarks: list[tuple[str, str, str]]
) -> str:
    """The setting `trust` with a project's value applied; a looser one is refused with a remark."""
    if project_trust and _STRICTNESS.index(project_trust) > _STRICTNESS.index(trust):
        return project_trust
    if project_trust and project_trust != trust:
        remarks.append(("setting-refused", project, f"trust: {project_trust}"))
    return trust


def similar_setting(name: str) -> str:
    """The setting with the most similar name; empty when none is similar."""
    return next(iter(similar_names(name, _BY_NAME, ratio=_SIMILAR_NAME_RATIO)), "")


def _unknown_setting_error(name: str, source: str = "") -> SettingsError:
    near = similar_setting(name)
    return SettingsError(
        say("There is no setting `{name}`", name=source or name),
        did_you_mean([near] if near else ())
        or say("Run `{command}`", command="satchel config list"),
    )


def is_enabled(name: str, env: Mapping[str, str] | None = None) -> bool:
    """Whether a variable such as `SKILL_EXCEL_ENABLED` is unset or true.

    Args:
        name: The variable.
        env: The environment; the process's own when None.
    """
    text = (os.environ if env is None else env).get(name, "")
    return _FLAGS.get(text.strip().lower(), True)


def find_paths(env: Mapping[str, str]) -> DiskPaths:
    """The paths for configuration, cache and state, by the XDG specification.

    A relative base is ignored: it would be a folder of the project, which must not decide about
    trust. Its path is empty then, and nothing is read or stored.

    Raises:
        SettingsError: `SATCHEL_HOME` is not an absolute path.
    """
    override = env.get("SATCHEL_HOME")
    if override:
        if not os.path.isabs(override):
            raise SettingsError(
                f"`SATCHEL_HOME` is `{override}`, which is not an absolute path",
                "Write the whole path",
            )
        return DiskPaths(
            *(os.path.join(override, part) for part in ("config.toml", "cache", "state"))
        )
    home = env.get("HOME") or os.path.expanduser("~")

    def join_base(variable: str, default: tuple[str, ...], *names: str) -> str:
        base = env.get(variable) or ""
        if not os.path.isabs(base):
            base = os.path.join(home, *default)
        return os.path.join(base, *names) if os.path.isabs(base) else ""

    return DiskPaths(
        join_base("XDG_CONFIG_HOME", (".config",), "satchel", "config.toml"),
        join_base("XDG_CACHE_HOME", (".cache",), "satchel"),
        join_base("XDG_STATE_HOME", (".local", "state"), "satchel"),
    )


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML of an untrusted author: `tomllib` takes quadratic time and memory for long keys.

    Raises:
        ValueError: it is not TOML, or a key has more than 50 parts.
        RecursionError: it is nested too deeply.
    """
    import tomllib

    if _LONG_KEY.search(text):
        raise ValueError("a key has too many parts")
    return tomllib.loads(text)


def _read_file(path: str, *, in_project: bool) -> bytes:
    """Read a settings file; empty when there is none.

    A project's file may be a pipe, a link or endless: it is opened without blocking or following.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    if in_project:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as exc:
        if in_project and os.path.islink(path):
            raise SettingsError(f"`{path}` is a link", "Put the file itself there") from exc
        return b""
    try:
        return read_small(descriptor, _MAX_FILE_BYTES)
    except OSError as exc:
        raise SettingsError(
            Message("`{path}` cannot be used: {reason}", path=path, reason=exc.strerror),
            "Correct it",
        ) from exc
    finally:
        os.close(descriptor)


def _read_values(
    path: str,
    table: tuple[str, ...],
    remarks: list[tuple[str, str, str]],
    *,
    in_project: bool = False,
) -> dict[str, Any]:
    """The usable settings of a file; what is ignored is added to `remarks`.

    Raises:
        SettingsError: the file cannot be read, or a setting of `_STRICT` cannot be understood.
    """
    data = _read_file(path, in_project=in_project)
    if not data:
        return {}
    if table and b"satchel" not in data:
        return {}
    try:
        content: Any = parse_toml(data.decode())
    except (ValueError, RecursionError) as exc:
        raise SettingsError(
            say("`{path}` cannot be used: {reason}", path=path, reason=exc),
            say("Correct it"),
        ) from exc
    for name in table:
        content = cast("dict[str, Any]", content).get(name, {})
        if not isinstance(content, dict):
            heading = ".".join(table)
            raise SettingsError(
                say("`{path}` cannot be used: {reason}", path=path, reason=name),
                say("Write `{value}`", value=f"[{heading}]"),
            )
    values: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", content).items():
        if name not in _BY_NAME:
            if similar_setting(name) in _STRICT:
                raise _unknown_setting_error(name, f"{path}: {name}")
            remarks.append(("setting-unknown", path, name))
            continue
        try:
            values[name] = _convert(_BY_NAME[name], value, f"{path}: {name}")
        except SettingsError as exc:
            if name in _STRICT:
                raise
            remarks.append(("setting-wrong", path, exc.message))
    return values


def _wrong_value_error(setting: Setting, source: str, value: Any) -> SettingsError:
    choices = join_names(f"`{choice}`" for choice in setting.choices)
    kind = choices or render(_KIND_WORDS.get(setting.kind, Message("a table")))
    return SettingsError(
        say("`{where}` must be {kind}, not `{value}`", where=source, kind=kind, value=value),
        say("Run `{command}`", command="satchel config list"),
    )


def _convert_integer(setting: Setting, value: Any, source: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(value, bool) or number < 0:
        raise _wrong_value_error(setting, source, value)
    return number


def _convert_texts(setting: Setting, value: Any, source: str) -> tuple[str, ...]:
    if isinstance(value, str):
        separator = os.pathsep if setting.name == "locations" else ","
        value = [part.strip() for part in value.split(separator)]
    items = cast("list[Any]", value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise _wrong_value_error(setting, source, items)
    if any("\0" in item for item in items):
        raise _wrong_value_error(setting, source, items)
    return tuple(item for item in items if item)


def _convert(setting: Setting, value: Any, source: str) -> Any:
    kind = setting.kind
    if kind == "integer":
        return _convert_integer(setting, value, source)
    if kind == "flag":
        flag = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise _wrong_value_error(setting, source, value)
        return flag
    if kind == "list":
        return _convert_texts(setting, value, source)
    if kind in {"table", "record"}:
        return _convert_table(setting, value, source)
    text = str(value).strip()
    name = text.partition(":")[0] if setting.name == "engine" else text
    if setting.choices and name not in setting.choices:
        raise _wrong_value_error(setting, source, text)
    return text


def _convert_table(setting: Setting, value: Any, source: str) -> dict[str, Any]:
    """Convert a table, which the environment holds as JSON."""
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except ValueError as exc:
            raise _wrong_value_error(setting, source, value) from exc
    rows = cast("dict[str, Any]", value)
    if not isinstance(value, dict):
        raise _wrong_value_error(setting, source, rows)
    if setting.kind == "table":
        if not all(isinstance(row, dict) for row in rows.values()):
            raise _wrong_value_error(setting, source, rows)
        if setting.name != "grants":
            return rows
        return {
            name: _convert_fields(f"grants.{name}", row, f"{source}.{name}", _GRANT_DEFAULTS)
            for name, row in rows.items()
        }
    return _convert_fields(setting.name, rows, source, setting.default._asdict())


def _convert_fields(
    table: str, values: dict[str, Any], source: str, defaults: dict[str, Any]
) -> dict[str, Any]:
    """Convert the values of a record; `defaults` has its fields with their defaults."""
    fields: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{table}.{key}"
        if key not in defaults:
            raise _unknown_setting_error(name)
        kind, choices = _KIND_BY_TYPE[type(defaults[key])], _READ_SCOPES if key == "scope" else ()
        field = Setting(name, "", kind, defaults[key], "", choices=choices)
        fields[key] = _convert(field, value, f"{source}.{key}")
    return fields
