"""How do people say that a skill is to be used, or that it is not? The words, and nothing else.

English, Chinese, Japanese and Korean, with the plainest forms of French, German, Spanish,
Portuguese and Russian. All patterns are for lower case, look at a bounded piece of text, and have
no nested repetition, so that a hostile text costs no more than a long one.
"""

from __future__ import annotations

import re

SPAN = 80
"""How far the word *skill* may stand from the verb, and a negation from what it negates."""
# Single ranges only: a set of many signs beyond ASCII takes Python ten milliseconds to compile.
_W = "(?<![a-z0-9_-])(?<![à-ɏ])(?<![а-я])"
_E = "(?![a-z0-9_]|-\\w|[à-ɏ]|[а-я])"

_VERBS = (
    "use|using|apply|applying|invoke|invoking|activate|activating|employ|employing|leverage|"
    "leveraging|run|running|call|calling|load|loading|execute|executing|trigger|triggering|"
    "launch|try|follow|following|choose|pick|select|with|via|through|by|"
    "utilise|utilisez|utiliser|avec|benutze|benutzen|verwende|verwenden|nutze|nutzen|mit|"
    "usa|usar|usando|utiliza|utilizar|utilize|con|com|"
    "используй|используйте|использовать|используя|примени|примените|с|"
    "(?<=no )(?:uses|utilices)|(?<=não )uses"
)
_ZH_VERBS = (
    "使用|调用|調用|运用|運用|启用|啟用|启动|啟動|加载|載入|运行|運行|执行|執行|应用|應用|采用|"
    "採用|利用|借助|通过|透過|选择|選擇|"
    "用(?!用)"
)
PART_BEFORE = frozenset("费費作信功通常适適实實专專副效征租占引备備商民公")
PART_AFTER = frozenset("户戶途例法来來于於量品意力心得过過到完")
"""Beside these `用` is a part of another word: 费用, 用户."""
_BARE = (
    "use using apply applying invoke invoking activate activating employ employing leverage run "
    "running call calling load loading execute executing trigger utilise utilisez utiliser benutze "
    "verwende nutze usa usar используй используйте 使用 调用 調用 运用 運用 启用 啟用 加载 运行 "
    "運行 执行 執行 应用 應用 采用 採用 用"
)
BARE = frozenset(_BARE.split())
"""After these a name that looks like one (`pdf-forms`, `$pdf`) needs no word *skill* beside it."""
BESIDE = frozenset(("with", "via", "through", "by"))
"""Before these may stand what makes no order of it: `a problem with the pdf skill`."""
_WILL = (
    "avoid skip ignore disable exclude omit drop bypass 禁用 停用 跳过 忽略 "
    "sans ohne statt anstatt sin sem без вместо"
)
WILL = frozenset(_WILL.split())
"""What is negated by these may be anything: a skill only if it is called one or looks like one."""
ENDS = frozenset(("not", "neither", "nor", "不是", "pas", "nicht"))
"""After these a plain word is a skill's name only at the end of its clause: `docx, not pdf`."""
_BAD = (
    "without|w/o|instead of|rather than|in place of|other than|anything but|not|neither|nor|no|"
    "avoid|skip|ignore|disable|exclude|excluding|omit|drop|bypass|"
    "sans|au lieu de|ohne|statt|anstatt|sin|sem|en vez de|em vez de|без|вместо"
)
_ZH_BAD = "而不是|而非|不是|不要|禁用|停用|跳过|忽略"
_SKILL = f"(?:skills?{_E}|技能|スキル|스킬)"
_PLACE = "(?<![a-z0-9_$/\\\\.~=&%#@*+<>|\\]})^-])(?<![à-ɏ])(?<![а-я])"
_NOT_BE = (
    "(?:(?:must|should|may|shall|will|need)(?: ?not|n't) (?:to )?(?:be )?(?:used|run|called|loaded|"
    "invoked|applied|activated|chosen)|(?:is|are)(?: not|n't) (?:to be used|allowed|permitted)|"
    "(?:is|are) (?:forbidden|banned|prohibited|off[- ]limits))"
)
"""`X is not loaded` and `X can't be used` are no orders: they tell what does not work."""
_BACK = (
    "スキル|스킬|を使|を利用|を用い|を適用|を実行|を活用|を呼|は使|は利用|なしで|抜きで|の代わりに|"
    "ではなく|じゃなく|[을를은는] ?(?:절대로? ?)?(?:사용|쓰|이용|활용|실행|호출|적용|안 ?써)|"
    " ?없이| ?말고| ?대신| ?빼고|"
    f"{_W}{_NOT_BE}"
)
ANCHOR = re.compile(
    f"(?P<flag>(?<![\\w-])--(?P<no>no-|without-|never-|exclude-|disable-)?skills?(?:\\s?=\\s?|\\s))"
    f"|(?P<sigil>{_PLACE}[$/](?=[^\\W_]))"
    f"|(?P<label>(?:{_W}skills?|技能|スキル|스킬)\\s?[:=]\\s?(?=\\S))"
    f"|(?P<verb>{_W}(?:{_VERBS}){_E}|{_ZH_VERBS})"
    f"|(?P<bad>{_W}(?:{_BAD})(?=\\s)|{_ZH_BAD})"
    f"|(?P<back>{_BACK})"
)
"""Every place where a skill may have been named."""

