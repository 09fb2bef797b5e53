"""Hostile visitors: who comes in without a key, through another name, or from another page."""

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

from satchel.facade import Satchel
from satchel.ui.access import IDLE, LINK, MOST_STREAMS, RENEW, Access
from satchel.ui.app import API, PAGES, make_app
from satchel.ui.bodies import ORDINARY, UPLOAD, Body, limit_of
from ui_dom import EVIL, check

SEEN = ("/skills", "/goals", "/health", "/catalogue", "/history", "/skills/add", "/skills/import")


@pytest.fixture
def visit(guest):
    """All of these come to one server, which none of them changes."""
    return guest


def raw(visit, method="GET", path="/skills", headers=(), **more):
    """A request that no client of ours would make: (status, headers, body)."""
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


# --- DNS rebinding ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8790", "127.0.0.1.evil.example", "localhost.evil.example",
        "127.0.0.1@evil.example", "localhost:8790@evil.example", "127.0.0.1:80:80", "[::1", "[]",
        "127.0.0.1 evil.example", "127.0.0.1,evil.example", "0.0.0.0", "127.1", "2130706433", "",
        "localhost.", "127.0.0.1/evil", "xn--lcalhost-jbb",
    ],
)  # fmt: skip
def test_a_name_that_is_not_ours_is_refused(visit, host):
    status, _, body = raw(visit, headers=[(b"host", host.encode())])
    assert status == 421
    assert b"evil" not in body


@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST", "localhost:1234", "[::1]:8790"])
def test_a_name_of_this_machine_is_answered(visit, host):
    assert visit.get("/nowhere", headers={"Host": host}).status_code == 404


def test_a_request_without_a_host_or_with_two_is_refused(visit):
    assert raw(visit)[0] == 421
    twice = [(b"host", b"127.0.0.1"), (b"host", b"evil.example")]
    assert raw(visit, headers=twice)[0] == 421


def test_what_a_proxy_claims_is_not_believed(visit):
    headers = {
        "X-Forwarded-Host": "127.0.0.1",
        "Forwarded": "host=127.0.0.1",
        "Host": "evil.example",
    }
    assert visit.get("/skills", headers=headers).status_code == 421
    token = visit.access.new_link()
    answer = visit.get(f"/enter?token={token}", headers={"X-Forwarded-Proto": "https"})
    assert "Secure" not in answer.headers["set-cookie"]


@contextlib.contextmanager
def house_of(project, access, base="http://127.0.0.1", **more):
    """A server of its own, and a client of it."""
    satchel = Satchel.for_project(project, trust="all")
    app = make_app(satchel, access, **more)
    with TestClient(app, base_url=base, follow_redirects=False) as client:
        yield client
    satchel.close()


def test_a_name_of_its_own_keeps_its_sessions_to_itself(project):
    """Cookies know no ports: those of 127.0.0.1 go to every server there."""
    access, names = Access(), ["Notes.localhost"]
    with house_of(project, access, "http://notes.localhost:8790", hosts=names, homes=names) as home:
        assert not access.strangers
        token = access.new_link()
        led = home.get(f"/enter?token={token}", headers={"Host": "127.0.0.1:8790"})
        assert led.status_code == 303
        assert led.headers["location"] == f"http://notes.localhost:8790/enter?token={token}"
        assert "set-cookie" not in led.headers
        assert home.get(led.headers["location"]).headers["location"] == "/skills"
        cookie = {"Cookie": f"satchel={home.cookies['satchel']}"}
        assert home.get("/api/session", headers=cookie).status_code == 200
        for host in ("127.0.0.1:8790", "localhost:8790", "[::1]:8790"):
            there = {**cookie, "Host": host}
            assert home.get("/api/session", headers=there).status_code == 421
            assert home.get("/skills", headers=there).headers["location"].startswith("http://notes")
            assert (
                home.get("//evil.example", headers=there)
                .headers["location"]
                .startswith("http://notes.localhost:8790/")
            )
            refused = home.post("/api/enter", json={"token": access.new_link()}, headers=there)
            assert refused.status_code == 421
            assert "set-cookie" not in refused.headers
        assert home.get("/skills", headers={"Host": "other.localhost"}).status_code == 421


