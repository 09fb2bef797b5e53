"""TypeScript that Node does not run as written: `arguments`, and a Node that strips no types."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from needs import needs
from prepared import call, manifest
from satchel.errors import MissingRuntime
from satchel.runners import node, node_program
from satchel.runners.build import BuildCache
from satchel.runners.runtimes import Runtimes
from satchel.runners.typescript import rename_arguments

HEAD = 'import * as readline from "readline";\n'
TAIL = """
readline.createInterface({ input: process.stdin }).once("line", async (line: string) => {
  const request = JSON.parse(line) as { arguments?: Record<string, unknown> };
  const output: unknown = await run(request.arguments ?? {});
  console.log(JSON.stringify({ output }));
  process.exit(0);
});
"""
BODIES = {
    "reads": (
        "async function run(arguments: Record<string, unknown>) { return arguments.n; }",
        7,
    ),
    "untyped": ("function run(arguments) { return { arguments }; }", {"arguments": {"n": 7}}),
    "arrow": ("const run = async (arguments: { n: number }) => `${arguments.n + 1}`;", "8"),
    "optional": ("function run(arguments?: any): number | null { return arguments!.n; }", 7),
    "generic": (
        (
            "interface Row { n: number }\ntype Pair<T> = [T, T] | null;\n"
            "function first<T extends Row>(rows: Array<T>, ...more: T[]): T { return rows[0]; }\n"
            "const run = (arguments: Row): Pair<number> =>\n"
            "  [first<Row>([arguments]).n, 1 < 2 ? 1 : 0]"
        ),
        [7, 1],
    ),
    "texts": (
        (
            "const re = /[/'`]\\(arguments: x\\)/g, half = 8 / 4 / 1;\n"
            "function run(arguments: Record<string, any>) {\n"
            "  const { n: inner, arguments: none } = arguments as { n: number, arguments?: any };\n"
            "  return `arguments: ${arguments.n} ${`${inner}`} ${none} ${re.test('')} ${half}`;\n}"
        ),
        "arguments: 7 7 undefined false 2",
    ),
    "own": ("function run(given: any) { return arguments.length; }", 1),
}


def typescript(skill, body):
    return skill({"main.ts": HEAD + body + TAIL, "lib/data.txt": "x"})


@pytest.mark.req("E3")
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("strips", [True, False])
def test_a_program_runs_with_and_without_a_node_that_strips_types(skill, tmp_path, name, strips):
    body, expected = BODIES[name]
    folder = typescript(skill, body)
    path = needs("node24")
    if strips:
        env = {"PATH": path.rpartition("/")[0], "HOME": str(tmp_path)}
        program = Runtimes(str(tmp_path / "cache"), env).prepare(
            folder, manifest("node", "main.ts")
        )
    else:
        program = old_program(folder, path, tmp_path)
    assert call(program, {"n": 7}) == {"output": expected}


def old_program(folder, path, tmp_path, entry="main.ts"):
    """The program for a Node that says that it is of version 20."""
    modules = Path(path).parents[1] / "lib" / "node_modules"
    old = node.Node(path, (20, 0), str(modules / "npm" / "bin" / "npm-cli.js"), (path,))
    builds = BuildCache(str(tmp_path / "cache"), dict(os.environ), choose=lambda: "none")
    copy = node_program.copy_typescript(builds, old, folder, entry, "")
    return node_program.make_program(old, folder, entry, "", copy)[0]


@pytest.mark.parametrize(
    "body",
    [
        "enum Kind { A }\nfunction run() { return Kind.A; }",
        "class Box { constructor(private n: number) {} }\nconst run = () => new Box(1);",
        'import { help } from "./lib/help.ts";\nconst run = () => help();',
        "const run = () => {",
    ],
)
def test_syntax_that_is_more_than_types_needs_a_newer_node(skill, tmp_path, body):
    with pytest.raises(MissingRuntime, match=r"needs Node 22\.18; here is 20\.0"):
        old_program(typescript(skill, body), needs("node24"), tmp_path)


def test_a_program_in_a_folder_finds_the_files_beside_it(skill, tmp_path):
    body = (
        'import * as fs from "node:fs";\n'
        'const here = new URL("../lib/data.txt", import.meta.url);\n'
        'function run(arguments: object): string { return fs.readFileSync(here, "utf8"); }'
    )
    folder = skill({"src/main.ts": HEAD + body + TAIL, "lib/data.txt": "beside"})
    program = old_program(folder, needs("node24"), tmp_path, "src/main.ts")
    assert call(program) == {"output": "beside"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    ["(" * 100_000, "`${" * 50_000, "(arguments:" * 20_000, "'\\" * 100_000, "=/[" * 60_000],
)  # fmt: skip
def test_hostile_text_is_read_in_linear_time(text):
    assert isinstance(rename_arguments(text + " arguments"), str)
