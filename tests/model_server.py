"""A model that says what a script tells it to, over the real wire protocols, on loopback.

    def script(request):
        if request.results:
            return Reply("The answer is " + request.results[0].text)
        return Reply(calls=[("add", {"a": 1, "b": 2})])

    with ModelServer(script) as server:
        client = anthropic.Anthropic(base_url=server.base_url("anthropic"), api_key="none")
        ...
    assert server.requests[0].system == "..."

A script is a list of steps, taken in the order of arrival, or one function of the request. A step
is a `Reply`, a text, or such a function. A failed assertion in a function, and a request after the
last step, are answered with 400, which no SDK tries again, and raised when the `with` block ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from model_cache import Account, PromptCache, TooManyMarksError
from model_request import Call, Message, Request, Result, parse
from model_wire import WIRES, Said, dumps, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "Account", "Call", "Message", "ModelServer", "Reply", "Request", "Result",
    "loopback", "model_of",
]  # fmt: skip

ROUTES = (
    (re.compile(r"/v1/messages$"), "anthropic"),
    (re.compile(r"/v1/chat/completions$"), "openai"),
    (re.compile(r"/v1/responses$"), "openai-responses"),
    (re.compile(r"/v1(beta|alpha)?/(publishers/google/)?models/[^/]+:(stream)?[gG]enerateContent$"),
     "gemini"),
)  # fmt: skip
COUNTS = (
    (re.compile(r"/v1/messages/count_tokens$"), "anthropic"),
    (re.compile(r"/v1(beta|alpha)?/models/[^/]+:countTokens$"), "gemini"),
)
BASES = {"anthropic": "", "openai": "/v1", "openai-responses": "/v1", "gemini": ""}
DIRECT = {"NO_PROXY": "127.0.0.1,localhost,::1", "no_proxy": "127.0.0.1,localhost,::1"}
PATIENCE = 30.0
"""A connection that says nothing for so many seconds is closed."""


class Reply(NamedTuple):
    """What the model says."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Tools with their arguments; several are one parallel call."""
    status: int = 200
    """Anything else is an error in the provider's words, and `text` its message."""
    headers: Mapping[str, str] = {}
    """For example `{"retry-after": "1"}`."""
    delay: float = 0.0
    """Seconds before the first byte."""
    cut: int | None = None
    """Break the connection after so many events of the stream."""
    pause: float = 0.0
    """Seconds between the events of a stream."""


Step = Reply | str | Callable[[Request], "Reply | str"]
Script = Sequence[Step] | Callable[[Request], Reply | str]