def test_who_comes_through_a_proxy_or_by_a_name_sits_elsewhere(project, tmp_path):
    every: list[dict[str, Any]] = [{"https": True}, {"hosts": ["skills.example"]}]
    for more in every:
        access = Access()
        with house_of(project, access, **more) as client:
            token = access.new_link()
            entered = client.post("/api/enter", json={"token": token}).json()
            mark = {"X-Satchel-CSRF": entered["csrf"]}
            cookie = client.cookies["satchel"]
            headers = {**mark, "Cookie": f"satchel={cookie}"}
            form = {"source": str(tmp_path)}
            answer = client.post("/skills/import/git", data=form, headers=headers)
            assert answer.status_code == 422, more


@pytest.mark.parametrize("path", ["http://evil.example/skills", "evil", "*", "/a\x00b", "/a\r\nb"])
def test_a_target_that_is_no_path_is_refused(visit, path):
    assert raw(visit, path=path, headers=[(b"host", b"127.0.0.1")])[0] == 400


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "/skills/", "//skills"])
def test_no_path_leads_to_another_server(visit, path):
    status, headers, _ = raw(visit, path=path, headers=[(b"host", b"127.0.0.1")])
    assert status == 404
    assert "location" not in headers


# --- tokens, sessions, cookies ------------------------------------------------------------


def test_without_a_session_every_page_is_the_door(visit):
    visit.client.cookies.clear()
    for page in SEEN:
        answer = visit.get(page)
        assert (answer.status_code, answer.headers["location"]) == (303, "/enter")
        part = visit.part(page)
        assert (part.status_code, part.headers["hx-redirect"], part.text) == (401, "/enter", "")
    assert visit.get("/live").status_code == 401


@pytest.mark.parametrize("token", ["", "guessed", "a" * 32, "a" * 5_000, EVIL, "\0", "../.."])
def test_a_guessed_token_opens_nothing(visit, token):
    visit.client.cookies.clear()
    answer = visit.get("/enter", params={"token": token})
    assert answer.status_code in {401, 403, 422}
    assert "set-cookie" not in answer.headers
    check(answer.text)


def test_an_old_token_opens_nothing_and_a_new_one_is_printed(project):
    now = [0.0]
    told: list[str] = []
    access = Access(announce=told.append, clock=lambda: now[0])
    token = access.new_link()
    now[0] = LINK + 1
    assert access.enter_by_link(token) is None
    assert len(told) == 1
    assert access.enter_by_link(token) is None
    assert len(told) == 1
    assert access.enter_by_link(told[0]) is not None


def test_a_token_used_by_many_at_once_opens_one_session():
    access = Access()
    token = access.new_link()
    opened: list[object] = []
    barrier = threading.Barrier(8)

    def come() -> None:
        barrier.wait()
        opened.append(access.enter_by_link(token))

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one is not None for one in opened) == 1


def test_the_token_is_told_to_no_other_page(visit):
    visit.client.cookies.clear()
    answer = visit.get("/enter?token=guessed")
    assert answer.headers["referrer-policy"] == "same-origin"
    token = visit.access.new_link()
    entered = visit.get(f"/enter?token={token}")
    assert token not in entered.headers["location"]
    assert token not in entered.text


def test_a_session_that_somebody_planted_is_not_taken_over(visit):
    visit.client.cookies.clear()
    planted = "planted-by-somebody-else-0123456789abcdef"
    headers = {"Cookie": f"satchel={planted}"}
    answer = visit.get(f"/enter?token={visit.access.new_link()}", headers=headers)
    assert planted not in answer.headers["set-cookie"]
    visit.client.cookies.clear()
    assert visit.get("/skills", headers=headers).headers["location"] == "/enter"


