"""What harm do ordinary commands do together? Deleting, encrypting, flooding, sending away.

Each command alone is harmless: `find`, `openssl`, `tar`, `curl`. What they are pointed at, the loop
that they stand in and what follows makes the deed. Paths of caches and builds are never the user's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.security.report import Finding
from satchel.security.shellalone import accounts, burns, loads, records, stops, uploads
from satchel.security.shellread import read_shell
from satchel.security.whose import is_fixed_place, is_home, is_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.security.regions import Region
    from satchel.security.shellread import Command

_WORTH = (
    "rm ", "rm\n", "-delete", "-exec", "shred", "of=", "truncate ", "unlink ", "openssl ", "gpg",
    "age -", "crypt ", "scp ", "rsync ", "rclone ", " nc ", "\nnc ", "ncat ", "hping3", "ping -",
    "ab -", "wrk -", "hey -", "siege -", "vegeta ", "git push", "reflog", "pkill ", "killall ",
    "kill -", " stop", "disable ", "mask ", "yes ", "fallocate ", "gsutil ", "/dev/zero", "aws s3",
    "aws iam", "useradd", "userdel", "usermod", "adduser", "deluser", "passwd", "dropdb",
    "gh api", "gh ssh-key", "gh repo edit", "gcloud ", "redis-cli", "mongo", "psql ", "mysql ",
    "sqlite3 ", "terraform destroy", "kubectl delete", "az group", "|:", "$0", "${0", " -T", " -F",
    " -d @", " -d@", "--data", "--form", "--upload-file", "--post-file", "while true",
    "while :", "while 1", "while [", "until false",
    "((", "seq ", "{0..", "{1..", "&\n", "& }", "&}",
)  # fmt: skip
"""A text without any of them does none of the deeds."""
_WRAPS = frozenset((
    "sudo", "nohup", "env", "command", "exec", "xargs", "nice", "ionice", "setsid", "timeout",
    "doas", "parallel", "stdbuf", "then", "do",
))  # fmt: skip
_SENDS = re.compile(r"-T|-F|--upload-file|--form|--data|-d|--post-file")
_EXEC = re.compile(r"-exec(?:dir)? (?:sudo )?(?:rm|shred|truncate|unlink)\b")
_ARCHIVE = re.compile(r"\.(?:tgz|tar|zip|7z|gz|xz|bz2|bundle|bak|zst)\b|mktemp")
_LOCKS = re.compile(r"\s(?:-\w*[ce]\w*|--symmetric|--encrypt)\b")
_RESTS = frozenset(("sleep", "break", "wait", "exit", "read"))
_BOMB = re.compile(r"([\w:.]{1,30})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}?\s*;?\s*\}?\s*;?\s*\1")
_SHELLS = frozenset(("shell", "plain"))
_REMOVES = frozenset(("rm", "shred", "unlink", "srm"))
_HOST = re.compile(r"https?://[^\s'\"]{3,200}")


def worth(text: str) -> bool:
    """Whether a text holds a word that a deed needs."""
    text = f"\n{text}\n"
    for word in _WORTH:  # noqa: SIM110 - faster than `any`, and it runs for every part of a page
        if word in text:
            return True
    return False


def find_deeds(path: str, region: Region) -> list[Finding]:
    """What a script, or the commands on a page, do to what is not theirs."""
    text = region.text
    if region.kind not in _SHELLS or not worth(text):
        return []
    found: list[Finding] = []
    bomb = _BOMB.search(text)
    if bomb:
        line = region.line + text.count("\n", 0, bomb.start())
        found.append(Finding("exhausts-machine", path, line, bomb.group()[:80]))
    deeds = _Deeds([_unwrapped(one) for one in read_shell(text)], text)
    for rule, command in deeds.all():
        found.append(Finding(rule, path, region.line + command.line, " ".join(command.words)[:160]))
    return found


def _unwrapped(command: Command) -> Command:
    """A command without `sudo` and its like; the name without its folder."""
    words = command.words
    first = words[0]
    while len(words) > 1 and first in _WRAPS:
        at = 1
        while at < len(words) - 1 and (
            words[at].startswith("-") or "=" in words[at] or words[at].rstrip("smh").isdigit()
        ):
            takes = first == "xargs" and words[at] in {"-I", "-n", "-P", "-L", "-d"}
            at += 2 if takes else 1
        words = words[min(at, len(words) - 1) :]
        first = words[0]
    if first.startswith("/") and first.count("/") < 5:
        first = first.rpartition("/")[2] or first
    return command._replace(words=(first, *words[1:]))


def _elsewhere(address: str) -> bool:
    return is_fixed_place(address.replace("git@", "http://"))


class _Deeds:
    def __init__(self, commands: Sequence[Command], text: str) -> None:
        self.commands = commands
        self.names = {one.words[0] for one in commands}
        self.text = text
        self.folder = ""

    def all(self) -> Iterator[tuple[str, Command]]:
        for at, command in enumerate(self.commands):
            name = command.words[0]
            if name == "cd":
                self.folder = command.words[1] if len(command.words) > 1 else "~"
            look, alone = _LOOKS.get(name), _ALONE.get(name)
            rule = look(self, at, command) if look else alone(command) if alone else ""
            if rule:
                yield rule, command

    # --- destroying -----------------------------------------------------------------------

    def _place(self, path: str) -> str:
        """A path as seen from where the script went."""
        if self.folder and not path.startswith(("/", "~", "$")):
            return f"{self.folder.rstrip('/')}/{path.removeprefix('./')}"
        return path

    def _source(self, at: int) -> str:
        """What flows into a command: the commands before it in its pipeline."""
        here = self.commands[at]
        before = [one for one in self.commands[max(0, at - 4) : at] if one.pipe == here.pipe]
        return " | ".join(" ".join(one.words) for one in before)

    def removes(self, at: int, command: Command) -> str:
        words = command.words[1:]
        if "<" in words:  # a page's `<placeholder>`
            words = words[: max(words.index("<") - 1, 0)]
        targets = [one for one in words if not one.startswith(("-", ">"))]
        flags = "".join(one for one in words if one.startswith("-"))
        if not targets or "{}" in targets:
            source = self._source(at)
            return self._found(source) if source.startswith("find ") else ""
        for one in targets[:20]:
            if one.startswith(("$(find ", "$( find ")):
                return self._found(one[2:-1].strip())
            where = self._place(one)
            if is_home(where) and (
                "r" in flags.lower() or "*" in one or command.words[0] == "shred"
            ):
                return "deletes-user-files"
            if command.loop and any(is_home(part) for part in where.split()):
                return "deletes-user-files"
            if is_work(where) and ("*" in one or "r" in flags.lower() or command.loop):
                return "deletes-work-files"
        return ""

    def finds(self, _at: int, command: Command) -> str:
        words = command.words
        text = " ".join(words)
        kills = "-delete" in words or _EXEC.search(text)
        return self._found(text) if kills else ""

    def _found(self, text: str) -> str:
        """Files that `find` finds and something deletes."""
        if re.search(r"-[acm](?:time|min)\s|-empty\b|-size\s+0|-type l\b|-newer", text):
            return ""  # what is old or empty is cleaned up
        roots: list[str] = []
        for word in text.split()[1:]:
            if word.startswith(("-", "(", "\\", "!")):
                break
            roots.append(self._place(word.strip("'\"")))
        names = re.findall(r"-i?(?:name|path|wholename|regex)\s+['\"]?([^\s'\"]+)", text)
        if names and not any(is_work(name) for name in names):
            return ""
        if any(is_home(root) for root in roots):
            return "deletes-user-files"
        return "deletes-work-files" if any(is_work(root) for root in roots or ["."]) else ""

    def overwrites(self, _at: int, command: Command) -> str:
        words = command.words
        text = " ".join(words)
        if words[0] == "dd":
            empty = re.search(r"\bif=/dev/(?:zero|u?random)\b", text)
            target = re.search(r"\bof=(\S+)", text)
            if not empty or not target or target[1].startswith("/dev/null"):
                return ""
            if is_home(target[1]) or (command.loop and is_home(target[1].split()[0])):
                return "deletes-user-files"
            return "" if "count=" in text else "exhausts-machine"
        if words[0] == "truncate":
            targets = [one for one in words[1:] if not one.startswith("-")]
            if re.search(r"-s\s*0\b", text) and any(is_home(one) for one in targets):
                return "deletes-user-files"
        return ""

    def encrypts(self, at: int, command: Command) -> str:
        words = command.words
        text = " ".join(words)
        if re.search(r"\s-d\b|--decrypt", text):
            return ""
        if words[0] == "openssl" and not re.search(r"openssl (?:enc|aes|smime|rsautl|cms)", text):
            return ""
        if words[0].startswith("gpg") and not _LOCKS.search(text):
            return ""
        if not command.loop and not self._source(at).startswith("find "):
            return ""
        after = [one for one in self.commands[at + 1 : at + 8] if one.words[0] in _REMOVES]
        moved = [one for one in self.commands[at + 1 : at + 6] if one.words[0] == "mv"]
        return "encrypts-user-files" if after or (moved and command.loop) else ""

    # --- using up -------------------------------------------------------------------------

    def requests(self, at: int, command: Command) -> str:
        words = command.words
        text = " ".join(words)
        if words[0] == "ping":
            return "floods-host" if re.search(r"\s(?:-\w*f\w*|--flood)\b", text) else ""
        sent = self._sent(at, command)
        if sent or command.loop < 2:
            return sent or ("uploads-given-file" if uploads(command) else "")
        nearby = self.commands[max(0, at - 12) : at + 13]
        rests = {one.words[0] for one in nearby if one.loop >= 2} & _RESTS
        address = _HOST.search(text)
        local = re.search(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]", text)
        if local or not (address or words[0] in {"nc", "ncat"}):
            return ""
        parallel = command.background or any(one.background and one.loop >= 2 for one in nearby)
        if parallel and is_fixed_place(text) and not (rests - {"wait"}):
            return "floods-host"
        return "many-requests" if not rests else ""

    # --- sending --------------------------------------------------------------------------

    def _sent(self, at: int, command: Command) -> str:
        """Whether a command uploads what was packed before."""
        words = command.words
        text = " ".join(words)
        packed = self._packed(at)
        if not packed or not is_fixed_place(text):
            return ""
        root, archive = packed
        if words[0] in {"curl", "wget"} and not any(_SENDS.match(one) for one in words):
            return ""
        body = archive == "-" or (archive and archive in text)
        if not body:
            return ""
        return "sends-user-folder" if is_home(root) else "sends-work-folder"

    def _packed(self, at: int) -> tuple[str, str] | None:
        """(what was packed, into which file) before a command; `-` is the pipeline."""
        here = self.commands[at]
        for one in reversed(self.commands[max(0, at - 30) : at]):
            name, words = one.words[0], one.words[1:]
            if name not in {"tar", "zip", "7z", "find", "cat", "git"}:
                continue
            targets = [
                word for word in words if not word.startswith("-") and not word.startswith(">")
            ]
            roots = [word for word in targets if is_home(self._place(word)) or is_work(word)]
            if name == "git" and targets[:1] in (["archive"], ["bundle"]):
                roots = ["."]
            if not roots:
                continue
            root = self._place(roots[0])
            if one.pipe == here.pipe:
                return root, "-"
            if name in {"find", "cat", "git"} and "-o" not in words and "bundle" not in words:
                continue
            files = [word for word in targets if _ARCHIVE.search(word)]
            if files:
                return root, files[0]
        return None

    def copies(self, at: int, command: Command) -> str:
        """`scp`, `rsync`, `aws s3 cp` and their like."""
        words = [one for one in command.words[1:] if not one.startswith("-")]
        if not words or not re.search(r"^[\w.@-]+:[^\\]|^(?:s3|gs)://|^rsync://", words[-1]):
            return ""
        host = words[-1].rpartition("@")[2].removeprefix("s3://").removeprefix("gs://")
        if "$" in words[-1] or not is_fixed_place(f"http://{host}"):
            return ""
        root = next((one for one in words[:-1] if is_home(one) or is_work(one)), "")
        if root:
            return "sends-user-folder" if is_home(root) else "sends-work-folder"
        return self._sent(at, command._replace(words=(*command.words, "http://" + words[-1])))

    def pushes(self, at: int, command: Command) -> str:
        words = [one for one in command.words[1:] if not one.startswith("-")]
        text = " ".join(command.words)
        if words[:1] == ["push"] and len(words) > 1:
            if re.match(r"https?://|git@|ssh://", words[1]):
                return "pushes-elsewhere" if _elsewhere(words[1]) else ""
            for one in self.commands[max(0, at - 60) : at]:
                line = " ".join(one.words)
                found = re.search(r"git remote (?:add|set-url)(?: --?\w+)* (\S+) (\S+)", line)
                if found and found[1] == words[1] and _elsewhere(found[2]):
                    return "pushes-elsewhere"
        if re.search(r"git reflog expire\b.*--expire(?:-unreachable)?=now", text):
            return "erases-history"
        return ""

    def clouds(self, at: int, command: Command) -> str:
        return records(command) or self.copies(at, command) or accounts(command)


_TOGETHER = (
    (_Deeds.removes, "rm shred unlink srm"),
    (_Deeds.finds, "find"),
    (_Deeds.overwrites, "dd truncate"),
    (_Deeds.encrypts, "openssl gpg gpg2 age ccrypt mcrypt"),
    (_Deeds.requests, "curl wget nc ncat ping"),
    (_Deeds.copies, "scp rsync rclone"),
    (_Deeds.pushes, "git"),
    (_Deeds.clouds, "aws gsutil"),
)
_BY_ITSELF = (
    (loads, "ab wrk hey siege hping3 slowloris vegeta"),
    (burns, "yes fallocate cat bash sh $0 ${0}"),
    (stops, "systemctl service pkill killall kill launchctl"),
    (accounts, "useradd adduser userdel deluser chpasswd passwd usermod gh gcloud"),
    (records, "dropdb redis-cli psql mysql sqlite3 mongo mongosh terraform kubectl az"),
)
_LOOKS = {word: look for look, words in _TOGETHER for word in words.split()}
_ALONE = {word: look for look, words in _BY_ITSELF for word in words.split()}
STARTS = frozenset((*_LOOKS, *_ALONE, *_WRAPS, "for", "while", "until", "tar", "zip", "7z", "cd"))
"""Words with which a command begins that may be a deed, or the beginning of one."""
