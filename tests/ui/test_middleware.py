"""Hostile requests: no session, another host, another origin, oversized bodies."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from importlib import import_module
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from satchel.satchel import Satchel
from satchel.ui.auth import (
    ATTEMPT_DELAY_S,
    LINK_LIFETIME_S,
    LOCKOUT_S,
    MAX_ATTEMPTS,
    SESSION_IDLE_S,
    UiAccess,
)
from satchel.ui.middleware import MAX_FORM_BYTES, MAX_UPLOAD_BODY_BYTES, LimitedBody, limit_of
from satchel.ui.server import PAGES, make_app
from ui_dom import EVIL, check

SEEN = ("/skills", "/goals", "/health", "/catalogue", "/history", "/skills/add", "/skills/import")
PASSWORD = "correct horse battery"


@pytest.fixture
def visit(guest):
    """All tests use one server, which none of them changes."""
    return guest


def raw(visit, method="GET", path="/skills", headers=(), **more):
    """Send a raw ASGI request: (status, headers, body)."""
    got: list[dict] = []
    cookie = "; ".join(f"{one.name}={one.value}" for one in visit.client.cookies.jar)
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": method, "scheme": "http", "path": path, "raw_path": path.encode("latin-1"),
        "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1), "server": None,
        "headers": [(b"cookie", cookie.encode()), *headers], **more,
    }  # fmt: skip

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        got.append(message)

    asyncio.run(visit.client.app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in got[0].get("headers", ())}
    return got[0].get("status", 0), found, b"".join(one.get("body", b"") for one in got)


@contextlib.contextmanager
def serving(project, access, base="http://127.0.0.1", **more):
    """A server of its own, and a client of it."""
    satchel = Satchel.for_project(project, trust="all")
    app = make_app(satchel, access, **more)
    with TestClient(app, base_url=base, follow_redirects=False) as client:
        yield client
    satchel.close()


# --- names and paths ----------------------------------------------------------------------


def test_only_names_of_this_machine_are_answered(visit):
    hosts = (
        "evil.example", "evil.example:8790", "127.0.0.1.evil.example", "localhost.evil.example",
        "127.0.0.1@evil.example", "localhost:8790@evil.example", "127.0.0.1:80:80", "[::1", "[]",
        "127.0.0.1 evil.example", "127.0.0.1,evil.example", "0.0.0.0", "127.1", "2130706433", "",
        "localhost.", "127.0.0.1/evil", "xn--lcalhost-jbb",
    )  # fmt: skip
    for host in hosts:
        status, _, body = raw(visit, headers=[(b"host", host.encode())])
        assert (status, b"evil" in body) == (421, False), host
    assert raw(visit)[0] == 421, "no host"
    twice = [(b"host", b"127.0.0.1"), (b"host", b"evil.example")]
    assert raw(visit, headers=twice)[0] == 421
    for host in ("127.0.0.1", "LOCALHOST", "localhost:1234", "[::1]:8790"):
        assert visit.get("/nowhere", headers={"Host": host}).status_code == 404, host


def test_headers_of_a_proxy_are_not_used(visit):
    claimed = {"X-Forwarded-Host": "127.0.0.1", "Forwarded": "host=127.0.0.1"}
    answer = visit.get("/skills", headers={**claimed, "Host": "evil.example"})
    assert answer.status_code == 421
    token = visit.access.new_link()
    answer = visit.get(f"/enter?token={token}", headers={"X-Forwarded-Proto": "https"})
    assert "Secure" not in answer.headers["set-cookie"]


def test_a_name_of_its_own_keeps_its_sessions_to_itself(project):
    """Cookies ignore ports: those of 127.0.0.1 are sent to every server there."""
    access, names = UiAccess(), ["Notes.localhost"]
    with serving(project, access, "http://notes.localhost:8790", hosts=names, homes=names) as home:
        assert not access.has_remote_users
        token = access.new_link()
        led = home.get(f"/enter?token={token}", headers={"Host": "127.0.0.1:8790"})
        assert led.headers["location"] == f"http://notes.localhost:8790/enter?token={token}"
        assert "set-cookie" not in led.headers
        assert home.get(led.headers["location"]).headers["location"] == "/skills"
        cookie = {"Cookie": f"satchel={home.cookies['satchel']}"}
        assert home.get("/session", headers=cookie).status_code == 204
        for host in ("127.0.0.1:8790", "localhost:8790", "[::1]:8790"):
            there = {**cookie, "Host": host}
            for path in ("/skills", "//evil.example"):
                led = home.get(path, headers=there)
                assert led.headers["location"].startswith("http://notes.localhost:8790/"), host
            ours = {**there, "Origin": f"http://{host}"}
            assert home.post("/enter", headers=ours).status_code == 421
        assert home.get("/skills", headers={"Host": "other.localhost"}).status_code == 421


def test_remote_users_import_neither_a_folder_nor_a_repository(project, tmp_path):
    every: list[dict[str, Any]] = [{"https": True}, {"hosts": ["skills.example"]}, {}]
    for more in every:
        access = UiAccess(password="" if more else PASSWORD)
        with serving(project, access, **more) as client:
            client.get(f"/enter?token={access.new_link()}")
            ours = {"Origin": "http://127.0.0.1"}
            client.post("/enter", data={"password": PASSWORD}, headers=ours)
            cookie = {"Cookie": f"satchel={client.cookies['satchel']}"}
            scheme = "https" if more.get("https") else "http"
            headers = {**cookie, "Origin": f"{scheme}://127.0.0.1"}
            form = {"source": str(tmp_path)}
            answer = client.post("/skills/import/git", data=form, headers=headers)
            assert answer.status_code == 403, more
            assert "Repositories cannot be fetched here" in answer.text


def test_a_target_that_is_no_path_is_refused_and_none_leads_elsewhere(visit):
    host = [(b"host", b"127.0.0.1")]
    for path in ("http://evil.example/skills", "evil", "*", "/a\x00b", "/a\r\nb"):
        assert raw(visit, path=path, headers=host)[0] == 400, path
    for path in ("//evil.example/x", "/\\evil.example", "/skills/", "//skills"):
        status, headers, _ = raw(visit, path=path, headers=host)
        assert (status, "location" in headers) == (404, False), path
    for path in (
        "/static/../gate.py", "/static/%2e%2e/gate.py", "/static/..%2fgate.py", "/static/%00",
        "/static//etc/passwd", "/static/....//gate.py", "/static/", "/static/..\\gate.py",
    ):  # fmt: skip
        answer = visit.get(path)
        assert answer.status_code in {400, 404, 303}, path
        assert "from __future__" not in answer.text, path


# --- links, sessions, cookies -------------------------------------------------------------


def test_without_a_session_every_page_is_the_door(visit):
    visit.client.cookies.clear()
    for page in SEEN:
        answer = visit.get(page)
        assert (answer.status_code, answer.headers["location"]) == (303, "/enter")
        part = visit.part(page)
        assert (part.status_code, part.headers["hx-redirect"], part.text) == (401, "/enter", "")
    for path in ("/live", "/session", "/badges"):
        assert visit.get(path).status_code == 401


def test_a_guessed_token_opens_nothing(visit):
    visit.client.cookies.clear()
    for token in ("", "guessed", "a" * 32, "a" * 5_000, EVIL, "\0", "../.."):
        answer = visit.get("/enter", params={"token": token})
        assert answer.status_code in {401, 403, 422}, token
        assert "set-cookie" not in answer.headers
        assert answer.headers["referrer-policy"] == "same-origin"
        check(answer.text)


def test_an_old_link_opens_nothing_and_a_new_one_is_announced():
    now, told = [0.0], list[str]()
    access = UiAccess(announce=told.append, clock=lambda: now[0])
    token = access.new_link()
    now[0] = LINK_LIFETIME_S + 1
    assert access.enter_by_link(token) is None
    assert access.enter_by_link(token) is None
    assert len(told) == 1
    assert access.enter_by_link(told[0]) is not None


def test_a_link_used_by_many_at_once_opens_one_session():
    access = UiAccess()
    token, opened, barrier = access.new_link(), list[object](), threading.Barrier(8)

    def come() -> None:
        barrier.wait()
        opened.append(access.enter_by_link(token))

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one is not None for one in opened) == 1


def test_a_new_session_is_never_one_that_was_there_before(visit):
    before = visit.client.cookies["satchel"]
    token = visit.access.new_link()
    entered = visit.get(f"/enter?token={token}")
    assert token not in entered.headers["location"] + entered.text
    assert visit.client.cookies["satchel"] != before
    assert visit.access.session(before) is None
    visit.client.cookies.clear()
    planted = {"Cookie": "satchel=planted-by-another-site-0123456789abcdef"}
    answer = visit.get(f"/enter?token={visit.access.new_link()}", headers=planted)
    assert "planted" not in answer.headers["set-cookie"]
    visit.client.cookies.clear()
    assert visit.get("/skills", headers=planted).headers["location"] == "/enter"


def test_a_session_ends_by_signing_out_and_by_time(visit):
    secret = visit.client.cookies["satchel"]
    assert visit.post("/leave").status_code == 303
    cookie = {"Cookie": f"satchel={secret}"}
    assert visit.get("/skills", headers=cookie).headers["location"] == "/enter"
    again = visit.post("/undo", headers=cookie)
    assert again.status_code == 401
    out = visit.post("/leave", headers=cookie)
    assert (out.status_code, out.headers["location"]) == (303, "/enter")
    now = [0.0]
    access = UiAccess(clock=lambda: now[0])
    session, secret = access.open()
    now[0] = SESSION_IDLE_S - 1
    assert access.session(secret) == session
    now[0] = 2 * SESSION_IDLE_S
    assert access.session(secret) is None
    assert not access.is_valid(session)


def test_a_form_sent_after_the_session_ended_is_refused_and_the_page_stays(visit):
    visit.client.cookies.clear()
    for language, words in (("en", "You are signed out"), ("zh", "已退出")):
        headers = {"Origin": "http://127.0.0.1", "Accept-Language": language}
        for path in ("/goals/x/answer", "/skill/edit/check?ref=mine", "/skills/import/zip"):
            assert visit.client.post(path, headers=headers).status_code == 401
            note = visit.client.post(path, headers={**headers, "HX-Request": "true"})
            assert (note.status_code, note.headers["hx-retarget"]) == (401, "#notes")
            assert 'role="alert"' in note.text
            assert words in note.text
            assert "hx-redirect" not in note.headers, "it would lead away from what was typed"


def test_entering_works_even_if_the_next_link_cannot_be_announced(visit, monkeypatch):
    def broken(_: str) -> None:
        raise BrokenPipeError

    visit.client.cookies.clear()
    monkeypatch.setattr(visit.access, "announce", broken)
    assert visit.get(f"/enter?token={visit.access.new_link()}").status_code == 303


def test_the_cookie_of_another_port_opens_nothing(project, visit):
    secret = visit.client.cookies["satchel"]
    with serving(project, UiAccess(), cookie="satchel-9999") as client:
        for name in ("satchel", "satchel-9999"):
            answer = client.get("/skills", headers={"Cookie": f"{name}={secret}"})
            assert answer.headers["location"] == "/enter"


def test_behind_tls_the_cookie_is_for_https_alone(project, visit):
    assert "strict-transport-security" not in visit.get("/nowhere").headers
    access = UiAccess()
    more: dict[str, Any] = {"hosts": ["skills.example"], "cookie": "__Host-satchel", "https": True}
    with serving(project, access, "http://skills.example", **more) as client:
        answer = client.get(f"/enter?token={access.new_link()}")
        cookie = answer.headers["set-cookie"]
        for flag in ("__Host-satchel=", "HttpOnly", "SameSite=strict", "Secure", "Path=/"):
            assert flag in cookie
        assert "Domain" not in cookie
        assert "max-age" in answer.headers["strict-transport-security"]
        plain = client.post("/enter", headers={"Origin": "http://skills.example"})
        assert plain.status_code == 403


def test_a_link_on_another_site_gets_in_although_its_cookie_is_strict(visit):
    visit.client.cookies.clear()
    headers = {
        "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
    }  # fmt: skip
    answer = visit.get(f"/enter?token={visit.access.new_link()}", headers=headers)
    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0;url=/skills"' in answer.text
    assert "SameSite=strict" in answer.headers["set-cookie"]


# --- language -----------------------------------------------------------------------------


def test_a_page_speaks_the_language_of_its_reader(visit):
    assert "页面不存在" in visit.get("/nowhere", headers={"Accept-Language": "zh-CN"}).text
    assert "Page not found" in visit.get("/nowhere").text
    visit.post("/language", data={"name": "zh"})
    assert "页面不存在" in visit.get("/nowhere").text


def test_the_page_after_signing_out_speaks_the_chosen_language(visit):
    out = visit.post("/leave").headers["location"]
    door = visit.get(out)
    assert "You are signed out" in door.text
    assert "Already signed in?" not in door.text
    asked = visit.post(
        "/language", data={"name": "zh"}, headers={"Referer": f"http://127.0.0.1{out}"}
    )
    assert (asked.status_code, asked.headers["location"]) == (303, out)
    assert 'lang="zh-CN"' in visit.get("/enter").text
    visit.client.cookies.clear()
    assert "You are signed out" not in visit.get("/enter").text
    led = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert "Already signed in?" in visit.get("/enter", headers=led).text


# --- passwords ----------------------------------------------------------------------------


def test_a_password_opens_a_session_and_nothing_else_does(project):
    now = [0.0]
    access = UiAccess(password=PASSWORD, clock=lambda: now[0])
    with serving(project, access) as client:
        assert "set-cookie" not in client.get(f"/enter?token={access.new_link()}").headers
        foreign = {"Origin": "http://evil.example"}
        answer = client.post("/enter", data={"password": PASSWORD}, headers=foreign)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
        ours = {"Origin": "http://127.0.0.1"}
        answer = client.post("/enter", data={"password": f"wrong {EVIL}"}, headers=ours)
        assert answer.status_code == 403
        check(answer.text)
        right = {"password": PASSWORD}
        assert client.post("/enter", data=right, headers=ours).status_code == 403, "too soon"
        assert client.get("/skills").headers["location"] == "/enter"
        now[0] += ATTEMPT_DELAY_S
        assert client.post("/enter", data=right, headers=ours).status_code == 303


def test_after_too_many_wrong_passwords_signing_in_is_closed():
    now = [0.0]
    access = UiAccess(password=PASSWORD, clock=lambda: now[0])
    wait = 0.0
    for _ in range(MAX_ATTEMPTS):
        assert access.enter_by_password("a wrong password") is None
        assert access.enter_by_password(PASSWORD) is None, "too soon"
        wait = access.lockout_remaining_s()
        now[0] += ATTEMPT_DELAY_S
    assert wait == LOCKOUT_S
    assert access.enter_by_password(PASSWORD) is None
    now[0] += LOCKOUT_S
    assert access.enter_by_password(PASSWORD) is not None
    assert access.lockout_remaining_s() == 0


# --- forged requests ----------------------------------------------------------------------

FORGED = {
    "no origin": {},
    "two origins": {"Origin": "http://127.0.0.1, http://evil.example"},
    "another origin": {"Origin": "http://evil.example"},
    "another port": {"Origin": "http://127.0.0.1:9999"},
    "a name that begins like ours": {"Origin": "http://127.0.0.1.evil.example"},
    "ours as a user name": {"Origin": "http://127.0.0.1@evil.example"},
    "another scheme": {"Origin": "chrome-extension://127.0.0.1"},
    "a sandboxed page": {"Origin": "null"},
    "an empty origin": {"Origin": ""},
    "an origin with a path": {"Origin": "http://127.0.0.1/x"},
    "another site, says the browser": {"Sec-Fetch-Site": "cross-site"},
    "another port, says the browser": {"Sec-Fetch-Site": "same-site"},
}


def test_a_forged_request_changes_nothing(visit):
    for case, sent in FORGED.items():
        answer = visit.client.post("/skills/add", data={"name": "forged"}, headers=sent)
        assert answer.status_code == 403, case
    part = {"HX-Request": "true", "Origin": "http://evil.example"}
    answer = visit.client.post("/skills/add/check", headers=part)
    assert (answer.status_code, answer.headers["hx-retarget"]) == (403, "#notes")
    for method in ("PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "post"):
        assert visit.client.request(method, "/skills/add").status_code in {403, 405}, method
    assert not [one for one in visit.satchel.refresh() if one.id == "forged"]


def test_no_address_and_no_form_carries_a_token(visit):
    answer = visit.post("/skills/add", data={"name": ""})
    assert answer.status_code == 422
    for text in (answer.text, visit.get("/skills").text, visit.get("/skills/import").text):
        assert "csrf" not in text.lower()


def test_a_get_changes_nothing(visit):
    for method in ("GET", "HEAD", "OPTIONS"):
        for path in ("/leave", "/undo", "/redo", "/skills/remove", "/language"):
            assert visit.client.request(method, path).status_code in {404, 405}, (method, path)
    for header in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"):
        answer = visit.get("/undo", headers={header: "POST"}, params={"_method": "POST"})
        assert answer.status_code == 405


def test_another_site_loads_and_frames_nothing(visit):
    for dest in ("script", "image", "iframe", "object", "style", "empty"):
        mode = "navigate" if dest in {"iframe", "object"} else "no-cors"
        headers = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        for path in ("/skills", "/session", "/static/satchel.js"):
            assert visit.get(path, headers=headers).status_code == 403, (dest, path)


# --- redirects, headers, sizes ------------------------------------------------------------


def test_the_choice_of_a_language_leads_nowhere_else_and_injects_nothing(visit):
    for referer in (
        "http://evil.example/", "//evil.example", "http://127.0.0.1//evil.example/", "javascript:x",
        "http://127.0.0.1@evil.example/", "http://127.0.0.1/\\evil.example", "http://[",
        "http://127.0.0.1.evil.example/x",
    ):  # fmt: skip
        answer = visit.post("/language", data={"name": "zh"}, headers={"Referer": referer})
        assert answer.status_code == 303, referer
        place = answer.headers["location"]
        assert "evil" not in place.split("?")[0].replace("\\", "")[:12], referer
        assert place.startswith("/"), referer
        assert not place.startswith(("//", "/\\")), referer
    visit.client.cookies.delete("satchel-language")
    for value in ("zh\r\nSet-Cookie: evil=1", "en; evil=1", "fr", "en\x00", EVIL):
        answer = visit.post("/language", data={"name": value})
        assert "evil" not in str(answer.headers)
        assert "set-cookie" not in answer.headers, value
    assert "evil" not in str(visit.get("/skills", params={"q": "a\r\nX-Evil: evil"}).headers)


def test_only_uploads_may_be_as_large_as_uploads(visit):
    for path in ("/skills/import/zip", "/skills/import/folder"):
        assert limit_of(path) == MAX_UPLOAD_BODY_BYTES
    for path in ("/skills/add", "/skills/import/git", "/skills/import/key/cancel",
                 "/skills/import/zip/x"):  # fmt: skip
        assert limit_of(path) == MAX_FORM_BYTES
        assert visit.post(path, content=b"y" * (MAX_FORM_BYTES + 1)).status_code == 413


def test_a_body_is_counted_whatever_was_announced(visit):
    taken = 0

    async def endless():
        nonlocal taken
        taken += 65_536
        return {"type": "http.request", "body": b"y" * 65_536, "more_body": True}

    async def take():
        body = LimitedBody(endless, MAX_FORM_BYTES)
        while True:
            await body()

    with pytest.raises(HTTPException) as caught:
        asyncio.run(take())
    assert caught.value.status_code == 413
    assert taken <= MAX_FORM_BYTES + 65_536
    for length in ("-1", "9" * 30, "1e9", "0x10"):
        headers = {"Content-Length": length, "Origin": "http://127.0.0.1"}
        answer = visit.client.post("/language", content=b"name=zh", headers=headers)
        assert answer.status_code in {303, 400, 413, 422}, length


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("satchel.ui.middleware.BODY_STALL_S", 0.05)

    async def silent() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    with pytest.raises(HTTPException) as caught:
        asyncio.run(LimitedBody(silent, MAX_FORM_BYTES)())
    assert caught.value.status_code == 408


def test_a_websocket_is_refused(visit):
    with pytest.raises(WebSocketDisconnect), visit.client.websocket_connect("/live"):
        pass


# --- every answer -------------------------------------------------------------------------


def _routes():
    yield "/static/satchel.css", ("GET",)
    for name in PAGES:
        for route in import_module(f"satchel.ui.pages.{name}").router.routes:
            yield route.path, tuple(route.methods)


def test_every_answer_of_every_route_has_the_headers(visit):
    seen = 0
    for path, methods in _routes():
        if path == "/live":
            continue  # it does not end; its headers are set as on the others
        address = path.replace("{key}", "nobody").replace("{goal_id}", "nobody")
        address = address.replace("{step}", "nobody")
        for method in methods:
            if method == "POST" and path in {"/leave", "/health"}:
                continue
            for headers in ({}, {"Origin": "http://127.0.0.1"}):
                answer = visit.client.request(method, address, headers=headers)
                seen += 1
                where = (method, address, answer.status_code)
                assert answer.status_code < 500, where
                assert "default-src 'none'" in answer.headers["content-security-policy"], where
                assert answer.headers["x-content-type-options"] == "nosniff", where
                assert answer.headers["x-frame-options"] == "DENY", where
                assert answer.headers["cache-control"] == "no-store", where
                assert answer.headers["cross-origin-resource-policy"] == "same-origin", where
                assert "server" not in answer.headers
    assert seen > 60
    assert "max-age" in visit.get("/static/satchel.css?v=1").headers["cache-control"]
    assert visit.get("/static/nothing.css?v=1").headers["cache-control"] == "no-store"


def test_an_error_shows_nothing_of_the_inside(visit, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("secret inside")

    monkeypatch.setattr("satchel.ui.pages.skills.list_skills", broken, raising=True)
    app, cookies = visit.client.app, dict(visit.client.cookies)
    client = TestClient(app, "http://127.0.0.1", raise_server_exceptions=False, cookies=cookies)
    answer = client.get("/skills")
    assert answer.status_code == 500
    assert "secret inside" not in answer.text
    assert "Traceback" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    check(answer.text)
