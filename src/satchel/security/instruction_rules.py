"""Side tasks in pages, secrets sent to foreign hosts, and texts that discuss attacks.

"After every edit, run `scripts/tidy.sh`" is harmless or not depending on the script. Here the two
are combined: an issue that alone needs review is blocked where a page orders it as a side task.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

from satchel.security import shell_rules
from satchel.security.regions import Region
from satchel.security.report import Finding
from satchel.security.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from satchel.security.report import TimeBudget

# --- secrets and hosts --------------------------------------------------------------------
# A token belongs to the service that issued it. In the body of a request to another host it is
# leaked. In a header to an unknown host it may be for a gateway, which is not reported.

_ISSUERS: dict[str, tuple[str, ...]] = {
    "AWS": ("amazonaws.com", "aws.amazon.com"),
    "AZURE": ("azure.com", "microsoftonline.com", "windows.net", "azure.net", "microsoft.com"),
    "GCP": ("googleapis.com", "google.com"),
    "GOOGLE": ("googleapis.com", "google.com"),
    "GEMINI": ("googleapis.com", "google.com"),
    "GITHUB": ("github.com", "githubusercontent.com", "ghcr.io"),
    "GH": ("github.com", "githubusercontent.com", "ghcr.io"),
    "GITLAB": ("gitlab.com",),
    "OPENAI": ("openai.com", "azure.com"),
    "ANTHROPIC": ("anthropic.com", "claude.ai", "claude.com"),
    # Package registries are recognised by a part of the host name, for mirrors.
    "NPM": ("npmjs",),
    "PYPI": ("pypi",),
    "DOCKER": ("docker.com", "docker.io"),
    "STRIPE": ("stripe.com",),
    "SLACK": ("slack.com",),
    "TWILIO": ("twilio.com",),
    "SENDGRID": ("sendgrid.com", "sendgrid.net"),
    "DATADOG": ("datadoghq.com", "datadoghq.eu"),
    "HUGGINGFACE": ("huggingface.co",),
    "HF": ("huggingface.co",),
    "CLOUDFLARE": ("cloudflare.com",),
    "VERCEL": ("vercel.com",),
    "HEROKU": ("heroku.com",),
    "DISCORD": ("discord.com", "discordapp.com"),
    "TELEGRAM": ("telegram.org",),
    "KUBE": (),
    "SSH": (),
    "DATABASE": (),
    "POSTGRES": (),
    "MYSQL": (),
    "REDIS": (),
    "JWT": (),
    "SUDO": (),
}
"""First word of a variable -> hosts of the issuer; empty for secrets without one."""
_SECRET = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIAL|SERVICE_ACCOUNT"
    r"|MNEMONIC|SEED_PHRASE|_KEY$|^KEY_|DATABASE_URL|_PAT$|_AUTH$|COOKIE|SESSION_ID)",
    re.IGNORECASE,
)
_HOME = re.compile(r"^(?:localhost|127\.|0\.0\.0\.0|\[?::1|10\.|192\.168\.|host\.docker\.internal)")
_CALL = re.compile(
    r"\b(?:curl|wget|http|xh|invoke-restmethod|invoke-webrequest|irm|iwr)\b", re.IGNORECASE
)
_URL = re.compile(r"https?://(?:[^\s/@'\"]{1,80}@)?([A-Za-z0-9.\-\[\]]+)", re.IGNORECASE)
_BODY = re.compile(
    r"(?:\s-d|\s-F|\s--data(?:-raw|-binary|-urlencode|-ascii)?|\s--form(?:-string)?|\s--json"
    r"|\s--post-data|\s-Body)[\s=]{0,3}(\"(?:[^\"\\]|\\.){0,2000}\"|'[^']{0,2000}'|\S{1,2000})",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\$(?:env:)?[({]?([A-Z][A-Z0-9_]{2,60})\b[)}]?")
_SHELLS = frozenset(("shell", "plain", "powershell", "prose", "decoded"))
_GRANT = re.compile(
    r"grant_type|client_id|client_secret|refresh_token|code_verifier", re.IGNORECASE
)
"""Token exchanges legitimately send a secret in the body."""


def is_secret(variable: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return bool(_SECRET.search(variable))


def is_foreign_host(variable: str, host: str) -> bool:
    """Whether `host` is not one of the issuer of the secret."""
    hosts = _ISSUERS.get(issuer(variable))
    host = host.lower().rstrip(".")
    if hosts is None or not is_secret(variable) or _HOME.match(host):
        return False
    return not any(
        host == own or host.endswith("." + own) or ("." not in own and own in host.split("."))
        for own in hosts
    )


def issuer(variable: str) -> str:
    """The first word of a variable's name, which identifies the issuer."""
    return variable.upper().partition("_")[0]


