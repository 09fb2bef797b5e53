"""Scripts of a skill: how each is started, where its packages come from, and what is refused."""

from __future__ import annotations

import gc
import json
import os
import tarfile
import threading
import time

import pytest

from needs import builds, needs
from prepared import in_tier
from satchel.errors import BuildFailed, Changed
from satchel.runners.base import RunRequest, ScriptInput
from satchel.runners.pool import Pool
from satchel.runners.runtimes import Runtimes
from satchel.runners.scripts import list_scripts, plan_script


def block(*lines):
    return "\n".join(("# /// script", *(f"# {line}" for line in lines), "# ///", "import json", ""))


def dependency(line):
    return {"scripts/x.py": block(f"dependencies = [{json.dumps(line)}]")}


def package(**table):
    return {"scripts/x.js": "", "package.json": json.dumps(table)}


def locked(path, **entry):
    root = {"dependencies": {"zod": "1.0.0"}}
    lock = {"lockfileVersion": 3, "packages": {"": root, path: {"version": "1.0.0", **entry}}}
    return {**package(**root), "package-lock.json": json.dumps(lock)}


def python(text, **files):
    return {"scripts/x.py": text, **{f"scripts/{name}.py": body for name, body in files.items()}}


NOT_AN_INDEX = "may only name published packages"
UNKNOWN = "No package is known"
ATTACKS = [
    *((dependency(line), NOT_AN_INDEX) for line in (
        "six @ https://example.org/six.whl", "six@file:///etc/passwd", "git+https://example.org/x",
        "https://example.org/six.whl", "./local", "../up", "/absolute.whl", "-e .", "-r other.txt",
        "-i https://example.org", "six --hash=sha256:" + "0" * 64, "six --pre",
        "six\n-i https://example.org", "six\r-e .", "six\u2028-e .", "six \\\n -e .",
        "six; python_version > '3' --no-binary :all:", "six==${VERSION}", "", "-six",
        "six # x\n-e .", "six;" + " " * 100_000 + "%",
        "\u0455ix", "\uff53ix", "six\u200b", "six[../x]", "six[x] @ file:///x", "six @ {root:uri}",
        "$HOME/x", "~/x", "six --config-settings=x=y", "six --no-deps", "-f /tmp six",
        "six\t-e .", "six\x0b-e .", "six\x85-e .", "six\0", "six,evil", "six evil", "six[a]b",
        "six==1.0+x@y", "six; python_version == '3' -e .", "six ;-r x -e .", "@six", "[six]", "..",
    )),
    *(({"scripts/x.py": "import six", "requirements.txt": text}, NOT_AN_INDEX) for text in (
        "--constraint c.txt", "--no-index\nsix", "# x\\\n-e .", "six\\\n@ https://a.b/x.whl",
        "\x0c-e .", "C:\\x", "six @ git+ssh://a/b", "six -f /x", "six ;-e .",
    )),
    *(({"scripts/x.py": block(*lines)}, words) for lines, words in (
        (("dependencies = 'six'",), "must be a list"),
        (("dependencies = [['six']]",), NOT_AN_INDEX),
        (("dependencies = ['six'",), "cannot be used"),
        (("dependencies = ['six']", "[tool.uv]", "index-url = 'https://a.b'"), NOT_AN_INDEX),
        (("dependencies = ['six']", "[[tool.uv.index]]", "url = 'https://a.b'"), NOT_AN_INDEX),
        (("[tool.uv.sources]", "six = { path = '.' }"), NOT_AN_INDEX),
        (("requires-python = '>=4'",), "needs Python >=4"),
        (("requires-python = '<3.11'",), "needs Python"),
        (("requires-python = '>=3.11; rm'",), "needs Python"),
        (("requires-python = 3",), "needs Python 3"),
        (("#" * 300_000,), "too long"),
        (("x = " + "[" * 20_000,), "cannot be used"),
        (("x" + ".a" * 60_000 + " = 1",), "too many parts"),
        (("'x'" + ".'a b'" * 30_000 + " = 1",), "too many parts"),
        (("tool = { uv = {} }",), NOT_AN_INDEX), (("'tool'.\"uv\".sources = {}",), NOT_AN_INDEX),
        (("dependencies = ['six']", "dependencies = []"), "cannot be used"),
        (('dependencies = ["""six\\n# evil"""]',), NOT_AN_INDEX),
    )),
    (python(block("dependencies = []") * 2), "there are several"),
    (python("# /// script\n# dependencies = []\nimport six\n"), "at its end is missing"),
    *((python(f"import {name}"), UNKNOWN) for name in (
        "request", "reqeusts", "pyyaml", "numpi", "sklearn_", "google", "beautifulsoup4", "z.yaml",
    )),
    (python("try:\n    import unheard\nexcept ImportError:\n    raise SystemExit(1)"), UNKNOWN),
    (python("import helper", helper="import unheard"), r"scripts/helper.py: `unheard`"),
    (python("from . import helper", helper="import unheard"), r"scripts/helper.py: `unheard`"),
    (python("print 'two'"), "is not Python"),
    (python("x = " + "(" * 9_000), "is not Python"),
    (python("#" * (1 << 20) + "\n"), "too large"),
    (python("import json\n" * 6_000), "too large"),
    ({"scripts/x.js": "require('fs');" * 6_000}, "too large"),
    *(({"scripts/x.py": "import six", "scripts/requirements.txt": f"six\n{line}\n"}, NOT_AN_INDEX)
      for line in ("-e .", "-i https://a.b", "six @ https://a.b/c.whl", "-r ../x")),
    ({"scripts/x.sh": "", "requirements.txt": "git+https://example.org/x"}, NOT_AN_INDEX),
    *((package(**table), NOT_AN_INDEX) for table in (
        {"dependencies": {"zod": "file:../x"}}, {"dependencies": {"zod": "git+ssh://a/b"}},
        {"dependencies": {"zod": "npm:evil@1"}}, {"dependencies": {"zod": "someone/repository"}},
        {"dependencies": {"../zod": "1"}}, {"dependencies": {"--prefix=/": "1"}},
        {"dependencies": {"zod": "1"}, "overrides": {"a": {"b": "https://a.b/c.tgz"}}},
        {"dependencies": {"zod": "1"}, "workspaces": ["x"]}, {"optionalDependencies": ["zod"]},
        {"dependencies": {"zod": "1"}, "overrides": {"zod": {".": "file:x"}}},
        *({"dependencies": {"zod": at}} for at in (
            "https://a.b/c.tgz", "github:a/b", "link:../x", "portal:x", "patch:zod@1#x", "exec:./x",
            "workspace:*", "./x", "~/x", "jsr:@a/b", "catalog:", "1 || file:x", None, 1, ["1"],
        )),
        *({"dependencies": {name: "1"}} for name in (
            "..", "", ".bin", "/x", "a/b", "@a", "@a/../b", "zod@file:x", "\u200bzod", "a b",
        )),
    )),
    *((locked("node_modules/zod", **facts), NOT_AN_INDEX) for facts in (
        {"name": "evil"}, {"version": "file:x"}, {"link": True}, {"version": 1},
        {"dependencies": {"a": "file:x"}}, {"dependencies": {"a": "npm:evil@file:x"}},
        {"peerDependencies": {"a": "file:x"}},
    )),
    (locked("node_modules/../../x"), NOT_AN_INDEX),
    (locked("packages/x"), NOT_AN_INDEX),
    (locked("node_modules/zod", resolved="file:../zod"), NOT_AN_INDEX),
    (locked("node_modules/zod", link=True), NOT_AN_INDEX),
    (locked("../zod"), NOT_AN_INDEX),
    ({"scripts/x.js": "require('left-pad-evil')"}, UNKNOWN),
    ({"scripts/x.mjs": "import './y.mjs'", "scripts/y.mjs": "import q from 'bun:q'"}, "scripts/y"),
    ({"scripts/x.rb": "puts 1"}, "no script that can be run"),
    ({"scripts/x.rb": "#!/usr/bin/env sed\n"}, "may not be executed"),
    ({"scripts/x.md": "#"}, "no script that can be run"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "words"), ATTACKS)
