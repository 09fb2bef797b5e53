"""skill.yaml: parsed values, and every problem with its line."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.skill.manifest import FileAccess
from satchel.skill.manifest_parser import load_manifest, read_manifest
from seed import MANIFEST as SEED

LEAST = "name: demo_run\ndescription: Runs.\nruntime: python\nentry: main.py\n"


def read(text: str, folder: str = "demo"):
    return read_manifest(text.encode(), folder)


def codes(text: str, folder: str = "demo") -> list[tuple[str, int]]:
    return [(problem.code, problem.line) for problem in read(text, folder).problems]


@pytest.mark.req("E2")
def test_the_documented_format_reads_as_it_stands():
    reading = read(SEED, "excel")
    assert reading.problems == ()
    manifest = reading.manifest
    assert (manifest.runtime, manifest.entry, manifest.several) == ("python", "main.py", False)
    assert (manifest.secrets, manifest.network, manifest.files) == ((), False, FileAccess())
    (tool,) = manifest.tools
    assert tool.name == "excel_read"
    assert tool.description.startswith("读取 Excel")
    rows = [(one.name, one.type, one.required, one.default) for one in tool.parameters]
    assert rows == [
        ("path", "string", True, None),
        ("sheet", "string", False, ""),
        ("range", "string", False, ""),
    ]
    assert [one.line for one in tool.parameters] == [8, 13, 19]
    assert len(tool.docs.when_to_use) == len(tool.docs.when_not_to_use) == 2
    (example,) = tool.docs.examples
    assert example.scenario == "读取销售报表前 10 行"
    assert example.arguments == {"path": "data/sales.xlsx", "range": "A1:E10"}
    assert tool.schema()["required"] == ["path"]
    assert tool.schema()["properties"]["sheet"]["default"] == ""


@pytest.mark.req("E2")
def test_the_four_types_have_defaults_of_their_own():
    text = LEAST + (
        "parameters:\n"
        "  - {name: a, type: string, default: 10}\n"
        "  - {name: b, type: integer, default: 3}\n"
        "  - {name: c, type: number, default: 1.5}\n"
        "  - {name: d, type: boolean, default: false}\n"
        "  - {name: e, type: integer}\n"
    )
    reading = read(text)
    assert not reading.problems
    defaults = [one.default for one in reading.manifest.tools[0].parameters]
    assert defaults == ["10", 3, 1.5, False, None]


def test_the_optional_keys():
    text = LEAST + (
        "parameters:\n  - {name: src, type: string}\n  - {name: dst, type: string}\n"
        "secrets: [API_KEY, DB_PASSWORD]\nnetwork: true\n"
        "files: {read: [src], write: [dst]}\ntimeout: 12.5\n"
        "returns:\n  type: object\n  properties: {rows: {type: integer}}\n"
    )
    manifest = read(text).manifest
    assert manifest.secrets == ("API_KEY", "DB_PASSWORD")
    assert manifest.network is True
    assert manifest.files == FileAccess("write", ("src",), ("dst",))
    assert manifest.timeout == 12.5
    assert manifest.tools[0].returns == {
        "type": "object",
        "properties": {"rows": {"type": "integer"}},
    }
    assert read(LEAST + "files: read\n").manifest.files == FileAccess("read")
    assert read(LEAST + "files: write\n").manifest.files == FileAccess("write")


def test_several_tools_in_one_folder():
    text = (
        "description: Works with demos.\nruntime: node\nentry: main.ts\ntools:\n"
        "  - name: demo_read\n    description: Reads.\n"
        "  - name: demo_write\n    description: Writes.\n"
        "    parameters:\n      - {name: path, type: string, required: true}\n"
    )
    reading = read(text)
    assert not reading.problems
    assert reading.manifest.several
    assert reading.description == "Works with demos."
    assert [tool.name for tool in reading.manifest.tools] == ["demo_read", "demo_write"]
    assert [tool.line for tool in reading.manifest.tools] == [5, 7]


def test_hyphens_of_a_folder_are_underscores_and_the_prefix_alone_will_do():
    assert read(LEAST.replace("demo_run", "web_fetch_get"), "web-fetch").manifest
    assert read(LEAST.replace("demo_run", "web_fetch"), "web-fetch").manifest
    assert codes(LEAST.replace("demo_run", "webfetch"), "web-fetch") == [("tool-name-prefix", 1)]
    assert codes(LEAST.replace("demo_run", "demonstrate")) == [("tool-name-prefix", 1)]


@pytest.mark.req("E2")
def test_all_faults_are_reported_at_once_with_their_lines():
    text = (
        "name: Demo-Run\n"
        "runtime: ruby\n"
        "entry: ../main.py\n"
        "colour: blue\n"
        "parameters:\n"
        "  - name: a b\n"
        "    type: text\n"
        "  - name: count\n"
        "    type: integer\n"
        "    default: many\n"
        "  - name: count\n"
        "    type: integer\n"
        "    required: perhaps\n"
        "network: yes please\n"
        "secrets: [lower, LD_PRELOAD]\n"
        "files: {read: [nothing]}\n"
        "timeout: 99999\n"
    )
    reading = read(text)
    assert reading.manifest is None
    assert codes(text) == [
        ("tool-key-missing", 1),
        ("tool-name", 1),
        ("tool-runtime", 2),
        ("tool-entry-path", 3),
        ("tool-key-unknown", 4),
        ("parameter-name", 6),
        ("parameter-type", 7),
        ("parameter-default", 10),
        ("parameter-twice", 11),
        ("tool-key-type", 13),
        ("tool-key-type", 14),
        ("secret-name", 15),
        ("secret-name", 15),
        ("files-parameter", 16),
        ("tool-number", 17),
    ]
    for problem in reading.problems:
        assert problem.message
        assert problem.fix


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "tool-not-a-mapping"),
        ("just text\n", "tool-not-a-mapping"),
        ("name: [\n", "tool-not-yaml"),
        ("a: &x 1\nb: *x\n", "tool-yaml-refused"),
        ("a: !!python/object:os.system x\n", "tool-yaml-refused"),
        ("<<: {name: x}\n", "tool-yaml-refused"),
        ("? [a]\n: b\n", "tool-yaml-refused"),
        ("a: " + "[" * 60 + "\n", "tool-yaml-refused"),
        ("a: [" + "1, " * 5000 + "]\n", "tool-yaml-refused"),
        ("a: " + "x" * 70_000, "tool-too-large"),
        (LEAST.replace("runtime: python\n", ""), "tool-key-missing"),
        (LEAST.replace("demo_run", ""), "tool-key-missing"),
        (LEAST.replace("Runs.", "~"), "tool-key-missing"),
        (LEAST + "name: demo_more\n", "tool-key-twice"),
        (LEAST.replace("main.py", "/bin/sh"), "tool-entry-path"),
        (LEAST.replace("main.py", "C:\\x.exe"), "tool-entry-path"),
        (LEAST.replace("main.py", "a/../../b"), "tool-entry-path"),
        (LEAST + "tools: []\n", "tool-none"),
        (LEAST + "tools: [{name: demo_a, description: A}]\n", "tool-key-place"),
        (LEAST + "tools: text\n", "tool-key-type"),
        (LEAST + "parameters: {a: 1}\n", "tool-key-type"),
        (LEAST + "parameters: [{type: string}]\n", "tool-key-missing"),
        (LEAST + "secrets: KEY\n", "tool-key-type"),
        (LEAST + "secrets: [PATH]\n", "secret-name"),
        (LEAST + "secrets: [PYTHONSTARTUP]\n", "secret-name"),
        (LEAST + "secrets: [A_KEY, A_KEY]\n", "tool-key-twice"),
        (LEAST + "network: [example.org]\n", "tool-key-type"),
        (LEAST + "files: everything\n", "tool-key-type"),
        (LEAST + "timeout: .inf\n", "tool-key-type"),
        (LEAST + f"timeout: 0x{'f' * 9000}\n", "tool-key-type"),
        (LEAST + "returns: [a]\n", "tool-key-type"),
        (
            "runtime: go\nentry: m\ntools: [{name: demo_a, description: A}, {name: demo_a}]\n",
            "tool-name-twice",
        ),
        (
            LEAST
            + "parameters:\n"
            + "".join(f"- {{name: p{n}, type: string}}\n" for n in range(65)),
            "tool-too-many",
        ),
        (
            "runtime: go\nentry: m\ntools:\n"
            + "".join(f"- {{name: demo_{n}, description: d}}\n" for n in range(33)),
            "tool-too-many",
        ),
    ],
)  # fmt: skip
def test_faults_that_make_a_manifest_unusable(text, code):
    began = time.process_time()
    reading = read(text)
    assert time.process_time() - began < 2
    assert reading.manifest is None
    assert code in {problem.code for problem in reading.problems if problem.severity == "error"}


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        (LEAST + "author: me\n", "tool-key-unknown", "note"),
        (LEAST + "docs: text\n", "tool-docs", "warning"),
        (LEAST + "docs: {examples: [{arguments: 1}]}\n", "tool-docs", "warning"),
        (LEAST + "docs: {when_to_use: [{a: b}]}\n", "tool-docs", "warning"),
        (LEAST + "docs: {tips: [a]}\n", "tool-key-unknown", "note"),
        (LEAST.replace("Runs.", "R" * 1025), "tool-text-long", "warning"),
        (LEAST.replace("Runs.", '"Runs\\u200b."'), "invisible-characters", "warning"),
        (
            LEAST + "parameters: [{name: a, type: string, required: true, default: x}]\n",
            "parameter-default-unused",
            "warning",
        ),
    ],
)
def test_faults_that_are_only_warnings(text, code, severity):
    reading = read(text)
    assert reading.manifest is not None
    assert [problem.code for problem in reading.problems] == [code]
    assert reading.problems[0].severity == severity


MISSPELT = "parametres: [{name: path, type: string}]\nfiles: {read: [path]}"


@pytest.mark.parametrize(
    ("old", "new", "better"),
    [
        ("description:", "Description:", "description"),
        ("entry: main.py", f"entry: main.py\n{MISSPELT}", "parameters"),
    ],
)
def test_a_misspelt_key_is_reported_once_and_read(old, new, better):
    reading = read(LEAST.replace(old, new))
    assert reading.manifest is None
    (problem,) = reading.problems
    assert (problem.code, problem.severity) == ("tool-key-misspelt", "error")
    assert problem.values["better"] == better
    assert problem.fix == f"Rename it to `{better}`"


def test_consequences_of_a_fault_are_not_reported():
    more = "parameters: [{name: path, type: strng}]\nfiles: {read: [path]}\n"
    assert [one.code for one in read(LEAST + more).problems] == ["parameter-type"]
    assert [one.code for one in read(LEAST.replace("demo_run", "") + more).problems] == [
        "tool-key-missing",
        "parameter-type",
    ]


def test_the_entry_must_be_a_file_inside_the_folder(tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "skill.yaml").write_text(LEAST)
    assert [one.code for one in load_manifest(str(folder)).problems] == ["tool-entry-missing"]
    (folder / "main.py").mkdir()
    assert [one.code for one in load_manifest(str(folder)).problems] == ["tool-entry-path"]
    (folder / "main.py").rmdir()
    (tmp_path / "other.py").write_text("")
    (folder / "main.py").symlink_to(tmp_path / "other.py")
    (problem,) = load_manifest(str(folder)).problems
    assert (problem.code, problem.line) == ("tool-entry-path", 4)
    assert problem.path == str(folder / "skill.yaml")
    (folder / "main.py").unlink()
    (folder / "main.py").write_text("")
    assert load_manifest(str(folder)).manifest is not None


PIECES = (
    "[", "{", ": ", "- ", "\n", "  ", "&a ", "*a", "!!int ", "<<: ", "? ", "|", "'", '"', "~",
    "0x" + "f" * 300, "1e999", ".nan", "2020-13-45", "---\n", "\ufeff", "\x00", "\u2028",
    "tools:\n", "parameters:\n  - ", "default: ", "secrets: [A_KEY]\n", "files: {read: [path]}\n",
)  # fmt: skip
EDITS = st.tuples(st.integers(0, 1200), st.integers(0, 30), st.sampled_from(PIECES))


@given(st.lists(EDITS, max_size=8))
def test_any_manifest_is_read_or_refused(edits):
    text = SEED
    for at, gone, piece in edits:
        text = text[:at] + piece + text[at + gone :]
    reading = read_manifest(text.encode(), "excel")
    for problem in reading.problems:
        assert problem.message
        assert all(problem.for_model())
    if reading.manifest is None:
        assert any(problem.severity == "error" for problem in reading.problems)
    else:
        json.dumps([tool.schema() for tool in reading.manifest.tools])