def host_of(url: str) -> str:
    """The host of an address, or nothing."""
    found = _URL.search(url)
    return found[1] if found else ""


def find_flows(path: str, region: Region) -> Iterator[Finding]:
    """Commands that send a secret in the body of a request to a foreign host."""
    text = region.text
    if region.kind not in _SHELLS or "$" not in text or "http" not in text:
        return
    if not _CALL.search(text):
        return
    at = counted = 0
    number = region.line
    for line in text.replace("\\\n", "\\ ").split("\n"):
        number += text.count("\n", counted, at)
        counted, at = at, at + len(line) + 1
        if "$" not in line or line.lstrip().startswith("#"):
            continue
        call = _CALL.search(line)
        if call is None:
            continue
        host = host_of(line[call.start() :])
        if not host:
            continue
        for body in _BODY.finditer(line, call.start()):
            names = [name for name in _VARIABLE.findall(body[1]) if is_foreign_host(name, host)]
            if names and not _GRANT.search(body[1]):
                yield Finding("sends-secret-variable", path, number, f"{names[0]} → {host}")
                break


# --- lessons ------------------------------------------------------------------------------
# A page about attacks contains the same words as an attack. Where it names the attack, quotes the
# words or forbids them, a blocking rule becomes the review rule `describes-attack`. Scripts,
# frontmatter and hidden comments never count as lessons.

_STRONG = (
    r"\b(?:attack(?:er|s|ers|ing|ed)?|malicious(?:ly)?|malware|inject(?:ion|ions|ed|ing)"
    r"|exploit\w*|payloads?|vulnerab\w+|red[ -]?flags?|adversar\w+|pen-?test\w*|red[ -]?team\w*"
    r"|jailbreak\w*|exfiltrat\w+|(?:reverse|bind|web) shells?|phishing|anti-?patterns?|ctf|owasp"
    r"|mitre|backdoor\w*|trojan\w*|post-?exploitation|privilege escalation|persistence techniques?"
    r"|forensic\w*|incident response|threat (?:model|hunt|actor|intel)\w*|guardrails?)\b"
    r"|攻击|恶意|注入|漏洞|越狱|木马|骗局|诈骗|atacante|\bataque|malicios|estafa|злоумышлен|\bатак"
    r"|вредонос|мошен|фишинг|攻撃|悪意|詐欺|フィッシング|angreifer|angriff|bösartig|schadcode|betrug"
    r"|attaquant|malveillan|hameçonnage|공격|악성|피싱|사기"
)
_VILLAIN = re.compile(
    r"\b(?:attacker|evil|malicious|hacker|badguy)\.(?:com|net|org|io|tld|test)\b|attacker@|@kali\b",
    re.IGNORECASE,
)
"""Hosts that only examples use."""
_LESSON = re.compile(_STRONG, re.IGNORECASE)
"""Words of pages about attacks."""
_TITLE = re.compile(
    _STRONG + r"|\b(?:suspicious|threats?|detect\w*|indicators?|untrusted|dangerous|insecure|unsafe"
    r"|hostile|forbidden|prohibited|block(?:ed|list)"
    r"|security (?:review|audit|scan|check|risk|issue)\w*|harmful"
    r"|bad (?:example|practice|pattern)s?|what not to do|never do|don[’']?t|avoid|do not)\b"
    r"|危险|可疑|禁止|检测|威胁|反例",
    re.IGNORECASE,
)
"""Words of headings above such text."""
_FORBIDS = re.compile(
    r"(?:\b(?:never|don[’']?t|do not|does not|must not|should not|shouldn[’']?t|cannot|can[’']?t"
    r"|avoid|refuse\w*|reject\w*|forbid\w*|deny|denies|ignore (?:any )?requests?|block\w*|flag\w*"
    r"|instead of|rather than|not to|wrong|bad|e\.g\.|for example|such as|examples?|say(?:s|ing)?"
    r"|claim\w*"
    r"|looks? (?:for|like)|search(?:es)? for|grep|regex\w*|pattern\w*|detect\w*|suspicious\w*"
    r"|attempts? to|tr(?:y|ies|ying) to|requests? to|asks? (?:you )?to"
    r"|when (?:you )?(?:need|want) to"
    r"|you need to|could|would|might)\b"
    r"|[❌✗🚫⛔]|不要|切勿|禁止|例如|避免|不得)[^\n]{0,100}$",
    re.IGNORECASE,
)
"""Words before a match, on the same line, that forbid or quote it."""
_LIST = re.compile(
    r"(?:❌|🚫|⛔|\b(?:don[’']?ts?|do not|never|avoid|must not)\b)[^\n]{0,30}:\W{0,6}\n"
    r"(?:[ \t]{0,8}[-*+\d][^\n]{0,200}\n){0,12}$",
    re.IGNORECASE,
)
"""Lines above an item in a list of things not to do."""
_ADDRESS = re.compile(r"[a-z+]{2,12}://\S+|\b[\w-]{1,63}(?:\.[\w-]{1,63}){2,8}")
"""Hosts and paths, which are ignored when a page is classified."""
_MAX_LINE_CHARS = 4000
"""Of a longer line, the part before a match is searched for words about attacks."""
_PAGES = frozenset(("prose", "plain", "shell", "powershell", "python", "javascript", "code", "data",
                    "decoded"))  # fmt: skip