def test_an_environment_that_is_not_from_an_index_is_refused(skill, files, words):
    with pytest.raises(BuildFailed, match=words) as caught:
        plan_script(skill(files), next(iter(files)))
    assert caught.value.hint


GUARD = "try:\n    import {}\nexcept ImportError:\n    {}\n"
PLANS = [
    ({"x.py": "import json, os.path, __future__"}, "python", "none", ()),
    ({"a/x": "#!/usr/bin/env python3\nimport yaml"}, "python", "inferred", ("PyYAML",)),
    ({"x.ts": "#!/usr/bin/env -S npx tsx\n"}, "node", "none", ()),
    ({"x.py": "import pandas as pd\npd.read_excel('a.xlsx')"}, "python", "inferred",
     ("openpyxl", "pandas")),
    ({"x.py": "import pymupdf4llm, slugify"}, "python", "inferred", ("PyMuPDF", "python-slugify")),
    ({"x.sh": "#!/usr/bin/env -S uv run --script\nimport six"}, "python", "inferred", ("six",)),
    ({"x.py": "from PIL import Image\nimport cv2, numpy.linalg"}, "python", "inferred",
     ("numpy", "opencv-python-headless", "Pillow")),
    ({"x.py": "from google.cloud import storage"}, "python", "inferred", ("google-cloud-storage",)),
    ({"x.py": "if TYPE_CHECKING:\n    import unheard"}, "python", "none", ()),
    ({"x.py": "import yaml", "yaml.py": "import six"}, "python", "inferred", ("six",)),
    ({"a/x.py": "import yaml", "b/yaml.py": ""}, "python", "inferred", ("PyYAML",)),
    ({"a/x.py": "import engine", "b/engine.py": "import six"}, "python", "inferred", ("six",)),
    ({"a/x.py": "from a.b import c", "a/b/c.py": "import six"}, "python", "inferred", ("six",)),
    ({"x.py": GUARD.format("unheard", "x = 1")}, "python", "none", ()),
    ({"x.py": GUARD.format("tomllib", "import tomli")}, "python", "none", ()),
    ({"x.py": GUARD.format("six", "six = None")}, "python", "inferred", ("six",)),
    ({"x.py": "import six", "requirements.txt": "# x\nattrs>=1\n"}, "python", "requirements",
     ("attrs>=1",)),
    ({"a/b/x.py": "import six", "a/requirements.txt": "", "requirements.txt": "six"}, "python",
     "requirements", ()),
    ({"x.py": "import json, y", "y.py": "", "requirements.txt": "six"}, "python", "none", ()),
    ({"x.py": "import y", "y.py": "import subprocess", "requirements.txt": "six"}, "python",
     "requirements", ("six",)),
    ({"x.py": "import os\nos.system('black .')", "requirements.txt": "black"}, "python",
     "requirements", ("black",)),
    ({"x.py": "\ufeff" + block("requires-python = '>=3.9,!=3.10.*'", "dependencies = ['six>=1']"),
      "requirements.txt": "attrs"}, "python", "pep723", ("six>=1",)),
    ({"x.py": block("[tool.ruff]", "line-length = 100")}, "python", "pep723", ()),
    ({"x.sh": "python3 -c 1", "requirements.txt": "six"}, "bash", "requirements", ("six",)),
    ({"x": "#!/bin/sh\n"}, "sh", "none", ()),
    ({"a/x.sh": 'python3 "$HERE/y.py" "$@"\nnode z.js', "a/y.py": "import yaml, b", "a/b.py":
      "import six"}, "bash", "inferred", ("PyYAML", "six")),
    ({"x.sh": "python -u -m lib.y", "lib/y.py": block("dependencies = ['attrs']")}, "bash",
     "inferred", ("attrs",)),
    ({"x.sh": "python3 - <<'EOF'\nimport json\n  from bs4 import x\nEOF\n"}, "bash", "inferred",
     ("beautifulsoup4",)),
    ({"x.sh": "python y.py; python -m json.tool\n# import the\n", "y.py": "import unheard"},
     "bash", "none", ()),
    ({"x.ts": "import type { T } from 'unheard';\nimport { z } from 'zod';"}, "node", "inferred",
     ("zod",)),
    ({"x.js": "// require('no')\nconst t = `import 'no'`;\nrequire('fs/promises'); "
      "try { require('unheard') } catch {}\nrequire('./lib/y');", "lib/y.js": "require('ws')"},
     "node", "inferred", ("ws",)),
    ({"a/x.mjs": "import 'zod'", "package.json": '{"dependencies": {"ws": "^8"}, "scripts": '
      '{"postinstall": "touch /tmp/ran"}}'}, "node", "package.json", ("ws@^8",)),
    ({"x.js": "import 'zod'", "package.json": '{"type": "module"}'}, "node", "inferred", ("zod",)),
    ({"x.js": "require('unheard')", "node_modules/unheard/index.js": ""}, "node", "none", ()),
]  # fmt: skip


