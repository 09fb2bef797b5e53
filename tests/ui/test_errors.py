"""Validation errors are translated and name the form field."""

from __future__ import annotations

from ui_dom import check

FOREIGN = ("required", "should be", "should have", "Maximum number", "exceeded", "valid integer")
"""Words of the frameworks' own messages."""
ASKED = {
    "nothing where something must be": (
        "post", "/skills/import/git", {"source": ""}, "source is missing"
    ),
    "too long": (
        "post", "/skills/add", {"name": "x" * 300}, "name has more than 200 characters"
    ),
    "none of some": (
        "post", "/skills/add", {"name": "x", "scope": "y"}, "scope is not valid"
    ),
    "no number": ("post", "/undo", {"number": "one"}, "number is not valid"),
    "too little": ("get", "/skills?page=0", None, "page is not valid"),
    "too much": ("get", "/skills?page=99999999", None, "page is not valid"),
    "an address without a field": ("get", "/plans/x/diff", None, "step is missing"),
}  # fmt: skip


def _sent(visit, method: str, address: str, data, **headers: str):
    if method == "get":
        return visit.get(address, headers=headers)
    return visit.post(address, data=data, headers=headers)


def test_a_value_that_cannot_be_used(visit):
    for method, address, data, words in ASKED.values():
        answer = _sent(visit, method, address, data)
        assert answer.status_code == 422
        assert words in check(answer.text).text
        chinese = _sent(visit, method, address, data, **{"Accept-Language": "zh-CN"})
        assert not [one for one in FOREIGN if one in check(chinese.text).text]


def test_a_form_that_is_too_large_is_told_in_our_words(visit):
    many = [("f", ("a", b"x"))] * 1_100
    answer = visit.post("/skills/add", files=many)
    assert answer.status_code == 400
    assert "The upload is too large" in answer.text
