"""Secrets: lookup and redaction."""

from __future__ import annotations

import base64
import json
import os

import pytest

from satchel.errors import SettingsError
from satchel.settings import load_settings
from satchel.tools.secrets import Redactor, Secrets
from tool_bench import Workbench, answering

VALUE = 'tr0ub4dor&3 "quoted"/ü'
SAY = answering("return {'output': str(os.environ.get('API_KEY')), 'error': ''}")


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("API_KEY", VALUE)
    return Workbench(tmp_path)


def place(bench: Workbench) -> str:
    return os.path.join(os.path.dirname(bench.settings.paths.config), "secrets.env")


def put(bench: Workbench, text: str, mode: int = 0o600) -> None:
    path = place(bench)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def told(bench: Workbench, reply) -> str:
    return reply.to_json() + str([*bench.trace.events])


@pytest.mark.parametrize(
    "code",
    [
        "return {'output': '', 'error': 'bad key: ' + key}",
        "sys.stderr.write(key); sys.exit(1)",
        "sys.stderr.write('x' * 20000 + key); sys.exit(1)",
        "return {'output': '', 'error': '', 'data': {key: [key, {'deep': key}]}}",
        "import base64; return {'output': base64.b64encode(key.encode()).decode(), 'error': ''}",
        "import base64; return {'output': base64.b64encode(b'k=' + key.encode() + b'!').decode()}",
        "return {'output': key.encode().hex()}",
        "from urllib.parse import quote; return {'output': 'https://x/?k=' + quote(key, safe='')}",
        "return {'output': json.dumps({'k': key})}",
        "return {'output': repr(key)[1:-1]}",
        "return {'output': 'x' * 7995 + key}",
    ],
)
def test_secrets_are_taken_out_of_everything(bench, code):
    body = f"key = os.environ['API_KEY']\n{code}"
    bench.skill(program=answering(body), more="secrets: [API_KEY]\nreturns: {type: object}\n")
    said = told(bench, bench.tools.call("demo_run"))
    data = VALUE.encode()
    assert VALUE not in said
    assert json.dumps(VALUE, ensure_ascii=False)[1:-1] not in said
    assert "tr0ub4dor" not in said
    assert base64.b64encode(data).decode()[4:-4] not in said
    assert data.hex() not in said


def test_the_file_goes_before_the_environment(bench):
    bench.skill(program=SAY, more="secrets: [API_KEY, OTHER_KEY]\n")
    put(bench, "# mine\nexport API_KEY='from the file'\nOTHER_KEY=\"also here\"\nBROKEN\n")
    bench.tools.call("demo_run")
    assert bench.runner.requests[-1].permissions.secrets == (
        ("API_KEY", "from the file"), ("OTHER_KEY", "also here"),
    )  # fmt: skip


def test_a_file_that_others_may_read_is_not_used(bench):
    bench.skill(program=SAY, more="secrets: [API_KEY]\n")
    put(bench, "API_KEY=from-the-file\n", 0o644)
    reply = bench.tools.call("demo_run")
    assert reply.error.code == "EXECUTION_ERROR"
    assert "chmod 600" in reply.text
    assert bench.runner.requests == []


def test_a_link_is_not_followed(bench, tmp_path):
    bench.skill(program=SAY, more="secrets: [API_KEY]\n")
    (tmp_path / "elsewhere").write_text("API_KEY=from-the-file\n")
    os.makedirs(os.path.dirname(place(bench)), exist_ok=True)
    os.symlink(tmp_path / "elsewhere", place(bench))
    assert "secrets.env" in bench.tools.call("demo_run").error.message


def test_a_missing_secret_starts_nothing_and_says_where_to_put_it(bench):
    bench.skill(program=SAY, more="secrets: [API_KEY, NO_SUCH_KEY]\n")
    reply = bench.tools.call("demo_run")
    assert reply.error.code == "EXECUTION_ERROR"
    assert "NO_SUCH_KEY" in reply.error.message
    assert place(bench) in reply.text
    assert bench.runner.requests == []


def test_too_short_to_be_kept_out(tmp_path):
    settings = load_settings(str(tmp_path), env={"HOME": str(tmp_path)})
    with pytest.raises(SettingsError, match="too short"):
        Secrets(settings, {"API_KEY": "abc"}).values(["API_KEY"])
    with pytest.raises(SettingsError, match="NUL"):
        Secrets(settings, {"API_KEY": "abc\0defgh"}).values(["API_KEY"])


def test_the_keyring_goes_first_where_there_is_one(tmp_path, monkeypatch):
    (tmp_path / "keyring.py").write_text(
        "def get_password(service, name):\n"
        "    if name == 'LOCKED_KEY':\n        raise RuntimeError('locked')\n"
        "    return f'{service}-{name}' if name == 'API_KEY' else None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "keyring", raising=False)
    settings = load_settings(str(tmp_path), env={"HOME": str(tmp_path)})
    names = ("API_KEY", "LOCKED_KEY", "OTHER_KEY")
    env = {str(name): "from-the-environment" for name in names}
    assert [value for _, value in Secrets(settings, env).values(names)] == [
        "satchel-API_KEY", "from-the-environment", "from-the-environment",
    ]  # fmt: skip
    monkeypatch.delitem(__import__("sys").modules, "keyring", raising=False)


def test_a_key_of_several_lines():
    key = "-----BEGIN-----\nAAAABBBBCCCC\nDDDDEEEEFFFF\n-----END-----"
    redactor = Redactor((("KEY", key),))
    assert "BBBB" not in redactor.redact_text("line: AAAABBBBCCCC")
    assert "EEEE" not in redactor.redact_text(json.dumps(key))


def test_numbers_that_are_secrets():
    redactor = Redactor((("PIN", "123456"),))
    assert redactor.redact_value({"a": 123456, "b": [1234567, True, None]}) == {
        "a": "[secret PIN]", "b": ["[secret PIN]7", True, None],
    }  # fmt: skip
