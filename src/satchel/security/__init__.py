"""Static security scan of skills: findings, an inventory, and what could not be scanned.

rules/                 every rule as data: what it finds, its patterns, and the advice per file
rules.py               loads the rules
scan.py                a tree of files -> ScanReport
report.py              Finding, Inventory, ScanReport
regions.py             Markdown -> prose, commands, code, hidden comments
text_rules.py          text rules, encoded text, hidden characters, leaked credentials
instruction_rules.py   side tasks, secrets sent to foreign hosts, texts that discuss attacks
disguise_rules.py      code joined from pieces, look-alike packages, tools with a well-known name
shell_rules.py         harmful combinations of shell commands
python_analysis.py     data flow in Python code
python_rules.py        harmful loops in Python code
file_text.py           the texts of a file: encodings, inside binaries, in archives
payload_rules.py       binaries, disguised files, encoded and compiled payloads
"""

from __future__ import annotations

from satchel.security.report import Finding, Inventory, ScanReport
from satchel.security.rules import RULES, ScanRule
from satchel.security.scan import scan_tree

__all__ = ["RULES", "Finding", "Inventory", "ScanReport", "ScanRule", "scan_tree"]
