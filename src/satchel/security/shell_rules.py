"""Harmful combinations of shell commands: deleting, encrypting, flooding, sending away.

Each command alone is harmless: `find`, `openssl`, `tar`, `curl`. The target, the surrounding loop
and the next command make the issue. Caches and build folders never count as the user's files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.security.regions import Region

# --- reading ------------------------------------------------------------------------------
# A rough parser for words, quotes, pipes, loops and variables: enough to recognise `rm "$f"` in a
# loop over the user's documents. What it cannot resolve stays as written. Nothing is run.

_MAX_WORD_CHARS = 4000
"""In a longer word, variables are not replaced by their values."""
_MAX_VALUE_CHARS = 400
"""Of a variable."""
_MAX_NESTING = 3
"""Of command substitutions."""
_TOKEN = re.compile(
    r"(?P<space>(?:[ \t]|\\\n)+)|(?P<comment>(?<![^\s;|&(])\#[^\n]*)|(?P<end>\n|&&|\|\||;;?)"
    r"|(?P<redirect>&>>?|\d?>>?&?\d?|<<<|<(?![<(]))|(?P<pipe>\|&?)|(?P<background>&)"
    r"|(?P<here><<-?[ \t]*['\"]?\w+['\"]?)"
    r"|(?P<inner>[$<>]\()|(?P<paren>[()])|(?P<single>'[^']*')|(?P<double>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<piece>\$\{[^}\n]{0,200}\}|\$'[^']*'|\\.|`[^`\n]{0,500}`|\{[^{}\s;|&]{0,80}\}"
    r"|[^\s;|&(){}<>'\"\\$`]+|[^\n])",
    re.DOTALL,
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w{0,60})=(.*)", re.DOTALL)
_USED = re.compile(
    r"\$(?:\{([A-Za-z_]\w{0,60}|\d)(?::?[-=]([^}]{0,160}))?[^}]{0,60}\}|([A-Za-z_]\w{0,60}))"
)
_FED = re.compile(r"\bdone[ \t]*<[ \t]*(?:<\(([^\n]{0,300})\)|<<[ \t]*\"?([^\n]{0,300}))")
_OPENERS = frozenset(("then", "do", "else", "elif", "if", "!", "{", "time", "("))
_LOOPS = frozenset(("for", "while", "until", "select"))
_DECLARES = frozenset(("export", "local", "readonly", "declare", "typeset"))
_MANY = re.compile(r"\{\d+\.\.(\d+)\}|\bseq\s+(?:\d+\s+)?(\d+)|<=?\s*(\d+)")
_MIN_MANY_ROUNDS = 100


class ShellCommand(NamedTuple):
    """A simple command."""

    words: tuple[str, ...]
    """Without quotes, and with the values of known variables."""
    line: int
    """0-based."""
    loop: int = 0
    """0: no loop; 1: a loop; 2: a loop with many rounds; 3: an endless loop."""
    pipe: int = 0
    """Equal for the commands of one pipeline."""
    background: bool = False


class _ShellReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.commands: list[ShellCommand] = []
        self.known: dict[str, str] = {}
        self.loops: list[int] = []
        """Weights, as in `ShellCommand.loop`."""
        self.pipes = 0
        self.fed = [found[1] or found[2] or "" for found in _FED.finditer(text)]

    def read(self, text: str, line: int, depth: int) -> None:
        words: list[str] = []
        word: str | None = None
        here = ""
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                return
            kind, piece = found.lastgroup, found.group()
            at = found.end()
            if kind in {"piece", "single", "double", "inner"}:
                if kind == "inner":
                    end = _closing(text, at)
                    inner = text[at : end - 1]
                    piece += inner + ")"
                    if depth < _MAX_NESTING:
                        self._inside(inner, line, depth)
                    at = end
                word = self._longer(word or "", piece, kind, line, depth)
                line += piece.count("\n")
                continue
            if word is not None:
                words.append(word)
                word = None
            if kind == "redirect":
                words.append(piece)
            elif kind == "here":
                here = piece.lstrip("<-").strip(" \t'\"")
            elif kind in {"end", "pipe", "background", "paren"}:
                self._finish(words, line, piped=kind == "pipe", background=kind == "background")
                words = []
            line += piece.count("\n")
            if here and piece == "\n":
                at, lines = _after_here(text, at, here)
                line += lines
                here = ""
        if word is not None:
            words.append(word)
        self._finish(words, line, piped=False, background=False)

    def _longer(self, word: str, piece: str, kind: str, line: int, depth: int) -> str:
        long = len(word) >= _MAX_WORD_CHARS
        return word + (piece if long else self._value(piece, kind, line, depth))

    def _inside(self, text: str, line: int, depth: int) -> None:
        pipes, self.pipes = self.pipes, self.pipes + 1000
        self.read(text, line, depth + 1)
        self.pipes = pipes

    def _value(self, piece: str, kind: str, line: int, depth: int) -> str:
        if kind == "single":
            return piece[1:-1]
        if kind == "double":
            piece = piece[1:-1].replace('\\"', '"')
            if "$(" in piece and depth < _MAX_NESTING:
                start = piece.index("$(") + 2
                self._inside(piece[start : _closing(piece, start) - 1], line, depth)
        elif piece.startswith("\\"):
            return piece[1:]
        if "$" not in piece:
            return piece
        return _USED.sub(self._filled, piece)[: _MAX_VALUE_CHARS * 4]

    def _filled(self, found: re.Match[str]) -> str:
        name = found[1] or found[3]
        if name in {"HOME", "PWD", "USER"}:
            return f"${name}"
        return self.known.get(name) or found[2] or found.group()

    def _finish(self, words: list[str], line: int, *, piped: bool, background: bool) -> None:
        first = next((at for at, word in enumerate(words) if word not in _OPENERS), len(words))
        if words := words[first:]:
            self._command(words, line, background=background)
        if not piped:
            self.pipes += 1

    def _command(self, words: list[str], line: int, *, background: bool) -> None:
        first = words[0]
        if first in _LOOPS:
            self._opens(words)
            if first == "for" or len(words) < 2:
                return
            words = words[1:]
        elif first == "done":
            weight = self.loops.pop() if self.loops else 0
            if background:
                self.commands.append(ShellCommand(("done",), line, weight, self.pipes, background))
            return
        elif first in _DECLARES:
            words = [one for one in words[1:] if not one.startswith("-")] or words
        at = 0
        for one in words:
            found = _ASSIGNED.fullmatch(one)
            if found is None:
                break
            self.known[found[1]] = found[2][:_MAX_VALUE_CHARS]
            at += 1
        if at == len(words):
            return
        weight = max(self.loops, default=0)
        self.commands.append(ShellCommand(tuple(words[at:]), line, weight, self.pipes, background))

    def _opens(self, words: list[str]) -> None:
        head = " ".join(words)
        if words[0] == "for" and len(words) > 3 and words[2] == "in":
            self.known[words[1]] = " ".join(words[3:])[:_MAX_VALUE_CHARS]
            self.loops.append(_rounds(head))
            return
        if words[0] in {"while", "until"} and "read" in words:
            before = [one for one in self.commands[-4:] if one.pipe == self.pipes]
            source = " | ".join(" ".join(one.words) for one in before)
            if not source and self.fed:
                source = self.fed.pop(0)
            self.known[words[-1]] = f"$({source})"[:_MAX_VALUE_CHARS] if source else ""
            self.loops.append(1)
            return
        endless = words[0] == "while" and words[1:2] in (["true"], [":"], ["1"], ["[", "1"])
        endless |= words[0] == "until" and words[1:2] == ["false"]
        self.loops.append(3 if endless else _rounds(head))


def _rounds(head: str) -> int:
    for found in _MANY.finditer(head):
        if int((found[1] or found[2] or found[3])[:9]) >= _MIN_MANY_ROUNDS:
            return 2
    return 1


def _closing(text: str, at: int) -> int:
    """The position after the bracket that closes the one before `at`."""
    depth = 1
    for place in range(at, min(at + 4000, len(text))):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return min(at + 4000, len(text)) + 1


def _after_here(text: str, at: int, word: str) -> tuple[int, int]:
    """(position after a here-document, its number of lines)."""
    found = re.compile(rf"^[ \t]*{re.escape(word)}[ \t]*$", re.MULTILINE).search(text, at)
    end = found.end() if found else len(text)
    return end, text.count("\n", at, end)


_FOR = re.compile(r"\bfor\s*\(\(([^)]{0,80})\)\)")


def _plain_for(found: re.Match[str]) -> str:
    """`for ((…))` as a loop that the parser supports."""
    head = found[1].replace(" ", "")
    if head == ";;":
        return "while true"
    number = re.search(r"<=?(\d{1,9})", head)
    return f"for i in {{1..{number[1] if number else 9}}}"


def read_shell(text: str) -> list[ShellCommand]:
    """The commands of a script, in the order of the text."""
    reader = _ShellReader(text)
    if "((" in text:
        text = _FOR.sub(_plain_for, text)
    reader.read(text, 0, 0)
    return reader.commands


# --- paths and hosts ----------------------------------------------------------------------
# Deleting `build/` is cleaning up; deleting `~/Documents` is not. An address in a variable is the
# user's choice; one written into the skill is the author's.

_GENERATED_PATH = re.compile(
    r"(?:^|/)(?:\.?(?:cache|caches|tmp|temp|build|dist|out|output|node_modules|\.?venv|target|logs?|coverage"
    r"|__pycache__|\.\w[\w.-]*|generated|artifacts?|downloads/\w+|var/(?:cache|tmp)|library))(?:/|$)"
    r"|\.(?:pyc|pyo|tmp|temp|log|bak|o|class|swp|orig|rej|lock|pid|egg-info|DS_Store|map)['\"]?$|mktemp"
    r"|\btest|DS_Store|__pycache__",
    re.IGNORECASE,
)
_HOME = re.compile(
    r"(?:~|\$HOME|\$\(echo ~\)|/home/(?:\*|\$\w+|\w+)|/Users/(?:\*|\$\w+|\w+)|/root|%USERPROFILE%)"
    r"(?:/?|/\*+|/\*\*/\*|/(?:Documents|Desktop|Pictures|Photos|Downloads|Music|Movies|Videos|Projects|Work"
    r"|work|projects|documents|repos|src|code)(?:/.{0,80})?|/(?:\*\*/)?\*\.\w{1,5}|/\.(?:ssh|gnupg|aws|kube))/?$"
    r"|/(?:\*)?$|/(?:home|Users|etc|usr|mnt|media|Volumes)(?:/\*?)?$"
)
_DOCUMENTS = re.compile(
    r"(?:\./|\$PWD/|\*\*/){0,2}\*\.\{?(?:docx?|xlsx?|pptx?|pdf|odt|ods|csv|txt|md|jpe?g|png|heic|mp4|py|js|ts|java|go|rs|c|cpp"
    r"|sql|db|sqlite|json|ipynb|tex|key|pages|numbers|eml|pst)\b",
    re.IGNORECASE,
)
_WORK = re.compile(
    r"(?:\.|\./|\./\*|\*|\.\.|\$PWD|\$\(pwd\)|\$\(git rev-parse --show-toplevel\)|/workspaces?"
    r"|\$\{?(?:WORKSPACE|PROJECT_ROOT|PROJECT_DIR|REPO_ROOT|GITHUB_WORKSPACE|CLAUDE_PROJECT_DIR)\}?"
    r"|\.git)(?:/\*?|/\*\*(?:/\*)?)?$"
)
_ADDRESS = re.compile(
    r"(?:https?|ftps?|wss?|tcp|ssh|git|sftp)://(?:[^\s/@'\"]{1,80}@)?([A-Za-z0-9][\w.-]{2,200})"
    r"|@([A-Za-z0-9][\w-]*(?:\.[\w-]+)+):"
    r"|\b((?:\d{1,3}\.){3}\d{1,3})\b"
)
_PLACEHOLDER_HOST = re.compile(
    r"(?:^|\.)(?:localhost|example\.(?:com|org|net)|local|internal|test)$|^(?:127|10|192\.168|0)\."
    r"|your|my-?(?:server|host|site|app)|placeholder|<|\{|\$|xxx|acme|company|domain\.|^host$|^server"
    r"|^user|^remote|^api\.(?:github|openai|anthropic|slack)\.com$|(?:^|\.)slack\.com$|amazonaws\.com$"
    r"|googleapis\.com$",
    re.IGNORECASE,
)


def is_generated_path(path: str) -> bool:
    """Whether a path is generated by programs: a cache, a build, a log."""
    return bool(_GENERATED_PATH.search(path))


def is_home(path: str) -> bool:
    """Whether a path is the user's home, a folder of documents in it, or a system folder."""
    path = path.strip("'\"")
    return any(
        bool(_HOME.match(one)) and not _GENERATED_PATH.search(one) for one in path.split()[:20]
    )