ARTICLE = re.compile(
    "[\\s:]*(?:(?:only|just|exactly|always|please|either|both|any of|one of|any|of|the|a|an|my|"
    "our|your|this|that|these|those|le|la|les|l'|un|une|den|die|das|der|dem|el|los|las|o|os|il|lo)\\s+)*"
    "(?:一下|我的|你的|这个|那个|這個|那個|名为|名為|叫做|叫|一个|一個|以下)*[\\s:]*"
).match
NOT_AMID = re.compile("\\s(?:pas|nicht|not)(?=\\s)").match
"""Some languages deny after the verb."""
SKILL_BEFORE = re.compile(
    f"{_SKILL}(?:\\s(?:named|called|with the name|by the name of|nommé|namens|llamada))?"
    "(?:名为|名為|叫做)?\\s?[:=#]?\\s?"
).match
"""*skill* before its name: `skill pdf`, `skills: a, b`, `技能 pdf`."""
SKILL_AFTER = re.compile(
    f"[*_]*\\s?(?:这个|那个|這個|那個|这项|的|等|という|の|이라는|라는)?\\s?{_SKILL}"
).match
"""*skill* after its name."""
SKILL_BEHIND = re.compile(f"{_SKILL}[\\s:=]*[\"'`「『]?[$/@]?$").search
SKILL_TAIL = re.compile(
    f"\\s?(?:という|の|이라는|라는|这个|那个)?\\s?{_SKILL}\\s?$|\\s?(?:という|の|이라는|라는)?\\s?$"
).search
"""What may stand between a name and what is said of it after it."""
SKILL_FAR = re.compile(f"[^.;!?,:\\n$]{{1,{SPAN}}}?(?<![\\w-])(skills?){_E}").match
"""*skill* some words after the verb: `use the excellent pdf skill`."""
FAR_OFF = re.compile("\\s(?:to|that|which|from|into|because|whether)\\s").search
"""Between a verb and a skill: `use python to improve the pdf skill` calls nobody."""
ZH_FAR = re.compile("([^\\s.;!?,:。、\\n技]{1,20})\\s?技能").match
AND = re.compile(
    "[*_]*\\s?(?:,\\s?(?:and\\s|or\\s)?(?:then\\s)?|and\\s(?:then\\s)?|or\\s|then\\s|&\\s?|\\+\\s?|plus\\s|et\\s|und\\s|oder\\s|y\\s|e\\s|"
    "и\\s|或者?\\s?|以及\\s?|还有\\s?|[、和与與跟及]\\s?|と\\s?|[와과]\\s?|및\\s?)"
).match
GOES_ON = re.compile(
    "[*_]*\\s?(?:$|[.,;:!?)\\]}。、\\n&+]|(?:and|or|nor|but|to|for|on|in|please|then|when|if|at|as|now|"
    "here|too|both|together|instead|with|plus|because|since|et|und|oder|y|e)\\b|(?![\0-\u2e7f]).)"
).match
"""After a further name of an enumeration; before anything else it is a word like others."""
STOPS = re.compile("[*_]*\\s?(?:$|[.,;:!?)\\]}。、\\n]|(?:and|or|nor)\\b)").match
_DOING = (
    "analyze build check clean code commit compare convert count debug deploy design document draw "
    "edit email explain fix format help lint merge plan print publish push read refactor release "
    "report research review run save search send sort summarize test translate update upload write"
)
DOING = frozenset(_DOING.split())
"""Names that are verbs too: `use pdf-forms and test it` calls one skill."""
NO_THEN = re.compile("\\s?\\?\\s*(?:no|nope|never|nein|non|不要?|别)(?=\\s?(?:$|[.,;!]))").match
"""`use docker? no!`"""
_THINGS = (
    "branch|template|file|folder|director(?:y|ie)|dir|repo|repositor(?:y|ie)|tag|page|document|module|"
    "package|librar(?:y|ie)|class|classe|function|method|script|label|column|table|field|section|"
    "workflow|job|pipeline|action|endpoint|api|server|service|container|image|channel|board|project|"
    "app|plugin|extension|config|configuration|setting|checklist|key|keyword|argument|parameter|"
    "option|variable|result|component|driver|injection|hook|quer(?:y|ie)|statement|volume|daemon|"
    "build|compose|version|host|port|user|account|environment|env|db|database|stack"
)
THING_AFTER = re.compile(
    f"[`\"']?\\s(?:{_THINGS})s?(?![\\w-])|[`\"']?\\s?(?:分支|模板|文件|目录|目錄|脚本|函数|插件|镜像|容器|组件)"
).match
"""`the code-review branch`: a thing that has the name of a skill."""
AND_BACK = re.compile("(?:と|や|、|,|&|\\band|와|과|하고|및)\\s?$").search
BUT = re.compile(
    "[\\s,]*(?:but|sondern|mais|sino|а)\\s+(?:rather\\s|instead\\s|with\\s|use\\s)?|[\\s,]*而是\\s?用?"
).match
CLAUSE_ENDS = re.compile(
    "[*_]*\\s?(?:$|[.,;:!?)\\]}。、\\n]|(?:but|and|or|nor|to|for|in|on|please|when|if|at|as|then|this|it|"
    "because|since)\\b|(?![\0-\u2e7f]).)"
).match
RULE_ENDS = re.compile(
    "\\s?(?:$|[.,;:!?)\\]}\\n]|(?:here|please|and|but|today|at all|anywhere|this time|"
    "for (?:this|that|it))(?![a-z]))"
).match
MADE = re.compile(
    "(?:creat|writ|mak|build|delet|remov|install|add|updat|edit|renam|publish|nam|call)"
    "(?:e|ing|es|ed|s)?\\s(?:(?:me|us|a|an|the|this|new|my)\\s){0,3}$|(?:创建|新建|编写|删除|安装)"
    "(?:一个|新的?|名为)*$"
).search
"""Before `skill: x`: the skill is what is worked on, not what is worked with."""

