"""Scripts of skills at a terminal: tried by hand, granted the network, created."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from needs import needs
from typing_at import Typing

pytestmark = pytest.mark.timeout(180)
TEXT = "---\nname: demo\ndescription: Fetches. Use when asked.\n---\nRun `python scripts/get.py`.\n"
CODE = """\
import os, sys, urllib.request
print(sys.argv[1:], sys.stdin.read())
open("new.txt", "w").write("x")
if len(sys.argv) > 2:
    urllib.request.urlopen("https://api.acme.example/v1?k=" + os.environ["ACME_API_KEY"])
"""


@pytest.fixture
def demo(terminal):
    needs("bwrap")
    terminal.skill(".agents/skills/demo", TEXT)
    (terminal.project / ".agents/skills/demo/scripts").mkdir()
    (terminal.project / ".agents/skills/demo/scripts/get.py").write_text(CODE)
    assert terminal.run("trust", "--yes").status == 0
    return terminal


def test_a_script_is_tried_by_hand_and_its_changes_are_asked_about(demo):
    words = ("try", "demo", "scripts/get.py", "--stdin", "--", "--x")
    run = demo.run(*words, stdin="piped", COLUMNS="")
    assert (run.status, run.out) == (4, "['--x'] piped\n"), run
    assert "interpreter: python" in run.err
    assert "`new.txt` was not changed: a person must accept it, and none can be asked" in run.err
    assert "hint: Run it in a terminal, which asks you, or pass `--allow-tools`" in run.err
    assert not (demo.project / "new.txt").exists()
    with Typing(demo.command("try", "demo", "scripts/get.py"), demo.project, demo.env()) as typing:
        assert "new.txt" in typing.sees("y yes, n no: ")
        typing.type("y\n")
        typing.ends()
    assert (demo.project / "new.txt").read_text() == "x"
    run = demo.run("try", "demo", "scripts/get.py", "--allow-tools", "--json")
    told = json.loads(run.out)
    assert (told["script"], told["envelope"]["data"]["exit"]) == ("scripts/get.py", 0)
    (demo.project / "new.txt").unlink()
    assert "changed: new.txt" in demo.run("try", "demo", "scripts/get.py", "--allow-tools").err
    script = demo.project / ".agents/skills/demo/scripts/fails.py"
    script.write_text("print('no key')\nraise SystemExit(2)\n", encoding="utf-8")
    assert demo.run("trust", "--yes").status == 0
    run = demo.run("try", "demo", "scripts/fails.py")
    assert (run.status != 0, run.out) == (True, "no key\n")
    run = demo.run("try", "demo", "scripts/gone.py")
    assert run.status != 0
    assert "error: The skill `demo` has no file `scripts/gone.py`" in run.err


def test_without_a_script_the_scripts_of_the_skill_are_named(demo):
    run = demo.run("try", "demo", COLUMNS="")
    assert run.status == 2
    assert "error: `demo` is no tool; it has scripts" in run.err
    command = "`satchel try demo scripts/get.py -- ARGUMENTS`"
    assert f"hint: Its scripts are `scripts/get.py`: run {command}" in run.err


def test_each_change_that_was_not_applied_has_a_line(demo):
    (demo.project / ".agents/skills/demo/scripts/get.py").write_text(
        "for name in ('a.txt', 'b.txt'):\n    open(name, 'w').write('x')\n"
    )
    run = demo.run("try", "demo", "scripts/get.py", COLUMNS="")
    denied = [line for line in run.err.splitlines() if line.startswith("denied: ")]
    assert len(denied) == 2, run.err
    assert "`a.txt` was not changed" in denied[0]
    assert "`b.txt` was not changed" in denied[1]


def test_trust_of_one_skill_says_what_there_is_to_grant(demo):
    demo.skill(".agents/skills/plain", "---\nname: plain\ndescription: A. Use so.\n---\nHi.\n")
    run = demo.run("trust", "plain", COLUMNS="")
    assert run.status == 0
    assert "Nothing is granted to `plain`; its files name no host and no variable\n" in run.err
    assert "→ Grant something with `--grant-tools`, `--network`, `--secret VARIABLE`" in run.err


def test_trust_lists_variables_and_what_a_tool_skill_declares(demo):
    code = "import os\nprint(os.environ['MODEL_NAME'], os.environ['HOME'])\n"
    (demo.project / ".agents/skills/demo/scripts/get.py").write_text(code)
    run = demo.run("trust", "demo", COLUMNS="")
    assert "variables: `MODEL_NAME`\n" in run.err
    assert "`satchel trust demo --variable MODEL_NAME` passes the variable" in run.err
    folder = demo.project / "skills/weather"
    folder.mkdir(parents=True)
    (folder / "main.py").write_text("print('{}')\n")
    (folder / "skill.yaml").write_text(
        "name: weather_read\ndescription: Reads the weather.\nruntime: python\nentry: main.py\n"
        "network: true\nsecrets: [WEATHER_TOKEN]\n"
    )
    assert demo.run("trust", "--revoke").status == 0
    record = json.loads(demo.run("trust", "--yes", "--json").out)
    assert record["wants"]["skills/weather"]["secrets"] == ["WEATHER_TOKEN"]
    assert demo.run("trust", "--revoke").status == 0
    run = demo.run("trust", "--yes", COLUMNS="")
    assert "`weather` may use the network, get secrets (`WEATHER_TOKEN`)\n" in run.err


def test_a_revocation_names_the_grant_that_the_settings_keep(demo):
    run = demo.run("config", "set", "grants", '{"demo": {"network": true}}')
    assert run.status == 0, run
    kept = "`[grants.demo]` in `"
    run = demo.run("trust", "demo", "--revoke", COLUMNS="")
    assert run.status == 3
    assert f"hint: {kept}" in run.err
    assert "config.toml` grants by name: delete it there" in run.err
    assert demo.run("trust", "demo", "--secret", "ACME_API_KEY").status == 0
    run = demo.run("trust", "demo", "--revoke", COLUMNS="")
    assert (run.status, f"Grant revoked\nwarning: {kept}" in run.err) == (0, True), run
    assert demo.run("config", "set", "grants").status == 0
    assert demo.run("trust", "demo", "--secret", "ACME_API_KEY").status == 0
    assert "warning" not in demo.run("trust", "demo", "--revoke").err


def test_a_command_below_the_project_says_where_a_script_works(demo):
    (demo.project / "notes").mkdir()
    code = "import os; print(os.getcwd())"
    (demo.project / ".agents/skills/demo/scripts/get.py").write_text(code)
    run = demo.run("try", "demo", "scripts/get.py", "--allow-tools", COLUMNS="")
    assert (run.out, "working folder" in run.err) == (f"{demo.project}\n", False)
    words = demo.command("try", "demo", "scripts/get.py", "--allow-tools")
    below = subprocess.run(
        words,
        cwd=demo.project / "notes",
        env=demo.env(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert below.stdout == f"{demo.project}\n"
    told = " ".join(below.stderr.split())
    assert f"working folder: {demo.project}, the project's folder, not this one" in told


def test_at_a_terminal_the_output_is_shown_as_it_comes(demo):
    code = "import time; print('fir\\x1bst'); time.sleep(4); print('second', end='')"
    (demo.project / ".agents/skills/demo/scripts/get.py").write_text(code)
    assert demo.run("trust", "--yes").status == 0
    with Typing(demo.command("try", "demo", "scripts/get.py"), demo.project, demo.env()) as typing:
        assert "second" not in typing.sees("fir")
        typing.sees("second")
        assert typing.ends() == 0
    assert (typing.text.count("fir"), typing.text.count("second")) == (1, 1)


def test_an_open_pipe_is_not_waited_for(demo):
    reading, writing = os.pipe()
    try:
        words = demo.command("try", "demo", "scripts/get.py", "--allow-tools")
        run = subprocess.run(
            words,
            stdin=reading,
            cwd=demo.project,
            env=demo.env(),
            capture_output=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert (run.returncode, run.stdout) == (0, b"[] \n"), run
    assert demo.run("try", "demo", "--stdin").status == 2


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("open('x', 'wb').write(b'x' * (21 << 20))", "A file that it writes may have 20 MB, which"),
        (
            "import os; os._exit(os.system('no-such-command') >> 8)",
            "install it on the system, below",
        ),
        ("import numpy", "Run it in a terminal, which asks you, or pass `--allow-tools`"),
    ],
)
def test_what_failed_has_a_hint_for_people(demo, code, hint):
    (demo.project / ".agents/skills/demo/scripts/get.py").write_text(code)
    assert demo.run("trust", "--yes").status == 0
    run = demo.run("try", "demo", "scripts/get.py", COLUMNS="")
    assert f"hint: {hint}" in run.err.replace("It calls a command that is not in the sandbox: ", "")
    assert run.status == (4 if "numpy" in code else 1)
    assert "tell the user" not in run.err.lower()


def test_the_network_and_a_variable_are_offered_granted_and_revoked(demo):
    run = demo.run("try", "demo", "scripts/get.py", "--", "a", "b")
    assert "`satchel trust demo --secret ACME_API_KEY`" in run.err
    shown = demo.run("trust", "demo").err
    assert "hosts: `api.acme.example`" in shown
    assert "variables: `ACME_API_KEY`" in shown
    assert "→ `satchel trust demo --network` lets its scripts use the network" in shown
    granted = demo.run("trust", "demo", "--network", "--secret", "ACME_API_KEY")
    assert "Its scripts may use the network, `ACME_API_KEY`, until it changes" in granted.err
    assert "warning: Not set: `ACME_API_KEY`. Put `ACME_API_KEY=…` into" in granted.err
    assert "→" not in demo.run("trust", "demo").err
    run = demo.run("try", "demo", "scripts/get.py", "--", "a", "b")
    assert "hint: Put `ACME_API_KEY=…` into" in run.err
    granted = demo.run("trust", "demo", "--secret", "OTHER_KEY")
    expected = "warning: none of its files names `OTHER_KEY`; they read: `ACME_API_KEY`"
    assert expected in granted.err
    run = demo.run("try", "demo", "scripts/get.py")  # which needs none of them
    assert (run.status, run.out, "hint: Put" in run.err) == (4, "[] \n", False), run
    with open(demo.project / ".agents/skills/demo/scripts/get.py", "a") as file:
        file.write("\n")
    told = json.loads(demo.run("trust", "demo", "--json").out)
    assert told["granted"] == {"network": False, "secrets": [], "variables": []}
    command = "`satchel trust demo --network --secret ACME_API_KEY --secret OTHER_KEY`"
    for words in (["why", "demo"], ["doctor"], ["try", "demo", "scripts/get.py"]):
        run = demo.run(*words)
        told = " ".join((run.out + run.err).split())
        assert f"which ended the grant: grant it again with {command}" in told, words
    assert demo.run("trust", "demo", "--revoke").status == 0
    (demo.project / ".agents/skills/demo/scripts/get.py").write_text("print(1)\n")
    run = demo.run("trust", "demo", "--secret", "OTHER_KEY")
    assert "warning: its files name no variable\n" in run.err
    for words in (["--network"], ["demo", "--secret", "a b"], ["demo", "--network", "--revoke"]):
        assert demo.run("trust", *words).status == 2, words


def test_a_variable_that_is_no_secret_is_granted_as_the_hint_says(demo):
    script = demo.project / ".agents/skills/demo/scripts/get.py"
    script.write_text("import os\nprint('ERROR', os.environ['MODEL_NAME'])\n")
    assert demo.run("trust", "--yes").status == 0
    run = demo.run("try", "demo", "scripts/get.py", COLUMNS="")
    command = "satchel trust demo --variable MODEL_NAME"
    assert f"It has no variable `MODEL_NAME`; `{command}` grants it" in run.err
    granted = demo.run(*command.split()[1:], COLUMNS="")
    assert "Its scripts may use `MODEL_NAME`, until it changes" in granted.err
    assert "warning: Not set: `MODEL_NAME`. Put `MODEL_NAME=…` into" in granted.err
    run = demo.run("try", "demo", "scripts/get.py", COLUMNS="")
    assert "hint: Put `MODEL_NAME=…` into" in run.err
    run = demo.run("try", "demo", "scripts/get.py", MODEL_NAME="gpt4")
    assert (run.status, run.out) == (0, "ERROR gpt4\n"), run
    script.write_text("#changed\n" + script.read_text())
    run = demo.run("try", "demo", "scripts/get.py", COLUMNS="")
    assert f"grant it again with `{command}`" in run.err


def test_only_hosts_that_code_contacts_are_offered_and_shown_before_the_grant(demo):
    (demo.project / ".agents/skills/demo/scripts/shape.py").write_text(
        "NS = 'http://schemas.acme.example/shape'\nprint(NS)\n"
    )
    shown = demo.run("trust", "demo").err
    assert "hosts: `api.acme.example`\n" in shown
    words = demo.command("trust", "demo", "--network")
    for key, line in (("n\n", "Nothing was changed"), ("y\n", "Its scripts may use the network")):
        with Typing(words, demo.project, demo.env()) as typing:
            shown = typing.sees("Let the scripts of `demo` use the network? [y/N] ")
            assert "hosts: `api.acme.example`\n" in shown
            typing.type(key)
            typing.sees(line)
            typing.ends()
        granted = json.loads(demo.run("trust", "demo", "--json").out)["granted"]
        assert granted["network"] is (key == "y\n")
    code = "# https://docs.acme.example\nXLINK = 'http://www.w3.org/1999/xlink'\nimport requests\n"
    (demo.project / ".agents/skills/demo/scripts/get.py").write_text(code)
    shown = demo.run("trust", "demo").err
    assert "hosts" not in shown
    assert "lets its scripts use the network" not in shown


def test_a_new_skill_with_scripts_passes_its_check_and_runs(terminal):
    needs("bwrap")
    run = terminal.run("new", "line-count", "--kind", "scripts")
    assert run.status == 0, run
    folder = run.out.strip()
    assert sorted(os.listdir(os.path.join(folder, "scripts"))) == ["count.py", "count_all.sh"]
    check = terminal.run("check", "line-count")
    assert check.status == 0, check
    (terminal.project / "a.txt").write_text("1\n2\n")
    run = terminal.run("try", "line-count", "scripts/count.py", "--", "a.txt")
    assert (run.status, run.out) == (0, "a.txt: 2 lines\n"), run
    run = terminal.run("try", "line-count", "scripts/count_all.sh", "--", "a.txt", "a.txt")
    assert (run.status, run.out) == (0, "a.txt: 2 lines\na.txt: 2 lines\n"), run
    (terminal.project / "docs").mkdir()
    (terminal.project / "docs/b.txt").write_text("1\n")
    run = terminal.run("try", "line-count", "scripts/count_all.sh", "--", "docs", "a.txt")
    assert (run.status, run.out) == (0, "a.txt: 2 lines\ndocs/b.txt: 1 lines\n"), run


NO_PLAN = {
    "import acmelib, yaml": ["scripts/x.py: `acmelib`", '# dependencies = ["PyYAML", "acmelib"]'],
    "# /// script\n# requires-python = '>=4'\n# ///": ["needs Python >=4"],
    "#!/usr/bin/env no-such-ruby": ["`no-such-ruby` is not installed"],
    "print 'two'": ["is not Python"],
}


@pytest.mark.parametrize("code", NO_PLAN)
def test_a_script_that_cannot_be_run_is_a_problem_with_its_fix(terminal, code):
    terminal.skill(".agents/skills/demo", TEXT)
    folder = terminal.project / ".agents/skills/demo"
    (folder / "scripts").mkdir()
    (folder / "scripts/x.py").write_text(code + "\n")
    assert terminal.run("trust", "--yes").status == 0
    for words in (["check", "demo"], ["doctor"], ["show", "demo"]):
        run = terminal.run(*words)
        for part in NO_PLAN[code]:
            assert part in " ".join(run.out.split()), (words, run.out)
    found = json.loads(terminal.run("doctor", "--json").out)["problems"]
    assert [one["severity"] for one in found if one["code"] == "script-plan"] == ["warning"]
    row = json.loads(terminal.run("show", "demo", "--json").out)["scripts"]["rows"][0]
    assert (row["path"], row["interpreter"]) == ("scripts/x.py", "")


def test_a_requirement_that_is_not_published_is_named_with_its_line(terminal):
    terminal.skill(".agents/skills/demo", TEXT)
    folder = terminal.project / ".agents/skills/demo"
    (folder / "scripts").mkdir()
    (folder / "scripts/get.py").write_text("import yaml\n")
    (folder / "requirements.txt").write_text("PyYAML\n-e .\n")
    shown = " ".join(terminal.run("check", "demo").out.split())
    assert "may only name published packages. It has something else: line 2: `-e .`" in shown
    assert "→ Addresses, paths and options are refused: delete them, or name" in shown


def test_scripts_that_only_the_text_names_are_checked(terminal):
    terminal.skill(".agents/skills/demo", TEXT + "Then `perl lib/a b.pl`, `perl lib/x.pl`.\n")
    folder = terminal.project / ".agents/skills/demo"
    (folder / "lib").mkdir()
    (folder / "lib/x.pl").write_text("#!/usr/bin/env sed\n")
    run = terminal.run("check", "demo")
    shown = " ".join(run.out.split())
    assert "`lib/x.pl` cannot be run: `lib/x.pl` may not be executed" in shown
    assert f"Run `chmod +x {folder}/lib/x.pl`" in shown


def test_show_says_how_a_script_would_be_started_before_it_runs(terminal):
    terminal.skill(".agents/skills/demo", TEXT)
    folder = terminal.project / ".agents/skills/demo"
    (folder / "scripts").mkdir()
    (folder / "pyproject.toml").write_text("[project]\ndependencies = ['PyYAML>=6']\n")
    code = CODE + "import yaml\ntry:\n    import unheard\nexcept ImportError:\n    pass\n"
    (folder / "scripts/get.py").write_text(code)
    run = terminal.run("show", "demo")
    shown = " ".join(run.out.split())
    assert "scripts/get.py python (PyYAML)" in shown
    assert "Not installed, because no package is known: `unheard`" in shown
    assert "`pyproject.toml` is not read: name packages in `requirements.txt`" in shown
    assert "Hosts named: `api.acme.example`" in shown
    assert "Variables named: `ACME_API_KEY`" in shown
    assert "Granted: no network, no secrets" in shown
    assert "→ `satchel trust demo --network` lets its scripts use the network" in shown