def test_coming_in_again_ends_the_session_before(visit):
    before = visit.client.cookies["satchel"]
    visit.get(f"/enter?token={visit.access.new_link()}")
    assert visit.client.cookies["satchel"] != before
    assert visit.access.session(before) is None


def test_who_signed_out_stays_out_whatever_their_cookie_says(visit):
    secret, mark = visit.client.cookies["satchel"], visit.csrf
    assert visit.post("/leave").status_code == 303
    cookie = {"Cookie": f"satchel={secret}"}
    assert visit.get("/skills", headers=cookie).headers["location"] == "/enter"
    again = visit.client.post("/undo", headers={**cookie, "X-Satchel-CSRF": mark})
    assert again.status_code == 401
    out = visit.client.post("/leave", headers={**cookie, "X-Satchel-CSRF": mark})
    assert (out.status_code, out.headers["location"]) == (303, "/enter")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_sent_after_a_session_ended_is_answered_for_people(visit, language):
    mark = visit.csrf
    visit.client.cookies.clear()
    headers = {"X-Satchel-CSRF": mark, "Accept-Language": language}
    typed = {"digest": "0123456789", "text": f"hours of work {EVIL}\n" + "工作" * 200_000}
    for sent in ({"data": typed}, {"files": {name: (None, one) for name, one in typed.items()}}):
        door = visit.client.post("/skill/edit?ref=mine", headers=headers, **sent)
        assert (door.status_code, door.headers["content-type"][:9]) == (401, "text/html")
        assert 'role="alert"' in door.text
        assert "hours of work" in door.text
        assert "工作" * 200_000 in door.text
        assert "0123456789" not in door.text
        check(door.text)
    for sent in (b"\xff=%ff%zz", b"&" * 5_000, b"text=" + b"y " * 3_000_000):
        odd = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        assert visit.client.post("/skill/edit", content=sent, headers=odd).status_code in {401, 413}
    for path in ("/goals/x/answer", "/skill/edit/check?ref=mine", "/skills/import/zip"):
        note = visit.client.post(path, headers={**headers, "HX-Request": "true"})
        assert (note.status_code, note.headers["content-type"][:9]) == (401, "text/html")
        assert note.headers["hx-retarget"] == "#notes"
        assert "hx-redirect" not in note.headers, "it would lead away from what was typed"
        assert note.text.lstrip().startswith("<div")
        check(note.text)
    script = visit.client.post("/api/undo", json={"number": 1}, headers=headers)
    assert script.status_code == 401
    assert script.json()["error"]["code"] == "SIGNED_OUT"
    assert "{" not in visit.client.get("/live", headers=headers).text


def test_a_cookie_in_use_lives_as_long_as_its_session(project):
    now = [0.0]
    access = Access(clock=lambda: now[0])
    with house_of(project, access) as client:
        client.get(f"/enter?token={access.new_link()}")
        secret = client.cookies["satchel"]
        assert "set-cookie" not in client.get("/nowhere").headers
        now[0] += RENEW
        assert "set-cookie" not in client.get("/static/satchel.css?v=1").headers
        given = client.get("/nowhere").headers["set-cookie"]
        assert given.startswith(f"satchel={secret};")
        for flag in ("HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={int(IDLE)}"):
            assert flag in given
        assert "set-cookie" not in client.get("/nowhere").headers
        now[0] += RENEW
        headers = {"X-Satchel-CSRF": client.get("/api/session").json()["csrf"]}
        now[0] += RENEW
        gone = client.post("/leave", headers=headers).headers.get_list("set-cookie")
        assert len(gone) == 1
        assert secret not in gone[0]


def test_who_comes_in_is_in_even_if_nobody_can_be_told_the_next_link(visit, monkeypatch):
    def broken(_: str) -> None:
        raise BrokenPipeError

    visit.client.cookies.clear()
    monkeypatch.setattr(visit.access, "announce", broken)
    assert visit.get(f"/enter?token={visit.access.new_link()}").status_code == 303
    assert visit.get("/nowhere").status_code == 404


