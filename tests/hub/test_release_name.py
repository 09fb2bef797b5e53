"""Names, versions and ranges of releases."""

from __future__ import annotations

import pytest

from satchel.errors import InvalidInput
from satchel.store.hub_client.release_name import (
    is_publisher,
    parse_name,
    parse_range,
    parse_version,
    split_request,
)


@pytest.mark.parametrize("name", ["acme/x", "a/b", "a-1/b-2-c", "9/9", "a" * 39 + "/" + "b" * 64])
def test_names(name):
    parsed = parse_name(name)
    assert parsed is not None
    assert str(parsed) == name
    assert is_publisher(parsed.publisher)


@pytest.mark.parametrize(
    "name",
    ["acme", "acme/", "/x", "acme/x/y", "Acme/x", "acme/X", "acme/-x", "acme/x-", "acme/a--b",
     "acme/x\n", "acme/x ", "acme/../x", "./x", "../x", "acme/x@1", "ac.me/x", "acme/x.y",
     "acmé/x", "acme/\u0445", "a" * 40 + "/b", "a/" + "b" * 65, ""],
)  # fmt: skip
def test_names_that_are_none(name):
    assert parse_name(name) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.2.3", (1, 2, 3)), ("0.0.0", (0, 0, 0)), ("10.20.999999999", (10, 20, 999_999_999)),
     ("1.2", None), ("1.2.3.4", None), ("01.2.3", None), ("1.2.3-beta", None), ("v1.2.3", None),
     ("1.2.3\n", None), ("1.2.1000000000", None), ("１.2.3", None), ("", None)],
)  # fmt: skip
def test_versions(text, version):
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("text", "best"),
    [("", "2.0.1"), ("1.2.3", "1.2.3"), ("1.2.9", None), ("^1", "1.10.0"), ("^1.2", "1.10.0"),
     ("^1.2.4", "1.10.0"), ("^2", "2.0.1"), ("^3", None), ("^0.3", "0.3.5"), ("^0.3.6", None),
     ("^0", "0.4.0"), ("^0.0.1", "0.0.1"), ("^0.0", "0.0.2")],
)  # fmt: skip
def test_the_best_version_of_a_range(text, best):
    words = ["0.0.1", "0.0.2", "0.3.0", "0.3.5", "0.4.0", "1.2.3", "1.9.9", "1.10.0", "2.0.1"]
    versions = [version for word in words if (version := parse_version(word))]
    assert parse_range(text).best(versions) == (parse_version(best) if best else None)


@pytest.mark.parametrize("text", ["1", "~1.2", ">=1", "^", "^1.2.3.4", "^01", "latest", "*", "^1 "])
def test_ranges_that_are_none(text):
    with pytest.raises(InvalidInput):
        parse_range(text)


def test_requests():
    assert split_request("acme/x@^1.2") == (parse_name("acme/x"), "^1.2")
    assert split_request("acme/x") == (parse_name("acme/x"), "")
    assert split_request("git@github.com:acme/x") is None
    assert split_request("./acme/x") is None
