"""Is it an order at all? Questions, reports, and requests that want no skill whatever.

They are apart from `phrases` because few requests need them, and their patterns take a few
milliseconds to compile. The same rules hold: lower case, bounded, no nested repetition.
"""

from __future__ import annotations

import re

_W = "(?<![a-z0-9_-])(?<![à-ɏ])(?<![а-я])"

_ADVERBS = (
    "(?:(?:also|still|even|really|actually|just|ever|only|already|not|always|keep|have to|"
    "need to|safely) ){0,3}"
)
_OTHERS = "he|she|they|one|anyone|somebody|someone|people|users?|(?:the|an?) [a-z]{1,20}"
_ASKED = (
    f"{_W}(?:did|has|had|was|were)(?:n't)? (?:i|you|we|it|{_OTHERS}) {_ADVERBS}$"
    f"|{_W}(?:can|could|may|might|should|must|shall|does|would)(?:n't)? (?:i|it|{_OTHERS}) "
    f"{_ADVERBS}$"
    f"|{_W}do (?:i|they|people|users|we) {_ADVERBS}$"
    f"|{_W}(?:should|must|shall) we {_ADVERBS}$"
    f"|{_W}(?:why|when|where|how) (?:do|does|would|should|could|can|are|is) "
    f"(?:i|you|we|it|{_OTHERS}) {_ADVERBS}$"
    f"|{_W}(?:how|when|where|whether|why|what) to {_ADVERBS}$"
    f"|{_W}what (?:happens|would happen|if) (?:(?:if|when) )?(?:(?:i|you|we|{_OTHERS}) )?$"
    f"|{_W}what (?:can|could|do|does|should) (?:i|you|we|it|{_OTHERS}) do $"
    f"|{_W}(?:is|was) it (?:ok|okay|fine|allowed|safe|good|bad|better|worth|necessary|legal) "
    "(?:to )?$"
    f"|{_W}(?:tried|failed|managed) to $"
    f"|{_W}(?:is|was|been|keeps|kept|continues|starts|started|stops|stopped) (?:on )?{_ADVERBS}"
    "$"
    "|(?:为什么|為什麼|为何|怎么|怎麼|怎样|如何|什么时候|我可以|我能|我该|我應該|我应该)"
    "(?:你|我|会|會|要|才|去|能|可以|没有?|不|应该|总是|又|\\s){0,3}$"
)
ASKED = re.compile(_ASKED).search
"""Before a verb: somebody asks about a skill, or tells what was, and orders nothing."""

_STOPS = (
    "$|[.,;:!?)\\]}\\n。、]|(?:here|now|please|and|but|just|at all|today|for this|for that|for it|"
    "this time|except|other than|besides|apart from|thanks|thank you)(?![a-z])"
)
_ENDS = f"(?=\\s?(?:{_STOPS}|(?:for|to|on|in|this|when|while)(?![a-z])))"
_WORKS = (
    "(?:use|using|load|loading|invoke|invoking|apply|applying|call|calling|run|running|activate|"
    "activating|choose|choosing|pick|select|trigger|employ)"
)
NONE = re.compile(
    "(?:not|n't|dont|never) (?:(?:want|you|to|please|ever|even|need|have|me|us|be|let|try|should|"
    f"must) ){{0,4}}{_WORKS} (?:(?:any|a|the|your|my|our|these|those|of|single|one) ){{0,3}}"
    f"skills?{_ENDS}"
    f"|{_W}(?:{_WORKS}|want|need) no skills?{_ENDS}"
    f"|(?:n't|not) (?:want|need) (?:any|a) skills?{_ENDS}"
    f"|{_W}(?:without (?:(?:using|loading|invoking|(?:the )?(?:use|help) of) )?"
    f"(?:(?:any|a|the|your) )?|with no )skills?(?=\\s?(?:{_STOPS}))"
    f"|(?:^|(?<=[.;!?\\n] )|(?<=[.;!?\\n]))no skills?(?=\\s?(?:{_STOPS}))"
    "|(?<!能)(?:不要|别|別|不|勿|禁止|无需|無需|不必|不需要|不准|不得|避免)(?:再|去|给我|給我|使用|用|"
    "调用|調用|加载|載入|启用|啟用|运行|選擇|选择|借助|通过|\\s){1,4}(?:任何|任意|一切|所有|什么)?的?"
    "\\s?技能(?=\\s?(?:$|[.,;:!?)\\n。、了来來去就直]))"
    "|(?<![^\\W はでもに])(?<![a-z0-9_] )(?:どの|いかなる|一切の?)?スキル[をはも]?(?:一切|絶対に?)?"
    "(?:使わ[なずん]|使うな|使用(?:しな|せず)|利用(?:しな|せず)|なしで)"
    "|(?<![^\\W ])(?<![a-z0-9_] )(?:어떤 |아무 )?스킬[을은도]? ?(?:절대로? ?)?"
    "(?:사용하지|쓰지|없이|안 ?쓰)"
)
"""Nobody is wanted: `do not use any skill`, `without any skills`."""
OF_PEOPLE = re.compile(
    "(?:people|person|someone|somebody|anyone|those|workers?|beginners?|users?|developers?|am|are|"
    "students?|candidates?|employees?|kids|children|adults|players?|i'm|is|was|were) $"
).search
"""Before `without any skills`: it is said of people."""
EXCEPT = re.compile("[\\s,]*(?:except(?: for)?|but|other than|besides|apart from) ").match