def test_a_session_that_nobody_uses_ends():
    now = [0.0]
    access = Access(clock=lambda: now[0])
    session, secret = access.open()
    now[0] = IDLE - 1
    assert access.session(secret) == session
    now[0] = 2 * IDLE
    assert access.session(secret) is None
    assert not access.holds(session)


def test_the_cookie_of_another_port_opens_nothing(project, visit):
    other = Satchel.for_project(project, trust="all")
    with TestClient(make_app(other, Access(), cookie="satchel-9999"), base_url="http://127.0.0.1",
                    follow_redirects=False) as client:  # fmt: skip
        secret = visit.client.cookies["satchel"]
        for name in ("satchel", "satchel-9999"):
            answer = client.get("/skills", headers={"Cookie": f"{name}={secret}"})
            assert answer.headers["location"] == "/enter"
    other.close()


def test_the_cookie_is_for_no_script_no_other_site_and_behind_tls_for_no_plain_http(project):
    satchel, access = Satchel.for_project(project, trust="all"), Access()
    app = make_app(satchel, access, hosts=["skills.example"], cookie="__Host-satchel", https=True)
    with TestClient(app, base_url="http://skills.example", follow_redirects=False) as client:
        answer = client.get(f"/enter?token={access.new_link()}")
        cookie = answer.headers["set-cookie"]
        for flag in ("__Host-satchel=", "HttpOnly", "SameSite=strict", "Secure", "Path=/"):
            assert flag in cookie
        assert "Domain" not in cookie
        assert "max-age" in answer.headers["strict-transport-security"]
        plain = client.post("/enter", headers={"Origin": "http://skills.example"})
        assert plain.status_code == 403
    satchel.close()


def test_there_is_no_hsts_without_tls(visit):
    assert "strict-transport-security" not in visit.get("/nowhere").headers


def test_a_link_from_another_site_gets_in_although_its_cookie_is_strict(visit):
    visit.client.cookies.clear()
    headers = {
        "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
    }  # fmt: skip
    answer = visit.get(f"/enter?token={visit.access.new_link()}", headers=headers)
    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0;url=/skills"' in answer.text
    assert "SameSite=strict" in answer.headers["set-cookie"]


# --- passwords ----------------------------------------------------------------------------


@pytest.fixture
def guarded(project):
    satchel = Satchel.for_project(project, trust="all")
    access = Access(password="correct horse battery")
    with TestClient(make_app(satchel, access), base_url="http://127.0.0.1",
                    follow_redirects=False) as client:  # fmt: skip
        yield client, access
    satchel.close()


def test_a_wrong_password_costs_time_and_the_right_one_opens(guarded):
    client, access = guarded
    form = {"password": "wrong-password"}
    answer = client.post("/enter", data=form)
    assert answer.status_code == 403
    check(answer.text)
    right = client.post("/enter", data={"password": "correct horse battery"})
    assert right.status_code == 403, "too soon: nobody looked at it"
    assert access.closed_for("testclient") > 0
    assert access.enter_by_password("correct horse battery", "elsewhere") is not None


def test_behind_a_proxy_a_stranger_who_guesses_locks_out_only_themselves(project):
    access = Access(password="correct horse battery", clock=lambda: 1_000.0)
    wrong, right = {"password": "wrong-password"}, {"password": "correct horse battery"}
    with house_of(project, access, hosts=["skills.example"], https=True) as client:
        for said in ("203.0.113.9", "198.51.100.1, 203.0.113.9", "forged,203.0.113.9"):
            answer = client.post("/enter", data=wrong, headers={"X-Forwarded-For": said})
            assert answer.status_code == 403
        assert access.closed_for("203.0.113.9") > 0
        assert not access.closed_for("198.51.100.1")
        client.post("/enter", data=wrong, headers={"X-Forwarded-For": "2001:db8:1:2::3"})
        near = client.post("/enter", data=right, headers={"X-Forwarded-For": "2001:db8:1:2:9::1"})
        assert near.status_code == 403, "of a long address only the network counts"
        headers = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7"}
        assert client.post("/enter", data=right, headers=headers).status_code == 303
        odd = client.post("/enter", data=wrong, headers={"X-Forwarded-For": EVIL})
        assert odd.status_code == 403
        assert access.closed_for("testclient") > 0


