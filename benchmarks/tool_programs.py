"""The small program that tool benchmarks call, in every runtime: it reads a line and ends."""

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
	if scanner.Scan() {
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
    if (fgets(line, sizeof line, stdin)) {
        char *token = strstr(line, "\"token\":\"");
        char *end = token ? strchr(token += 9, '"') : 0;
        if (end) *end = 0;
        printf("{\"output\": \"结果 %s\", \"error\": \"\"}\n", end ? token : "");
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


SOURCES = {
    "python": Source("python", "main.py", {"main.py": PYTHON}),
    "node": Source("node", "main.js", {"main.js": NODE}),
    "typescript": Source("node", "main.ts", {"main.ts": TYPESCRIPT}),
    "go": Source("go", "main.go", {"main.go": GO, "go.mod": MOD}),
    "binary": Source("binary", "skill", {"skill.c": C}),
}


def write(place: str, name: str, source: Source) -> str:
    """Write a skill's folder, with its `skill.yaml`; a C program is compiled."""
    import subprocess

    folder = os.path.join(place, name)
    os.makedirs(folder)
    tool = f"{name}_call"
    files = {
        **source.files,
        "skill.yaml": (
            f"name: {tool}\ndescription: Give back what it was given, for measuring.\n"
            f"runtime: {source.runtime}\nentry: {source.entry}\n"
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