def is_work(path: str) -> bool:
    """Whether a path is the working folder, or all documents of one type."""
    path = path.strip("'\"")
    for one in path.split()[:20]:
        if _GENERATED_PATH.search(one) and one != ".git":
            continue
        if _WORK.match(one) or _DOCUMENTS.match(one):
            return True
    return False


def names_fixed_host(text: str) -> bool:
    """Whether a text contains the address of a real host that is not a placeholder."""
    for found in _ADDRESS.finditer(text):
        host = found[1] or found[2] or found[3]
        if not _PLACEHOLDER_HOST.search(host):
            return True
    return False


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


def is_upload(command: ShellCommand) -> bool:
    """Whether a command uploads a file to a fixed address."""
    words = command.words
    text = " ".join(words)
    if not names_fixed_host(text):
        return False
    return "<" in words if words[0] in {"nc", "ncat"} else bool(_UPLOADS.search(text))


def load_test_issue(command: ShellCommand) -> str:
    """Programs for load tests."""
    text = " ".join(command.words)
    if command.words[0] == "hping3":
        return "floods-host"
    if "localhost" in text or "127.0.0.1" in text or not names_fixed_host(text):
        return ""
    return "many-requests" if re.search(r"\s-[ncztd]", text) else ""


def exhaustion_issue(command: ShellCommand) -> str:
    """Endless use of processor, disk or processes."""
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


