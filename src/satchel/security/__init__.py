"""Static security scan of skills: findings, an inventory, and what could not be scanned.

rules/                 every rule as data: what it finds, its patterns, and the advice per file
rules.py               loads the rules
scan.py                a tree of files -> ScanReport; binaries and disguised files
report.py              Finding, Inventory, ScanReport; SARIF
allowlist.py           accepted findings, with a reason and an expiry date
regions.py             Markdown -> prose, commands, code, hidden comments
text_rules.py          text rules, encoded text, hidden characters, leaked credentials
instruction_rules.py   side tasks, secrets sent to foreign hosts, texts that discuss attacks
shell_rules.py         harmful combinations of shell commands
python_analysis.py     data flow in Python code
python_rules.py        harmful loops in Python code
yara.py                YARA rules, with the extra `scan`
"""

from __future__ import annotations

from satchel.security.allowlist import Allowance, read_allowances
from satchel.security.report import Finding, Inventory, ScanReport
from satchel.security.rules import RULES, ScanRule
from satchel.security.scan import scan_tree

__all__ = [
    "RULES",
    "Allowance",
    "Finding",
    "Inventory",
    "ScanReport",
    "ScanRule",
    "read_allowances",
    "scan_tree",
]
