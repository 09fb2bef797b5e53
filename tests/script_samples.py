"""Forty scripts as people write them, each with what it prints and what it changes.

The skills lie in `scripts/skills` and have the kinds of scripts that real skills bring.
"""

from __future__ import annotations

import struct
import subprocess
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

from openpyxl import Workbook

SKILLS = Path(__file__).parent / "scripts" / "skills"


class Sample(NamedTuple):
    """One call of a script."""

    command: str
    """Skill, script and arguments, separated by spaces."""
    prints: str = ""
    """Part of what it prints; of its error when it fails."""
    changes: tuple[str, ...] = ()
    """`+path`, `~path`, `-path`: created, changed and deleted files, in the order of the paths."""
    stdin: str = ""
    fails: bool = False
    refused: tuple[str, ...] = ()
    """Paths that the script writes and that are not applied."""
    network: bool = False
    """Whether the skill needs a grant of the network; `URL` stands for a server's address."""
    secrets: tuple[str, ...] = ()


SAMPLES = (
    Sample("pdf-forms scripts/list_fields.py form.pdf", '"name": ""'),
    Sample(
        "pdf-forms scripts/fill.py form.pdf values.json filled.pdf",
        "Filled 1 fields in filled.pdf",
        ("+filled.pdf",),
    ),
    Sample("pdf-forms scripts/fill.py form.pdf wrong.json filled.pdf", "no field age", fails=True),
    Sample("pdf-forms scripts/split.py form.pdf", "form-1.pdf", ("+form-1.pdf",)),
    Sample("spreadsheets scripts/csv_to_xlsx.py sales.csv sales.xlsx", "4 rows", ("+sales.xlsx",)),
    Sample("spreadsheets scripts/add_totals.py book.xlsx", "Totals in row", ("~book.xlsx",)),
    Sample(
        "spreadsheets scripts/join.py sales.csv regions.csv region joined.csv",
        "3 rows joined by region",
        ("+joined.csv",),
    ),
    Sample("spreadsheets scripts/join.py --help", "Join two CSV files by a column."),
    Sample("spreadsheets scripts/pivot.py sales.csv region amount", "north\t40"),
    Sample("spreadsheets scripts/dedupe.py people.csv", "1 lines removed", ("~people.csv",)),
    Sample("images scripts/thumbnail.py photo.png --width 16", "16x8", ("+photo-small.png",)),
    Sample(
        "images scripts/to_jpeg.py photo.png", "jpeg/photo.jpg", ("+jpeg/photo.jpg",)
    ),
    Sample("images scripts/describe.py photo.png", "32x16, 512 pixels of #ff8000"),
    Sample("git-reports scripts/changelog.sh v1.0", "- Add totals (A Tester)"),
    Sample("git-reports scripts/authors.sh", "A Tester\t2"),
    Sample("git-reports scripts/churn.py", "1  app.py"),
    Sample("git-reports scripts/todo.sh", "app.py:2:# TODO: totals"),
    Sample(
        "web-data scripts/fetch_json.py URL/data.json out.json",
        "bytes from",
        ("+out.json",),
        network=True,
    ),
    Sample("web-data scripts/check_links.sh links.md", "404 URL/missing", network=True),
    Sample("web-data scripts/report.py URL/report", "secret stays", network=True,
           secrets=("REPORT_TOKEN",)),
    Sample("web-data scripts/fetch_json.py URL/data.json out.json", fails=True),
    Sample(
        "documents scripts/render.py template.txt values.yaml letter.txt",
        "Wrote letter.txt",
        ("+letter.txt",),
    ),
    Sample("documents scripts/to_html.py notes.md", "notes.html", ("+notes.html",)),
    Sample("documents scripts/to_docx.py notes.md notes.docx", "3 paragraphs", ("+notes.docx",)),
    Sample("documents scripts/outline.py", "  Second", stdin="# First\n\ntext\n\n## Second\n"),
    Sample(
        "documents scripts/build_site.py pages site",
        "pages/a.html",
        ("+site/a.html", "+site/sub/b.html"),
    ),
    Sample("logs scripts/errors.sh app.log", "2 database"),
    Sample(
        "logs scripts/rotate.sh app.log 3", "", ("~app.log", "~app.log.1", "+app.log.2")
    ),
    Sample("logs scripts/slow.py app.log --over 500", "app.log:4: 900 ms"),
    Sample("logs scripts/follow.py 3", "tick 2"),
    Sample("logs scripts/flood.py", "characters cut"),
    Sample("logs scripts/crash.py", "the log has no time zone", fails=True),
    Sample("node-tools scripts/to_html.mjs notes.md notes.html", "Wrote", ("+notes.html",)),
    Sample("node-tools scripts/sort_keys.cjs table.json", "a b", ("~table.json",)),
    Sample("node-tools scripts/count.ts src", "2\tmain.ts"),
    Sample("node-tools scripts/env.js", "in project"),
    Sample(
        "scaffolds scripts/new_package.sh demo",
        "demo/pyproject.toml",
        ("+demo/pyproject.toml", "+demo/src/demo/__init__.py", "+demo/tests/test_demo.py"),
    ),
    Sample("scaffolds scripts/many.py 300", "300 files",
           tuple(sorted(f"+data/{number % 10}/{number}.json" for number in range(300)))),
    Sample("scaffolds scripts/pack.py pages pages.zip", "pages.zip", ("+pages.zip",)),
    Sample("scaffolds scripts/unpack.py files.zip out", "2 entries", ("+out/a.txt", "+out/b.txt")),
    Sample(
        "scaffolds scripts/clean.py build",
        "Removed build",
        ("-build/a.o", "-build/sub/b.o"),
    ),
    Sample("scaffolds scripts/rename.py *.txt .md", "template.txt -> template.md",
           ("+template.md", "-template.txt")),
    Sample("scaffolds scripts/database.py data.db", "2", ("+data.db",)),
    Sample("scaffolds scripts/agents.py", "", ("~notes.md",), refused=("AGENTS.md",)),
    Sample("scaffolds scripts/install.sh", "", ("+greet", "+hello")),
)  # fmt: skip


