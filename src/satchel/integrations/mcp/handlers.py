"""The methods of the server: the Skills extension, resources, tools and prompts.

Each handler works in a thread (files are read, programs run),
and reports errors as JSON-RPC: what is not served is -32602, whatever the reason.
"""

from __future__ import annotations

import base64
import json
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError

from satchel.errors import InvalidInput, SatchelError
from satchel.integrations.mcp.skill_resources import address
from satchel.tools.base import CancelToken
from satchel.tools.framing import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcp.server.context import ServerRequestContext

    from satchel.envelope import Envelope
    from satchel.integrations.mcp.client_view import ClientView
    from satchel.integrations.mcp.skill_resources import ResourceFile, ServedManifest
    from satchel.session.session import Session

    Context = ServerRequestContext[Any, Any]


_AFTER = "after:"
"""Prefix of a cursor."""


def page(names: Sequence[str], cursor: str | None, size: int) -> tuple[Sequence[str], str | None]:
    """One page of sorted names, and the cursor of the next one: after the last name of this one.

    Raises:
        InvalidInput: the cursor is none of this server's.
    """
    start = 0
    if cursor is not None:
        if not cursor.startswith(_AFTER):
            raise InvalidInput(
                "This cursor is none of this server's", "Begin again without a cursor"
            )
        start = bisect_right(names, cursor.removeprefix(_AFTER))  # it may be gone meanwhile
    part = names[start : start + size]
    more = start + size < len(names)
    return part, _AFTER + part[-1] if more else None


MAX_PAGE_SKILLS = 100
MAX_PAGE_TOOLS = 1_000
MAX_PAGE_PROMPTS = 200
MAX_PAGE_CHILDREN = 500
CACHE_TTL_MS = 5_000
"""How long a client may cache an answer. Subscribers are notified sooner."""
STATELESS_VERSION = "2026-07-28"
"""The first version of the protocol without sessions."""
FOLDER = "inode/directory"
_TEMPLATE = "skill://{skill}/{+path}"
_MEDIA_TYPES = {
    "md": "text/markdown", "markdown": "text/markdown", "txt": "text/plain", "csv": "text/csv",
    "tsv": "text/tab-separated-values", "html": "text/html", "css": "text/css",
    "js": "text/javascript", "mjs": "text/javascript", "ts": "text/x-typescript",
    "py": "text/x-python", "go": "text/x-go", "sh": "application/x-sh", "sql": "application/sql",
    "json": "application/json", "yaml": "application/yaml", "yml": "application/yaml",
    "toml": "application/toml", "xml": "application/xml", "pdf": "application/pdf",
    "zip": "application/zip", "svg": "image/svg+xml", "png": "image/png", "gif": "image/gif",
    "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp",
}  # fmt: skip
"""Media types by file extension. Not the system's table, which differs between machines."""
_T = TypeVar("_T")


class ListSkillsParams(types.PaginatedRequestParams):
    """Parameters of `skills/list`."""


class GetSkillParams(types.RequestParams):
    """Parameters of `skills/get`."""

    uri: str


class ReadDirectoryParams(types.PaginatedRequestParams):
    """Parameters of `resources/directory/read`."""

    uri: str


