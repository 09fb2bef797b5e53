"""The methods of the server: the Skills extension, resources, tools and prompts.

Each handler finds the view of who asks, does its work in a thread (files are read, programs run),
and says errors as JSON-RPC does: what is not served is -32602, whatever the reason.
"""

from __future__ import annotations

import base64
import binascii
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError

from satchel.errors import InvalidInput, SatchelError
from satchel.integrations.mcp.served import address
from satchel.tools.base import TakenBack
from satchel.tools.frame import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcp.server.context import ServerRequestContext

    from satchel.envelope import Envelope
    from satchel.integrations.mcp.served import Item, Manifest
    from satchel.integrations.mcp.views import View
    from satchel.tools.session import Session

    Context = ServerRequestContext[Any, Any]

_LONGEST_CURSOR = 2_048
_CURSOR_MARK = "satchel1"


class Page(NamedTuple):
    """Some of the names, and how to ask for the rest."""

    names: Sequence[str]
    cursor: str | None


def page(names: Sequence[str], kind: str, cursor: str | None, size: int) -> Page:
    """One page of sorted names.

    Args:
        names: All of them, sorted.
        kind: What is listed: a cursor of one list is none of another.
        cursor: Where the client goes on; None at the start.
        size: How many at most.

    Raises:
        InvalidInput: the cursor is none that was given out for this list.
    """
    start = bisect_right(names, after(kind, cursor)) if cursor is not None else 0
    part = names[start : start + size]
    more = start + size < len(names)
    return Page(part, make_cursor(kind, part[-1]) if more and part else None)


def make_cursor(kind: str, last: str) -> str:
    """The word for everything after `last`."""
    return urlsafe_b64encode(f"{_CURSOR_MARK}\0{kind}\0{last}".encode()).decode().rstrip("=")


def after(kind: str, cursor: str) -> str:
    """The name after which a page begins.

    Raises:
        InvalidInput: the cursor is none that was given out for this list.
    """
    try:
        text = urlsafe_b64decode(cursor[:_LONGEST_CURSOR] + "=" * (-len(cursor) % 4)).decode()
    except (ValueError, binascii.Error) as exc:
        raise _unknown() from exc
    mark, _, rest = text.partition("\0")
    made_for, _, last = rest.partition("\0")
    if mark != _CURSOR_MARK or made_for != kind or make_cursor(kind, last) != cursor:
        raise _unknown()
    return last


def _unknown() -> InvalidInput:
    return InvalidInput("This cursor is none of this server's", "Begin again without a cursor")