@pytest.mark.parametrize(("files", "interpreter", "source", "packages"), PLANS)
def test_a_script_has_an_interpreter_and_packages(skill, files, interpreter, source, packages):
    plan = plan_script(skill(files), next(iter(files)))
    assert (plan.interpreter, plan.source, plan.packages) == (interpreter, source, packages)


@pytest.mark.parametrize(
    "path", ["../secret.py", "/etc/passwd", "scripts/../../secret.py", "no.py"]
)
def test_a_path_that_leads_elsewhere_is_refused(skill, tmp_path, path):
    (tmp_path / "secret.py").write_text("")
    folder = skill({"scripts/x.py": "import near", "scripts/near.py": ""})
    assert plan_script(folder, "./scripts/x.py").path == "scripts/x.py"
    with pytest.raises(BuildFailed, match=r"cannot be read|There is no"):
        plan_script(folder, path)


def test_a_file_for_another_interpreter_is_started_by_the_system(skill):
    folder = skill({"x.awk": "#!/usr/bin/awk -f\nBEGIN { print 1 }\n"})
    os.chmod(os.path.join(folder, "x.awk"), 0o755)
    plan = plan_script(folder, "x.awk")
    assert (plan.interpreter, plan.packages) == ("executable", ())
    program = Runtimes(builds()).prepare(folder, plan)
    assert program.argv == (os.path.join(folder, "x.awk"),)


