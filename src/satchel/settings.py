"""The settings, their sources, and the paths of Satchel's own files.

Order, last wins: defaults, the user's `config.toml`, the project's `satchel.toml` (or
`[tool.satchel]` in `pyproject.toml`), the environment, arguments in code. A project is untrusted
input: its settings about trust are refused. An unknown key or wrong value in a file is ignored and
becomes a remark, except where that would offer more skills (`_STRICT`).
"""

# Without `from __future__ import annotations`: NamedTuple would compile each annotation at import.
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from satchel._fs import is_really_inside, read_small
from satchel.errors import SettingsError
from satchel.i18n import Message, listed, say

TrustPolicy = Literal["all", "ask", "locked"]
Form = Literal["xml", "markdown", "json", "paths"]


class Setting(NamedTuple):
    """Definition of one setting."""

    name: str
    env: str
    kind: Literal["integer", "flag", "text", "list", "table"]
    default: Any
    description: str
    project_may_set: bool = True
    choices: tuple[str, ...] = ()


SETTINGS = (
    Setting("budget", "SKILLS_PROMPT_CHAR_BUDGET", "integer", 12_000,
            "Characters that the catalogue may take in the prompt."),
    Setting("form", "SATCHEL_FORM", "text", "xml",
            "Form of the catalogue; `paths` is Markdown with the path of each SKILL.md, for agents that have ReadFile and not Skill.",
            choices=("xml", "markdown", "json", "paths")),
    Setting("refresh_on_call", "SKILLS_REFRESH_ON_CALL", "flag", default=True,
            description="Look for changed skills at every call of the Skill tool."),
    Setting("trust", "SATCHEL_TRUST", "text", "all",
            "Which skills are offered: `ask` (of a project only after `satchel trust`; the default of the commands), `all` (whatever is found; the default in Python), `locked` (only what `satchel.lock` pins). A project may only choose a stricter one.",
            choices=("ask", "all", "locked")),
    Setting("builtin", "SATCHEL_BUILTIN", "flag", default=False,
            description="Offer the skills that ship with Satchel. `satchel chat` offers them unless this is false."),
    Setting("ecosystem", "SATCHEL_ECOSYSTEM", "flag", default=True,
            description="Also read other agents' folders: `.claude/skills`, `.codex/skills`, `~/.agents/skills` and more.",
            project_may_set=False),
    Setting("locations", "SATCHEL_LOCATIONS", "list", (),
            "Further folders with skills, and servers (`mcp:https://host/path`, `mcp:stdio:COMMAND`). A project may only add folders inside itself."),
    Setting("servers", "SATCHEL_SERVERS", "table", {},
            "MCP servers whose skills are offered, by the name you give them: `address` or `command`, and where needed `token`, `headers`, `env` and `skills`. In the environment it is JSON.",
            project_may_set=False),
    Setting("include", "SATCHEL_INCLUDE", "list", (),
            "Offer only skills whose name or id matches one of these patterns (`git-*`)."),
    Setting("exclude", "SATCHEL_EXCLUDE", "list", (),
            "Never offer skills whose name or id matches one of these patterns."),
    Setting("tags", "SATCHEL_TAGS", "list", (),
            "Offer only skills with one of these tags."),
    Setting("pin", "SATCHEL_PIN", "list", (),
            "Names that are listed first and in full when the budget is short."),
    Setting("shortlist", "SATCHEL_SHORTLIST", "integer", 3,
            "Skills that are named beside a request because they may fit it; 0 names none."),
    Setting("changes", "SATCHEL_CHANGES", "text", "tail",
            "How a conversation is told that the library changed: `tail` (at the end of the next request, so that the cached prompt stays; only other tools rebuild it), `rebuild` (prompt and tools are made anew before the next request).",
            choices=("tail", "rebuild")),
    Setting("vectors", "SATCHEL_VECTORS", "text", "",
            "A model that compares meanings: a folder with an ONNX file and its tokenizer, `model2vec:FOLDER`, or the address of an embeddings endpoint. Empty compares words alone.",
            project_may_set=False),
    Setting("model", "SATCHEL_MODEL", "text", "",
            "Who answers in `satchel chat` and `satchel run`, as `provider:name` (`anthropic:claude-sonnet-5`). A project may not choose who is paid.",
            project_may_set=False),
    Setting("engine", "SATCHEL_ENGINE", "text", "local",
            "Where goals run: `local` (this process), `dbos` (they survive it, in a database), `temporal` (on a Temporal server).",
            project_may_set=False, choices=("local", "dbos", "temporal")),
    Setting("database", "SATCHEL_DATABASE", "text", "",
            "Where the engine `dbos` keeps goals: `sqlite:///FILE` or `postgresql://USER@HOST/NAME`. Empty is a SQLite file in the state folder, one for each project.",
            project_may_set=False),
    Setting("temporal", "SATCHEL_TEMPORAL", "text", "",
            "Where the engine `temporal` finds its server: `HOST:PORT/NAMESPACE/QUEUE`; the last two may be left out. Empty is as Temporal's own settings say (`TEMPORAL_ADDRESS` and others), with the queue `satchel`.",
            project_may_set=False),
    Setting("limits", "SATCHEL_LIMITS", "table", {},
            "What each provider is asked at most while goals run, by its name: `per_second` and `at_once`, for all workers of an engine together. In the environment it is JSON.",
            project_may_set=False),
    Setting("max_depth", "SATCHEL_MAX_DEPTH", "integer", 6,
            "How many folders deep a location is searched.", project_may_set=False),
    Setting("max_folders", "SATCHEL_MAX_FOLDERS", "integer", 500_000,
            "How many folders of a location are searched.", project_may_set=False),
    Setting("use_index", "SATCHEL_INDEX", "flag", default=True,
            description="Keep an index of large locations in the cache folder, so that the next start is fast.", project_may_set=False),
    Setting("trace", "SATCHEL_TRACE", "text", "file",
            "Where trace events go: `file` (so that `satchel why` knows the past), `memory`, `off`.",
            choices=("file", "memory", "off"), project_may_set=False),
    Setting("read", "SATCHEL_READ", "text", "project",
            "What ReadFile may read: `project` (text files below the project and in the folders of offered skills), `skills` (only files of skills that the conversation may use).",
            choices=("project", "skills"), project_may_set=False),
    Setting("read_extensions", "SATCHEL_READ_EXTENSIONS", "list",
            ("md", "markdown", "txt", "rst", "json", "jsonl", "yaml", "yml", "toml", "ini", "cfg", "csv", "tsv",
             "xml", "html", "css", "py", "js", "mjs", "cjs", "ts", "tsx", "jsx", "sh", "bash", "ps1", "go", "rs",
             "rb", "java", "kt", "c", "h", "cpp", "hpp", "cs", "php", "pl", "lua", "r", "sql", "tex", "svg", "tmpl"),
            "File extensions that ReadFile may read.", project_may_set=False),
    Setting("read_limit", "SATCHEL_READ_LIMIT", "integer", 40_000,
            "Characters that ReadFile returns at most at once."),
    Setting("packaged", "SATCHEL_PACKAGED", "flag", default=True,
            description="Offer the tools of packaged skills; `SKILL_<NAME>_ENABLED` turns one of them off.", project_may_set=False),
    Setting("tool_language", "SATCHEL_TOOL_LANGUAGE", "text", "en",
            "Language in which packaged tools describe themselves and answer the model; `SATCHEL_LANG=zh` chooses it too.",
            choices=("en", "zh")),
    Setting("tool_timeout", "SATCHEL_TOOL_TIMEOUT", "integer", 30,
            "Seconds that a call of a tool skill may take, unless its skill.yaml says otherwise.", project_may_set=False),
    Setting("tool_processes", "SATCHEL_TOOL_PROCESSES", "integer", 0,
            "Calls of tool skills that run at once; 0 means twice the processors, at least 4.", project_may_set=False),
    Setting("tool_output", "SATCHEL_TOOL_OUTPUT", "integer", 8_000,
            "Characters of a tool skill's answer that reach the model.", project_may_set=False),
    Setting("tool_memory", "SATCHEL_TOOL_MEMORY", "integer", 512,
            "Megabytes that a tool skill's program and its children may hold together.", project_may_set=False),
    Setting("create_missing", "SATCHEL_CREATE_MISSING", "flag", default=False,
            description="Create the user's skills folder at start-up.", project_may_set=False),
    Setting("sandbox", "SATCHEL_SANDBOX", "text", "required",
            "When programs of skills run: `required` (only in a sandbox that holds), `own` (where none holds, the user's own skills run without), `off` (always without).",
            choices=("required", "own", "off"), project_may_set=False),
    Setting("sandbox_tier", "SATCHEL_SANDBOX_TIER", "text", "auto",
            "Which sandbox: `bwrap` (bubblewrap and seccomp), `landlock` (Landlock and seccomp), `auto` (the first of these that holds).",
            choices=("auto", "bwrap", "landlock"), project_may_set=False),
)  # fmt: skip
"""Every setting; the reference page is made from this table."""