class Handlers:
    """The request handlers of the server."""

    def __init__(self, view: ClientView) -> None:
        self._view = view
        self._lock = threading.Lock()

    def _session_of(self, ctx: Context) -> Session | None:
        """The session of a client; None for stateless requests."""
        if str(ctx.session.protocol_version) >= STATELESS_VERSION:
            return None
        # Its state lives as long as the session; there is no public access to it.
        kept: dict[str, Any] | None = getattr(
            getattr(ctx.session, "_connection", None), "state", None
        )
        if kept is None:
            return None
        with self._lock:
            if "satchel" not in kept:
                kept["satchel"] = self._view.new_session()
            return kept["satchel"]

    def _cache_fields(self) -> dict[str, Any]:
        return {"ttlMs": CACHE_TTL_MS, "cacheScope": "public"}

    # --- the Skills extension -------------------------------------------------------------

    async def list_skills(self, _ctx: Context, params: ListSkillsParams) -> dict[str, Any]:
        """`skills/list`."""
        served = self._view.served

        def work() -> dict[str, Any]:
            names, cursor = page(served.paths, params.cursor, MAX_PAGE_SKILLS)
            found = [_entry(path, one) for path, one in served.manifests(names)]
            return self._page("skills", found, cursor)

        return await _in_thread(work)

    async def get_skill(self, _ctx: Context, params: GetSkillParams) -> dict[str, Any]:
        """`skills/get`."""
        served = self._view.served

        def work() -> dict[str, Any]:
            found = served.find(params.uri)
            if found.file != "SKILL.md":
                raise _invalid(f"No skill is served at {_short(params.uri)}")
            entry = _entry(found.path, found.manifest)
            return {"resultType": "complete", "skill": entry, **self._cache_fields()}

        return await _in_thread(work)

    async def read_directory(self, _ctx: Context, params: ReadDirectoryParams) -> dict[str, Any]:
        """`resources/directory/read`."""
        served = self._view.served

        def work() -> dict[str, Any]:
            found = served.find(params.uri)
            children = found.manifest.folder(found.file)
            if children is None:
                raise _invalid(f"{_short(params.uri)} is not a directory resource")
            names, cursor = page(list(children), params.cursor, MAX_PAGE_CHILDREN)
            rows = [
                _resource(found.path, f"{found.file}/{name}".lstrip("/"), children[name], found)
                for name in names
            ]
            return self._page("resources", rows, cursor, cacheable=False)

        return await _in_thread(work)

    def _page(
        self, what: str, rows: list[Any], cursor: str | None, *, cacheable: bool = True
    ) -> dict[str, Any]:
        more = {"nextCursor": cursor} if cursor else {}
        kept = self._cache_fields() if cacheable else {}
        return {"resultType": "complete", what: rows, **more, **kept}

    # --- resources ------------------------------------------------------------------------

    async def list_resources(
        self, _ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """`resources/list`: the SKILL.md of each skill; other files are listed by `skills/get`."""
        served = self._view.served
        cursor = params.cursor if params else None

        def work() -> dict[str, Any]:
            names, following = page(served.paths, cursor, MAX_PAGE_SKILLS)
            rows = [
                _resource(path, "SKILL.md", one.files["SKILL.md"], one)
                for path, one in served.manifests(names)
            ]
            return self._page("resources", rows, following)

        return types.ListResourcesResult.model_validate(await _in_thread(work))

    async def list_templates(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """`resources/templates/list`: the form of a URI."""
        template = {
            "uriTemplate": _TEMPLATE,
            "name": "skill-file",
            "title": "A file of a skill",
            "description": "SKILL.md has the instructions; skills/get lists the other files",
        }
        return types.ListResourceTemplatesResult.model_validate(
            self._page("resourceTemplates", [template], None)
        )

    async def read_resource(
        self, _ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """`resources/read`: bytes that match the digest in the skill's manifest."""
        served = self._view.served
        uri = str(params.uri)

        def work() -> dict[str, Any]:
            found, data = served.read(uri)
            content: dict[str, Any] = {"uri": uri, "mimeType": media_type(found.file, data)}
            try:
                content["text"] = data.decode()
            except UnicodeDecodeError:
                content["blob"] = base64.b64encode(data).decode()
            return {"resultType": "complete", "contents": [content], **self._cache_fields()}

        return types.ReadResourceResult.model_validate(await _in_thread(work, uri))

    def is_served(self, uri: str) -> bool:
        """Whether there is a file at a URI."""
        try:
            found = self._view.served.find(uri)
        except SatchelError:
            return False
        return found.file in found.manifest.files

    # --- tools ----------------------------------------------------------------------------

    async def list_tools(
        self, _ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """`tools/list`."""
        view = self._view
        cursor = params.cursor if params else None

        def work() -> dict[str, Any]:
            tools = {tool["name"]: tool for tool in view.definitions()}
            names, following = page(sorted(tools), cursor, MAX_PAGE_TOOLS)
            return self._page("tools", [tools[name] for name in names], following)

        return types.ListToolsResult.model_validate(await _in_thread(work))

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """`tools/call`: a failed call is a result too; only an unknown name is a protocol error."""
        view = self._view
        cancel = CancelToken()

        def work() -> Envelope:
            try:
                session = self._session_of(ctx)
                return view.call(params.name, params.arguments or {}, cancel, session)
            finally:
                cancel.close()

        try:
            reply = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            cancel.set()  # the client stopped waiting: the program ends
        if reply.error is not None and reply.error.code == "NOT_FOUND":
            known = await anyio.to_thread.run_sync(view.definitions)
            if params.name not in {tool["name"] for tool in known}:
                raise _invalid(f"There is no tool `{one_line(params.name, 60)}`")
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=reply.text)],
            structured_content=_as_json(reply.to_dict()),
            is_error=reply.error is not None,
        )

    # --- prompts --------------------------------------------------------------------------

    async def list_prompts(
        self, _ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """`prompts/list`: one for each skill that a user may call."""
        view = self._view
        cursor = params.cursor if params else None

        def work() -> dict[str, Any]:
            prompts = view.prompts
            names, following = page(list(prompts), cursor, MAX_PAGE_PROMPTS)
            rows = [
                {
                    "name": name,
                    "description": prompts[name].description or name,
                    "arguments": [
                        {"name": one, "description": hint, "required": False}
                        for one, hint in view.arguments_of(prompts[name])
                    ],
                }
                for name in names
            ]
            return self._page("prompts", rows, following)

        return types.ListPromptsResult.model_validate(await _in_thread(work))

    async def get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """`prompts/get`: the skill's text, as the tool `Skill` returns it."""
        view = self._view

        def work() -> Envelope:
            return view.prompt(params.name, params.arguments or {}, self._session_of(ctx))

        reply: Envelope = await anyio.to_thread.run_sync(work)
        if reply.error is not None:
            raise _invalid(reply.text)
        skill = view.prompts.get(params.name)
        return types.GetPromptResult(
            description=skill.description if skill is not None else None,
            messages=[
                types.PromptMessage(
                    role="user", content=types.TextContent(type="text", text=reply.text)
                )
            ],
        )


def media_type(path: str, data: bytes) -> str:
    """The media type of a file, by its name, otherwise by its content."""
    known = _MEDIA_TYPES.get(path.rpartition(".")[2].lower())
    if known:
        return known
    try:
        data.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _entry(path: str, manifest: ServedManifest) -> dict[str, Any]:
    return {
        "uri": address(path, "SKILL.md"),
        "frontmatter": manifest.fields,
        "resources": [
            {"uri": address(path, file), "digest": item.digest, "size": item.size}
            for file, item in manifest.files.items()
        ],
    }


def _resource(path: str, file: str, item: ResourceFile | None, about: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"uri": address(path, file), "name": file.rpartition("/")[2]}
    if item is None:
        return {**row, "mimeType": FOLDER}
    row["size"] = item.size
    known = _MEDIA_TYPES.get(file.rpartition(".")[2].lower())
    if known:
        row["mimeType"] = known
    if file == "SKILL.md":
        fields: Mapping[str, Any] = getattr(about, "manifest", about).fields
        row |= {"name": fields["name"], "description": fields["description"]}
    return row


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, ensure_ascii=False, default=str))


async def _in_thread(work: Callable[[], _T], uri: str = "") -> _T:
    try:
        return await anyio.to_thread.run_sync(work)
    except SatchelError as exc:
        hint = f". {exc.hint}" if exc.hint else ""
        raise _invalid(f"{exc.message}{hint}", uri) from exc


def _invalid(message: str, uri: str = "") -> MCPError:
    data = {"uri": uri} if uri else None
    return MCPError(code=types.INVALID_PARAMS, message=message, data=data)


def _short(uri: str) -> str:
    return one_line(uri, 200)