def test_without_a_proxy_nobody_says_where_they_are(guarded):
    client, access = guarded
    client.post("/enter", data={"password": "wrong"}, headers={"X-Forwarded-For": "203.0.113.9"})
    assert access.closed_for("testclient") > 0
    assert not access.closed_for("203.0.113.9")


def test_wrong_passwords_at_once_are_looked_at_once():
    now = [0.0]
    access = Access(password="correct horse battery", clock=lambda: now[0])
    tries = [access.enter_by_password(f"guess-number-{at}", "evil") for at in range(5)]
    assert not any(tries)
    waits = []
    for _ in range(9):
        waits.append(access.closed_for("evil"))
        now[0] += waits[-1] + 0.01
        access.enter_by_password("another-guess", "evil")
    assert waits[:4] == pytest.approx([1.0, 2.0, 4.0, 8.0])
    assert max(waits) == pytest.approx(60.0)


def test_a_link_opens_nothing_where_a_password_is_asked_for(guarded):
    client, access = guarded
    answer = client.get(f"/enter?token={access.new_link()}")
    assert "set-cookie" not in answer.headers
    assert client.get("/skills").headers["location"] == "/enter"
    assert client.post("/api/enter", json={"token": access.new_link()}).status_code == 403


def test_a_password_of_another_site_is_not_taken(guarded):
    client, _ = guarded
    answer = client.post("/enter", data={"password": "correct horse battery"},
                         headers={"Origin": "http://evil.example"})  # fmt: skip
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


# --- forged requests ----------------------------------------------------------------------

FORGED = {
    "no mark": {"Origin": "http://127.0.0.1"},
    "no mark and no origin": {},
    "a guessed mark": {"X-Satchel-CSRF": "guessed", "Origin": "http://127.0.0.1"},
    "an empty mark": {"X-Satchel-CSRF": "", "Origin": "http://127.0.0.1"},
    "another origin": {"Origin": "http://evil.example", "mark": "yes"},
    "another port": {"Origin": "http://127.0.0.1:9999", "mark": "yes"},
    "a name that begins like ours": {"Origin": "http://127.0.0.1.evil.example", "mark": "yes"},
    "ours as a user name": {"Origin": "http://127.0.0.1@evil.example", "mark": "yes"},
    "another scheme": {"Origin": "chrome-extension://127.0.0.1", "mark": "yes"},
    "a sandboxed page": {"Origin": "null", "mark": "yes"},
    "an empty origin": {"Origin": "", "mark": "yes"},
    "another site, says the browser": {"Sec-Fetch-Site": "cross-site", "mark": "yes"},
    "another port, says the browser": {"Sec-Fetch-Site": "same-site", "mark": "yes"},
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_request_changes_nothing(visit, case):
    headers = dict(FORGED[case])
    if headers.pop("mark", ""):
        headers["X-Satchel-CSRF"] = visit.csrf
    answer = visit.client.post("/skills/add", data={"name": "forged"}, headers=headers)
    assert answer.status_code == 403
    answer = visit.client.post("/api/skills", json={"name": "forged"}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "FORGED"
    assert not [one for one in visit.satchel.refresh() if one.id == "forged"]


def test_a_refusal_replaces_no_part_of_a_page(visit):
    headers = {"HX-Request": "true", "X-Satchel-CSRF": "of-an-earlier-session"}
    answer = visit.client.post("/skills/add/check", headers=headers)
    assert (answer.status_code, answer.headers["hx-retarget"]) == (403, "#notes")


def test_a_form_of_another_session_is_refused_and_its_text_is_given_back(visit):
    typed = {"name": "short", "description": f"hours of work {EVIL}", "scope": "project"}
    headers = {"Origin": "http://127.0.0.1"}
    answer = visit.client.post("/skills/add?csrf=of-before", data=typed, headers=headers)
    assert (answer.status_code, answer.headers["content-type"][:9]) == (403, "text/html")
    assert "Your text for “Name”" in answer.text
    assert ">\nshort</textarea>" in answer.text
    assert "hours of work" in answer.text
    assert ">\nproject<" not in answer.text
    check(answer.text)
    foreign = {"Origin": "http://evil.example"}
    answer = visit.client.post("/skills/add?csrf=of-before", data=typed, headers=foreign)
    assert answer.headers["content-type"][:10] == "text/plain"
    assert "hours" not in answer.text


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "post"])
def test_no_method_goes_round_the_mark(visit, method):
    assert visit.client.request(method, "/skills/add").status_code in {403, 405}


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"])
def test_a_get_stays_a_get(visit, header):
    answer = visit.get("/undo", headers={header: "POST"}, params={"_method": "POST"})
    assert answer.status_code == 405