def is_lesson(region: Region, path: str) -> bool:
    """Whether a part of a page is below words about attacks."""
    if region.script or region.kind not in _PAGES:
        return False
    if _TITLE.search(region.heading) or _LESSON.search(_ADDRESS.sub(" ", region.above)):
        return True
    name = os.path.splitext(path.lower())[0].replace("-", " ").replace("_", " ").replace("/", " ")
    return not path.lower().endswith("skill.md") and bool(_TITLE.search(name))


def is_example(region: Region, path: str, start: int, end: int) -> bool:
    """Whether the words around a match discuss it instead of ordering it."""
    if region.script or region.kind not in _PAGES:
        return False
    text = region.text
    reach = max(0, start - _MAX_LINE_CHARS)
    line_start = max(text.rfind("\n", reach, start) + 1, reach)
    before = text[max(line_start, start - 200) : start]
    if _FORBIDS.search(_ADDRESS.sub(" ", before)):
        return True
    if _LIST.search(text[max(0, line_start - 600) : line_start]):
        return True
    after = text[end : end + 200].partition("\n")[0]
    around = text[max(0, line_start - 240) : line_start] + before + " " + after
    if _LESSON.search(_ADDRESS.sub(" ", around)) or _quoted(region, before, after):
        return True
    if _VILLAIN.search(before + text[start:end] + after):
        return True
    return is_lesson(region, path)


def downgrade(finding: Finding) -> Finding:
    """A blocking finding as one for review."""
    shown = f"{finding.rule}: {finding.evidence}"
    return Finding("describes-attack", finding.path, finding.line, shown[:160])


def _quoted(region: Region, before: str, after: str) -> bool:
    """Whether a match in prose is in quotes."""
    if region.kind != "prose" or not before or not after:
        return False
    return before[-1] in "\"“„«「『'" and after[0] in "\"”“»」』',.…!"