_FILLING = (
    "to|be|ever|even|you|me|us|we|i|it|him|them|want|wish|like|need|have|allowed|supposed|meant|"
    "going|try|trying|attempt|please|again|also|either|the|a|an|any|my|our|your|this|that|these|"
    "those|think|believe|should|must|would|will|shall|can|could|may|good|idea|let|make|agent|model|"
    "assistant|necessary|required|use|using|usage|of|for|call|calling|invoke|invoking|run|running|"
    "load|loading|apply|applying|activate|activating|trigger|triggering|choose|choosing|pick|"
    "select|selecting|pass|passing|with|via|skill|skills|named|called|under any circumstances|"
    "at all|in any case|le|la|den|die|das|el|o|os"
)
NOT_BEFORE = re.compile(
    f"(?P<not>{_W}(?:not(?! only| just| merely| simply)|dont|never|no|without|w/o|avoid|stop|quit|"
    "skip|ignore|disable|exclude|"
    "refrain from|instead of|rather than|in place of|cannot|forbidden|prohibited|banned|neither|"
    "nor|pas|sans|nicht|keine?[nmrs]?|ohne|statt|sin|sem|não|не|без|вместо)|n't"
    f"|{_W}(?:ne|n'|no)(?=\\s?(?:utilise|uses|utilice)))(?P<fill>(?:, [^,.;!?\\n]{{3,40}}, )?"
    f"(?:[\\s]+(?:{_FILLING}){_E})*)[\\s\"'`:]*$"
).search
"""A negation just before a verb, a name or a sign."""
ZH_NOT_BEFORE = re.compile(
    "(?P<not>(?<!要)不要|不想|不准|不许|不許|(?<!能)不能|(?<!可)不可以?|不必|不应该?|不應該?|不该|不該|不得|"
    "不需要?|(?<!是)不是|(?<!不得)(?<!不能)(?<!不可)不|别|別|勿|莫|无需|無需|无须|禁止|避免|严禁|嚴禁|拒绝|"
    "停止|而非|而不是)(?:再|去|来|來|给我|給我|让|讓|你|请|請|随便|擅自|直接|单独|继续|繼續|尝试|嘗試|"
    "使用|调用|調用|运行|執行|执行|加载|用|技能|通过|这个|那个|任何|\\s){0,6}$"
).search
"""The same in Chinese."""
NOT_OTHER = frozenset("分特级級类類识識区區个個辨差告鉴判")
"""After these `别` is a part of another word: 分别, 特别."""
ZH_DENIED = re.compile(
    "\\s?(?:就|请|請|都)?(?:不要|别|別|(?P<bare>不)|不必|不该|无需|無需|禁止|勿)(?:再)?$"
).search
NOT_WORDS = re.compile(
    "not|n't|dont|never|no\\b|without|w/o|avoid|stop|quit|skip|ignore|disable|exclude|refrain|instead|"
    "rather|place of|cannot|forbidden|prohibited|banned|neither|nor|pas\\b|sans|nicht|kein|ohne|"
    "statt|sin\\b|sem\\b|não|не\\b|без|вместо|ne\\b|n'"
).search
"""Whether there is anything to look for with `NOT_BEFORE`, quickly."""
WHY = re.compile("\\bwhy (?:do|did|does|are|is|wo|would|should|could|ca)?$").search
TWICE = re.compile("(?:n't|\\bnot|\\bnever|\\bcannot|\\bnothing|\\bnobody)\\b[^.;!?,\\n]*$").search
"""`do not merge without the review skill` asks for it."""
NOT_AFTER = re.compile(
    "[*_\"'`」』》】]*\\s?(?:という|の|이라는|라는)?\\s?(?:skills?|技能|スキル|스킬)?\\s?(?:"
    "(?:(?:を|は|も|だけ|で|に|って)*\\s?(?:絶対に?|決して|もう|今回は?)?\\s?(?:使わ[なずんぬ]|使うな|"
    "使うべきで|使っては(?:いけ|だめ|なら)|使っちゃ|使いたくな|使用(?:しな|せず|するな|禁止|不可|を避|は避|"
    "しては)|利用(?:しな|せず|するな|しては)|用いな|用いず|(?:適用|実行|活用)(?:しな|せず|するな)|呼ばな|"
    "呼び出さな|なし|無し|抜き|禁止|不要|避け|除い|以外|やめ|の?代わりに|ではなく|じゃなく|でなく))"
    "|(?:[을를은는이가도]|으?로)?\\s?(?:절대로?|더 이상)?\\s?(?:사용하지|사용 ?안|"
    "사용 ?금지|쓰지|안 ?[쓰써]|(?:이용|활용|실행|호출|적용)하지|없이|말고|빼고|대신|"
    "제외|금지|하지 ?마)"
    "|(?:就|请|千万|绝对)?(?:不要|别|不用|不能|不可|不必|不该|无需|禁止|勿)(?:再)?(?:使用|用|调用|加载|执行|运行)"
    f"|{_NOT_BE})"
).match
LED = re.compile(
    f"(?:{_W}(?:please|you|i|we|it|i'd|we'd|you'd|let's|make sure|be sure|rather|prefer|want|to|"
    "must|should|shall|will|can|could|would|do|just|but|that)\\s){1,7}$"
    "|(?:千万|千萬|绝对|絕對|请|請|你|最好|但是?|一定|也|我){1,4}\\s?$"
).search
"""The words before a negation that say no more than it."""
USED_AFTER = re.compile(
    "[*_\"'`」』》】]*\\s?(?:"
    "を?も?\\s?(?:使[いうえおっ用]|利用|適用|実行|活用|用い|呼)|で|に従|に沿"
    "|(?:[을를]|으?로|도)?\\s?(?:사용|이용|활용|실행|호출|적용|써|쓰|불러)|으?로)"
).match