def test_a_get_and_a_head_change_nothing(visit):
    for method in ("GET", "HEAD", "OPTIONS"):
        for path in ("/leave", "/undo", "/redo", "/skills/remove", "/language"):
            answer = visit.client.request(method, path)
            assert answer.status_code in {404, 405}, (method, path)
    assert visit.get("/nowhere").status_code == 404


@pytest.mark.parametrize("dest", ["script", "image", "iframe", "object", "style", "empty"])
def test_another_site_loads_and_frames_nothing(visit, dest):
    mode = "navigate" if dest in {"iframe", "object"} else "no-cors"
    headers = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    for path in ("/skills", "/api/skills", "/static/satchel.js"):
        assert visit.get(path, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_json_that_does_not_say_so_is_not_taken(visit, kind):
    answer = visit.post(
        "/api/skills", content=b'{"name": "forged"}', headers={"Content-Type": kind}
    )
    assert answer.status_code in {400, 422}
    assert not [one for one in visit.satchel.refresh() if one.id == "forged"]


# --- redirects, headers, sizes ------------------------------------------------------------


@pytest.mark.parametrize(
    "referer",
    [
        "http://evil.example/", "//evil.example", "http://127.0.0.1//evil.example/", "javascript:x",
        "http://127.0.0.1@evil.example/", "http://127.0.0.1/\\evil.example", "http://[",
        "http://127.0.0.1.evil.example/x",
    ],
)  # fmt: skip
def test_the_choice_of_a_language_leads_nowhere_else(visit, referer):
    answer = visit.post("/language", data={"name": "zh"}, headers={"Referer": referer})
    assert answer.status_code == 303
    assert "evil" not in answer.headers["location"].split("?")[0].replace("\\", "")[:12]
    assert answer.headers["location"].startswith("/")
    assert not answer.headers["location"].startswith(("//", "/\\"))


@pytest.mark.parametrize("value", ["zh\r\nSet-Cookie: evil=1", "en; evil=1", "fr", "en\x00", EVIL])
def test_no_header_is_injected(visit, value):
    answer = visit.post("/language", data={"name": value})
    assert "evil" not in str(answer.headers)
    assert "set-cookie" not in answer.headers
    assert "evil" not in str(visit.get("/skills", params={"q": "a\r\nX-Evil: evil"}).headers)


def test_a_form_that_is_too_large_is_refused(visit):
    answer = visit.post("/skills/add", data={"name": "x", "description": "y" * (ORDINARY + 1)})
    assert answer.status_code == 413


def test_only_uploads_may_be_as_large_as_uploads(visit):
    for path in ("/skills/import/zip", "/skills/import/folder", "/api/plans/zip"):
        assert limit_of(path) == UPLOAD
    for path in ("/skills/import/git", "/skills/import/key", "/skills/import/key/cancel",
                 "/skills/import/zip/x", "/api/plans/zipped"):  # fmt: skip
        assert limit_of(path) == ORDINARY
        answer = visit.post(path, content=b"y" * (ORDINARY + 1))
        assert answer.status_code == 413


def test_a_body_is_counted_whatever_was_announced():
    taken = 0

    async def endless():
        nonlocal taken
        taken += 65_536
        return {"type": "http.request", "body": b"y" * 65_536, "more_body": True}

    async def take():
        body = Body(endless, ORDINARY)
        while True:
            await body()

    with pytest.raises(HTTPException) as caught:
        asyncio.run(take())
    assert caught.value.status_code == 413
    assert taken <= ORDINARY + 65_536


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("satchel.ui.bodies.STALL", 0.05)

    async def silent() -> dict[str, str]:
        await asyncio.sleep(60)
        return {}

    with pytest.raises(HTTPException) as caught:
        asyncio.run(Body(silent, ORDINARY)())
    assert caught.value.status_code == 408


def test_a_length_that_is_a_lie_is_no_way_in(visit):
    for length in ("-1", "9" * 30, "1e9", "0x10"):
        headers = {"Content-Length": length, "X-Satchel-CSRF": visit.csrf}
        answer = visit.client.post("/language", content=b"name=zh", headers=headers)
        assert answer.status_code in {303, 400, 413, 422}


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000, b'{"name": ' * 50_000, b'{"name": "\\ud800"}', b'{"\\ud800": 1}',
        b'{"name": NaN}', b'{"name": ' + b"9" * 5_000 + b"}", b"\xff\xfe", b"null", b"[]", b'"x"',
        b'{"name": "a", "name": ["b"]}', b'{"__proto__": {}, "name": 1}',
    ],
)  # fmt: skip
def test_json_of_every_kind_is_answered(visit, body):
    answer = visit.post("/api/skills", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}
    assert set(answer.json()["error"]) == {"code", "message", "hint"}