_SIDE_TASK = re.compile(
    r"\b(?:after|before|upon|following) (?:every|each|any|all|you|the|using|creating|editing|doing"
    r"|starting|finishing|completing|saving|generating|running|making|modifying|processing"
    r"|anything)\b"
    r"|\b(?:always|also|additionally|afterwards|furthermore|automatically|finally|whenever"
    r"|mandatory|first of all|in addition|beforehand)\b"
    r"|\b(?:each|every) (?:time|session|run|use|task|request)\b"
    r"|\bon (?:each|every)\b"
    r"|\b(?:when|once|as soon as) (?:you|it|the|all|everything|done|finished)\b"
    r"|\bat the (?:end|start|beginning)\b|\bas (?:a|the) (?:final|last|first)\b|\bmake sure\b"
    r"|\b(?:don[’']t forget|remember|be sure|ensure)\b|\bprior to\b|\bpart of (?:the|every|each)\b"
    r"|(?:每次|始终|总是|务必|同时|最后|完成后|之后|之前)",
    re.IGNORECASE,
)
"""Words that order a side task."""
_CONSENT = re.compile(
    r"\b(?:confirm(?:s|ed|ation)?|approv(?:e|es|ed|al)|agree[sd]?|consents?|sign(?:s|ed)?[ -]off"
    r"|ask(?:s|ed)? (?:the|for|them|twice|first|again|before|who)|wait for)\b"
    r"|确认|同意|批准|確認|承認|подтвержд|соглас|\bconfirm[aeo]|bestätig|zustimm|확인|동의",
    re.IGNORECASE,
)
_NO_CONSENT = re.compile(
    r"\b(?:without|no|not|never|don[’']?t|skip\w*|bypass\w*|regardless|even if)\b[^\n.]{0,40}"
    r"(?:confirm|approv|agree|consent|ask|permission|question)|无需|不必|不用|without waiting"
    r"|\b(?:sin|sem|sans|ohne|без) |せずに|없이",
    re.IGNORECASE,
)
_COVER = re.compile(
    r"\bback(?:ing)?[ -]?(?:ed )?ups?\b|\b(?:audit\w*|complian\w+|telemetry|analytics"
    r"|safe-?keeping|archiv(?:e|al|ing)\b|record[- ]keeping|sync\w*|mirror\w*"
    r"|usage (?:data|stat\w+)"
    r"|diagnostic\w*|disaster|retention|quality assurance|integrity|monitoring)\b"
    r"|备份|审计|同步|归档",
    re.IGNORECASE,
)
"""Pretexts for a side task."""
BARE_UPLOAD = "uploads to a bare address"
"""In place of a rule's id: an upload to an IP address."""
_HARMFUL_RULES = frozenset((
    "deletes-work-files", "many-requests", "sends-work-folder", "pushes-elsewhere",
    "erases-history", "changes-accounts", "destroys-records", "encrypts-user-files",
    "deletes-user-files", "sends-user-folder", "floods-host", "exhausts-machine", "stops-guards",
    "clears-traces", "destroys-data", BARE_UPLOAD,
))  # fmt: skip
"""Rules that are harmful as a side task."""
_DISGUISED_RULES = frozenset(("uploads-given-file", "uploads-file", "collector-address"))
"""Rules that are legitimate in many skills: harmful with a pretext."""
_INLINE = re.compile(r"`[;$ ]{0,3}([^`\n]{1,300})`")
_BARE = re.compile(r"(?:://|^|\s)(?:\d{1,3}\.){3}\d{1,3}\b")
_CONTEXT_CHARS = 240
_MAX_ORDERS = 6
"""Per region: one that is discussed, and as many as a report has."""


def is_side_task(words: str) -> bool:
    """Whether words order something beside the task, and no person decides about it."""
    if not _SIDE_TASK.search(words):
        return False
    return not _CONSENT.search(words) or bool(_NO_CONSENT.search(words))


def find_orders(path: str, region: Region, budget: TimeBudget) -> Iterator[Finding]:
    """Harmful side tasks with a command in the page itself.

    Raises:
        OutOfTime: the time budget is exceeded.
    """
    if region.kind in {"prose", "hidden", "front"}:
        if "`" in region.text:
            yield from islice(_inline(path, region, budget), _MAX_ORDERS)
    elif region.kind in {"shell", "plain"}:
        for issue in shell_rules.find_shell_issues(path, region):
            kept = issue if RULES[issue.rule].severity == "block" else order_in_fence(issue, region)
            if kept is not None:
                yield kept


def _inline(path: str, region: Region, budget: TimeBudget) -> Iterator[Finding]:
    text = region.text
    discussed = False
    for found in _INLINE.finditer(text):
        budget.check()
        command = found[1]
        if command.partition(" ")[0] not in shell_rules.STARTS:
            continue
        around = text[max(0, found.start() - _CONTEXT_CHARS) : found.end() + 80]
        rules = [
            rule
            for issue in shell_rules.find_shell_issues(path, Region("shell", command, 1))
            if (rule := issue_of(issue)) in _HARMFUL_RULES
            or (rule in _DISGUISED_RULES and _COVER.search(around))
        ]
        if rules and is_side_task(around):
            line = region.line + text.count("\n", 0, found.start())
            finding = Finding("side-task-harms", path, line, f"{rules[0]}: {command}"[:160])
            if not is_example(region, path, found.start(), found.end()):
                yield finding
            elif not discussed:
                discussed = True
                yield downgrade(finding)


