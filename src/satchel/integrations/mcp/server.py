"""The SDK's server with our handlers, for both generations of the protocol.

`make_server` creates the server, `run_stdio` serves one client on stdin and stdout.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from satchel import __version__
from satchel.integrations.mcp import EXTENSION
from satchel.integrations.mcp.handlers import (
    GetSkillParams,
    Handlers,
    ListSkillsParams,
    ReadDirectoryParams,
)
from satchel.integrations.mcp.notifications import ChangeNotifier

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions

    from satchel.integrations.mcp.client_view import ClientView

    Context = ServerRequestContext[Any, Any]


INSTRUCTIONS = (
    "This server has skills: instructions for kinds of tasks. When the user names one "
    '(`$code-review`, "use the code-review skill") load it before you begin; when a task clearly '
    "matches one, you may. Load only what you need, never all of them: with the tool `Skill`, or "
    "through skills/list and resources/read. What the list does not show, `SkillSearch` finds."
)
MAX_SUBSCRIPTIONS = 1_000
_CHUNK_BYTES = 1 << 16


@contextmanager
def move_stdin() -> Generator[int]:
    """Move stdin to another descriptor: programs of skills must not read the client's messages."""
    moved_stdin = os.dup(0)
    null_device = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_device, 0)
    os.close(null_device)
    try:
        yield moved_stdin
    finally:
        os.dup2(moved_stdin, 0)  # it stays open: a read may still be waiting on it


async def read_lines(descriptor: int) -> AsyncGenerator[str]:
    """Yield the lines of a descriptor, until it ends."""
    loop = asyncio.get_running_loop()
    sender, receiver = anyio.create_memory_object_stream[str](0)

    def send_line(line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        asyncio.run_coroutine_threadsafe(sender.send(text), loop).result()

    def read() -> None:
        buffered = bytearray()
        with suppress(OSError, RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                buffered += chunk
                if b"\n" in chunk:
                    *lines, incomplete_line = buffered.split(b"\n")
                    for line in lines:
                        send_line(bytes(line))
                    buffered = incomplete_line
            if buffered:
                send_line(bytes(buffered))
            asyncio.run_coroutine_threadsafe(sender.aclose(), loop).result()

    threading.Thread(target=read, name="satchel-stdin", daemon=True).start()
    async with receiver:
        async for line in receiver:
            yield line


class SkillServer(Server[Any]):
    """A server that announces list changes to both generations of clients."""

    view: ClientView | None = None

    @property
    def instructions(self) -> str:
        """The instructions for a client's model, with the current number of untrusted skills."""
        notice = self.view.library.untrusted_notice() if self.view is not None else ""
        return f"{INSTRUCTIONS} {notice}." if notice else INSTRUCTIONS

    @instructions.setter
    def instructions(self, text: object) -> None:
        """Ignore the value that the SDK sets."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the capabilities for a client of the older protocol, including list changes."""
        options = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(options, experimental_capabilities, extensions)


def make_server(view: ClientView) -> SkillServer:
    """Create a server that serves a view and notifies clients of its changes."""
    notifier = ChangeNotifier(view)

    @asynccontextmanager
    async def lifespan(_server: Server[Any]) -> AsyncGenerator[dict[str, Any]]:
        async with anyio.create_task_group() as group:
            notifier.group = group
            group.start_soon(notifier.run)
            yield {}
            group.cancel_scope.cancel()

    async def listen(
        ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        if len(params.notifications.resource_subscriptions or ()) > MAX_SUBSCRIPTIONS:
            raise _too_many_subscriptions()
        return await notifier.listen(ctx, params)

    async def subscribe(ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = str(params.uri)
        subscriptions = notifier.subscriptions(ctx)
        if not await anyio.to_thread.run_sync(handlers.is_served, uri):
            # The protocol defines no refusal. A subscription to an unknown URI is ignored: when the
            # file appears, the list of resources changes.
            return types.EmptyResult()
        if len(subscriptions) >= MAX_SUBSCRIPTIONS and uri not in subscriptions:
            raise _too_many_subscriptions()
        subscriptions.add(uri)
        return types.EmptyResult()

    async def unsubscribe(
        ctx: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        notifier.subscriptions(ctx).discard(str(params.uri))
        return types.EmptyResult()

    async def initialized(ctx: Context, _params: types.NotificationParams) -> None:
        await notifier.register(ctx)

    handlers = Handlers(view)
    server = SkillServer(
        "satchel",
        version=__version__,
        title="Satchel",
        description="Skills for agents",
        lifespan=lifespan,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=listen,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )
    server.view = view
    server.add_request_handler("skills/list", ListSkillsParams, handlers.list_skills)
    server.add_request_handler("skills/get", GetSkillParams, handlers.get_skill)
    server.add_request_handler(
        "resources/directory/read", ReadDirectoryParams, handlers.read_directory
    )
    server.add_notification_handler(
        "notifications/initialized", types.NotificationParams, initialized
    )
    server.extensions[EXTENSION] = {"directoryRead": True}
    return server


def _too_many_subscriptions() -> MCPError:
    message = f"Nobody can subscribe to more than {MAX_SUBSCRIPTIONS} addresses"
    return MCPError(code=types.INVALID_PARAMS, message=message)


def run_stdio(view: ClientView) -> None:
    """Serve one client on stdin and stdout until it disconnects."""
    server = make_server(view)

    async def run(stdin: int) -> None:
        async with (
            _cancelled_on_sigterm(),
            stdio_server(cast("Any", read_lines(stdin))) as (reader, writer),
        ):
            await server.run(reader, writer, server.create_initialization_options())

    with move_stdin() as stdin:
        anyio.run(run, stdin)


@asynccontextmanager
async def _cancelled_on_sigterm() -> AsyncGenerator[None]:
    """Cancel the body on SIGTERM.

    A signal handler that raises would do so in an arbitrary task, and the loop would print it.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with anyio.create_task_group() as group:

            async def wait_for_signal() -> None:
                async for _ in signals:
                    group.cancel_scope.cancel()

            group.start_soon(wait_for_signal)
            yield
            group.cancel_scope.cancel()
