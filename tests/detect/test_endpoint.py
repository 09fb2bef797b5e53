"""An embeddings address: a real server on this machine that answers well, badly, late or never."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from http_answers import answering, reply
from in_memory import skill
from satchel.detect import semantic as semantic_module
from satchel.detect.embeddings import endpoint as module
from satchel.detect.embeddings.endpoint import Endpoint
from satchel.detect.semantic import Semantic
from satchel.errors import ModelFailed, SatchelError, SettingsError

KEY = "sk-very-secret-0815"


class Server:
    """Answers with whatever a test puts into `answers`; vectors once they are used up."""

    address = ""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[dict] = []
        self.headers: list[dict[str, str]] = []

    def respond(self, handler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.asked.append(body)
        self.headers.append(dict(handler.headers))
        answer: Any = (200, vectors(body["input"]))
        if self.answers:
            answer = self.answers.pop(0)
        answer(handler) if callable(answer) else reply(handler, *answer)


def vectors(texts) -> bytes:
    rows = [
        {"index": at, "embedding": [float(len(text)), 1.0, 0.5]} for at, text in enumerate(texts)
    ]
    return json.dumps({"data": rows[::-1]}).encode()  # in any order


@contextmanager
def serving():
    server = Server()
    with answering(server.respond) as host:
        server.address = f"http://{host}/v1/embeddings"
        yield server


@pytest.fixture
def server():
    with serving() as made:
        yield made


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "_MAX_RETRY_WAIT_S", 0.1)


def _open(server) -> Endpoint:
    return Endpoint(f"{server.address}#model=some-model", env={module.KEY_VARIABLE: KEY})


@pytest.mark.req("C10")
def test_texts_become_vectors_in_their_order(server):
    model = Endpoint(f"{server.address}#model=some-model")
    found = model.embed(["aaaa", "b"])
    assert np.allclose(found[0], np.array([4, 1, 0.5]) / np.linalg.norm([4, 1, 0.5]))
    assert np.allclose(found[1], np.array([1, 1, 0.5]) / np.linalg.norm([1, 1, 0.5]))
    assert model.dimensions == 3
    assert server.asked[0]["model"] == "some-model"
    assert "Authorization" not in server.headers[0]


def test_the_key_goes_along_and_many_texts_go_in_batches(server):
    assert _open(server).embed(["x"] * 130).shape == (130, 3)
    assert [len(body["input"]) for body in server.asked] == [64, 64, 2]
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server, status):
    server.answers = [lambda handler: reply(handler, status, b"", Retry_After="1")] * 2
    assert _open(server).embed(["x"]).shape == (1, 3)
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("status", "hint"), [(401, module.KEY_VARIABLE), (404, "address"), (400, "model")]
)
def test_a_refusal_is_final_and_has_a_hint(server, status, hint):
    server.answers = [(status, b'{"error": "no"}')]
    with pytest.raises(ModelFailed, match=str(status)) as caught:
        _open(server).embed(["x"])
    assert hint in caught.value.hint
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"", b"not json", b"[]", b"null", b"{}", b'{"data": 7}', b'{"data": []}', b'{"data": [1]}',
        b'{"data": [{"embedding": []}]}', b'{"data": [{"embedding": "AAAA"}]}',
        b'{"data": [{"embedding": [1, null]}]}', b'{"data": [{"embedding": [1, NaN]}]}',
        b'{"data": [{"embedding": [1, 1e999]}]}', b'{"data": [{"index": 5, "embedding": [1]}]}',
        b'{"data": [{"index": "x", "embedding": [1]}]}', b"[" * 100_000,
        b'{"data": [{"embedding": [' + b"1," * 20_000 + b"1]}]}",
        b'{"data": [{"embedding": [0, 0.0, 0]}]}',
    ],
)  # fmt: skip
def test_a_reply_without_vectors_is_a_typed_error(server, data):
    server.answers = [(200, data)]
    with pytest.raises(ModelFailed, match="is not usable"):
        _open(server).embed(["x"])


def test_a_huge_answer_is_not_read_to_its_end(server, monkeypatch):
    monkeypatch.setattr(module, "_MAX_RESPONSE_BYTES", 1 << 20)

    def flood(handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(10_000):
                handler.wfile.write(b" " * (1 << 16))
        except OSError:
            handler.close_connection = True

    server.answers = [flood]
    with pytest.raises(ModelFailed, match="is not usable"):
        _open(server).embed(["x"])


def _drip_heads(handler) -> None:
    """A head that never ends, and always in time."""
    try:
        for at in range(60):
            handler.wfile.write(b"HTTP/1.0 200 OK\r\n" if not at else b"X-More: 1\r\n")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        handler.close_connection = True


@pytest.mark.parametrize("answer", [lambda _handler: time.sleep(1.5), _drip_heads])
def test_a_hurried_request_is_sent_once_and_times_out(server, answer):
    model = _open(server)
    server.answers = [answer] * 3
    with model.hurrying(0.3), pytest.raises(ModelFailed, match="timed out"):
        model.embed(["x"])
    assert len(server.asked) == 1
    server.answers = [(503,)]
    with model.hurrying(0.5), pytest.raises(ModelFailed, match="status 503"):
        model.embed(["x"])
    assert len(server.asked) == 2
    with model.hurrying(2):
        assert model.embed(["x"]).shape == (1, 3)
    server.answers = [(503,)]  # without hurry it is asked again
    assert model.embed(["x"]).shape == (1, 3)


@pytest.mark.req("C10")
def test_a_server_that_hangs_delays_one_request_only(server, monkeypatch):
    monkeypatch.setattr(semantic_module, "_QUERY_TIMEOUT_S", 0.4)
    skills = (skill("pdf-merge", "Joins files."),)
    semantic = Semantic(_open(server))
    semantic.prepare(skills)
    asked = len(server.asked)
    server.answers = [lambda _handler: time.sleep(1.5)] * 9
    by_key = {one.path: one for one in skills}
    for most in (1.2, 0.2, 0.2):
        began = time.monotonic()
        signals, notes = semantic.signals("join files", skills, set(by_key), by_key, 10)
        assert time.monotonic() - began < most
        assert signals == {}
        assert len(notes) == 1
        assert "timed out" in notes[0]
    assert len(server.asked) == asked + 1


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_is_not_followed(server, status):
    with serving() as other:
        server.answers = [lambda handler: reply(handler, status, b"", Location=other.address)]
        with pytest.raises(ModelFailed, match=str(status)) as caught:
            _open(server).embed(["x"])
        assert caught.value.hint
        assert (other.asked, other.headers) == ([], [])


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com/v1/embeddings#model=m",
        "http://127.0.0.1.example.com/#model=m",
        "http:///x#model=m",
        "https://host:port/x#model=m",
        "https://me:hunter2@example.com/x#model=m",
        "https://example.com/x#modle=m",
        "/models/a-folder",
    ],
)
def test_an_invalid_address_is_refused(address):
    with pytest.raises(SettingsError, match="is not valid") as caught:
        Endpoint(address)
    assert caught.value.hint
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_this_machine_needs_no_encryption(host):
    assert Endpoint(f"http://{host}:1/x#model=m").id


def test_the_key_is_never_printed(server, capfd):
    server.answers = [(401,), (200, b"{}"), (302, b"")]
    said = ""
    for _ in range(3):
        with pytest.raises(SatchelError) as caught:
            _open(server).embed(["x"])
        said += f"{caught.value!s}{caught.value!r}"
    with pytest.raises(SettingsError) as caught:
        Endpoint(
            f"{server.address}#model=m", env={module.KEY_VARIABLE: f"{KEY}\nX-Other: 1"}
        ).embed(["x"])
    out, err = capfd.readouterr()
    assert KEY not in f"{said}{caught.value!s}{out}{err}"