SAVE = ("except", "but", "other than", "besides", "apart", "excluding", "save", "除")
"""Without these there are no exceptions to look for."""
SKILL_WORD = re.compile("skill|技能|スキル|스킬").search
MAY_ASK = re.compile(
    "\\b(?:did|has|had|was|were|can|could|may|might|should|must|shall|do|does|would|why|when|where|"
    "how|whether|what|is|been|tried|failed|managed|keeps|kept|continues|starts|started|stops|"
    "stopped)(?:n't)? |[为為怎如什我]"
).search
"""Whether there is anything of a question, quickly; `no_orders` looks closely."""
KIND = re.compile("([^\\W_][\\w-]{0,40}(?: [\\w-]{1,40})?)\\s?(skills?(?![\\w-])|技能)").match
"""`the pdf skills`: all that have the word in their names."""

_VAGUE = (
    "right best appropriate relevant proper correct same following above below available new "
    "existing other another different suitable given necessary needed required own most matching "
    "first second last latest next more few several many all each every both various special "
    "specific certain good great better language programming coding writing people soft core key "
    "basic main multiple two three any one here there using creation folder file name list "
    "because since while after before also now then again instead not never only just no none but "
    "except excluding besides apart whatever whichever"
)
VAGUE = frozenset(_VAGUE.split())
"""Words beside *skill* that name none."""
ZH_VAGUE = re.compile(
    "[的这那这些每哪各何]|以下|所有|任何|相关|什么|一个|其他|其它|上述|你|我|合适|技"
)
_FOLDERS = (
    "bin boot dev etc home lib lib64 media mnt opt proc root run sbin srv sys tmp usr var users "
    "applications library volumes private"
)
FOLDERS = frozenset(_FOLDERS.split())
"""`/tmp` is a folder, unless the goal begins with it."""
PATH_BEFORE = re.compile(
    "(?:^|\\s)(?:in|into|to|from|under|at|on|inside|within|below|of|paths?|folders?|directory|dir|"
    "routes?|endpoints?|urls?|pages?|see|open|visit|browse|get|post|put|patch|delete|head|cd|ls|cat|mkdir|rm|cp|mv|and|or|the|a)\\s[`\"']?$"
    "|[在到从從于於]\\s?[`\"']?$"
).search
PATH_AFTER = re.compile(
    "[`\"']?\\s(?:folder|directory|dir|endpoint|route|path|page|file|api|url|mount|partition)\\b"
    "|[`\"']?\\s?(?:目录|目錄|文件夹|路径|接口|下|フォルダ|폴더)"
).match
TOLD_AFTER = re.compile(
    "\\s(?:is|are|was|were|isn't|aren't|wasn't|has|does|doesn't|don't|did|didn't|can't|cannot|won't|"
    "fails|failed|returns (?:\\d|an?\\b|the\\b|null|nothing|no\\b|error))(?![a-z])"
).match
"""`/api returns 500`: something is told of a path or a variable."""
VERB_AFTER = re.compile(
    "\\s(?:fails?|returns?|have|had|can|could|will|would|should|must|do|gives?|shows?|throws?|crashe?s?|"
    "takes?|needs?|contains?|works?|seems?|looks?|keeps?|stopp?(?:s|ed)|gets?|never|no longer|and)"
    "(?![a-z])"
).match
"""The same after what no skill is called."""
IN_CODE = re.compile(
    "(?:^|[\\s;&|(])(?:echo|print|printf|export|unset|cd|ls|cat|var|const|return|eval|local|"
    "declare|isset|foreach)[\\s(]+[\"'\\[]{0,2}$|\\w\\($"
    "|\\b(?:if|while|for|switch) \\($|[=<>+|&]\\s?$"
).search
"""Before `$x`: a shell, or a program, speaks."""
COMMANDS = re.compile("(?:,\\s?(?:and\\s|then\\s)?|\\sand\\s(?:then\\s)?|\\sthen\\s)$").search
"""Between two commands: `/review and /test`."""
SLASH_AFTER = frozenset("用行调調请請让让以")
"""The signs after which a slash without a space is a command: `使用/pdf`, and not `输入/输出`."""
_VARIABLES = (
    "home path user pwd shell lang term tmpdir tmp temp editor pythonpath ps1 ifs uid hostname "
    "logname oldpwd random seconds lineno"
)
VARIABLES = frozenset(_VARIABLES.split())
"""`$HOME` in capitals is the shell's, whatever skills there are."""