def stop_issue(command: ShellCommand) -> str:
    """Stopping security services, or all processes."""
    words = command.words
    text = " ".join(words)
    if words[0] == "kill":
        return "exhausts-machine" if words[-1] == "-1" and len(words) > 2 else ""
    halts = words[0] in {"pkill", "killall"} or _STOPS.search(text)
    return "stops-guards" if halts and any(_GUARDS.match(one) for one in words[1:]) else ""


def account_issue(command: ShellCommand) -> str:
    """Changes of accounts, keys and permissions."""
    return "changes-accounts" if _ACCOUNTS.search(" ".join(command.words)) else ""


def record_issue(command: ShellCommand) -> str:
    """Deletion of databases, buckets and environments."""
    return "destroys-records" if _RECORDS.search(" ".join(command.words)) else ""


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


def find_shell_issues(path: str, region: Region) -> list[Finding]:
    """The issues of a script, or of the commands on a page."""
    text = region.text
    if region.kind not in _SHELLS:
        return []
    found: list[Finding] = []
    bomb = _BOMB.search(text) if "()" in text else None
    if bomb:
        line = region.line + text.count("\n", 0, bomb.start())
        found.append(Finding("exhausts-machine", path, line, bomb.group()[:80]))
    if not _CHECKED.search(text.translate(_JOINED)):
        return found
    analyzer = _ShellAnalyzer([_unwrapped(one) for one in read_shell(text)])
    for rule, command in analyzer.all():
        found.append(Finding(rule, path, region.line + command.line, " ".join(command.words)[:160]))
    return found


