"""How are the tensors of a `.safetensors` file read? By their table at the front, without a copy.

The file is a length, a table in JSON, and the numbers. Nothing in it is run, and every offset is
checked against the file's size before it is used.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, cast

from satchel._language import say
from satchel._optional import require
from satchel.detect.vectors.base import EXTRA, unusable

_MAX_TABLE = 64 << 20
_KINDS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I8": "i1",
    "U8": "u1",
}


def read_tensors(path: str) -> dict[str, Any]:
    """Every tensor of a file by name, mapped from disk where its numbers can stay as they are.

    Raises:
        SettingsError: it is no such file, or a damaged one.
    """
    np = require("numpy", EXTRA)
    try:
        begin, table = _read_table(path)
        data = np.memmap(path, dtype=np.uint8, mode="r", offset=begin)
        return {
            name: _tensor(np, data, row) for name, row in table.items() if name != "__metadata__"
        }
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as exc:
        name = os.path.basename(path)
        raise unusable(
            os.path.dirname(path),
            say("`{name}` cannot be read ({reason})", name=name, reason=exc),
        ) from exc


def _read_table(path: str) -> tuple[int, dict[str, Any]]:
    """Where the numbers begin, and the table before them."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MAX_TABLE, os.path.getsize(path) - 8):
            raise ValueError("its table is longer than the file")
        table: Any = json.loads(file.read(length))
    if not isinstance(table, dict):
        raise TypeError("its table is none")
    return 8 + length, cast("dict[str, Any]", table)


def _tensor(np: Any, data: Any, row: dict[str, Any]) -> Any:
    begin, end = row["data_offsets"]
    kind, shape = row["dtype"], tuple(row["shape"])
    if kind not in _KINDS:
        raise ValueError(f"it has numbers of the kind {kind!s:.10}")
    dtype = np.dtype(_KINDS[kind])
    if any(not isinstance(side, int) or side < 0 for side in shape):
        raise ValueError("a tensor has an impossible shape")
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError("a tensor lies outside the file")
    made = data[begin:end].view(dtype).reshape(shape)
    if kind == "BF16":  # the upper half of a float32
        made = (made.astype(np.uint32) << 16).view(np.float32)
    return made