def make_project(folder: Path, address: str = "") -> None:
    """Write the files that the scripts work on, as a git repository."""
    files = {
        "app.py": "import os\n# TODO: totals\n",
        "app.log": (
            "10:00 ERROR database lost\n10:01 ERROR network down\n"
            "10:02 ERROR database lost\n10:03 INFO answered in 900 ms\n"
        ),
        "app.log.1": "older\n",
        "build/a.o": "a",
        "build/sub/b.o": "b",
        "links.md": f"[there]({address}/data.json) [not]({address}/missing)\n",
        "notes.md": "# Notes\n\n## Points\n\nOne paragraph.\n",
        "pages/a.md": "# A\n",
        "pages/sub/b.md": "# B\n",
        "people.csv": "name\nAda\nAda\n",
        "regions.csv": "region,chief\nnorth,Ada\nsouth,Bob\n",
        "sales.csv": "region,amount\nnorth,10\nsouth,20\nnorth,30\n",
        "src/main.ts": "const a = 1;\nexport { a };\n",
        "table.json": '{"b": 1, "a": 2}\n',
        "template.txt": "Dear {{ name }}\n",
        "values.json": '{"name": "Ada"}\n',
        "values.yaml": "name: Ada\n",
        "wrong.json": '{"age": "36"}\n',
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    (folder / "form.pdf").write_bytes(make_form())
    book = Workbook()
    for row in (("region", "amount"), ("north", 10)):
        book.active.append(row)
    book.save(folder / "book.xlsx")
    (folder / "photo.png").write_bytes(make_picture(32, 16))
    with zipfile.ZipFile(folder / "files.zip", "w") as archive:
        archive.writestr("a.txt", "a")
        archive.writestr("b.txt", "b")
    for words in (
        ("init", "-q"),
        ("add", "app.py"),
        ("commit", "-qm", "Begin"),
        ("tag", "v1.0"),
        ("commit", "-qm", "Add totals", "--allow-empty"),
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True)


def make_form() -> bytes:
    """A PDF of one page with the text field `name`."""
    objects = (
        "<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [4 0 R] /DR << >> >> >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Annots [4 0 R] >>",
        "<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V () /Rect [10 10 190 30] /P 3 0 R >>",
    )
    text, places = "%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(text))
        text += f"{number} 0 obj\n{content}\nendobj\n"
    rows = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    table = f"xref\n0 {size}\n0000000000 65535 f \n{rows}"
    end = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(text)}\n%%EOF\n"
    return (text + table + end).encode()


def make_picture(width: int, height: int) -> bytes:
    """A PNG of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        end = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + end

    rows = (b"\0" + b"\xff\x80\x00" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
