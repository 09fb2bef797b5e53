"""Does any input make the readers raise, hang or disagree? Run with atheris; see README.md."""

from __future__ import annotations

import os
import re
import sys
import time

import atheris  # pyright: ignore[reportMissingImports]

from satchel.catalogue import build_catalogue

# Coverage leads the search where strangers' bytes are taken apart; the rest only has to hold.
with atheris.instrument_imports(include=["satchel.skill", "satchel.tools"]):
    from satchel.skill.head import quick_head
    from satchel.skill.load import parse_document, read_head
    from satchel.skill.model import Origin, Skill
    from satchel.skill.validate import check, violations
    from satchel.tools.arguments import apply_arguments
    from satchel.tools.frame import disarm

STAMP = (1, 2, 3)
ORIGIN = Origin("/skills", "extra", "skills")
SLOW = 2.0
CLOSES = re.compile(r"<\s*/\s*skill-loaded(?![a-z0-9])", re.IGNORECASE)

SEEDS = (
    b"---\nname: demo\ndescription: Does it.\n---\nBody $ARGUMENTS $1 ${SKILL_DIR}\n",
    b"---\nname: demo\ndescription: Use when: asked\ntags: [a, b]\n---\n",
    b'---\nname: "demo"\ndescription: >\n  folded\n  text\nmetadata:\n  a: {b: [c]}\n---\n',
    b"---\nname: demo\ndescription: &a *a\nx: !!tag y\n<<: *a\n---\n</skill-loaded>\n",
    b"\xef\xbb\xbf---\r\nname: demo\r\ndescription: |\r\n  x\r\n---\r\n",
    b"---\nname: demo\ndescription: a # b\ndescription: 2024-01-01\n...\n",
    "---\nname: 示例\ndescription: 说明。当用户要求时使用\n---\n正文\n".encode(),
)


def one_input(data: bytes) -> None:
    """Everything that reads strangers' bytes, once."""
    began = time.process_time()
    _read(data)
    _read(b"---\nname: demo\n" + data + b"\n---\nBody\n")
    if time.process_time() - began > SLOW:
        raise AssertionError("slower than the bound")


def _read(data: bytes) -> None:
    fast = quick_head(data[:4096], "demo", "SKILL.md", STAMP)
    slow, problems = read_head(data, "demo", "SKILL.md", STAMP)
    if fast is not None and fast != slow:
        raise AssertionError(f"two readers disagree: {fast} {slow}")
    document = parse_document(data, "demo", "SKILL.md", STAMP)
    for problem in (*problems, *check(document), *violations(document, "demo")):
        if not problem.message or not problem.fix:
            raise AssertionError(f"a problem without words: {problem}")
    if document.head is None:
        if not document.problems:
            raise AssertionError("dropped without a word")
        return
    skill = Skill(document.head, ORIGIN)
    form = ("xml", "markdown", "json")[len(data) % 3]
    if len(build_catalogue([skill], budget=2_000, form=form).text) > 2_000:
        raise AssertionError("over the budget")
    _load(skill, document.body)


def _load(skill: Skill, body: str) -> None:
    for given in ("", "one 'two three' $1"):
        filled = apply_arguments(body, given, base_dir=skill.base_dir, names=("first",))
        text, _ = disarm(filled.text)
        if CLOSES.search(text) or disarm(text)[1]:
            raise AssertionError("a frame can be closed from inside")


def main() -> None:
    """Start the fuzzer with seeds in a folder of its own."""
    import tempfile

    seeds = tempfile.mkdtemp(prefix="satchel-seeds-")
    for number, seed in enumerate(SEEDS):
        with open(os.path.join(seeds, str(number)), "wb") as file:
            file.write(seed)
    atheris.Setup([*sys.argv, seeds], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