class DiskPaths(NamedTuple):
    """Paths of Satchel's own files."""

    config: str
    """The file `config.toml`."""
    cache: str
    """Folder of the indexes; may be deleted at any time."""
    state: str
    """Folder of the trust file and the trace."""


class Settings(NamedTuple):
    """The settings in force."""

    project: str
    """Absolute folder of the project."""
    paths: DiskPaths
    budget: int = 12_000
    form: Form = "xml"
    refresh_on_call: bool = True
    trust: TrustPolicy = "all"
    builtin: bool = False
    ecosystem: bool = True
    locations: tuple[str, ...] = ()
    servers: Mapping[str, Any] = {}
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    pin: tuple[str, ...] = ()
    shortlist: int = 3
    changes: Literal["tail", "rebuild"] = "tail"
    vectors: str = ""
    model: str = ""
    engine: Literal["local", "dbos", "temporal"] = "local"
    database: str = ""
    temporal: str = ""
    limits: Mapping[str, Any] = {}
    max_depth: int = 6
    max_folders: int = 500_000
    use_index: bool = True
    trace: Literal["file", "memory", "off"] = "file"
    read: Literal["project", "skills"] = "project"
    read_extensions: tuple[str, ...] = ()
    read_limit: int = 40_000
    create_missing: bool = False
    sandbox: Literal["required", "own", "off"] = "required"
    sandbox_tier: Literal["auto", "bwrap", "landlock"] = "auto"
    tool_timeout: int = 30
    tool_processes: int = 0
    tool_output: int = 8_000
    tool_memory: int = 512
    packaged: bool = True
    tool_language: str = "en"
    asks: bool = False
    """Only skills of trusted folders are offered. It stays True when a project chooses `locked`,
    since the lockfile is the project's own."""
    project_locations: tuple[str, ...] = ()
    """Folders inside the project that its settings file names: as untrusted as the project."""
    remarks: tuple[tuple[str, str, str], ...] = ()
    """Ignored or notable settings of files: (problem code, file, name or reason)."""


