"""Is it an order at all? Questions about skills, and requests that want no skill whatever.

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
