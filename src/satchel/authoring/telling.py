"""Words that say what a request is about, as opposed to words of asking."""

from __future__ import annotations

import re

from satchel.detect.idle import IDLE, IDLE_WORDS

DENSE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts that write no spaces."""
_ASKING = frozenset(("add", "check", "look", "new", "stuff", "work"))
"""Words that a person says with any wish."""
_EASTERN = (
    "看下 看一看 看一下 麻烦 好吗 能不能 可不可以 是不是 有没有 里面 东西 事情 这里 那里 怎么样 "
    "不知道 一点 一遍 一次 我的 你的 教えて 見て お願い"
)
_IDLE_EAST = re.compile(
    "|".join(
        (
            r"([\u3400-\u9fff])\1",  # 看看, 试试
            "[这那哪一每某几][份篇段张个些条次种本件套里边样句行页]",
            *sorted((w for w in (*IDLE_WORDS, *_EASTERN.split()) if len(w) > 1), key=len)[::-1],
        )
    )
)
"""Words of asking in Chinese and Japanese."""


def tells(word: str) -> bool:
    """Whether a word says anything about what is wanted."""
    low = word.lower().replace("'", "").replace("’", "")
    if DENSE.search(low):
        return len(low) > 1 and not _IDLE_EAST.fullmatch(low)
    return low not in IDLE and low not in _ASKING and not low.isdigit()