SKILLS_A_PAGE = 100
TOOLS_A_PAGE = 1_000
PROMPTS_A_PAGE = 200
CHILDREN_A_PAGE = 500
TTL_MS = 5_000
"""How long a client may keep an answer. Whoever listens is told sooner."""
ALONE = "2026-07-28"
"""The first version of the protocol that has no sessions."""
FOLDER = "inode/directory"
_TEMPLATE = "skill://{skill}/{+path}"
_KINDS = {
    "md": "text/markdown", "markdown": "text/markdown", "txt": "text/plain", "csv": "text/csv",
    "tsv": "text/tab-separated-values", "html": "text/html", "css": "text/css",
    "js": "text/javascript", "mjs": "text/javascript", "ts": "text/x-typescript",
    "py": "text/x-python", "go": "text/x-go", "sh": "application/x-sh", "sql": "application/sql",
    "json": "application/json", "yaml": "application/yaml", "yml": "application/yaml",
    "toml": "application/toml", "xml": "application/xml", "pdf": "application/pdf",
    "zip": "application/zip", "svg": "image/svg+xml", "png": "image/png", "gif": "image/gif",
    "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp",
}  # fmt: skip
"""By the end of a name. A table of our own: that of the system differs from machine to machine."""
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
    """What the server answers with."""

    def __init__(self, view_of: Callable[[Context], View], *, shared: bool) -> None:
        """Make them.

        Args:
            view_of: Who asks, and so what they may have.
            shared: All clients have the same: an answer to one may be kept for another.
        """
        self._view_of = view_of
        self._scope = "public" if shared else "private"
        self._lock = threading.Lock()

    def _talk(self, ctx: Context, view: View) -> Session | None:
        """The conversation of a client with a session; None where each request stands alone."""
        if str(ctx.session.protocol_version) >= ALONE:
            return None
        # What is kept there lives as long as the session; there is no public way to it.
        kept: dict[str, Any] | None = getattr(
            getattr(ctx.session, "_connection", None), "state", None
        )
        if kept is None:
            return None
        with self._lock:
            talks: dict[str, Session] = kept.setdefault("satchel", {})
            if view.name not in talks:
                talks[view.name] = view.talk()
            return talks[view.name]

    def _kept(self) -> dict[str, Any]:
        return {"ttlMs": TTL_MS, "cacheScope": self._scope}

    # --- the Skills extension -------------------------------------------------------------

    async def list_skills(self, ctx: Context, params: ListSkillsParams) -> dict[str, Any]:
        """`skills/list`."""
        served = self._view_of(ctx).served

        def work() -> dict[str, Any]:
            now = page(served.paths, "skills", params.cursor, SKILLS_A_PAGE)
            found = [_entry(path, one) for path, one in served.manifests(now.names)]
            return self._page("skills", found, now.cursor)

        return await _in_thread(work)

    async def get_skill(self, ctx: Context, params: GetSkillParams) -> dict[str, Any]:
        """`skills/get`."""
        served = self._view_of(ctx).served

        def work() -> dict[str, Any]:
            found = served.find(params.uri)
            if found.file != "SKILL.md":
                raise _invalid(f"No skill is served at {_shown(params.uri)}")
            entry = _entry(found.path, found.manifest)
            return {"resultType": "complete", "skill": entry, **self._kept()}

        return await _in_thread(work)

    async def read_directory(self, ctx: Context, params: ReadDirectoryParams) -> dict[str, Any]:
        """`resources/directory/read`."""
        served = self._view_of(ctx).served

        def work() -> dict[str, Any]:
            found = served.find(params.uri)
            children = found.manifest.folder(found.file)
            if children is None:
                raise _invalid(f"{_shown(params.uri)} is not a directory resource")
            kind = f"folder {found.path}/{found.file}"
            now = page(list(children), kind, params.cursor, CHILDREN_A_PAGE)
            rows = [
                _resource(found.path, f"{found.file}/{name}".lstrip("/"), children[name], found)
                for name in now.names
            ]
            return self._page("resources", rows, now.cursor, cacheable=False)

        return await _in_thread(work)

    def _page(
        self, what: str, rows: list[Any], cursor: str | None, *, cacheable: bool = True
    ) -> dict[str, Any]:
        more = {"nextCursor": cursor} if cursor else {}
        kept = self._kept() if cacheable else {}
        return {"resultType": "complete", what: rows, **more, **kept}

    # --- resources ------------------------------------------------------------------------

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """`resources/list`: the SKILL.md of each skill; the rest is found through its skill."""
        served = self._view_of(ctx).served
        cursor = params.cursor if params else None

        def work() -> dict[str, Any]:
            now = page(served.paths, "resources", cursor, SKILLS_A_PAGE)
            rows = [
                _resource(path, "SKILL.md", one.files["SKILL.md"], one)
                for path, one in served.manifests(now.names)
            ]
            return self._page("resources", rows, now.cursor)

        return types.ListResourcesResult.model_validate(await _in_thread(work))

    async def list_templates(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """`resources/templates/list`: the form of an address."""
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
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """`resources/read`: bytes that have the digest which the skill announces."""
        served = self._view_of(ctx).served
        uri = str(params.uri)

        def work() -> dict[str, Any]:
            found, data = served.read(uri)
            content: dict[str, Any] = {"uri": uri, "mimeType": kind_of(found.file, data)}
            try:
                content["text"] = data.decode()
            except UnicodeDecodeError:
                content["blob"] = base64.b64encode(data).decode()
            return {"resultType": "complete", "contents": [content], **self._kept()}

        return types.ReadResourceResult.model_validate(await _in_thread(work, uri))

    def is_served(self, view: View, uri: str) -> bool:
        """Whether there is a file at an address."""
        try:
            found = view.served.find(uri)
        except SatchelError:
            return False
        return found.file in found.manifest.files

    # --- tools ----------------------------------------------------------------------------

    async def list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """`tools/list`."""
        view = self._view_of(ctx)
        cursor = params.cursor if params else None

        def work() -> dict[str, Any]:
            tools = {tool["name"]: tool for tool in view.definitions()}
            now = page(sorted(tools), "tools", cursor, TOOLS_A_PAGE)
            return self._page("tools", [tools[name] for name in now.names], now.cursor)

        return types.ListToolsResult.model_validate(await _in_thread(work))

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """`tools/call`: what failed is a result too; only an unknown name is a protocol error."""
        view = self._view_of(ctx)
        cancel = TakenBack()

        def work() -> Envelope:
            try:
                talk = self._talk(ctx, view)
                return view.call(params.name, params.arguments or {}, cancel, talk)
            finally:
                cancel.close()

        try:
            reply = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            cancel.set()  # nobody waits any more: the program ends
        if reply.error is not None and reply.error.code == "NOT_FOUND":
            known = await anyio.to_thread.run_sync(view.definitions)
            if params.name not in {tool["name"] for tool in known}:
                raise _invalid(f"There is no tool `{one_line(params.name, 60)}`")
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=reply.text)],
            structured_content=_plain(reply.to_dict()),
            is_error=reply.error is not None,
        )

    # --- prompts --------------------------------------------------------------------------

    async def list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """`prompts/list`: one for each skill that a person may call."""
        view = self._view_of(ctx)
        cursor = params.cursor if params else None

        def work() -> dict[str, Any]:
            prompts = view.prompts
            now = page(list(prompts), "prompts", cursor, PROMPTS_A_PAGE)
            rows = [
                {
                    "name": name,
                    "description": prompts[name].description or name,
                    "arguments": [
                        {"name": one, "description": hint, "required": False}
                        for one, hint in view.arguments_of(prompts[name])
                    ],
                }
                for name in now.names
            ]
            return self._page("prompts", rows, now.cursor)

        return types.ListPromptsResult.model_validate(await _in_thread(work))

    async def get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """`prompts/get`: the skill's text, as the tool `Skill` hands it over."""
        view = self._view_of(ctx)

        def work() -> Envelope:
            return view.prompt(params.name, params.arguments or {}, self._talk(ctx, view))

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


