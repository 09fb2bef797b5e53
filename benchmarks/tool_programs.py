"""The small program that tool benchmarks call, in every runtime.

`once` reads a line and ends, as the templates do. `loop` answers line after line.
"""

from __future__ import annotations

import os
from typing import NamedTuple

PYTHON = """import sys, json

def run(arguments: dict) -> dict:
    return {"output": "结果 " + arguments["token"], "error": ""}

if __name__ == "__main__":
    req = json.loads(sys.stdin.readline())
    result = run(req.get("arguments", {}))
    print(json.dumps(result, ensure_ascii=False))
"""
PYTHON_LOOP = """import sys, json

for line in sys.stdin:
    arguments = json.loads(line)["arguments"]
    print(json.dumps({"output": "结果 " + arguments["token"], "error": ""}), flush=True)
"""
NODE = """const readline = require("readline");

async function run(given) {
  return { output: "结果 " + given.token, error: "" };
}

const rl = readline.createInterface({ input: process.stdin });
rl.once("line", async (line) => {
  const req = JSON.parse(line);
  const result = await run(req.arguments ?? {});
  console.log(JSON.stringify(result));
  process.exit(0);
});
"""
TYPESCRIPT = """import * as readline from "readline";

async function run(given: Record<string, unknown>) {
  return { output: "结果 " + given.token, error: "" };
}

const rl = readline.createInterface({ input: process.stdin });
rl.once("line", async (line: string) => {
  const req = JSON.parse(line);
  const result = await run(req.arguments ?? {});
  console.log(JSON.stringify(result));
  process.exit(0);
});
"""
NODE_LOOP = """const readline = require("readline");

const rl = readline.createInterface({ input: process.stdin });
rl.on("line", (line) => {
  const token = JSON.parse(line).arguments.token;
  process.stdout.write(JSON.stringify({ output: "结果 " + token, error: "" }) + "\\n");
});
"""
GO = """package main

import (
	"bufio"
	"encoding/json"
	"os"
)

type Request struct {
	Arguments map[string]any `json:"arguments"`
}
type Response struct {
	Output string `json:"output"`
	Error  string `json:"error"`
}

func main() {
	scanner := bufio.NewScanner(os.Stdin)
	%s scanner.Scan() {
		var req Request
		json.Unmarshal(scanner.Bytes(), &req)
		token, _ := req.Arguments["token"].(string)
		json.NewEncoder(os.Stdout).Encode(Response{Output: "结果 " + token})
	}
}
"""
C = r"""#include <stdio.h>
#include <string.h>

int main(void) {
    static char line[65536];
    %s (fgets(line, sizeof line, stdin)) {
        char *token = strstr(line, "\"token\":\"");
        char *end = token ? strchr(token += 9, '"') : 0;
        if (end) *end = 0;
        printf("{\"output\": \"结果 %%s\", \"error\": \"\"}\n", end ? token : "");
        fflush(stdout);
    }
    return 0;
}
"""
MOD = "module skill\n\ngo 1.19\n"


class Source(NamedTuple):
    """A skill to be written."""

    runtime: str
    entry: str
    files: dict[str, str]
    workers: int = 0


SOURCES = {
    "python": Source("python", "main.py", {"main.py": PYTHON}),
    "node": Source("node", "main.js", {"main.js": NODE}),
    "typescript": Source("node", "main.ts", {"main.ts": TYPESCRIPT}),
    "go": Source("go", "main.go", {"main.go": GO % "if", "go.mod": MOD}),
    "binary": Source("binary", "skill", {"skill.c": C % "if"}),
    "python-loop": Source("python", "main.py", {"main.py": PYTHON_LOOP}, 2),
    "node-loop": Source("node", "main.js", {"main.js": NODE_LOOP}, 2),
    "go-loop": Source("go", "main.go", {"main.go": GO % "for", "go.mod": MOD}, 2),
    "binary-loop": Source("binary", "skill", {"skill.c": C % "while"}, 2),
}


def write(place: str, name: str, source: Source) -> str:
    """Write a skill's folder, with its `skill.yaml`; a C program is compiled."""
    import subprocess

    folder = os.path.join(place, name)
    os.makedirs(folder)
    tool = name.replace("-", "_") + "_call"
    files = {
        **source.files,
        "skill.yaml": (
            f"name: {tool}\ndescription: Give back what it was given, for measuring.\n"
            f"runtime: {source.runtime}\nentry: {source.entry}\nworkers: {source.workers}\n"
            "parameters:\n  - name: token\n    type: string\n    required: true\n"
            "    description: Anything at all, up to 100 characters. Example - x\n"
        ),
    }
    for path, text in files.items():
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write(text)
    if "skill.c" in files:
        compiled = ["cc", "-O2", "-o", os.path.join(folder, "skill")]
        subprocess.run([*compiled, os.path.join(folder, "skill.c")], check=True)
    return folder
