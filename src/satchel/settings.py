"""The settings, their sources, and the paths of Satchel's own files.

Order, last wins: defaults, the user's `config.toml`, the project's `satchel.toml` (or
`[tool.satchel]` in `pyproject.toml`), the environment, arguments in code. A project is untrusted
input: its settings about trust are refused. An unknown key or wrong value in a file is ignored and
becomes a remark, except where that would offer more skills (`_STRICT`).
"""

# Without `from __future__ import annotations`: NamedTuple would compile each annotation at import.
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, cast

from satchel._fs import is_really_inside, read_small
from satchel.errors import SettingsError
from satchel.i18n import Message, join_names, render, say

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
            "Embedding model: an ONNX folder, `model2vec:FOLDER` or the address of an endpoint.",
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
            description="Offer packaged skills; `SKILL_<NAME>_ENABLED` turns one off.", project_may_set=False),
    Setting("tools", "SATCHEL_TOOLS", "record", ToolSettings(),
            "Limits of tool skills: `timeout` (seconds), `processes` (0: automatic), `output` (characters), `memory` (MB).",
            project_may_set=False),
    Setting("grants", "SATCHEL_GRANTS", "table", {},
            "Grants by the name of a skill: `tools`, which it may call without approval while it is loaded.",
            project_may_set=False),
    Setting("create_missing", "SATCHEL_CREATE_MISSING", "flag", default=False,
            description="Create the user's skills folder at start-up.", project_may_set=False),
    Setting("sandbox", "SATCHEL_SANDBOX", "text", "required",
            "Programs of skills: `required` (only in a sandbox), `own` (your own skills also without), `off` (no sandbox).",
            choices=("required", "own", "off"), project_may_set=False),
)  # fmt: skip
"""Every setting; the reference page is made from this table. Tables are JSON in the environment."""
RENAMED = {
    "vectors": "embeddings",
    "database": 'engine = "dbos:URL"',
    "temporal": 'engine = "temporal:HOST:PORT/NAMESPACE/QUEUE"',
    "read": "reading.scope",
    "read_extensions": "reading.extensions",
    "read_limit": "reading.limit",
    "tool_language": "SATCHEL_LANG",
    **{f"tool_{name}": f"tools.{name}" for name in ToolSettings._fields},
}
"""Settings of 0.1 -> their replacement."""


class DiskPaths(NamedTuple):
    """Paths of Satchel's own files."""

    config: str
    """The file `config.toml`."""
    cache: str
    """Folder of the indexes; may be deleted at any time."""
    state: str
    """Folder of the trust file and the trace."""


class SettingOptions(TypedDict, total=False):
    """The settings by name, as `Satchel.for_project` takes them; a test compares it with `SETTINGS`."""

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
    """The settings in force."""

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
    grants: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    asks: bool = False
    """Only skills of trusted folders are offered. It stays True when a project chooses `locked`,
    since the lockfile is the project's own."""
    project_locations: tuple[str, ...] = ()
    """Folders inside the project that its settings file names: as untrusted as the project."""
    project_hubs: tuple[str, ...] = ()
    """Names of the hubs that only the project's settings file names."""
    remarks: tuple[tuple[str, str, str], ...] = ()
    """Ignored or notable settings of files: (problem code, file, name or reason)."""


_MAX_FILE_BYTES = 256 * 1024
_REACHES_FAR = frozenset(("include", "exclude", "tags", "builtin", "budget", "strict"))
"""Settings of a project that affect the user's own skills too: allowed, and reported."""
_STRICT = frozenset(("include", "exclude", "tags", "trust", "strict"))
"""Settings that restrict which skills are offered: a wrong value is an error."""
_SKILL_FILES = ("SKILL.md", "skill.yaml")
_ROOT_MARKS = ("satchel.toml", ".agents", "satchel.lock", ".git")
_SIMILAR_NAME_RATIO = 0.75
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_FLAGS: dict[str, bool] = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


COMMAND_DEFAULTS = {"trust": "ask"}
"""Defaults of the commands that differ from the library: they run in untrusted folders."""
_STRICTNESS = ("all", "ask", "locked")


def find_project(folder: str = ".") -> str:
    """Find the root of the project that a folder belongs to.

    It is the nearest folder, `folder` itself or a parent, with a `satchel.toml`, `.agents`,
    `satchel.lock` or `.git` owned by the user or by the owner of `folder`; else `folder`. A folder
    with skills in `skills` or `.skills`, such as a part of a larger repository, is a root itself.
    The search ends at the home folder, which counts only with a `satchel.toml`: its `.agents` holds
    the user's own skills, and its `.git` only tracks configuration files.
    """
    start = here = os.path.abspath(os.path.expanduser(folder))
    if _has_skills(start):
        return start
    home = os.path.realpath(os.path.expanduser("~"))
    owners = {_owner(start), os.geteuid() if hasattr(os, "geteuid") else None}
    while True:
        at_home = os.path.realpath(here) == home
        marks = _ROOT_MARKS[:1] if at_home else _ROOT_MARKS
        if any((owner := _owner(f"{here}/{one}")) is not None and owner in owners for one in marks):
            return here
        above = os.path.dirname(here)
        if at_home or above == here:
            return start
        here = above


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


