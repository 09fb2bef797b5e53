"""Verifies Ed25519 signatures made by `ssh-keygen -Y sign`, in Python alone.

A reader of a hub needs neither OpenSSH nor a cryptography package. Verification handles public
values only, so its timing reveals nothing. It is stricter than RFC 8032: non-canonical numbers and
keys or points of small order are refused, so that no signature fits two messages.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import lru_cache
from hashlib import sha256, sha512
from typing import TYPE_CHECKING

from satchel.errors import InvalidInput
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_KIND = b"ssh-ed25519"
_FIELD_ORDER = 2**255 - 19
_GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _FIELD_ORDER - 2, _FIELD_ORDER) % _FIELD_ORDER
_ROOT_OF_MINUS_ONE = pow(2, (_FIELD_ORDER - 1) // 4, _FIELD_ORDER)

_Point = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z."""
_NEUTRAL: _Point = (0, 1, 1, 0)


def ssh_string(data: bytes) -> bytes:
    """A string of SSH's wire format."""
    return len(data).to_bytes(4, "big") + data


def signed_data(namespace: str, message: bytes) -> bytes:
    """The bytes that `ssh-keygen -Y sign -n NAMESPACE` signs for a message."""
    parts: Iterable[bytes] = (namespace.encode(), b"", b"sha512", sha512(message).digest())
    return b"SSHSIG" + b"".join(map(ssh_string, parts))


def public_key(text: str) -> bytes:
    """The 32 bytes of a key, written as in a `.pub` file (`ssh-ed25519 AAAA…`).

    Raises:
        InvalidInput: it is not an ed25519 key.
    """
    kind, *rest = text.split() or [""]
    try:
        blob = b64decode(rest[0], validate=True) if rest else b""
    except ValueError:
        blob = b""
    key = blob[-KEY_BYTES:]
    if kind.encode() != _KIND or blob != _blob(key):
        raise InvalidInput(
            say("The key is of the kind `{kind}`, not ed25519", kind=kind or "?"),
            say("Run `{command}`", command="ssh-keygen -t ed25519"),
        )
    return key


def key_text(key: bytes) -> str:
    """A key as it is written in a `.pub` file."""
    return f"{_KIND.decode()} {b64encode(_blob(key)).decode()}"


def key_fingerprint(text: str) -> str:
    """OpenSSH's fingerprint of a key, `SHA256:…`."""
    return "SHA256:" + b64encode(sha256(_blob(public_key(text))).digest()).decode().rstrip("=")


def _blob(key: bytes) -> bytes:
    return ssh_string(_KIND) + ssh_string(key)


def verify_ssh(key: str, namespace: str, message: bytes, signature: str) -> bool:
    """Whether a signature of `ssh-keygen` is that of a key over a message.

    Args:
        key: As in a `.pub` file.
        namespace: The use that the signature was made for.
        message: The signed text.
        signature: The 64 bytes as base64.
    """
    try:
        data = b64decode(signature, validate=True)
        return verify(public_key(key), signed_data(namespace, message), data)
    except (ValueError, InvalidInput):
        return False


def verify(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature is valid."""
    if len(signature) != SIGNATURE_BYTES or len(key) != KEY_BYTES:
        return False
    s = int.from_bytes(signature[32:], "little")
    a = _negated_key(key)
    r = _decompress(signature[:32])
    if s >= _GROUP_ORDER or a is None or r is None:
        return False
    h = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % _GROUP_ORDER
    return _same(_combine(s, h, a), r)


@lru_cache(maxsize=256)
def _negated_key(key: bytes) -> _Point | None:
    """The key's point with the sign of x changed; None for an invalid key or one of small order."""
    point = _decompress(key)
    if point is None:
        return None
    x, y, z, t = point
    times_eight = point
    for _ in range(3):
        times_eight = _add(times_eight, times_eight)
    if _same(times_eight, _NEUTRAL):
        return None
    return -x % _FIELD_ORDER, y, z, -t % _FIELD_ORDER


def _decompress(data: bytes) -> _Point | None:
    y = int.from_bytes(data, "little")
    sign = y >> 255
    y &= (1 << 255) - 1
    if y >= _FIELD_ORDER:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _FIELD_ORDER - 2, _FIELD_ORDER) % _FIELD_ORDER
    x = pow(square, (_FIELD_ORDER + 3) // 8, _FIELD_ORDER)
    if (x * x - square) % _FIELD_ORDER:
        x = x * _ROOT_OF_MINUS_ONE % _FIELD_ORDER
    if (x * x - square) % _FIELD_ORDER or (not x and sign):
        return None
    if x & 1 != sign:
        x = _FIELD_ORDER - x
    return x, y, 1, x * y % _FIELD_ORDER


def _add(p: _Point, q: _Point) -> _Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % _FIELD_ORDER
    b = (p[1] + p[0]) * (q[1] + q[0]) % _FIELD_ORDER
    c = 2 * p[3] * q[3] * _D % _FIELD_ORDER
    d = 2 * p[2] * q[2] % _FIELD_ORDER
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _FIELD_ORDER, g * h % _FIELD_ORDER, f * g % _FIELD_ORDER, e * h % _FIELD_ORDER


def _double(p: _Point) -> _Point:
    a = p[0] * p[0] % _FIELD_ORDER
    b = p[1] * p[1] % _FIELD_ORDER
    c = 2 * p[2] * p[2]
    h = a + b
    e = h - (p[0] + p[1]) * (p[0] + p[1])
    g = a - b
    f = c + g
    return e * f % _FIELD_ORDER, g * h % _FIELD_ORDER, f * g % _FIELD_ORDER, e * h % _FIELD_ORDER


def _same(p: _Point, q: _Point) -> bool:
    return not (
        (p[0] * q[2] - q[0] * p[2]) % _FIELD_ORDER or (p[1] * q[2] - q[1] * p[2]) % _FIELD_ORDER
    )


def _combine(s: int, h: int, a: _Point) -> _Point:
    """The point s·B + h·A, with B the base point."""
    both = {"01": a, "10": _BASE, "11": _add(_BASE, a)}
    total = _NEUTRAL
    for bits in zip(f"{s:0253b}", f"{h:0253b}", strict=True):
        total = _double(total)
        if (step := both.get("".join(bits))) is not None:
            total = _add(total, step)
    return total


def _base_point() -> _Point:
    y = 4 * pow(5, _FIELD_ORDER - 2, _FIELD_ORDER) % _FIELD_ORDER
    point = _decompress(y.to_bytes(32, "little"))
    if point is None:
        raise AssertionError
    return point


_BASE = _base_point()