def test_a_plan_says_that_a_pyproject_is_not_read(skill):
    project = {"pyproject.toml": "[project]\ndependencies = ['six>=1']"}
    plan = plan_script(skill({"lib/x.py": "import six", **project}), "lib/x.py")
    assert (plan.packages, plan.ignored) == (("six",), "pyproject.toml")
    assert plan_script(skill({"y.py": "import json", **project}), "y.py").ignored == ""
    with pytest.raises(BuildFailed) as caught:
        plan_script(skill({"z.py": "import unheard", **project}), "z.py")
    assert "`pyproject.toml` is not read" in caught.value.hint


def test_a_plan_names_the_optional_imports_that_are_not_installed(skill):
    plan = plan_script(skill({"x.py": GUARD.format("unheard.of", "x = 1")}), "x.py")
    assert plan.missing == ("unheard",)


def test_the_options_of_a_shell_are_kept(skill):
    plan = plan_script(skill({"x.sh": "#!/bin/bash -eu\n"}), "x.sh")
    assert (plan.interpreter, plan.flags) == ("bash", ("-eu",))


@pytest.mark.parametrize("name", ["requirements.txt", "package.json", "x.py"])
def test_a_file_behind_a_link_to_elsewhere_is_refused(skill, tmp_path, name):
    folder = skill({"x.py": "import six", "x.js": ""})
    (tmp_path / "secret").write_text('{"dependencies": {}}')
    if name == "x.py":
        os.unlink(os.path.join(folder, name))
    os.symlink(tmp_path / "secret", os.path.join(folder, name))
    with pytest.raises(BuildFailed, match="cannot be read"):
        plan_script(folder, "x.js" if name == "package.json" else "x.py")


def test_scripts_are_listed_by_name_and_mode():
    scripts = ("scripts/a.py", "scripts/lib/b.ts", "scripts/tool", "bin/run.rb", "fill.py")
    others = (
        "SKILL.md", "scripts/README.md", "scripts/LICENSE", "scripts/__init__.py", "scripts/t.d.ts",
        "references/x.py", "scripts/tests/test_a.py", "scripts/data.json", "scripts/.hidden.py",
    )  # fmt: skip
    rows = [(path, 0o100755 if path == "bin/run.rb" else 0o100644) for path in scripts + others]
    assert list_scripts([*rows, ("scripts/link.py", 0o120777)]) == scripts


def test_a_file_that_a_text_says_to_run_is_listed():
    commands = (
        "Run `python3 -u src/a.py in.pdf`.", '    bash "${SKILL_DIR}/lib/b.sh" x',
        "uv run --script <skill>/assets/c.py", "```bash\n{baseDir}/core/d.sh x",
        "- Execute the `misc/e.ts` script",
        "运行`lib/f.py`", "node ~/.claude/skills/x/src/g.mjs", "perl old/h.pl",
    )  # fmt: skip
    scripts = (*(f"{folder}.py" for folder in ("src/a", "assets/c", "lib/f")), "lib/b.sh",
               "core/d.sh", "misc/e.ts", "src/g.mjs", "old/h.pl")  # fmt: skip
    others = (
        "Copy `templates/i.py`, see [j](lib/j.py) and `examples/k.sh`.", "Run `references/l.md`.",
        "The template is ./assets/m.sh", "bash tests/test_n.py", "run " + "-a " * 20_000,
        "python " + "a/" * 60_000,
    )  # fmt: skip
    kept = ("templates/i.py", "lib/j.py", "examples/k.sh", "references/l.md", "assets/m.sh",
            "tests/test_n.py")  # fmt: skip
    rows = [(path, 0o100644) for path in (*scripts, *kept)]
    assert list_scripts(rows, "\n".join((*commands, *others))) == scripts