_CLAUSE = re.compile("[^.;!?,:\\n]*$").search
_JOINED = re.compile(f"{_W}(?:and|but|so|then|or|yet)(?![a-z'])").split
_AUXILIARY = re.compile(
    f"(?:{_W}(do|does|did|is|are|was|were|has|have|had|am|can?|could|will|wo|would|should|must|shall|"
    "sha|may|might|need|ought|ai)|(?<!let)'(m|s|re|ve))$"
).search
_FACTS = frozenset(("does", "did", "is", "are", "was", "were", "has", "have", "had", "am", "ai"))
_ABLE = frozenset(("ca", "can", "could", "will", "wo"))
_WEAK = frozenset(("should", "would", "may", "might", "need", "ought"))
_RULE = re.compile("allowed|supposed|meant|necessary|required|good|idea|going").search
_WISH = re.compile("\\b(?:want|wish|like|need|think|believe)\\b").search
_IN_CASE = re.compile(
    f"{_W}(?:if|when|whenever|unless|because|since|once) (?:you|i|we|they|it)$"
).search
_AT_ONCE = re.compile(
    "(?:in|for|on|at|from|during|within|with|if|when|while|after|before|until|unless) "
).match
_SINGULAR = frozenset(("this", "always", "yes", "thanks", "as", "unless", "us", "let's", "perhaps"))
_THEY = frozenset(("they", "people", "who", "which", "these", "those", "children"))
_YOU = re.compile("(?:^|\\s)(?:you|agents?|models?|assistants?)$").search
_WE = re.compile("(?:^|\\s)(?:i|we)$").search


def is_order(word: str, before: str, fill: str, *, named: bool) -> bool:
    """Whether a negation forbids: `do not`, `you must not`, `I would rather not`.

    Args:
        word: The negation.
        before: What stands before it.
        fill: What stands after it, before the verb.
        named: What is denied is called a skill, or looks like a name.
    """
    found = _CLAUSE(before)
    clause = _JOINED(found.group() if found is not None else "")[-1].strip()
    auxiliary, subject = {"cannot": "can", "dont": "do"}.get(word, ""), clause
    if not auxiliary:
        helped = _AUXILIARY(clause)
        if helped is not None:
            auxiliary = helped[1] or "is"
            subject = clause[: helped.start()].strip()
    if _IN_CASE(subject) and not named:
        return False
    if auxiliary in _FACTS:
        return bool(_RULE(fill)) or "rather" in subject
    if auxiliary in _ABLE:
        return bool(_YOU(subject)) or (named and subject.endswith("we"))
    if auxiliary in _WEAK:
        return named or not subject or subject == "it" or bool(_YOU(subject) or _WE(subject))
    if named or auxiliary in {"must", "shall", "sha"}:
        return True
    if _WE(subject):
        return bool(_WISH(fill))
    last = subject.rpartition(" ")[2]
    several = last in _THEY or (last[-1:] == "s" and last[-2:] != "ss" and last not in _SINGULAR)
    return not several or bool(_AT_ONCE(subject))


