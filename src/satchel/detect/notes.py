"""What may a detector add to its answer for people? The sentences, in one place.

They are written in English into traces; at the terminal they are said again in the reader's
language, which needs them as templates.
"""

from __future__ import annotations

NO_SUCH = "There is no skill `{name}`"
NO_SUCH_NEAR = "There is no skill `{name}`; did you mean {names}?"
NO_SUCH_MORE = "There are no skills of {count} other names that the request gives"
NO_SKILL = "No skill: the request asks for none"
MEANT = "its name is written almost like `{said}`"
PEOPLE_ONLY = "`{name}` is there for people alone: no model may load it"
UNHEARD = "{count} characters amid the request were not searched for names of skills"
RULED_OUT = "`{name}` is left out: the request says not to use it"
RULED_OUT_MORE = "{count} more skills are left out: the request says not to use them"
BOTH = "`{name}` is asked for and ruled out in one request: it is left out"
NEVER = "`{name}` is left out: it is set never to be chosen"
OUT_OF_SCOPE = "`{name}` is not among the skills of this agent"
FAILED = "The detector `{name}` failed, and the others decide: {reason}"
FAILED_ALONE = "The detector `{name}` failed, and nothing is chosen: {reason}"
NOT_OFFERED = "`{name}` is set to be chosen, and there is no such skill"
MODEL_FAILED = "The model failed, and the order of `{name}` stands: {reason}"
MODEL_NONSENSE = "The model gave no usable answer, and the order of `{name}` stands: {reason}"
MODEL_STRANGERS = "The model named {count} that were not on its list: they are left out"
MODEL_KEPT = "The model was asked this before: its answer was kept"
MODEL_CUT = "The model was shown the first {count} characters of the request"
MODEL_AWAIT = "The model answers asynchronously: `await` the detector's `alook`"
KEYWORDS_CUT = "Only the first {count} keywords of the request are compared"

NEVER_THERE = "`{name}` is set never to be chosen, and there is no such skill"
UNTRUSTED = (
    "`{name}` is not trusted yet",
    "`{name}` is not trusted yet: see `satchel show {typed}`, then `satchel trust {typed}`",
)
CHANGED = (
    "`{name}` changed since it was approved",
    (
        "`{name}` changed since it was approved: see `satchel show {typed}`, then "
        "`satchel trust {typed}`"
    ),
)
UNTRUSTED_FIRST = (
    "`{name}` is not trusted yet and would come first",
    (
        "`{name}` is not trusted yet and would come first: see `satchel show {typed}`, then "
        "`satchel trust {typed}`"
    ),
)
CHANGED_FIRST = (
    "`{name}` changed since it was approved and would come first",
    (
        "`{name}` changed since it was approved and would come first: see `satchel show {typed}`, "
        "then `satchel trust {typed}`"
    ),
)
"""Each without and with the step: where the setting `trust` lets nobody take it, it is left out."""

NOTES = (
    NO_SUCH,
    NO_SUCH_NEAR,
    NO_SUCH_MORE,
    NO_SKILL,
    MEANT,
    PEOPLE_ONLY,
    UNHEARD,
    RULED_OUT,
    RULED_OUT_MORE,
    BOTH,
    NEVER,
    OUT_OF_SCOPE,
    FAILED,
    FAILED_ALONE,
    NOT_OFFERED,
    MODEL_FAILED,
    MODEL_NONSENSE,
    MODEL_STRANGERS,
    MODEL_KEPT,
    MODEL_CUT,
    MODEL_AWAIT,
    KEYWORDS_CUT,
    NEVER_THERE,
    *UNTRUSTED,
    *CHANGED,
    *UNTRUSTED_FIRST,
    *CHANGED_FIRST,
)
"""Every template."""


def why_failed(exc: BaseException) -> str:
    """An error in one short line."""
    return " ".join(f"{type(exc).__name__}: {exc}".split())[:200]
