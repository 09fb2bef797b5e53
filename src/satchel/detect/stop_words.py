"""Stop words: words of grammar and politeness that say nothing about the subject of a request."""

from __future__ import annotations

_GRAMMAR_WORDS = (
    "a about above across after again against all almost along already also although always "
    "am among an and another any anyone anything are around as at away be became because "
    "become been before being below between both but by came cannot come could did do does "
    "doing done down during each either else enough etc even ever every everyone everything "
    "few first for from further get gets getting give given gives go goes going got had has "
    "have having he hence her here hers herself him himself his how however i if in indeed "
    "instead into is it its itself just last least less let lets like likely many may maybe "
    "me might mine more most much must my myself neither never next no nobody none nor not "
    "nothing now of off often on once one only onto or other others our ours ourselves out "
    "over own per perhaps quite rather really same second seem seems several shall she should "
    "since so some someone something soon still such than that the their theirs them "
    "themselves then there these they thing things this those though through thus to together "
    "too toward two under until up upon us very via was way we well went were what whatever "
    "when where whether which while who whole whom whose why will with within without would "
    "yes yet you your yours yourself"
)
_REQUEST_WORDS = (
    "able actually again agreed anybody appreciate appreciated arent ask asking assist "
    "assistance bit cant continue cool correct couldnt curious currently didnt doesnt "
    "done dont easily easy exactly fine folks good great guys havent hello help helped "
    "helpful helping helps hey hi hows id idea ill im interested ive kind kindly know lately "
    "looking looks lot love maybe need needed needs nice nope ok okay perfect please possible "
    "possibly proceed quick quickly right skill skills sorry sure tell thank thanks theres "
    "think tried try trying use used uses using wanna want wanted wanting wants "
    "wasnt welcome whats whos wish wonder wondering wont wouldnt yeah yep youre"
)
STOPWORDS = frozenset(f"{_GRAMMAR_WORDS} {_REQUEST_WORDS}".split())
"""English stop words."""
NEVER_NAMES = frozenset(("i", "id", "ill", "im", "ive"))
"""Stop words that are always capitalised."""
_LINKING_WORDS = (
    "a an and are as at be by can do for from how i in is it my not of on or our so that the then "
    "this to up use via we what when which with you your"
)
LINKING_WORDS = frozenset(_LINKING_WORDS.split())
"""Linking words of names such as `write-a-skill`."""

_DENSE_WORDS = (
    "一下 一个 一些 一份 一种 不 与 之后 也 了 什么 今天 他 们 会 但 何 使用 候 再 几 别 到 "
    "即 又 及 只 可 可以 吗 吧 向 告诉 告诉我 呢 呀 和 哪 哪些 啊 在 如 如何 如果 它 对 将 "
    "就 帮 帮助 帮忙 帮我 并 并且 很 怎么 怎样 您 想 想要 我 我们 或 所 所以 把 接下来 接着 "
    "时候 是 更 最 最后 有 来 根据 每 比 没 没有 然后 现在 用 由 的 着 知道 第 给 能 能否 "
    "能够 自己 被 要 让 该 请 请帮 请帮我 请问 谢谢 过 还 还有 这 这个 这些 进行 那 那个 "
    "那些 都 里 需 需要 首先 为 为了 上 下 中 等 以 以及 从 你 你们 同时 于 其 其中 希望 "
    "する した して から まで です ます ください 下さい これ それ あの この その ある いる "
    "こと もの ため 하는 하고 해줘 해주 주세 세요 합니 니다 있는 그리 리고 에서 으로 看看 "
    "这份 那份 一封 一篇 一张 这篇 那篇 一段 我想 我要 麻烦 想让"
)
DENSE_STOPWORDS = frozenset(_DENSE_WORDS.split())
"""Chinese stop words, and common pairs of Japanese and Korean grammar."""

STOP_SIGNS = frozenset(
    "的了是我你您他她它们在和与或及也就都要想请帮给把被让这那哪什么么吗呢吧呀啊有没不很还再又能可会用以于"
    "のをにはがとでもへやかなてたですますしらりれるいうこそあ은는이가을를에도의와과로고요"
)
"""Grammatical signs; a pair of two of them is a stop word."""
_KEYWORD_STOPWORDS = (
    "a an and any are as at be by can do does for from get has have help how i in into is it its "
    "me my need needs of on or our please should skill skills so some that the their them then "
    "there these they this to use used uses using want was we what when where which who will with "
    "would you your"
)
KEYWORD_STOPWORDS = frozenset(_KEYWORD_STOPWORDS.split())
"""English stop words of the keyword search."""
