"""Finds harmful combinations of shell commands: deleting, encrypting, flooding, sending away.

Each command alone is harmless: `find`, `openssl`, `tar`, `curl`. The target, the surrounding loop
and the next command make the issue. Caches and build folders never count as the user's files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.security.report import MAX_EVIDENCE_CHARS, Finding
from satchel.security.shell_commands import read_shell
from satchel.security.shell_targets import is_home, is_work, names_fixed_host

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.security.regions import Region
    from satchel.security.shell_commands import ShellCommand

_GUARD_SERVICE = re.compile(
    r"(?:auditd|rsyslogd?|syslog|ufw|firewalld|iptables|nftables|apparmor|clamav\S*|falcon\S*|ossec"
    r"|wazuh\S*|fail2ban|crowdsec|osqueryd?|sysmon|mdatp|sentinel\S*|selinux|aide|snort|suricata)"
    r"(?:\.service)?$"
)
_ACCOUNT_CHANGE = re.compile(
    r"^(?:useradd|adduser|userdel|deluser|chpasswd|passwd\s+-[ld]|usermod\s+-L)\b|gh ssh-key add"
    r"|gh api \S*(?:collaborators|/hooks|/keys)\b|gh repo edit .*--visibility"
    r"|aws iam (?:create-access-key|create-user|attach-user-policy|delete-user)"
    r"|gcloud .*add-iam-policy-binding .*roles/(?:owner|editor)"
)
_RECORD_DELETION = re.compile(
    r"^dropdb\b|redis-cli .*\bflush(?:all|db)"
    r"|(?:psql|mysql|sqlite3|mongosh?)\b.*\b(?:drop (?:database|table|schema)|truncate table"
    r"|dropdatabase|delete from \w+\s*;?\s*$)"
    r"|aws s3 (?:rm|rb) .*(?:--recursive|--force)|terraform destroy.*-auto-approve"
    r"|kubectl delete .*--all\b|gsutil .*\brm -r|az group delete .*(?:-y|--yes)",
    re.IGNORECASE,
)
_FILE_UPLOAD = re.compile(
    r"\s(?:-T|--upload-file)[\s=]|\s(?:-F|-d|--form|--data\S*)[\s=]*\S*@|--post-file"
)
_STOP_VERB = re.compile(r"\b(?:stop|disable|mask|kill)\b")
_WRAPPERS = frozenset((
    "sudo", "nohup", "env", "command", "exec", "xargs", "nice", "ionice", "setsid", "timeout",
    "doas", "parallel", "stdbuf", "then", "do",
))  # fmt: skip
_BODY_OPTION = re.compile(r"-T|-F|--upload-file|--form|--data|-d|--post-file")
_EXEC_REMOVAL = re.compile(r"-exec(?:dir)? (?:sudo )?(?:rm|shred|truncate|unlink)\b")
_ARCHIVE_NAME = re.compile(r"\.(?:tgz|tar|zip|7z|gz|xz|bz2|bundle|bak|zst)\b|mktemp")
_GPG_ENCRYPTION = re.compile(r"\s(?:-\w*[ce]\w*|--symmetric|--encrypt)\b")
_RESTING_COMMANDS = frozenset(("sleep", "break", "wait", "exit", "read"))
_FORK_BOMB = re.compile(r"([\w:.]{1,30})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}?\s*;?\s*\}?\s*;?\s*\1")
_COMMAND_KINDS = frozenset(("shell", "plain"))
_REMOVING_COMMANDS = frozenset(("rm", "shred", "unlink", "srm"))
_URL = re.compile(r"https?://[^\s'\"]{3,200}")
_WITHOUT_QUOTES = str.maketrans("", "", "'\"\\`")
_PACKING_COMMANDS = frozenset(("tar", "zip", "7z", "find", "cat", "git"))
_LOCAL_ADDRESS = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]")
_REMOTE_TARGET = re.compile(r"^[\w.@-]+:[^\\]|^(?:s3|gs)://|^rsync://")
_REMOTE_ADDED = re.compile(r"git remote (?:add|set-url)(?: --?\w+)* (\S+) (\S+)")
_CLEANUP_TEST = re.compile(r"-[acm](?:time|min)\s|-empty\b|-size\s+0|-type l\b|-newer")
"""Tests of `find` for old or empty files."""


def is_upload(command: ShellCommand) -> bool:
    """Whether a command uploads a file to a fixed address."""
    words = command.words
    text = " ".join(words)
    if not names_fixed_host(text):
        return False
    return "<" in words if words[0] in {"nc", "ncat"} else bool(_FILE_UPLOAD.search(text))


def check_load_test(command: ShellCommand) -> str:
    """Return the rule that a program for load tests breaks, or nothing."""
    text = " ".join(command.words)
    if command.words[0] == "hping3":
        return "floods-host"
    if "localhost" in text or "127.0.0.1" in text or not names_fixed_host(text):
        return ""
    return "many-requests" if re.search(r"\s-[ncztd]", text) else ""


def check_exhaustion(command: ShellCommand) -> str:
    """Return the rule about endless use of processor, disk or processes, or nothing."""
    words = command.words
    if words[0] == "yes":
        keeps_output = not words[-1].startswith("/dev/null")
        is_endless = ">" in words and (keeps_output or command.background)
        return "exhausts-machine" if is_endless else ""
    if words[0] == "fallocate":
        return "exhausts-machine" if re.search(r"-l\s*\d{3,}G|\d+T", " ".join(words)) else ""
    if words[0] == "cat":
        return "exhausts-machine" if words[1:2] == ("/dev/zero",) and ">" in words else ""
    runs_itself = any(word in {"$0", "${0}", "${BASH_SOURCE[0]}"} for word in words[:2])
    return "exhausts-machine" if runs_itself and command.background and command.loop == 3 else ""


def check_stop(command: ShellCommand) -> str:
    """Return the rule about stopping security services or all processes, or nothing."""
    words = command.words
    text = " ".join(words)
    if words[0] == "kill":
        return "exhausts-machine" if words[-1] == "-1" and len(words) > 2 else ""
    stops = words[0] in {"pkill", "killall"} or _STOP_VERB.search(text)
    return "stops-guards" if stops and any(_GUARD_SERVICE.match(word) for word in words[1:]) else ""


def check_accounts(command: ShellCommand) -> str:
    """Return the rule about changes of accounts, keys and permissions, or nothing."""
    return "changes-accounts" if _ACCOUNT_CHANGE.search(" ".join(command.words)) else ""


def check_records(command: ShellCommand) -> str:
    """Return the rule about deletion of databases, buckets and environments, or nothing."""
    return "destroys-records" if _RECORD_DELETION.search(" ".join(command.words)) else ""


def find_shell_issues(path: str, region: Region) -> list[Finding]:
    """Find the issues of a script, or of the commands on a page."""
    text = region.text
    if region.kind not in _COMMAND_KINDS:
        return []
    findings: list[Finding] = []
    bomb = _FORK_BOMB.search(text) if "()" in text else None
    if bomb:
        line = region.line_at(bomb.start())
        findings.append(Finding("exhausts-machine", path, line, bomb.group()[:80]))
    if not _CHECKED_COMMAND.search(text.translate(_WITHOUT_QUOTES)):
        return findings
    analyzer = _ShellAnalyzer([_unwrap(command) for command in read_shell(text)])
    for rule, command in analyzer.find_issues():
        evidence = " ".join(command.words)[:MAX_EVIDENCE_CHARS]
        findings.append(Finding(rule, path, region.line + command.line, evidence))
    return findings


def _unwrap(command: ShellCommand) -> ShellCommand:
    """Return a command without wrappers such as `sudo`, and without the folder of its name."""
    words = command.words
    first = words[0]
    while len(words) > 1 and first in _WRAPPERS:
        index = 1
        while index < len(words) - 1 and (
            words[index].startswith("-")
            or "=" in words[index]
            or words[index].rstrip("smh").isdigit()
        ):
            takes_value = first == "xargs" and words[index] in {"-I", "-n", "-P", "-L", "-d"}
            index += 2 if takes_value else 1
        words = words[min(index, len(words) - 1) :]
        first = words[0]
    if first.startswith("/") and first.count("/") < 5:
        first = first.rpartition("/")[2] or first
    return command._replace(words=(first, *words[1:]))


def _is_foreign_remote(address: str) -> bool:
    return names_fixed_host(address.replace("git@", "http://"))


class _PackedFolder(NamedTuple):
    """A folder that a command packs."""

    folder: str
    archive: str
    """The path of the archive; `-` for the pipeline."""


class _ShellAnalyzer:
    """Checks the commands of a script; each check returns the rule that is broken, or nothing."""

    def __init__(self, commands: Sequence[ShellCommand]) -> None:
        self._commands = commands
        self._folder = ""
        """The folder that the script changed to."""

    def find_issues(self) -> Iterator[tuple[str, ShellCommand]]:
        """Find the commands that break a rule, with the rule."""
        for index, command in enumerate(self._commands):
            name = command.words[0]
            if name == "cd":
                self._folder = command.words[1] if len(command.words) > 1 else "~"
            rule = self._check(name, index, command)
            if rule:
                yield rule, command

    def _check(self, name: str, index: int, command: ShellCommand) -> str:
        if name in _CONTEXT_CHECKS:
            return _CONTEXT_CHECKS[name](self, index, command)
        return _SINGLE_CHECKS[name](command) if name in _SINGLE_CHECKS else ""

    # --- destroying -----------------------------------------------------------------------

    def _resolve(self, path: str) -> str:
        """Return a path with the folder that the script changed to."""
        if self._folder and not path.startswith(("/", "~", "$")):
            return f"{self._folder.rstrip('/')}/{path.removeprefix('./')}"
        return path

    def _read_source(self, index: int) -> str:
        """Return the commands before this one in its pipeline."""
        command = self._commands[index]
        pipeline = [
            earlier
            for earlier in self._commands[max(0, index - 4) : index]
            if earlier.pipeline == command.pipeline
        ]
        return " | ".join(" ".join(earlier.words) for earlier in pipeline)

    def check_removal(self, index: int, command: ShellCommand) -> str:
        """Check `rm`, `shred` and similar."""
        words = command.words[1:]
        if "<" in words:  # a page's `<placeholder>`
            words = words[: max(words.index("<") - 1, 0)]
        targets = [word for word in words if not word.startswith(("-", ">"))]
        if not targets or "{}" in targets:
            source = self._read_source(index)
            return self._judge_found(source) if source.startswith("find ") else ""
        flags = "".join(word for word in words if word.startswith("-")).lower()
        for target in targets[:20]:
            if target.startswith(("$(find ", "$( find ")):
                return self._judge_found(target[2:-1].strip())
            if rule := self._judge_removal(target, command, is_many="r" in flags or "*" in target):
                return rule
        return ""

    def _judge_removal(self, target: str, command: ShellCommand, *, is_many: bool) -> str:
        """Return the rule about removing a target, which may be many files."""
        path = self._resolve(target)
        if is_home(path) and (is_many or command.words[0] == "shred"):
            return "deletes-user-files"
        if command.loop and any(map(is_home, path.split())):
            return "deletes-user-files"
        return "deletes-work-files" if is_work(path) and (is_many or command.loop) else ""

    def check_find(self, _index: int, command: ShellCommand) -> str:
        """Check whether `find` deletes files."""
        words = command.words
        text = " ".join(words)
        deletes = "-delete" in words or _EXEC_REMOVAL.search(text)
        return self._judge_found(text) if deletes else ""

    def _judge_found(self, text: str) -> str:
        """Return the rule about deleting the files that `find` finds."""
        if _CLEANUP_TEST.search(text):
            return ""
        roots: list[str] = []
        for word in text.split()[1:]:
            if word.startswith(("-", "(", "\\", "!")):
                break
            roots.append(self._resolve(word.strip("'\"")))
        names = re.findall(r"-i?(?:name|path|wholename|regex)\s+['\"]?([^\s'\"]+)", text)
        if names and not any(is_work(name) for name in names):
            return ""
        if any(is_home(root) for root in roots):
            return "deletes-user-files"
        return "deletes-work-files" if any(is_work(root) for root in roots or ["."]) else ""

    def check_overwriting(self, _index: int, command: ShellCommand) -> str:
        """Check `dd` and `truncate`."""
        words = command.words
        text = " ".join(words)
        if words[0] == "dd":
            overwrites = re.search(r"\bif=/dev/(?:zero|u?random)\b", text)
            target = re.search(r"\bof=(\S+)", text)
            if not overwrites or not target or target[1].startswith(("/dev/", "$")):
                return ""
            if is_home(target[1]) or (command.loop and is_home(target[1].split()[0])):
                return "deletes-user-files"
            return "" if "count=" in text else "exhausts-machine"
        if words[0] == "truncate":
            targets = [word for word in words[1:] if not word.startswith("-")]
            if re.search(r"-s\s*0\b", text) and any(is_home(path) for path in targets):
                return "deletes-user-files"
        return ""

    def check_encryption(self, index: int, command: ShellCommand) -> str:
        """Check whether many files are encrypted and then removed or replaced."""
        words = command.words
        text = " ".join(words)
        if re.search(r"\s-d\b|--decrypt", text):
            return ""
        if words[0] == "openssl" and not re.search(r"openssl (?:enc|aes|smime|rsautl|cms)", text):
            return ""
        if words[0].startswith("gpg") and not _GPG_ENCRYPTION.search(text):
            return ""
        if not command.loop and not self._read_source(index).startswith("find "):
            return ""
        following = [later.words[0] for later in self._commands[index + 1 : index + 8]]
        removes = not _REMOVING_COMMANDS.isdisjoint(following)
        moves = "mv" in following[:5]
        return "encrypts-user-files" if removes or (moves and command.loop) else ""

    # --- using up -------------------------------------------------------------------------

    def check_request(self, index: int, command: ShellCommand) -> str:
        """Check uploads, and requests in a loop."""
        if command.words[0] == "ping":
            is_flood = re.search(r"\s(?:-\w*f\w*|--flood)\b", " ".join(command.words))
            return "floods-host" if is_flood else ""
        rule = self._judge_archive_upload(index, command)
        if rule or command.loop < 2:
            return rule or ("uploads-given-file" if is_upload(command) else "")
        return self._judge_repetition(index, command)

    def _judge_repetition(self, index: int, command: ShellCommand) -> str:
        """Return the rule about a request in a loop with many rounds."""
        text = " ".join(command.words)
        nearby = self._commands[max(0, index - 12) : index + 13]
        rests = {other.words[0] for other in nearby if other.loop >= 2} & _RESTING_COMMANDS
        has_address = _URL.search(text) or command.words[0] in {"nc", "ncat"}
        if not has_address or _LOCAL_ADDRESS.search(text):
            return ""
        is_parallel = command.background or any(
            other.background and other.loop >= 2 for other in nearby
        )
        if is_parallel and names_fixed_host(text) and not (rests - {"wait"}):
            return "floods-host"
        return "many-requests" if not rests else ""

    # --- sending --------------------------------------------------------------------------

    def _judge_archive_upload(self, index: int, command: ShellCommand) -> str:
        """Return the rule about uploading an archive that was packed before."""
        words = command.words
        text = " ".join(words)
        packed = self._find_packed_folder(index)
        if packed is None or not names_fixed_host(text):
            return ""
        if words[0] in {"curl", "wget"} and not any(_BODY_OPTION.match(word) for word in words):
            return ""
        if packed.archive != "-" and packed.archive not in text:
            return ""
        return "sends-user-folder" if is_home(packed.folder) else "sends-work-folder"

    def _find_packed_folder(self, index: int) -> _PackedFolder | None:
        """Find the folder that was packed before a command."""
        command = self._commands[index]
        for earlier in reversed(self._commands[max(0, index - 30) : index]):
            name, words = earlier.words[0], earlier.words[1:]
            if name not in _PACKING_COMMANDS:
                continue
            targets = [word for word in words if not word.startswith(("-", ">"))]
            folder = self._select_user_folder(name, targets)
            if not folder:
                continue
            if earlier.pipeline == command.pipeline:
                return _PackedFolder(folder, "-")
            if name in {"find", "cat", "git"} and "-o" not in words and "bundle" not in words:
                continue
            archives = [word for word in targets if _ARCHIVE_NAME.search(word)]
            if archives:
                return _PackedFolder(folder, archives[0])
        return None

    def _select_user_folder(self, name: str, targets: Sequence[str]) -> str:
        """Return the first folder of the user among the targets of a command that packs."""
        if name == "git" and targets[:1] in (["archive"], ["bundle"]):
            return self._resolve(".")
        folders = (word for word in targets if is_home(self._resolve(word)) or is_work(word))
        return next(map(self._resolve, folders), "")

    def check_copy(self, index: int, command: ShellCommand) -> str:
        """Check `scp`, `rsync`, `aws s3 cp` and similar."""
        words = [word for word in command.words[1:] if not word.startswith("-")]
        if not words or not _REMOTE_TARGET.search(words[-1]):
            return ""
        host = words[-1].rpartition("@")[2].removeprefix("s3://").removeprefix("gs://")
        if "$" in words[-1] or not names_fixed_host(f"http://{host}"):
            return ""
        root = next((source for source in words[:-1] if is_home(source) or is_work(source)), "")
        if root:
            return "sends-user-folder" if is_home(root) else "sends-work-folder"
        target = "http://" + words[-1]
        return self._judge_archive_upload(index, command._replace(words=(*command.words, target)))

    def check_git(self, index: int, command: ShellCommand) -> str:
        """Check pushes to another host, and the removal of the history."""
        words = [word for word in command.words[1:] if not word.startswith("-")]
        text = " ".join(command.words)
        if words[:1] == ["push"] and len(words) > 1:
            if re.match(r"https?://|git@|ssh://", words[1]):
                return "pushes-elsewhere" if _is_foreign_remote(words[1]) else ""
            for earlier in self._commands[max(0, index - 60) : index]:
                remote = _REMOTE_ADDED.search(" ".join(earlier.words))
                if remote and remote[1] == words[1] and _is_foreign_remote(remote[2]):
                    return "pushes-elsewhere"
        if re.search(r"git reflog expire\b.*--expire(?:-unreachable)?=now", text):
            return "erases-history"
        return ""

    def check_cloud(self, index: int, command: ShellCommand) -> str:
        """Check the command-line tools of clouds."""
        return check_records(command) or self.check_copy(index, command) or check_accounts(command)


_CONTEXT_TABLE = (
    (_ShellAnalyzer.check_removal, "rm shred unlink srm"),
    (_ShellAnalyzer.check_find, "find"),
    (_ShellAnalyzer.check_overwriting, "dd truncate"),
    (_ShellAnalyzer.check_encryption, "openssl gpg gpg2 age ccrypt mcrypt"),
    (_ShellAnalyzer.check_request, "curl wget nc ncat ping"),
    (_ShellAnalyzer.check_copy, "scp rsync rclone"),
    (_ShellAnalyzer.check_git, "git"),
    (_ShellAnalyzer.check_cloud, "aws gsutil"),
)
_SINGLE_TABLE = (
    (check_load_test, "ab wrk hey siege hping3 slowloris vegeta"),
    (check_exhaustion, "yes fallocate cat bash sh $0 ${0}"),
    (check_stop, "systemctl service pkill killall kill launchctl"),
    (check_accounts, "useradd adduser userdel deluser chpasswd passwd usermod gh gcloud"),
    (check_records, "dropdb redis-cli psql mysql sqlite3 mongo mongosh terraform kubectl az"),
)
_CONTEXT_CHECKS = {word: check for check, words in _CONTEXT_TABLE for word in words.split()}
_SINGLE_CHECKS = {word: check for check, words in _SINGLE_TABLE for word in words.split()}
_CHECKED_NAMES = "|".join(map(re.escape, sorted({*_CONTEXT_CHECKS, *_SINGLE_CHECKS})))
_CHECKED_COMMAND = re.compile(rf"(?<![\w-])(?:{_CHECKED_NAMES})(?![\w-])|\$\{{?\w+\}}?[\w$]")
"""The name of a command with a check, or one that variables may make."""
COMMAND_NAMES = frozenset(
    (
        *_CONTEXT_CHECKS,
        *_SINGLE_CHECKS,
        *_WRAPPERS,
        "for",
        "while",
        "until",
        "tar",
        "zip",
        "7z",
        "cd",
    )
)
"""First words of commands that may be an issue, or the start of one."""