def test_a_session_has_so_many_streams_and_no_more(visit):
    session = visit.access.session(visit.client.cookies["satchel"])
    assert session is not None
    with contextlib.ExitStack() as held:
        for _ in range(MOST_STREAMS):
            held.enter_context(visit.access.listening(session))
        assert visit.get("/live").status_code == 429
    assert visit.access.may_listen(session)


def test_a_websocket_is_refused(visit):
    with pytest.raises(WebSocketDisconnect), visit.client.websocket_connect("/live"):
        pass


# --- every answer -------------------------------------------------------------------------


def _routes():
    yield "/static/satchel.css", ("GET",)
    yield "/api/openapi.json", ("GET",)
    for folder, names in (("pages", PAGES), ("api", API)):
        for name in names:
            for route in import_module(f"satchel.ui.{folder}.{name}").router.routes:
                yield route.path, tuple(route.methods)


def test_every_answer_of_every_route_has_the_headers(visit):
    seen = 0
    for path, methods in _routes():
        if path == "/live":
            continue  # it does not end; the gate puts its headers on as on the others
        address = path.replace("{key}", "nobody").replace("{goal_id}", "nobody")
        address = address.replace("{step}", "nobody")
        for method in methods:
            if method == "POST" and path in {"/leave", "/health/{key}"}:
                continue
            for headers in ({}, {"X-Satchel-CSRF": visit.csrf}):
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


def test_only_a_static_file_with_its_digest_is_kept(visit):
    assert "max-age" in visit.get("/static/satchel.css?v=1").headers["cache-control"]
    assert visit.get("/static/satchel.css").headers["cache-control"] == "no-store"
    assert visit.get("/static/nothing.css?v=1").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    ["/static/../gate.py", "/static/%2e%2e/gate.py", "/static/..%2fgate.py", "/static//etc/passwd",
     "/static/....//gate.py", "/static/%00", "/static/", "/static/..\\gate.py"],
)  # fmt: skip
def test_nothing_but_static_files_is_static(visit, path):
    answer = visit.get(path)
    assert answer.status_code in {400, 404, 303}
    assert "import" not in answer.text


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
