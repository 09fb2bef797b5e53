"""Skills with one fault each, for every problem that the files of a skill can have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATES = ("SKILL.md", "skill.md", "skill.yaml", "skill.yml")
HEAD = "---\nname: {name}\ndescription: Fills forms. Use for forms.\n"
BODY = "---\nFill it.\n"
TOOL = "name: {tool}_run\ndescription: Runs.\nruntime: python\nentry: main.py\n"


def head(fields: str = "", body: str = "Fill it.\n") -> dict[str, str]:
    return {"SKILL.md": HEAD + fields + "---\n" + body}


def described(value: str) -> dict[str, str]:
    return {"SKILL.md": f"---\nname: {{name}}\ndescription: {value}\n---\nFill it.\n"}


def named(value: str) -> dict[str, str]:
    return {"SKILL.md": f"---\nname: {value}\ndescription: Fills forms. Use for forms.\n---\nA.\n"}


def tool(fields: str = "", old: str = "", new: str = "") -> dict[str, str]:
    return {
        "skill.yaml": (TOOL + fields).replace(old, new) if old else TOOL + fields,
        "main.py": "",
    }


def parameters(text: str) -> dict[str, str]:
    return tool(f"parameters:\n  - {text}\n")


def triggers(text: str) -> dict[str, str]:
    return {**head(), "evals/triggers.yaml": text}


def cases(text: str) -> dict[str, str]:
    return {**head(), "evals/evals.json": text}


FILE_FAULTS: dict[str, dict[str, str]] = {
    "merge-conflict": {"SKILL.md": "<<<<<<< HEAD\n" + HEAD + "=======\n>>>>>>> b\n" + BODY},
    "no-frontmatter": {"SKILL.md": "# Forms\n"},
    "symlink-as-text": {"SKILL.md": "../../other/SKILL.md"},
    "not-a-mapping": {"SKILL.md": "---\n- a\n---\nB.\n"},
    "description-missing": {"SKILL.md": "---\nname: {name}\n---\nFill it.\n"},
    "unclosed-value": described("[unclosed\n  - x: {{"),
    "not-text": {"SKILL.md": "\x7fELF\x02\x01"},
    "wide-encoding": {"SKILL.md": "utf-16"},
    "not-a-file": {"SKILL.md": "fifo"},
    "repaired-value": described("Fills forms: use for forms"),
    "unclear-value": described('"Fills" forms. Use for forms.'),
    "stray-text": {"SKILL.md": "---\nUse it: {{for\n" + HEAD[4:] + "note: a: b\n" + BODY},
    "yaml-refused": described("!!python/name:os.system forms"),
    "unclosed-frontmatter": {"SKILL.md": HEAD + "\n# Steps\nFill it.\n"},
    "doubled-frontmatter": {"SKILL.md": HEAD + "---\n---\nname: b\ndescription: C\n---\nFill.\n"},
    "control-characters": described("Fills\x07 forms. Use for forms."),
    "broken-surrogates": described('"Fills \\ud83d\\ude00 forms. Use for forms."'),
    "invalid-utf8": head(body="caf\udce9\n"),
    "bom": {"SKILL.md": "\ufeff" + HEAD + BODY},
    "leading-blank": {"SKILL.md": "\n" + HEAD + BODY},
    "delimiter-spaces": {"SKILL.md": HEAD + "---  \nFill it.\n"},
    "duplicate-key": head("license: MIT\nlicense: BSD\n"),
    "hash-comment": described("Fills forms #1 and #2. Use for forms."),
    "number-value": head("version: 1.10\n"),
    "date-value": head("version: 2026-01-01\n"),
    "key-spelling": {"SKILL.md": HEAD.replace("description", "Description") + BODY},
    "bad-value": head("note: 2026-99-99\n"),
    "name-missing": {"SKILL.md": "---\ndescription: Fills forms. Use for forms.\n---\nFill it.\n"},
    "name-mismatch": named("other-name"),
    "name-pattern": named("Form Filler"),
    "name-too-long": named("a" * 80),
    "name-not-text": named("123"),
    "name-reserved": named("claude-forms"),
    "description-not-text": described("[Fills, forms]"),
    "description-too-long": described("Fills forms. Use for forms. " * 50),
    "description-unwritten": described("TODO"),
    "description-spaces": described('" Fills forms. Use for forms. "'),
    "description-markup": described("Fills <b>forms</b>. Use for forms."),
    "invisible-characters": described("Fills\u200b forms. Use for forms."),
    "unknown-field": head("flavour: sweet\n"),
    "inert-field": head("context: fork\n"),
    "requires-mcp": head("requires:\n  mcp: [github]\n"),
    "field-type": head("metadata: text\n"),
    "field-too-long": head("compatibility: " + "x" * 600 + "\n"),
    "metadata-nested": head("metadata:\n  a: {{b: c}}\n"),
    "tools-list": head("allowed-tools: [Read]\n"),
    "body-empty": head(body=""),
    "file-missing": head(body="Read [it](references/none.md).\n"),
    "conflict-marks": head(body="<<<<<<< HEAD\nA\n=======\nB\n>>>>>>> b\n"),
    "body-long": head(body="Fill it.\n" * 502),
    "script-plan": {**head(), "scripts/a.py": "import nobody_knows_this\n"},
    "script-ends": {**head(), "scripts/a.sh": "#!/bin/sh\r\necho\r\n"},
    "file-case": {"skill.md": HEAD + BODY},
    "two-files": {"SKILL.md": HEAD + BODY, "skill.md": HEAD + BODY},
    "tool-not-yaml": {"skill.yaml": "name: [\n"},
    "tool-yaml-refused": {"skill.yaml": "a: &x 1\nb: *x\n"},
    "tool-too-large": {"skill.yaml": "a: " + "x" * 70_000},
    "tool-not-a-mapping": {"skill.yaml": "text\n"},
    "tool-key-missing": tool(old="runtime: python\n"),
    "tool-key-type": tool("files: everything\n"),
    "tool-key-twice": tool("name: {tool}_more\n"),
    "tool-key-unknown": tool("zebra: blue\n"),
    "tool-key-misspelt": tool("paramters: []\n"),
    "tool-key-place": tool("tools: [{{name: {tool}_a, description: A}}]\n"),
    "tool-runtime": tool(old="python", new="ruby"),
    "tool-entry-path": tool(old="main.py", new="../main.py"),
    "tool-entry-missing": tool(old="main.py", new="none.py"),
    "tool-go-module": {
        **tool(old="python\nentry: main.py", new="go\nentry: main.go"),
        "main.go": "",
    },
    "tool-name": tool(old="{tool}_run", new="Tool-Run"),
    "tool-name-prefix": tool(old="{tool}_run", new="elsewhere"),
    "tool-name-twice": tool(
        old="name: {tool}_run\n",
        new="tools:\n" + "  - {{name: {tool}_a, description: A}}\n" * 2,
    ),
    "tool-none": tool(old="name: {tool}_run\n", new="tools: []\n"),
    "tool-too-many": tool(
        old="name: {tool}_run\n",
        new="tools:\n"
        + "".join(f"  - {{{{name: {{tool}}_a{n}, description: A}}}}\n" for n in range(200)),
    ),
    "tool-text-long": tool(old="Runs.", new="Runs. " * 2_000),
    "tool-docs": tool("docs: text\n"),
    "parameter-name": parameters("{{name: a b, type: string}}"),
    "parameter-type": parameters("{{name: a, type: text}}"),
    "parameter-twice": parameters("{{name: a, type: string}}\n  - {{name: a, type: string}}"),
    "parameter-default": parameters("{{name: a, type: integer, default: b}}"),
    "parameter-default-long": parameters("{{name: a, type: string, default: " + "x" * 2000 + "}}"),
    "parameter-default-unused": parameters("{{name: a, type: string, required: true, default: b}}"),
    "secret-name": tool("secrets: [lower]\n"),
    "files-parameter": tool("files: {{read: [none]}}\n"),
    "tool-number": tool("timeout: -1\n"),
    "tool-file-name": {"skill.yml": TOOL, "main.py": ""},
    "triggers-not-yaml": triggers("should: [\n"),
    "triggers-refused": triggers("should: &a [x]\n"),
    "triggers-large": triggers("#" * 600_000),
    "triggers-shape": triggers("- x\n"),
    "triggers-none": triggers("should: []\n"),
    "triggers-key": triggers("should: [x]\nshoud_not: [y]\n"),
    "triggers-row": triggers("should:\n  - x\n  - [y]\n"),
    "triggers-many": triggers("should:\n" + "".join(f"  - x{n}\n" for n in range(250))),
    "triggers-long": triggers("should: [" + "x" * 3_000 + "]\n"),
    "evals-not-json": cases("["),
    "evals-none": cases("[]"),
    "evals-row": cases('{"evals": ["a"]}'),
    "evals-prompt": cases('[{"prompt": "a"}, {"prompt": " "}]'),
    "evals-check": cases('[{"prompt": "a", "checks": [{"equals": 1}]}]'),
    "evals-file": cases('[{"prompt": "a", "files": ["../../etc/passwd"]}]'),
    "evals-unread": {**head(), "evals/triage.yaml": "metrics: []\n"},
}
"""Code -> files of the folder. The main file is a template: `{name}` is the folder, `{tool}` the
prefix of its tools."""


def write(folder: Path, code: str) -> None:
    """Write the skill with this fault; its name is that of the folder."""
    for name, template in FILE_FAULTS[code].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {"name": folder.name, "tool": folder.name.replace("-", "_")}
        text = template.format(**values) if name in TEMPLATES else template
        if text == "fifo":
            os.mkfifo(path)
        elif text == "utf-16":
            path.write_bytes((HEAD + BODY).format(**values).encode("utf-16"))
        else:
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