def _unwrapped(command: ShellCommand) -> ShellCommand:
    """A command without wrappers such as `sudo`, and without the folder of its name."""
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


def _is_foreign_remote(address: str) -> bool:
    return names_fixed_host(address.replace("git@", "http://"))


class _ShellAnalyzer:
    def __init__(self, commands: Sequence[ShellCommand]) -> None:
        self.commands = commands
        self.folder = ""

    def all(self) -> Iterator[tuple[str, ShellCommand]]:
        for at, command in enumerate(self.commands):
            name = command.words[0]
            if name == "cd":
                self.folder = command.words[1] if len(command.words) > 1 else "~"
            in_context, single = _CONTEXT_CHECKS.get(name), _SINGLE_CHECKS.get(name)
            rule = (
                in_context(self, at, command) if in_context else single(command) if single else ""
            )
            if rule:
                yield rule, command

    # --- destroying -----------------------------------------------------------------------

    def _place(self, path: str) -> str:
        """A path relative to the folder that the script changed to."""
        if self.folder and not path.startswith(("/", "~", "$")):
            return f"{self.folder.rstrip('/')}/{path.removeprefix('./')}"
        return path

    def _source(self, at: int) -> str:
        """The commands before this one in its pipeline."""
        here = self.commands[at]
        before = [one for one in self.commands[max(0, at - 4) : at] if one.pipe == here.pipe]
        return " | ".join(" ".join(one.words) for one in before)

    def removes(self, at: int, command: ShellCommand) -> str:
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

    def finds(self, _at: int, command: ShellCommand) -> str:
        words = command.words
        text = " ".join(words)
        kills = "-delete" in words or _EXEC.search(text)
        return self._found(text) if kills else ""

    def _found(self, text: str) -> str:
        """The issue of deleting the files that `find` finds."""
        if re.search(r"-[acm](?:time|min)\s|-empty\b|-size\s+0|-type l\b|-newer", text):
            return ""  # cleaning up old or empty files
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

    def overwrites(self, _at: int, command: ShellCommand) -> str:
        words = command.words
        text = " ".join(words)
        if words[0] == "dd":
            empty = re.search(r"\bif=/dev/(?:zero|u?random)\b", text)
            target = re.search(r"\bof=(\S+)", text)
            if not empty or not target or target[1].startswith(("/dev/", "$")):
                return ""
            if is_home(target[1]) or (command.loop and is_home(target[1].split()[0])):
                return "deletes-user-files"
            return "" if "count=" in text else "exhausts-machine"
        if words[0] == "truncate":
            targets = [one for one in words[1:] if not one.startswith("-")]
            if re.search(r"-s\s*0\b", text) and any(is_home(one) for one in targets):
                return "deletes-user-files"
        return ""

    def encrypts(self, at: int, command: ShellCommand) -> str:
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

    def requests(self, at: int, command: ShellCommand) -> str:
        words = command.words
        text = " ".join(words)
        if words[0] == "ping":
            return "floods-host" if re.search(r"\s(?:-\w*f\w*|--flood)\b", text) else ""
        sent = self._sent(at, command)
        if sent or command.loop < 2:
            return sent or ("uploads-given-file" if is_upload(command) else "")
        nearby = self.commands[max(0, at - 12) : at + 13]
        rests = {one.words[0] for one in nearby if one.loop >= 2} & _RESTS
        address = _HOST.search(text)
        local = re.search(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]", text)
        if local or not (address or words[0] in {"nc", "ncat"}):
            return ""
        parallel = command.background or any(one.background and one.loop >= 2 for one in nearby)
        if parallel and names_fixed_host(text) and not (rests - {"wait"}):
            return "floods-host"
        return "many-requests" if not rests else ""

    # --- sending --------------------------------------------------------------------------

    def _sent(self, at: int, command: ShellCommand) -> str:
        """The issue of uploading an archive that was made before."""
        words = command.words
        text = " ".join(words)
        packed = self._packed(at)
        if not packed or not names_fixed_host(text):
            return ""
        root, archive = packed
        if words[0] in {"curl", "wget"} and not any(_SENDS.match(one) for one in words):
            return ""
        body = archive == "-" or (archive and archive in text)
        if not body:
            return ""
        return "sends-user-folder" if is_home(root) else "sends-work-folder"

    def _packed(self, at: int) -> tuple[str, str] | None:
        """(the packed folder, the archive) before a command; `-` is the pipeline."""
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

    def copies(self, at: int, command: ShellCommand) -> str:
        """`scp`, `rsync`, `aws s3 cp` and similar."""
        words = [one for one in command.words[1:] if not one.startswith("-")]
        if not words or not re.search(r"^[\w.@-]+:[^\\]|^(?:s3|gs)://|^rsync://", words[-1]):
            return ""
        host = words[-1].rpartition("@")[2].removeprefix("s3://").removeprefix("gs://")
        if "$" in words[-1] or not names_fixed_host(f"http://{host}"):
            return ""
        root = next((one for one in words[:-1] if is_home(one) or is_work(one)), "")
        if root:
            return "sends-user-folder" if is_home(root) else "sends-work-folder"
        return self._sent(at, command._replace(words=(*command.words, "http://" + words[-1])))

    def pushes(self, at: int, command: ShellCommand) -> str:
        words = [one for one in command.words[1:] if not one.startswith("-")]
        text = " ".join(command.words)
        if words[:1] == ["push"] and len(words) > 1:
            if re.match(r"https?://|git@|ssh://", words[1]):
                return "pushes-elsewhere" if _is_foreign_remote(words[1]) else ""
            for one in self.commands[max(0, at - 60) : at]:
                line = " ".join(one.words)
                found = re.search(r"git remote (?:add|set-url)(?: --?\w+)* (\S+) (\S+)", line)
                if found and found[1] == words[1] and _is_foreign_remote(found[2]):
                    return "pushes-elsewhere"
        if re.search(r"git reflog expire\b.*--expire(?:-unreachable)?=now", text):
            return "erases-history"
        return ""

    def clouds(self, at: int, command: ShellCommand) -> str:
        return record_issue(command) or self.copies(at, command) or account_issue(command)