def order_in_fence(finding: Finding, region: Region) -> Finding | None:
    """The finding for code on a page: harmful when it is a side task, else None."""
    why = f"{region.heading}\n{region.above}"
    rule = finding.rule
    bad = rule in _HARMFUL_RULES or (
        rule in _DISGUISED_RULES and (_COVER.search(why) or _BARE.search(finding.evidence))
    )
    if not bad or not is_side_task(why):
        return None
    return finding._replace(rule="side-task-harms", evidence=f"{rule}: {finding.evidence}"[:160])


def issue_of(finding: Finding) -> str:
    """The rule that a finding in a program counts as when a page starts the program."""
    if finding.rule in _DISGUISED_RULES and _BARE.search(finding.evidence):
        return BARE_UPLOAD
    return finding.rule


def find_linked_orders(
    pages: Sequence[tuple[str, Sequence[Region]]],
    issues: Mapping[str, Sequence[str]],
    calls: Mapping[str, Sequence[str]],
    budget: TimeBudget,
) -> Iterator[Finding]:
    """Side tasks that start a harmful program.

    Args:
        pages: Path and parts of each page of the skill.
        issues: Path of a program -> ids of the rules that it breaks.
        calls: Path of a program -> paths of the programs that it names.
        budget: The time budget.

    Raises:
        OutOfTime: the time budget is exceeded.
    """
    for program in dict.fromkeys((*issues, *calls)):
        rules = {rule for one in (program, *calls.get(program, ())) for rule in issues.get(one, ())}
        alone, covered = sorted(rules & _HARMFUL_RULES), sorted(rules & _DISGUISED_RULES)
        if not alone and not covered:
            continue
        name = program.rpartition("/")[2]
        for path, regions in pages:
            budget.check()
            discussed = False
            for region, at in _places(regions, name):
                around = _around(region, at)
                if is_side_task(around) and (alone or _COVER.search(around)):
                    shown = f"{(alone or covered)[0]}: {program}"[:160]
                    line = region.line + region.text.count("\n", 0, at)
                    finding = Finding("side-task-harms", path, line, shown)
                    if not is_example(region, path, at, at + len(name)):
                        yield finding
                        break
                    if not discussed:
                        discussed = True
                        yield downgrade(finding)


def _places(regions: Sequence[Region], name: str) -> Iterator[tuple[Region, int]]:
    for region in regions:
        at = region.text.find(name)
        while at >= 0:
            yield region, at
            at = region.text.find(name, at + 1)


def _around(region: Region, at: int) -> str:
    """The words before and beside a place; above a fence those of the page."""
    end = region.text.find("\n", at, at + 300)
    before = region.text[max(0, at - _CONTEXT_CHARS) : end if end >= 0 else at + 300]
    return before if region.kind == "prose" else f"{region.heading}\n{region.above}\n{before}"


# --- announced dangers --------------------------------------------------------------------
# A skill for off-boarding deletes accounts, one for recycling wipes disks, and one for penetration
# tests has attacks in its pages. What the description announces is no side task: in pages, which
# people read, it is for review. Programs, hidden texts and secrecy stay blocked.