def _owner(path: str) -> int | None:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def load_settings(
    project: str = ".",
    env: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    **given: Any,
) -> Settings:
    """Load the settings for a project folder.

    Args:
        project: The project's folder.
        env: The environment; the process's own when None.
        defaults: Defaults of this program where they differ from those of `SETTINGS`.
        given: Settings from code; they override all others.

    Raises:
        SettingsError: a file cannot be read, or a value that is not in a file cannot be used.
    """
    env = os.environ if env is None else env
    project = os.path.abspath(os.path.expanduser(project))
    paths = find_paths(env)
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    values.update(defaults or {})
    wanted = ""
    remarks: list[tuple[str, str, str]] = []
    _update(values, _file_values(paths.config, (), remarks))
    inside: list[str] = []
    hubs: dict[str, Any] = {}
    for file, table in (("satchel.toml", ()), ("pyproject.toml", ("tool", "satchel"))):
        path = os.path.join(project, file)
        for name, value in _file_values(path, table, remarks, in_project=True).items():
            if name == "trust":
                wanted = max(wanted or value, value, key=_STRICTNESS.index)
            elif not _BY_NAME[name].project_may_set:
                remarks.append(("setting-refused", path, name))
            elif name == "locations":
                inside += _inner_locations(value, project, path, remarks)
            elif name == "hubs":
                hubs |= value
            elif name == "strict" and not value:
                continue  # a project cannot take back what the user set
            else:
                values[name] = value
                if name in _REACHES_FAR:
                    remarks.append(("project-setting", path, name))
    _update(values, _env_values(env))
    asks = values["trust"] == "ask" or (values["trust"], wanted) == ("all", "ask")
    values["trust"] = _stricter(values["trust"], wanted, project, remarks)
    for name, value in given.items():
        if name not in _BY_NAME:
            raise _no_setting(name)
        _update(values, {name: _convert(_BY_NAME[name], value, name)})
    if "trust" in given:
        asks = values["trust"] == "ask"
    project_hubs = _add_hubs(values, hubs, project, remarks)
    return Settings(
        project=project,
        paths=paths,
        asks=asks,
        project_locations=tuple(inside),
        project_hubs=project_hubs,
        remarks=tuple(remarks),
        **values,
    )


def _env_values(env: Mapping[str, str]) -> dict[str, Any]:
    return {
        setting.name: _convert(setting, text, setting.env)
        for setting in SETTINGS
        if (text := env.get(setting.env, "")).strip()
    }


