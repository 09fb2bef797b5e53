"""Files that a call names, for programs that declare no `files:`; attacks in both sandbox tiers."""

from __future__ import annotations

import os

import pytest

from needs import needs
from satchel.tools.program_runner import ProgramRunner
from talking import session_over
from tool_bench import Workbench, answering

LOOK = answering("""
import os
seen = []
for path in [a["path"], *a["also"].split()]:
    for name in (path, os.path.join(a["root"], path)):
        try:
            if os.path.isdir(name):
                texts = [open(os.path.join(name, one)).read() for one in sorted(os.listdir(name))]
            else:
                texts = [open(name).read()]
            seen += [text for text in texts if text not in seen]
        except OSError:
            pass
try:
    open(os.path.join(a["root"], "made.txt"), "w").close()
    seen.append("written")
except OSError:
    pass
return {"output": "|".join(seen)}
""")
PARAMETERS = """\
parameters:
  - {name: path, type: string, required: true, description: "A path. Example: a.txt"}
  - {name: also, type: string, default: ""}
  - {name: root, type: string, default: ""}
"""
FILES = {
    "data/report.txt": "report",
    "data/second.txt": "second",
    "mixed/plain.txt": "plain",
    "mixed/deep/.env": "TOKEN=1",
    ".env": "TOKEN=2",
    ".git/config": "[core]",
    "名单.txt": "张三",
}


@pytest.fixture(params=["bwrap", "landlock"])
def bench(request, tmp_path):
    """A project with files, some of them secret, and one outside."""
    if request.param == "bwrap":
        needs("bwrap")
    made = Workbench(tmp_path)
    runner = ProgramRunner(made.settings, tier=request.param)
    made.tools = session_over(made.library, made.settings, runner=runner)
    for path, text in FILES.items():
        made.write(path, text)
    (tmp_path / "outside.txt").write_text("outside")
    root = made.project
    os.symlink(tmp_path / "outside.txt", os.path.join(root, "out.txt"))
    os.symlink(tmp_path, os.path.join(root, "up"))
    os.symlink(".env", os.path.join(root, "inner.txt"))
    os.symlink("../../outside.txt", os.path.join(root, "data", "link.txt"))
    os.mkfifo(os.path.join(root, "pipe"))
    yield made
    runner.close()


def seen(bench, path, more="", also=None):
    bench.skill(program=LOOK, more=PARAMETERS + more)
    also = " ".join([*FILES, "out.txt", "inner.txt"] if also is None else also)
    arguments = {"path": path, "also": also, "root": bench.project}
    reply = bench.tools.call("demo_run", arguments)
    assert reply.error is None, reply.text
    return reply.data["output"]


@pytest.mark.req("E6")
@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("data/report.txt", "report"),
        ("./data//report.txt", "report"),
        ("名单.txt", "张三"),
        ("data", "report|second"),
    ],
)
def test_a_program_reads_what_an_argument_names_and_nothing_else(bench, path, texts):
    os.unlink(os.path.join(bench.project, "data", "link.txt"))
    assert seen(bench, path) == texts


@pytest.mark.req("E6")
@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt", "out.txt", "up/outside.txt", "data/link.txt", "data/../.env",
        "inner.txt", ".env", "./.env", ".git/config", ".git", "mixed", ".", "./", "/", "",
        "nothing.txt", "pipe", "data/report.txt/", "a" * 5_000, "data/\ud83d",
    ],
)  # fmt: skip
def test_a_name_opens_nothing_that_is_outside_hidden_linked_or_everything(bench, path):
    assert seen(bench, path) == ("report" if path == "data/report.txt/" else "")


def test_an_absolute_path_opens_nothing(bench):
    assert seen(bench, os.path.join(bench.project, "data/report.txt")) == ""


def test_a_link_inside_a_named_folder_leads_nowhere(bench):
    assert "outside" not in seen(bench, "data", also=("data/link.txt",))


def test_files_none_hides_what_arguments_name(bench):
    assert seen(bench, "data/report.txt", "files: none\n") == ""


@pytest.mark.req("A5")
def test_a_named_file_that_is_too_large_is_refused(bench):
    with open(os.path.join(bench.project, "big.bin"), "wb") as file:
        file.truncate(20 * 1024 * 1024 + 1)
    bench.skill(program=LOOK, more=PARAMETERS)
    reply = bench.tools.call("demo_run", {"path": "big.bin"})
    assert reply.error.code == "INVALID_PARAM"
    assert "20 MB" in reply.text


def test_a_hidden_file_that_is_named_is_explained(bench):
    bench.skill(program=answering("open(a['path'])"), more=PARAMETERS)
    assert "add `files: read`" in bench.tools.call("demo_run", {"path": ".env"}).text
    assert "files: read" not in bench.tools.call("demo_run", {"path": "nothing.txt"}).text
