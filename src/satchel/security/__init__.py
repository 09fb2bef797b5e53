"""Static security scan of skills: findings, an inventory, and what could not be scanned.

rules/                 every rule as data: what it finds, its patterns, and the advice per file
rules.py               loads the rules
pattern_words.py       a pattern -> the plain words that every match contains
rule_index.py          the patterns that may match a text, by its words
scan.py                a tree of files -> ScanReport
report.py              Finding, Inventory, ScanReport
regions.py             Markdown -> prose, commands, code, hidden comments
text_rules.py          the patterns of text rules
encoded_text.py        Base64, hexadecimal and character codes, decoded
hidden_characters.py   invisible, deceptive and padding characters
leaked_secrets.py      private keys, tokens and assigned secrets
side_tasks.py          harmful commands and programs that a page orders beside the task
secret_flows.py        secrets that a command sends to a foreign host
discussed_attacks.py   texts that discuss an attack instead of ordering it
announced_dangers.py   findings about dangers that the description announces
disguise_rules.py      code joined from pieces, look-alike packages, tools with a well-known name
shell_rules.py         harmful combinations of shell commands
shell_commands.py      a script -> its commands
shell_targets.py       the user's paths, generated paths, hosts and placeholders
python_analysis.py     data flow in Python code
python_calls.py        what a call runs, fetches, sends and writes
python_loops.py        harmful loops in Python code
python_syntax.py       parses Python, also broken; resolves names and constant texts
file_text.py           the texts of a file: encodings, inside binaries, in archives
payload_rules.py       binaries, disguised files, encoded and compiled payloads
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.security.report import Finding, Inventory, ScanReport
from satchel.security.rules import RULES, ScanRule

if TYPE_CHECKING:
    from satchel.security.scan import is_attack, scan_tree

__all__ = ["RULES", "Finding", "Inventory", "ScanReport", "ScanRule", "is_attack", "scan_tree"]


def __getattr__(name: str) -> Any:
    if name not in {"is_attack", "scan_tree"}:
        raise AttributeError(f"module `satchel.security` has no attribute `{name}`")
    from satchel.security import scan  # reading a report does without its expressions

    return getattr(scan, name)
