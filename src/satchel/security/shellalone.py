"""What harm does one command do by itself? Full disks, stopped guards, dropped databases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.security.whose import is_fixed_place

if TYPE_CHECKING:
    from satchel.security.shellread import Command

_GUARDS = re.compile(
    r"(?:auditd|rsyslogd?|syslog|ufw|firewalld|iptables|nftables|apparmor|clamav\S*|falcon\S*|ossec"
    r"|wazuh\S*|fail2ban|crowdsec|osqueryd?|sysmon|mdatp|sentinel\S*|selinux|aide|snort|suricata)"
    r"(?:\.service)?$"
)
_ACCOUNTS = re.compile(
    r"^(?:useradd|adduser|userdel|deluser|chpasswd|passwd\s+-[ld]|usermod\s+-L)\b|gh ssh-key add"
    r"|gh api \S*(?:collaborators|/hooks|/keys)\b|gh repo edit .*--visibility"
    r"|aws iam (?:create-access-key|create-user|attach-user-policy|delete-user)"
    r"|gcloud .*add-iam-policy-binding .*roles/(?:owner|editor)"
)
_RECORDS = re.compile(
    r"^dropdb\b|redis-cli .*\bflush(?:all|db)"
    r"|(?:psql|mysql|sqlite3|mongosh?)\b.*\b(?:drop (?:database|table|schema)|truncate table"
    r"|dropdatabase|delete from \w+\s*;?\s*$)"
    r"|aws s3 (?:rm|rb) .*(?:--recursive|--force)|terraform destroy.*-auto-approve"
    r"|kubectl delete .*--all\b|gsutil .*\brm -r|az group delete .*(?:-y|--yes)",
    re.IGNORECASE,
)
_UPLOADS = re.compile(
    r"\s(?:-T|--upload-file)[\s=]|\s(?:-F|-d|--form|--data\S*)[\s=]*\S*@|--post-file"
)
_STOPS = re.compile(r"\b(?:stop|disable|mask|kill)\b")


def uploads(command: Command) -> bool:
    """Whether a file goes to an address that is written down."""
    words = command.words
    text = " ".join(words)
    if not is_fixed_place(text):
        return False
    return "<" in words if words[0] in {"nc", "ncat"} else bool(_UPLOADS.search(text))


def loads(command: Command) -> str:
    """Programs that are made for sending many requests."""
    text = " ".join(command.words)
    if command.words[0] == "hping3":
        return "floods-host"
    if "localhost" in text or "127.0.0.1" in text or not is_fixed_place(text):
        return ""
    return "many-requests" if re.search(r"\s-[ncztd]", text) else ""


def burns(command: Command) -> str:
    """Processor, disk or processes without end."""
    words = command.words
    if words[0] == "yes":
        spins = ">" in words and (command.background or not words[-1].startswith("/dev/null"))
        return "exhausts-machine" if spins else ""
    if words[0] == "fallocate":
        return "exhausts-machine" if re.search(r"-l\s*\d{3,}G|\d+T", " ".join(words)) else ""
    if words[0] == "cat":
        return "exhausts-machine" if words[1:2] == ("/dev/zero",) and ">" in words else ""
    itself = any(one in {"$0", "${0}", "${BASH_SOURCE[0]}"} for one in words[:2])
    return "exhausts-machine" if itself and command.background and command.loop == 3 else ""


def stops(command: Command) -> str:
    """Processes and services."""
    words = command.words
    text = " ".join(words)
    if words[0] == "kill":
        return "exhausts-machine" if words[-1] == "-1" and len(words) > 2 else ""
    stops = words[0] in {"pkill", "killall"} or _STOPS.search(text)
    return "stops-guards" if stops and any(_GUARDS.match(one) for one in words[1:]) else ""


def accounts(command: Command) -> str:
    """Accounts, their keys and their rights."""
    return "changes-accounts" if _ACCOUNTS.search(" ".join(command.words)) else ""


def records(command: Command) -> str:
    """Databases, buckets, environments."""
    return "destroys-records" if _RECORDS.search(" ".join(command.words)) else ""