class ModelServer:
    """Answers as the script says and keeps what it was asked."""

    def __init__(self, script: Script) -> None:
        self.requests: list[Request] = []
        """Every request for a reply, in the order of arrival, refused ones too."""
        self.replies: list[Reply] = []
        """What each of them got."""
        self.accounts: list[Account] = []
        """How its input was counted; all zero for a refused one."""
        self.strangers: list[str] = []
        """Methods and paths that no provider has here."""
        self.failures: list[BaseException] = []
        self._script = script if callable(script) else list(script)
        self._caches: dict[str, PromptCache] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._calls = 0
        self._steps = 0

    # --- life -----------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen on a free port."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="model server"
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop, end every connection, and wait for every thread."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self._closing.set()
        server.shutdown()
        thread.join()
        server.end_connections()
        server.server_close()  # waits for the threads of the connections
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if self.failures and kind is None:
            raise self.failures[0]

    # --- where it is ----------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port of this run."""
        assert self._server is not None, "the server is not started"
        return self._server.server_address[1]

    def base_url(self, provider: str) -> str:
        """As the SDK of `anthropic`, `openai`, `openai-responses` or `gemini` takes it."""
        return f"http://127.0.0.1:{self.port}{BASES[provider]}"

    def environment(self) -> dict[str, str]:
        """What a program needs in its environment so that every SDK comes here, with no proxy."""
        return {
            **DIRECT,
            "ANTHROPIC_BASE_URL": self.base_url("anthropic"),
            "ANTHROPIC_API_KEY": "none",
            "OPENAI_BASE_URL": self.base_url("openai"),
            "OPENAI_API_KEY": "none",
            "OLLAMA_BASE_URL": self.base_url("openai"),
            "GOOGLE_GEMINI_BASE_URL": self.base_url("gemini"),
            "GEMINI_API_KEY": "none",
        }

    # --- what it says ---------------------------------------------------------------------

    def receive(
        self, provider: str, path: str, headers: dict[str, str], body: bytes
    ) -> _Answer | None:
        """One request to one answer; a failure of the script is kept for the test."""
        with self._lock:
            number = len(self.requests)
            try:
                request = parse(provider, number, path, headers, body, time.monotonic())
            except (ValueError, KeyError, TypeError) as wrong:
                self.failures.append(AssertionError(f"no {provider} request: {wrong!r}: {body!r}"))
                return None
            self.requests.append(request)
            try:
                reply = self._next(request)
                account = Account(0)
                if reply.status == 200:
                    cache = self._caches.setdefault(provider, PromptCache())
                    account = cache.account(request)
            except TooManyMarksError as wrong:
                reply, account = Reply(str(wrong), status=400), Account(0)
            except Exception as wrong:  # noqa: BLE001 - whatever a script does belongs to its test
                self.failures.append(wrong)
                reply, account = Reply(f"script: {wrong!r}", status=400), Account(0)
            self.replies.append(reply)
            self.accounts.append(account)
            said = self._said(number, reply, account)
        return _Answer(request, reply, said)

    def _next(self, request: Request) -> Reply:
        if callable(self._script):
            step: Step = self._script
        elif self._steps < len(self._script):
            step = self._script[self._steps]
        else:
            raise AssertionError(
                f"the script has {len(self._script)} steps, and a request came after the last; "
                f"it ends with {request.messages[-1:]!r}"
            )
        self._steps += 1
        found = step if isinstance(step, (Reply, str)) else step(request)
        return Reply(found) if isinstance(found, str) else found

    def _said(self, number: int, reply: Reply, account: Account) -> Said:
        calls: list[tuple[str, str, dict[str, Any]]] = []
        for name, arguments in reply.calls:
            self._calls += 1
            calls.append((f"call_{self._calls:06}", name, dict(arguments)))
        words = reply.text + "".join(name + dumps(arguments) for _, name, arguments in calls)
        output = max(1, len(words.encode()) // 4)
        return Said(number, reply.text, tuple(calls), account, output)

    def count(self, provider: str, path: str, headers: dict[str, str], body: bytes) -> int:
        """The tokens of a request that wants no reply, and takes no step of the script."""
        data = json.loads(body)
        if provider == "gemini" and "generateContentRequest" in data:
            body = json.dumps(data["generateContentRequest"]).encode()
        request = parse(provider, 0, path, headers, body, time.monotonic())
        return PromptCache().account(request, keep=False).total

    def wait(self, seconds: float) -> None:
        """Sleep, unless the server is closed."""
        if seconds > 0:
            self._closing.wait(seconds)


class _Answer(NamedTuple):
    request: Request
    reply: Reply
    said: Said


class _Server(ThreadingHTTPServer):
    """Knows its open connections, so that none of them outlives it."""

    daemon_threads = False
    block_on_close = True
    owner: ModelServer

    def __init__(self, *arguments: Any) -> None:
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is part of many tests: nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    @property
    def owner(self) -> ModelServer:
        assert isinstance(self.server, _Server)
        return self.server.owner

    def do_POST(self) -> None:
        owner = self.owner
        path = self.path.partition("?")[0]
        body = self._body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        for pattern, provider in ROUTES:
            if pattern.search(path):
                answer = owner.receive(provider, self.path, headers, body)
                if answer is None:
                    self._json(400, error(provider, 400, "the body is not understood"))
                else:
                    self._reply(owner, answer)
                return
        for pattern, provider in COUNTS:
            if pattern.search(path):
                tokens = owner.count(provider, self.path, headers, body)
                key = "input_tokens" if provider == "anthropic" else "totalTokens"
                self._json(200, {key: tokens})
                return
        self._stranger()

    def do_GET(self) -> None:
        self._stranger()

    def do_HEAD(self) -> None:
        self._stranger()

    def _stranger(self) -> None:
        self.owner.strangers.append(f"{self.command} {self.path}")
        self._json(404, error("anthropic", 404, f"nothing is at {self.path}"))

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            size = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(size)
            if len(body) < size:
                raise ConnectionAbortedError  # the client was ended while it wrote
            return body
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _reply(self, owner: ModelServer, answer: _Answer) -> None:
        request, reply, said = answer
        owner.wait(reply.delay)
        if reply.status != 200:
            message = reply.text or f"scripted {reply.status}"
            self._json(reply.status, error(request.provider, reply.status, message), reply.headers)
            return
        whole, events = WIRES[request.provider]
        if not request.stream:
            self._json(200, whole(request, said), reply.headers)
            return
        self._head(200, "text/event-stream", {**reply.headers, "transfer-encoding": "chunked"})
        for place, event in enumerate(events(request, said)):
            if place == reply.cut:
                self.wfile.flush()
                return  # no last chunk: the client sees a broken stream
            if place:
                owner.wait(reply.pause)
            data = event.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, data: Any, headers: Mapping[str, str] | None = None) -> None:
        body = dumps(data).encode()
        size = {"content-length": str(len(body))}
        self._head(status, "application/json", {**(headers or {}), **size})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        self.send_response(status, None if status < 520 else "Overloaded")
        for name, value in {"content-type": kind, **headers, "connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Tests read `server.requests` instead."""


@contextlib.contextmanager
def loopback(script: Script) -> Iterator[ModelServer]:
    """A started server, with this process's environment pointing every SDK at it."""
    with ModelServer(script) as server:
        before = {name: os.environ.get(name) for name in server.environment()}
        os.environ.update(server.environment())
        try:
            yield server
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def model_of(server: ModelServer, provider: str, name: str = "", **given: Any) -> Any:
    """A model of pydantic-ai that asks the server; `given` is for the provider's client."""
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    given = {"base_url": server.base_url(provider), "api_key": "none", **given}
    if provider == "anthropic":
        return AnthropicModel(name or "claude-sonnet-5", provider=AnthropicProvider(**given))
    kind = OpenAIChatModel if provider == "openai" else OpenAIResponsesModel
    return kind(name or "gpt-4.1", provider=OpenAIProvider(**given))