# --- building -----------------------------------------------------------------------------

CALLS = (
    "import subprocess\nprint(subprocess.check_output(['python', '-c', 'import six; print(1)']))"
)
RUNS = [
    ({"scripts/x.py": "import sys, six, near\nfrom scripts.far import F\n"
      "print(near.N + F, sys.argv[1])",
      "scripts/near.py": "N = 1", "scripts/far.py": "F = 2", "scripts/x.pth": "import ran"},
     "3 a b"),
    ({"scripts/x.py": "import six\n" + CALLS}, "b'1\\n'"),
    ({"scripts/x.sh": "python -c 'import six; print(2)' && python3 -c 'print(\"'\"$1\"'\")'",
      "requirements.txt": "six==1.16.0"}, "2\na b"),
    ({"scripts/x.sh": 'python "${0%/*}/y.py" "$1"',
      "scripts/y.py": "import six, sys\nprint(4, sys.argv[1])"}, "4 a b"),
    ({"scripts/x.mjs": "import { z } from './y.mjs'; console.log(z, process.argv[2])",
      "scripts/y.mjs": "export const z = 3"}, "3 a b"),
    ({"scripts/x.ts": "const word: string = process.argv[2]; console.log(word)"}, "a b"),
]  # fmt: skip


@pytest.mark.timeout(300)  # the first one builds
@pytest.mark.parametrize(("files", "output"), RUNS)
def test_a_script_runs_in_its_environment(skill, files, output, tier):
    for name in ("node24", "npm", "uv"):
        needs(name)
    folder = skill(files)
    runtimes = Runtimes(builds())
    plan = plan_script(folder, next(iter(files)))
    program = runtimes.prepare(folder, plan)
    assert runtimes.is_built(folder, plan)
    script = ScriptInput(("a b",))
    result = Pool(tier=tier).run(RunRequest("user:thing", plan.path, {}, program, script=script))
    assert (result.fault, result.output.strip()) == (None, output), result.stderr


def test_an_environment_that_changed_after_the_approval_is_not_built(skill, tmp_path):
    folder = skill({"x.py": block("dependencies = ['six']")})
    runtimes = Runtimes(str(tmp_path / "cache"))
    plan = plan_script(folder, "x.py")
    skill({"x.py": block("dependencies = ['attrs']")})
    with pytest.raises(Changed, match="have changed"):
        runtimes.prepare(folder, plan)

    def confirm():
        raise Changed("no longer what was verified")

    skill({"x.py": "print(1)"})
    with pytest.raises(Changed, match="no longer"):
        runtimes.prepare(folder, plan_script(folder, "x.py"), confirm=confirm)
    assert not runtimes.is_built(folder, plan)
    assert not os.path.exists(tmp_path / "cache" / "runtimes" / "python") or not os.listdir(
        tmp_path / "cache" / "runtimes" / "python"
    )


@pytest.mark.timeout(120)
def test_a_package_without_a_wheel_is_refused_and_runs_nothing(skill, tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    (tmp_path / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with tarfile.open(links / "payload-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "setup.py", "payload-1.0/setup.py")
    env = {**os.environ, "PIP_FIND_LINKS": str(links), "UV_FIND_LINKS": str(links)}
    env |= {"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}
    runtimes = in_tier("landlock", tmp_path, env)
    folder = skill({"x.py": block("dependencies = ['payload']")})
    plan = plan_script(folder, "x.py")
    with pytest.raises(BuildFailed, match="payload"):
        runtimes.prepare(folder, plan)
    assert not runtimes.is_built(folder, plan)
    assert not (tmp_path / "ran").exists()


def test_scripts_are_read_by_several_threads_at_once(tmp_path):
    text = "\n".join(
        f"def f{n}(a, b):\n    return [x for x in a if b and x.y['k'](a)]" for n in range(300)
    )
    (tmp_path / "a.py").write_text(f"import json\n{text}\n")
    errors: list[BaseException] = []

    def plan() -> None:
        try:
            for _ in range(3):
                plan_script(str(tmp_path), "a.py")
        except SystemError as exc:
            errors.append(exc)

    def switch(*_: object) -> None:
        time.sleep(0)

    # A collection while a module is parsed lets another thread begin.
    threshold, threads = gc.get_threshold(), [threading.Thread(target=plan) for _ in range(4)]
    gc.callbacks.append(switch)
    gc.set_threshold(50)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.remove(switch)
        gc.set_threshold(*threshold)
    assert errors == []