SERVER = "mcp:"
"""Prefix of locations that are servers."""
_MAX_FILE_BYTES = 256 * 1024
_REACHES_FAR = frozenset(("include", "exclude", "tags", "builtin", "budget"))
"""Settings of a project that affect the user's own skills too: allowed, and reported."""
_STRICT = frozenset(("include", "exclude", "tags", "trust"))
"""Settings that restrict which skills are offered: a wrong value is an error."""
_SKILL_FILES = ("SKILL.md", "skill.yaml")
_ROOT_MARKS = ("satchel.toml", ".agents", "satchel.lock", ".git")
_SIMILAR_NAME_RATIO = 0.75
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_FLAGS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
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
    values.update(_language_chosen(env), **(defaults or {}))
    wanted = ""
    remarks: list[tuple[str, str, str]] = []
    values.update(_file_values(paths.config, (), remarks))
    inside: list[str] = []
    for file, table in (("satchel.toml", ()), ("pyproject.toml", ("tool", "satchel"))):
        path = os.path.join(project, file)
        for name, value in _file_values(path, table, remarks, in_project=True).items():
            if name == "trust":
                wanted = max(wanted or value, value, key=_STRICTNESS.index)
            elif not _BY_NAME[name].project_may_set:
                remarks.append(("setting-refused", path, name))
            elif name == "locations":
                # No servers: a project may not choose where requests are sent.
                inside += [
                    item
                    for item in value
                    if not item.startswith(SERVER)
                    and is_really_inside(os.path.join(project, item), project)
                ]
                remarks += [
                    ("setting-refused", path, f"locations: {item}")
                    for item in value
                    if item not in inside
                ]
            else:
                values[name] = value
                if name in _REACHES_FAR:
                    remarks.append(("project-setting", path, name))
    for setting in SETTINGS:
        text = env.get(setting.env)
        if text is not None and text.strip():
            values[setting.name] = _convert(setting, text, setting.env)
    asks = values["trust"] == "ask" or (values["trust"], wanted) == ("all", "ask")
    values["trust"] = _stricter(values["trust"], wanted, project, remarks)
    for name, value in given.items():
        if name not in _BY_NAME:
            raise _no_setting(name)
        values[name] = _convert(_BY_NAME[name], value, name)
    if "trust" in given:
        asks = values["trust"] == "ask"
    return Settings(
        project=project,
        paths=paths,
        asks=asks,
        project_locations=tuple(inside),
        remarks=tuple(remarks),
        **values,
    )


