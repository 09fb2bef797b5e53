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

import anyio.from_thread
import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError

from satchel.errors import InvalidInput, SatchelError
from satchel.integrations.mcp.client_view import ask_user
from satchel.integrations.mcp.served_manifest import SKILL_FILE
from satchel.integrations.mcp.skill_uri import make_uri
from satchel.tools.base import CancelToken
from satchel.tools.framing import one_line
from satchel.tools.proposed_changes import NEEDS_PERSON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp.server.context import ServerRequestContext

    from satchel.envelope import Envelope
    from satchel.i18n import Message
    from satchel.integrations.mcp.client_view import ClientView
    from satchel.integrations.mcp.served_manifest import ResourceFile, ServedManifest
    from satchel.session.permissions import ApprovalRequest
    from satchel.session.session import Session

    Context = ServerRequestContext[Any, Any]


MAX_PAGE_SKILLS = 100
MAX_PAGE_TOOLS = 1_000
MAX_PAGE_PROMPTS = 200
MAX_PAGE_CHILDREN = 500
CACHE_TTL_MS = 5_000
"""How long a client may cache a response. Subscribers are notified sooner."""
STATELESS_VERSION = "2026-07-28"
"""The first version of the protocol without sessions."""
MAX_QUESTION_CHARS = 10_000
"""Maximum length of the text that shows proposed changes to a user."""
FOLDER_MEDIA_TYPE = "inode/directory"
_URI_TEMPLATE = "skill://{skill}/{+path}"
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
_CURSOR_PREFIX = "after:"
_T = TypeVar("_T")