def kind_of(path: str, data: bytes) -> str:
    """The media type of a file, by its name; where the name says nothing, by its content."""
    known = _KINDS.get(path.rpartition(".")[2].lower())
    if known:
        return known
    try:
        data.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _entry(path: str, manifest: Manifest) -> dict[str, Any]:
    """A skill as the extension has it."""
    return {
        "uri": address(path, "SKILL.md"),
        "frontmatter": manifest.fields,
        "resources": [
            {"uri": address(path, file), "digest": item.digest, "size": item.size}
            for file, item in manifest.files.items()
        ],
    }


def _resource(path: str, file: str, item: Item | None, about: Any) -> dict[str, Any]:
    """A file or a folder as a resource."""
    row: dict[str, Any] = {"uri": address(path, file), "name": file.rpartition("/")[2]}
    if item is None:
        return {**row, "mimeType": FOLDER}
    row["size"] = item.size
    known = _KINDS.get(file.rpartition(".")[2].lower())
    if known:
        row["mimeType"] = known
    if file == "SKILL.md":
        fields: Mapping[str, Any] = getattr(about, "manifest", about).fields
        row |= {"name": fields["name"], "description": fields["description"]}
    return row


def _plain(value: Any) -> Any:
    """Only what JSON has; a tool's data may hold what its author liked."""
    import json

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


def _shown(uri: str) -> str:
    return one_line(uri, 200)