def _language_chosen(env: Mapping[str, str]) -> dict[str, str]:
    chinese = env.get("SATCHEL_LANG", "").lower().startswith("zh")
    return {"tool_language": "zh"} if chinese else {}


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


def _no_setting(name: str, path: str = "") -> SettingsError:
    near = similar_setting(name)
    return SettingsError(
        say("`{path}` sets `{name}`, which does not exist", path=path, name=name)
        if path
        else say("There is no setting `{name}`", name=name),
        say("Did you mean {names}?", names=f"`{near}`")
        if near
        else say("See the settings reference"),
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
            "Correct the file",
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
            say("`{path}` is not valid TOML: {reason}", path=path, reason=exc),
            say("Correct the file"),
        ) from exc
    for name in table:
        found = cast("dict[str, Any]", found).get(name, {})
        if not isinstance(found, dict):
            heading = ".".join(table)
            raise SettingsError(
                say("`{path}` has `{name}`, which is no table", path=path, name=name),
                say("Write `[{heading}]`", heading=heading),
            )
    values: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", found).items():
        if name not in _BY_NAME:
            if similar_setting(name) in _STRICT:
                raise _no_setting(name, path)
            remarks.append(("setting-unknown", path, name))
            continue
        try:
            values[name] = _convert(_BY_NAME[name], value, f"{path}: {name}")
        except SettingsError as exc:
            if name in _STRICT:
                raise
            remarks.append(("setting-wrong", path, exc.message))
    return values


def _convert(setting: Setting, value: Any, where: str) -> Any:
    if setting.kind == "integer":
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            number = -1
        if isinstance(value, bool) or number < 0:
            raise SettingsError(
                say("`{where}` must be a whole number, not `{value}`", where=where, value=value),
                say("Write `{value}`", value=setting.default),
            )
        return number
    if setting.kind == "flag":
        flag = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise SettingsError(
                say("`{where}` must be true or false, not `{value}`", where=where, value=value),
                say("Write `true` or `false`"),
            )
        return flag
    if setting.kind == "list":
        if isinstance(value, str):
            parts = _split_locations(value) if setting.name == "locations" else value.split(",")
            value = [part.strip() for part in parts]
        items = cast("list[Any]", value)
        if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in items):
            raise SettingsError(
                say("`{where}` must be a list of texts, not `{value}`", where=where, value=items),
                say("Write a list of texts"),
            )
        if any("\0" in item for item in items):
            raise SettingsError(f"`{where}` contains a NUL character", Message("Remove it"))
        return tuple(item for item in items if item)
    if setting.kind == "table":
        return _table(value, where, setting.name)
    text = str(value).strip()
    if setting.choices and text not in setting.choices:
        choices = listed(f"`{choice}`" for choice in setting.choices)
        raise SettingsError(
            say(
                "`{where}` is `{text}`, which is not one of {choices}",
                where=where, text=text, choices=choices,
            ),
            say("Write one of {choices}", choices=choices),
        )  # fmt: skip
    return text


def _split_locations(text: str) -> list[str]:
    """Split a line of locations; the `:` of a server's address is no separator."""
    if os.pathsep != ":" or SERVER not in text:
        return text.split(os.pathsep)
    import re

    host = r"(?:\[[^]]*\]|[^:/]*)"
    user = r"(?:[^:/@]*:[^:/@]*@)?"  # refused later, and must not be split before
    server = rf"mcp:https?://{user}{host}(?::\d+)?[^:]*|mcp:stdio:[^:]*"
    return re.findall(rf"(?:^|(?<=:))(?:{server}|[^:]*)(?=:|$)", text)


def _table(value: Any, where: str, name: str) -> dict[str, dict[str, Any]]:
    """Convert a table of tables, which the environment holds as JSON."""
    limits = name == "limits"
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except ValueError as exc:
            raise SettingsError(
                say("`{where}` is not valid JSON: {reason}", where=where, reason=exc),
                say("Write it so: `{example}`", example='{"openai": {"per_second": 5}}')
                if limits
                else say('Write `{{"docs": {{"address": "https://…"}}}}`'),
            ) from exc
    rows = cast("dict[str, Any]", value)
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise SettingsError(
            say("`{where}` must be a table of tables, not `{value}`", where=where, value=rows),
            say("Write `[limits.openai]` and below it `per_second = 5`")
            if limits
            else say("Write `[servers.docs]` and below it `address = …`"),
        )
    return rows