def paginate(
    names: Sequence[str], cursor: str | None, size: int
) -> tuple[Sequence[str], str | None]:
    """Return one page of sorted names, and the cursor of the next one; None on the last page.

    Raises:
        InvalidInput: the cursor is none of this server's.
    """
    start = 0
    if cursor is not None:
        if not cursor.startswith(_CURSOR_PREFIX):
            raise InvalidInput(
                "This cursor is none of this server's", "Begin again without a cursor"
            )
        # The cursor holds the last name of the previous page, which may be gone meanwhile.
        start = bisect_right(names, cursor.removeprefix(_CURSOR_PREFIX))
    page_names = names[start : start + size]
    has_more = start + size < len(names)
    return page_names, _CURSOR_PREFIX + page_names[-1] if has_more else None


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
        """Return the session of a client; None for stateless requests."""
        if str(ctx.session.protocol_version) >= STATELESS_VERSION:
            return None
        # Its state lives as long as the session; there is no public access to it.
        connection = getattr(ctx.session, "_connection", None)
        state: dict[str, Any] | None = getattr(connection, "state", None)
        if state is None:
            return None
        with self._lock:
            if "satchel" not in state:
                state["satchel"] = self._view.new_session()
            return state["satchel"]

    def _cache_fields(self) -> dict[str, Any]:
        return {"ttlMs": CACHE_TTL_MS, "cacheScope": "public"}

    # --- the Skills extension -------------------------------------------------------------

    async def list_skills(self, _ctx: Context, params: ListSkillsParams) -> dict[str, Any]:
        """`skills/list`."""
        resources = self._view.resources

        def work() -> dict[str, Any]:
            names, next_cursor = paginate(resources.names, params.cursor, MAX_PAGE_SKILLS)
            entries = [
                _skill_entry(name, manifest) for name, manifest in resources.manifests(names)
            ]
            return self._page("skills", entries, next_cursor)

        return await _in_thread(work)

    async def get_skill(self, _ctx: Context, params: GetSkillParams) -> dict[str, Any]:
        """`skills/get`."""
        resources = self._view.resources

        def work() -> dict[str, Any]:
            resource = resources.find(params.uri)
            if resource.path != SKILL_FILE:
                raise _invalid_params(f"No skill is served at {_shorten(params.uri)}")
            entry = _skill_entry(resource.name, resource.manifest)
            return {"resultType": "complete", "skill": entry, **self._cache_fields()}

        return await _in_thread(work)

    async def read_directory(self, _ctx: Context, params: ReadDirectoryParams) -> dict[str, Any]:
        """`resources/directory/read`."""
        resources = self._view.resources

        def work() -> dict[str, Any]:
            folder = resources.find(params.uri)
            children = folder.manifest.list_folder(folder.path)
            if children is None:
                raise _invalid_params(f"{_shorten(params.uri)} is not a directory resource")
            names, next_cursor = paginate(list(children), params.cursor, MAX_PAGE_CHILDREN)
            entries: list[dict[str, Any]] = []
            for name in names:
                path = f"{folder.path}/{name}".lstrip("/")
                entries.append(_resource_entry(folder.name, path, children[name], folder.manifest))
            return self._page("resources", entries, next_cursor, cacheable=False)

        return await _in_thread(work)

    def _page(
        self, key: str, entries: list[Any], next_cursor: str | None, *, cacheable: bool = True
    ) -> dict[str, Any]:
        """Return the result of a list method, with its entries under `key`."""
        next_page = {"nextCursor": next_cursor} if next_cursor else {}
        cache_fields = self._cache_fields() if cacheable else {}
        return {"resultType": "complete", key: entries, **next_page, **cache_fields}

    # --- resources ------------------------------------------------------------------------

    async def list_resources(
        self, _ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """`resources/list`: the SKILL.md of each skill; other files are listed by `skills/get`."""
        resources = self._view.resources
        cursor = params.cursor if params else None

        def work() -> dict[str, Any]:
            names, next_cursor = paginate(resources.names, cursor, MAX_PAGE_SKILLS)
            entries = [
                _resource_entry(name, SKILL_FILE, manifest.files[SKILL_FILE], manifest)
                for name, manifest in resources.manifests(names)
            ]
            return self._page("resources", entries, next_cursor)

        return types.ListResourcesResult.model_validate(await _in_thread(work))

    async def list_templates(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """`resources/templates/list`: the form of a URI."""
        template = {
            "uriTemplate": _URI_TEMPLATE,
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
        resources = self._view.resources
        uri = str(params.uri)

        def work() -> dict[str, Any]:
            resource, data = resources.read(uri)
            content: dict[str, Any] = {"uri": uri, "mimeType": media_type(resource.path, data)}
            try:
                content["text"] = data.decode()
            except UnicodeDecodeError:
                content["blob"] = base64.b64encode(data).decode()
            return {"resultType": "complete", "contents": [content], **self._cache_fields()}

        return types.ReadResourceResult.model_validate(await _in_thread(work, uri))

    def is_served(self, uri: str) -> bool:
        """Whether there is a file at a URI."""
        try:
            resource = self._view.resources.find(uri)
        except SatchelError:
            return False
        return resource.path in resource.manifest.files

    # --- tools ----------------------------------------------------------------------------

    async def list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """`tools/list`."""
        view = self._view
        cursor = params.cursor if params else None

        def work() -> dict[str, Any]:
            stateless = self._session_of(ctx) is None
            tools = {tool["name"]: tool for tool in view.definitions(stateless=stateless)}
            names, next_cursor = paginate(sorted(tools), cursor, MAX_PAGE_TOOLS)
            return self._page("tools", [tools[name] for name in names], next_cursor)

        return types.ListToolsResult.model_validate(await _in_thread(work))

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """`tools/call`: a failed call is a result too; only an unknown name is a protocol error."""
        view = self._view
        cancel = CancelToken()

        def ask(request: ApprovalRequest) -> bool | Message:
            return anyio.from_thread.run(_ask_user, ctx, request)

        def work() -> Envelope:
            ask_user.set(ask)
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
            tools = await anyio.to_thread.run_sync(view.definitions)
            if params.name not in {tool["name"] for tool in tools}:
                raise _invalid_params(f"There is no tool `{one_line(params.name, 60)}`")
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
            names, next_cursor = paginate(list(prompts), cursor, MAX_PAGE_PROMPTS)
            entries = [
                {
                    "name": name,
                    "description": prompts[name].description or name,
                    "arguments": [
                        {"name": argument, "description": hint, "required": False}
                        for argument, hint in view.arguments_of(prompts[name])
                    ],
                }
                for name in names
            ]
            return self._page("prompts", entries, next_cursor)

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
            raise _invalid_params(reply.text)
        skill = view.prompts.get(params.name)
        return types.GetPromptResult(
            description=skill.description if skill is not None else None,
            messages=[
                types.PromptMessage(
                    role="user", content=types.TextContent(type="text", text=reply.text)
                )
            ],
        )


async def _ask_user(ctx: Context, request: ApprovalRequest) -> bool | Message:
    """Ask the client's user about proposed changes; a text is the reason why that is impossible."""
    elicitation = types.ElicitationCapability(form=types.FormElicitationCapability())
    if not ctx.session.check_client_capability(types.ClientCapabilities(elicitation=elicitation)):
        return NEEDS_PERSON
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    try:
        response = await ctx.session.elicit_form(changes_text(request), schema, ctx.request_id)
    except MCPError:
        return NEEDS_PERSON
    return response.action == "accept"


def changes_text(request: ApprovalRequest) -> str:
    """Return the question about proposed changes with their diffs, in a limited length."""
    lines = [request.question, ""]
    for change in request.changes:
        sizes = [f"{size:,}" for size in (change.old_size, change.new_size) if size is not None]
        facts = [f"{change.kind} {change.path}", f"{' -> '.join(sizes)} B"]
        if change.link:
            facts.append(f"link to {change.link}")
        if change.mode_words:
            facts.append(change.mode_words)
        lines.append(", ".join(facts))
    text = "\n".join([*lines, "", *(change.diff for change in request.changes if change.diff)])
    if len(text) <= MAX_QUESTION_CHARS:
        return text
    return f"{text[:MAX_QUESTION_CHARS]}\n… {len(text) - MAX_QUESTION_CHARS:,} characters more"


def media_type(path: str, data: bytes) -> str:
    """Return the media type of a file, by its name, otherwise by its content."""
    known_type = _media_type_by_name(path)
    if known_type:
        return known_type
    try:
        data.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _media_type_by_name(path: str) -> str | None:
    return _MEDIA_TYPES.get(path.rpartition(".")[2].lower())


def _skill_entry(name: str, manifest: ServedManifest) -> dict[str, Any]:
    """Return a skill with all its files, as `skills/list` and `skills/get` have it."""
    return {
        "uri": make_uri(name, SKILL_FILE),
        "frontmatter": manifest.fields,
        "resources": [
            {"uri": make_uri(name, path), "digest": file.digest, "size": file.size}
            for path, file in manifest.files.items()
        ],
    }


def _resource_entry(
    skill_name: str, path: str, file: ResourceFile | None, manifest: ServedManifest
) -> dict[str, Any]:
    """Return the resource of a file of a skill, or of a folder when `file` is None."""
    entry: dict[str, Any] = {"uri": make_uri(skill_name, path), "name": path.rpartition("/")[2]}
    if file is None:
        return {**entry, "mimeType": FOLDER_MEDIA_TYPE}
    entry["size"] = file.size
    known_type = _media_type_by_name(path)
    if known_type:
        entry["mimeType"] = known_type
    if path == SKILL_FILE:
        fields = manifest.fields
        entry |= {"name": fields["name"], "description": fields["description"]}
    return entry


def _as_json(value: Any) -> Any:
    """Return a value with everything that JSON lacks as text."""
    return json.loads(json.dumps(value, ensure_ascii=False, default=str))


async def _in_thread(work: Callable[[], _T], uri: str = "") -> _T:
    """Run a function in a thread, and report its errors as JSON-RPC."""
    try:
        return await anyio.to_thread.run_sync(work)
    except SatchelError as exc:
        hint = f". {exc.hint}" if exc.hint else ""
        raise _invalid_params(f"{exc.message}{hint}", uri) from exc


def _invalid_params(message: str, uri: str = "") -> MCPError:
    data = {"uri": uri} if uri else None
    return MCPError(code=types.INVALID_PARAMS, message=message, data=data)


def _shorten(uri: str) -> str:
    return one_line(uri, 200)