_CONTEXT_TABLE = (
    (_ShellAnalyzer.removes, "rm shred unlink srm"),
    (_ShellAnalyzer.finds, "find"),
    (_ShellAnalyzer.overwrites, "dd truncate"),
    (_ShellAnalyzer.encrypts, "openssl gpg gpg2 age ccrypt mcrypt"),
    (_ShellAnalyzer.requests, "curl wget nc ncat ping"),
    (_ShellAnalyzer.copies, "scp rsync rclone"),
    (_ShellAnalyzer.pushes, "git"),
    (_ShellAnalyzer.clouds, "aws gsutil"),
)
_SINGLE_TABLE = (
    (load_test_issue, "ab wrk hey siege hping3 slowloris vegeta"),
    (exhaustion_issue, "yes fallocate cat bash sh $0 ${0}"),
    (stop_issue, "systemctl service pkill killall kill launchctl"),
    (account_issue, "useradd adduser userdel deluser chpasswd passwd usermod gh gcloud"),
    (record_issue, "dropdb redis-cli psql mysql sqlite3 mongo mongosh terraform kubectl az"),
)
_CONTEXT_CHECKS = {word: check for check, words in _CONTEXT_TABLE for word in words.split()}
_SINGLE_CHECKS = {word: check for check, words in _SINGLE_TABLE for word in words.split()}
_NAMES = "|".join(map(re.escape, sorted({*_CONTEXT_CHECKS, *_SINGLE_CHECKS})))
_CHECKED = re.compile(rf"(?<![\w-])(?:{_NAMES})(?![\w-])|\$\{{?\w+\}}?[\w$]")
"""The name of a command with a check, or one that variables may make."""
_JOINED = str.maketrans("", "", "'\"\\`")
STARTS = frozenset(
    (*_CONTEXT_CHECKS, *_SINGLE_CHECKS, *_WRAPS, "for", "while", "until", "tar", "zip", "7z", "cd")
)
"""First words of commands that may be an issue, or the start of one."""