_ZH_CLAUSE = re.compile("[^.;!?,:。、\\n]*$").search
_ZH_OTHERS = re.compile(
    "(?:我们|我們|咱们|他们|他們|她们|它们|我|他|她|它|大家|用户|用戶|程序|应用|應用|项目|項目|系统|系統|"
    "网站|網站|公司|团队|團隊|代码|软件|平台|服务器?|机器|电脑)"
    "(?:还|還|也|都|并|现在|目前|暂时|一直|从来|根本|又|总是|就|\\s){0,3}$"
).search


def zh_order(word: str, before: str, after: str, *, named: bool) -> bool:
    """The same in Chinese: 我们不用 tells something, and 不能用……了 that it does not work."""
    if word not in {"不", "不能", "不可", "不可以"}:
        return True
    if word != "不" and after.lstrip(" 技能").startswith("了"):
        return False
    found = _ZH_CLAUSE(before)
    return named or found is None or _ZH_OTHERS(found.group()) is None


ANY_BUT = re.compile(
    f"{_W}(?:any|all|every|whatever|whichever)(?: of)?(?: (?:the|my|your|our|other)){{0,2}} skills?"
    "(?: (?:you (?:like|want|have)|available|there is))?[\\s,]*"
    "(?:except(?: for)?|but(?: not)?|other than|besides|apart from|excluding|save) "
).finditer
"""`use any skill but pdf`."""
ZH_BUT = re.compile("除(?:了|去|开)?\\s?").finditer
ZH_BUT_AFTER = re.compile("(?:技能)?\\s?(?:以外|之外|外)?[^。.;!?\\n]{0,16}").match
"""除了 pdf 以外的技能都可以用."""
ZH_NOT_OTHERS = re.compile("不要|不用|不能|不准|不许|不可|不得|别用|禁止|勿").search

OF_TROUBLE = re.compile(
    f"{_W}(?:have|has|had|having|get|got|getting|is|are|was|were|what|what's|there's|there|any|some|"
    "something|something's|seems?|see|seeing|facing|about|run into|ran into)"
    "(?![a-z])[^.;!?\\n]{0,40}?(?:wrong|problems?|issues?|troubles?|errors?|bugs?|broken|happen(?:s|ed|"
    "ing)?|going on|fail(?:s|ed|ing|ures?)?|compatible|incompatible|conflicts?|difficult(?:y|ies)|"
    "familiar|unhappy|happy|struggling|stuck|odd|weird|strange|up|matter)(?: [a-z]+)? $"
).search
OF_BOTH = re.compile(
    f"{_W}(?:compar|replac|swap|substitut|renam|confus|contrast|conflict|overlap|merg|differ|"
    f"overrid)[a-z]{{0,8}} [^.;!?\\n]{{0,50}}{_W}skills?(?:[ ,]| [a-z-]+ )$"
).search
OF_SOMEBODY = re.compile(
    f"{_W}(?:someone|somebody|anyone|anybody|everyone|people|persons?|those|(?:develop|engine|"
    "programm|work|design|teach|manag|lead|own|play|us|writ|freelanc|beginn)e?e?rs?|candidates?|"
    "experts?|employees?|students?|analysts?|teams?|colleagues?|friends?|consultants?|applicants?|"
    "individuals?|members?|man|men|woman|women|kids|children|adults?|professionals?|specialists?|"
    "architects?|scientists?|interns?|seniors?|juniors?|he|she|who|hire|am|i'm) $"
).search
"""Before `with the pdf skill`: trouble with it, a comparison, or the skills of a person."""
OF_JOBS = re.compile(
    "job|vacanc|resume|résumé|\\bcv\\b|hiring|candidate|position|applicant|recruit|profile|required|"
    "linkedin|招聘|简历|履歷|职位"
).search
"""Before `skills: python, sql`: those of people."""

ENDING = re.compile(
    "(?<=[\u3040-\u9fff])(?:ないで|いで|んで|って|いて|して|ずに|な|い|て|ず|で|ん|し|する|せず|"
    "ください|下さい|ほしい|欲しい|くれ|ね|よ|ましょう|ます|ません){1,5}"
    "|(?<=[\uac00-\ud7a3])[\uac00-\ud7a3]{0,6}(?: (?:마|말|않|주세|줘)[\uac00-\ud7a3]{0,4})?"
).match
"""The ending of a Japanese or Korean verb that was heard so far."""