def _update(values: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Set values; a record is changed key by key."""
    for name, value in found.items():
        is_record = _BY_NAME[name].kind == "record"
        values[name] = values[name]._replace(**value) if is_record else value


def _inner_locations(
    value: tuple[str, ...], project: str, path: str, remarks: list[tuple[str, str, str]]
) -> list[str]:
    """The folders inside a project among its `locations`; others are refused with a remark."""
    inside = [item for item in value if is_really_inside(os.path.join(project, item), project)]
    remarks += [
        ("setting-refused", path, f"locations: {item}") for item in value if item not in inside
    ]
    return inside


def _add_hubs(
    values: dict[str, Any],
    hubs: Mapping[str, Any],
    project: str,
    remarks: list[tuple[str, str, str]],
) -> tuple[str, ...]:
    """Add the hubs of a project to the user's, which it cannot change; returns their names."""
    own = values["hubs"]
    for name, row in hubs.items():
        if own.get(name, row) != row:
            remarks.append(("setting-refused", project, f"hubs: {name}"))
    values["hubs"] = {**hubs, **own}
    return tuple(name for name in hubs if name not in own)


def _stricter(own: str, wanted: str, project: str, remarks: list[tuple[str, str, str]]) -> str:
    """The setting `trust` with a project's value applied; a looser one is refused with a remark."""
    if wanted and _STRICTNESS.index(wanted) > _STRICTNESS.index(own):
        return wanted
    if wanted and wanted != own:
        remarks.append(("setting-refused", project, f"trust: {wanted}"))
    return own


def similar_setting(name: str) -> str:
    """The setting with the most similar name; empty when none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(_BY_NAME), 1, cutoff=_SIMILAR_NAME_RATIO)), "")


def _no_setting(name: str, where: str = "") -> SettingsError:
    if name in RENAMED:
        return SettingsError(
            renamed_setting(name), say("Run `{command}`", command="satchel config list")
        )
    near = similar_setting(name)
    return SettingsError(
        say("There is no setting `{name}`", name=where or name),
        say("Did you mean {names}?", names=f"`{near}`")
        if near
        else say("Run `{command}`", command="satchel config list"),
    )


def renamed_setting(name: str) -> str:
    """The sentence about a setting of 0.1 that has another name now."""
    return Message("`{name}` is now `{new}`", name=name, new=RENAMED[name])


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

    def below(variable: str, usual: tuple[str, ...], *rest: str) -> str:
        base = env.get(variable) or ""
        if not os.path.isabs(base):
            base = os.path.join(home, *usual)
        return os.path.join(base, *rest) if os.path.isabs(base) else ""

    return DiskPaths(
        below("XDG_CONFIG_HOME", (".config",), "satchel", "config.toml"),
        below("XDG_CACHE_HOME", (".cache",), "satchel"),
        below("XDG_STATE_HOME", (".local", "state"), "satchel"),
    )


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


def _file_values(
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
    import tomllib

    try:
        found: Any = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as exc:
        raise SettingsError(
            say("`{path}` cannot be used: {reason}", path=path, reason=exc),
            say("Correct it"),
        ) from exc
    for name in table:
        found = cast("dict[str, Any]", found).get(name, {})
        if not isinstance(found, dict):
            heading = ".".join(table)
            raise SettingsError(
                say("`{path}` cannot be used: {reason}", path=path, reason=name),
                say("Write `{value}`", value=f"[{heading}]"),
            )
    values: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", found).items():
        if name not in _BY_NAME:
            if similar_setting(name) in _STRICT:
                raise _no_setting(name, f"{path}: {name}")
            if name in RENAMED:
                remarks.append(("setting-wrong", path, renamed_setting(name)))
            else:
                remarks.append(("setting-unknown", path, name))
            continue
        try:
            values[name] = _convert(_BY_NAME[name], value, f"{path}: {name}")
        except SettingsError as exc:
            if name in _STRICT:
                raise
            remarks.append(("setting-wrong", path, exc.message))
    return values


_KINDS = {
    "integer": Message("a whole number that is at least 0"),
    "flag": Message("true or false"),
    "list": Message("a list of texts"),
}


def _wrong_value(setting: Setting, where: str, value: Any) -> SettingsError:
    choices = join_names(f"`{choice}`" for choice in setting.choices)
    kind = choices or render(_KINDS.get(setting.kind, Message("a table")))
    return SettingsError(
        say("`{where}` must be {kind}, not `{value}`", where=where, kind=kind, value=value),
        say("Run `{command}`", command="satchel config list"),
    )


def _convert(setting: Setting, value: Any, where: str) -> Any:
    kind = setting.kind
    if kind == "integer":
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            number = -1
        if isinstance(value, bool) or number < 0:
            raise _wrong_value(setting, where, value)
        return number
    if kind == "flag":
        flag = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise _wrong_value(setting, where, value)
        return flag
    if kind == "list":
        if isinstance(value, str):
            separator = os.pathsep if setting.name == "locations" else ","
            value = [part.strip() for part in value.split(separator)]
        items = cast("list[Any]", value)
        if (
            not isinstance(value, (list, tuple))
            or not all(isinstance(one, str) for one in items)
            or any("\0" in item for item in items)
        ):
            raise _wrong_value(setting, where, items)
        return tuple(item for item in items if item)
    if kind in {"table", "record"}:
        return _table(setting, value, where)
    text = str(value).strip()
    name = text.partition(":")[0] if setting.name == "engine" else text
    if setting.choices and name not in setting.choices:
        raise _wrong_value(setting, where, text)
    return text


_SCOPES = ("project", "skills")
_GRANT: dict[str, Any] = {"tools": ()}
"""The keys of a row of `grants`."""
_RECORD_KINDS: dict[type, Any] = {int: "integer", str: "text", tuple: "list"}


def _table(setting: Setting, value: Any, where: str) -> dict[str, Any]:
    """Convert a table, which the environment holds as JSON."""
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except ValueError as exc:
            raise _wrong_value(setting, where, value) from exc
    rows = cast("dict[str, Any]", value)
    if not isinstance(value, dict):
        raise _wrong_value(setting, where, rows)
    if setting.kind == "table":
        if not all(isinstance(row, dict) for row in rows.values()):
            raise _wrong_value(setting, where, rows)
        if setting.name != "grants":
            return rows
        return {
            name: _fields(f"grants.{name}", row, f"{where}.{name}", _GRANT)
            for name, row in rows.items()
        }
    return _fields(setting.name, rows, where, setting.default._asdict())


def _fields(table: str, rows: dict[str, Any], where: str, usual: dict[str, Any]) -> dict[str, Any]:
    """Convert the values of a record; `usual` has its fields with their defaults."""
    found: dict[str, Any] = {}
    for key, row in rows.items():
        name = f"{table}.{key}"
        if key not in usual:
            raise _no_setting(name)
        kind = _RECORD_KINDS[type(usual[key])]
        part = Setting(name, "", kind, usual[key], "", choices=_SCOPES if key == "scope" else ())
        found[key] = _convert(part, row, f"{where}.{key}")
    return found
