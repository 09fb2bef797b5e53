"""The statements that publishers and hubs sign, and the verification of their signatures.

A statement is a text that is signed with an Ed25519 key of SSH. A reader of a hub needs neither
OpenSSH nor a cryptography package. Verification handles public values only, so its timing reveals
nothing. Numbers that are not canonical are refused (RFC 8032).
"""

from __future__ import annotations

from base64 import b64decode
from functools import lru_cache
from hashlib import sha512
from typing import TYPE_CHECKING, Any, cast

from satchel.errors import InvalidInput
from satchel.store.signing import plain_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHANGE_NAMESPACE = "satchel-release"
_SIGNED_FIELDS = {
    "hub": ("key",),
    "publisher": ("publisher", "key", "previous"),
    "release": ("name", "version", "tree"),
    "yank": ("name", "version", "reason"),
    "revoke": ("tree", "reason"),
    "repair": ("previous", "first", "last"),
    "rotate": ("key", "previous"),
}
"""Type of a change -> the fields that its signature covers, after the hub's name."""

_FIELD_ORDER = 2**255 - 19
_GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
_CURVE_CONSTANT = -121665 * pow(121666, -1, _FIELD_ORDER) % _FIELD_ORDER
_ROOT_OF_MINUS_ONE = pow(2, (_FIELD_ORDER - 1) // 4, _FIELD_ORDER)

_Point = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z."""


def change_statement(change: Mapping[str, Any], hub: str) -> bytes:
    """Return the text that is signed for a change.

    Raises:
        ValueError: the change cannot be signed.
    """
    kind = str(change.get("type"))
    fields = {key: change.get(key) for key in _SIGNED_FIELDS.get(kind, ())}
    if not fields:
        raise ValueError(f"a change of type `{kind}` is not signed")
    for value in fields.values():
        if not (isinstance(value, str) and value.isprintable()):
            raise ValueError("a field is not one line of text")
    lines = "".join(f"{key}: {value}\n" for key, value in [("hub", hub), *fields.items()])
    return f"satchel-{kind}-1\n{lines}".encode()


def signed_by(change: Mapping[str, Any], hub: str, key: str) -> bool:
    """Whether a change carries the signature of a key."""
    try:
        statement = change_statement(change, hub)
    except ValueError:
        return False
    return verify_ssh(key, CHANGE_NAMESPACE, statement, str(change.get("signature", "")))


def is_signed_successor(old: str, new: str, changes: Sequence[Mapping[str, Any]], hub: str) -> bool:
    """Whether each key from `old` to `new` was signed by the one before it, oldest first."""
    for change in changes:
        if old != new and change["previous"] == old and signed_by(change, hub, old):
            old = change["key"]
    return old == new


def signed_data(namespace: str, message: bytes) -> bytes:
    """Return the bytes that `ssh-keygen -Y sign -n NAMESPACE` signs for a message."""
    parts = (namespace.encode(), b"", b"sha512", sha512(message).digest())
    return b"SSHSIG" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def verify_ssh(key: str, namespace: str, message: bytes, signature: str) -> bool:
    """Whether a signature of `ssh-keygen`, its 64 bytes as base64, is that of a key."""
    try:
        key_blob = b64decode(plain_key(key).removeprefix("ssh-ed25519 "), validate=True)
        data = b64decode(signature, validate=True)
        return verify(key_blob[-32:], signed_data(namespace, message), data)
    except (ValueError, InvalidInput):
        return False


def verify(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature (R, s) is valid: R = s·B - h·A, with A the key and B the base point."""
    key_point, expected_point = _decompress_point(key), _decompress_point(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if key_point is None or expected_point is None or len(signature) != 64 or s >= _GROUP_ORDER:
        return False
    doubled = _add_points(key_point, key_point)
    quadrupled = _add_points(doubled, doubled)
    if not _add_points(quadrupled, quadrupled)[0]:
        return False  # a key of small order: one signature would fit every message
    h = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % _GROUP_ORDER
    negated_key = (-key_point[0], key_point[1], key_point[2], -key_point[3])
    addends = {"01": negated_key, "10": _BASE_POINT, "11": _add_points(_BASE_POINT, negated_key)}
    total: _Point = (0, 1, 1, 0)
    # Both products at once, one bit of s and h after the other, the highest first.
    for bits in zip(f"{s:0253b}", f"{h:0253b}", strict=True):
        total = _add_points(total, total)
        if (addend := addends.get("".join(bits))) is not None:
            total = _add_points(total, addend)
    x, y, z, _ = total
    has_same_x = (x - expected_point[0] * z) % _FIELD_ORDER == 0
    has_same_y = (y - expected_point[1] * z) % _FIELD_ORDER == 0
    return has_same_x and has_same_y


@lru_cache(maxsize=256)
def _decompress_point(data: bytes) -> _Point | None:
    """Return the point whose y and the sign of x are given; None when there is none."""
    sign, y = divmod(int.from_bytes(data, "little"), 1 << 255)
    if y >= _FIELD_ORDER or len(data) != 32:
        return None
    square = (y * y - 1) * pow(_CURVE_CONSTANT * y * y + 1, -1, _FIELD_ORDER) % _FIELD_ORDER
    x = pow(square, (_FIELD_ORDER + 3) // 8, _FIELD_ORDER)
    if (x * x - square) % _FIELD_ORDER:
        x = x * _ROOT_OF_MINUS_ONE % _FIELD_ORDER
    if (x * x - square) % _FIELD_ORDER or (not x and sign):
        return None
    if x & 1 != sign:
        x = _FIELD_ORDER - x
    return x, y, 1, x * y % _FIELD_ORDER


def _add_points(p: _Point, q: _Point) -> _Point:
    """Add two points; the names are those of RFC 8032."""
    a = (p[1] - p[0]) * (q[1] - q[0]) % _FIELD_ORDER
    b = (p[1] + p[0]) * (q[1] + q[0]) % _FIELD_ORDER
    c = 2 * p[3] * q[3] * _CURVE_CONSTANT % _FIELD_ORDER
    d = 2 * p[2] * q[2] % _FIELD_ORDER
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _FIELD_ORDER, g * h % _FIELD_ORDER, f * g % _FIELD_ORDER, e * h % _FIELD_ORDER


_BASE_POINT = cast("_Point", _decompress_point(b"\x58" + b"\x66" * 31))