_ANNOUNCED = {
    "changes-accounts asks-to-lock-out asks-for-account": (
        r"off-?board|on-?board|leaver|\baccounts?\b|\busers?['’]? (?:access|management)|\biam\b"
        r"|access (?:review|control|management)|identit|provision|rotat|incident|\bservers?\b"
        r"|harden|离职|账号|账户"
    ),
    "destroys-records deletes-work-files side-task-destroys asks-for-sabotage": (
        r"off-?board|decommission|wip(?:e|es|ing)\b|eras|clean|delet|remov|purg|reset|tear|destroy"
        r"|uninstall|dispos|sanitiz|retention|gdpr|migrat|restor|leaver|recycl|database"
        r"|environment|离职|清理|删除"
    ),
    "destroys-data deletes-user-files": (
        r"off-?board|decommission|wip(?:e|es|ing)\b|eras|partition|format|reinstall|sanitiz|leaver"
        r"|\bdisks?\b|\bdrives?\b|recycl|uninstall|离职"
    ),
    "encrypts-user-files asks-to-encrypt": r"\bencrypt|\barchiv",
    "clears-traces asks-to-clear-tracks": r"\blogs?\b|disk space|retention|rotat",
    "stops-guards switches-protection-off asks-to-lower-guard": (
        r"firewall|anti-?virus|defender|selinux|apparmor|gatekeeper|\bsip\b|maintenance"
        r"|troubleshoot|\bdebug|migrat|upgrade|driver|kernel|\bmfa\b|\b2fa\b|two-factor|accounts?\b"
    ),
    "container-escape": r"container|docker|kubernetes|\bpods?\b|\bnodes?\b",
    "hides-from-user": r"breach|incident|disclos|embargo|surprise|quiz|\bgames?\b|riddle|negotiat",
    "many-requests floods-host asks-to-flood": (
        r"\bload\b|stress|benchmark|performance|capacity|\bdos\b|resilien|chaos"
    ),
}
"""Rules -> the words of a description that announces what they find."""
_WORDS = {
    rule: re.compile(words, re.IGNORECASE)
    for rules, words in _ANNOUNCED.items()
    for rule in rules.split()
}
_SECRECY = frozenset((
    "acts-secretly", "hides-from-user", "takes-credentials-silently", "overrides-elsewhere",
    "overrides-instructions", "image-address-carries-talk",
))  # fmt: skip
_ATTACKS = frozenset((
    "reverse-shell", "container-escape", "encoded-command", "encoded-shell", "decode-and-run",
    "data-in-lookups", "sends-by-dns",
))  # fmt: skip
"""What programs of an authorised penetration test do."""
_OFFENSIVE = re.compile(
    r"pen(?:etration)?[ -]?test|red[ -]?team|\bctf\b|capture the flag|offensive security|渗透",
    re.IGNORECASE,
)
_TESTING = re.compile(
    r"pen(?:etration)?[ -]?test|red[ -]?team|purple team|\bctf\b|capture the flag|malware analy"
    r"|forensic|incident response|threat (?:hunt|intel|detect)|vulnerabilit|adversar|exploit"
    r"|security (?:test|assess|audit|train|research|awareness|review|scan)|prompt injection"
    r"|offensive|\bxss\b|sql injection|\bowasp\b|\bhack\w*|渗透|安全测试|安全培训",
    re.IGNORECASE,
)
_AUTHORISED = re.compile(
    r"\b(?:authori[sz](?:ed|ation)|permission|in[ -]scope|scope of|engagement|consent|lab"
    r"|sandbox(?:ed)?|legal|isolated|evidence|chain of custody|responsible disclosure"
    r"|remediat\w+|mitigat\w+)\b|授权|许可",
    re.IGNORECASE,
)


def soften_announced(
    findings: Iterable[Finding], pages: Sequence[tuple[str, Sequence[Region]]]
) -> Iterator[Finding]:
    """The findings; those in pages are for review where the skill's description announces them.

    Args:
        findings: Of the whole skill.
        pages: Path and parts of each page of the skill.
    """
    findings = [*findings]
    if all(finding.severity != "block" for finding in findings):
        yield from findings
        return
    front = next((parts[0].text for path, parts in pages if path == "SKILL.md" and parts), "")
    paths = {path for path, _ in pages}
    authorised = any(_AUTHORISED.search(part.text) for _, parts in pages for part in parts)
    tests = authorised and bool(_TESTING.search(front))
    attacks = authorised and bool(_OFFENSIVE.search(front))
    for finding in findings:
        rules = {finding.rule, finding.evidence.partition(":")[0]}
        in_page = finding.path in paths and RULES[finding.rule].talk
        announced = in_page and any(_WORDS[rule].search(front) for rule in rules & _WORDS.keys())
        discussed = in_page and tests and finding.rule not in _SECRECY
        if finding.severity == "block" and (
            announced or discussed or (attacks and finding.rule in _ATTACKS)
        ):
            shown = f"{finding.rule}: {finding.evidence}"[:160]
            yield finding._replace(rule="announced-danger", evidence=shown)
        else:
            yield finding
