"""IS IT SAFE? Nobody can promise that; a scan says what was looked for and what was found.

rules/       every rule as data: what, why, fix, and the patterns it looks for
rules.py     reads them, once
scan.py      a tree of files -> a Report; archives, programs, files that are not what they seem
report.py    Finding, Inventory, Report: what a scan says, also as SARIF
allow.py     findings that somebody accepted, with a reason and a last day
regions.py   Markdown -> prose, commands, code, hidden comments
patterns.py  text rules, encoded text, hidden characters, credentials left in a skill
orders.py    orders to a model, which secret goes where, and texts that only talk about it
python.py    Python by its syntax tree
yara.py      YARA rules, when the extra `scan` is installed
"""

from __future__ import annotations

from satchel.security.allow import Allowance, read_allowances
from satchel.security.report import Finding, Inventory, Report
from satchel.security.rules import RULES, Rule
from satchel.security.scan import scan_tree

__all__ = [
    "RULES",
    "Allowance",
    "Finding",
    "Inventory",
    "Report",
    "Rule",
    "read_allowances",
    "scan_tree",
]
