"""How is a model's `tokenizer.json` opened, and which of its tokens means "unknown"?"""

from __future__ import annotations

import json
import os
from typing import Any, cast

from satchel._language import say
from satchel._optional import require
from satchel.detect.vectors.base import EXTRA, first_line, unusable

_MAX_FILE = 128 << 20


def open_tokenizer(folder: str, limit: int) -> tuple[Any, int | None]:
    """The tokenizer of a folder, cut at `limit` tokens and without padding, and its unknown token.

    Raises:
        SettingsError: there is none, or it is damaged.
        MissingExtra: `tokenizers` is not installed.
    """
    module: Any = require("tokenizers", EXTRA)
    path = os.path.join(folder, "tokenizer.json")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_FILE)  # one that is longer is cut, and no JSON
        tokenizer = module.Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.enable_truncation(limit)
        unknown = _unknown_token(tokenizer, json.loads(text))
    except FileNotFoundError as exc:
        raise unusable(folder, say("it has no `{name}`", name="tokenizer.json")) from exc
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as exc:  # a panic of the library's Rust is no Exception
        reason = first_line(exc)
        raise unusable(
            folder, say("`{name}` cannot be read ({reason})", name="tokenizer.json", reason=reason)
        ) from exc
    return tokenizer, unknown


def _unknown_token(tokenizer: Any, table: Any) -> int | None:
    model = table["model"]
    if isinstance(name := model.get("unk_token"), str):
        return tokenizer.token_to_id(name)
    number = model.get("unk_id")  # unigram
    return number if isinstance(number, int) else None


def read_table(folder: str, name: str) -> dict[str, Any]:
    """What a JSON file of a folder holds; empty when there is none, or it holds no object.

    Raises:
        SettingsError: it is no JSON.
    """
    try:
        with open(os.path.join(folder, name), "rb") as file:
            found = json.loads(file.read(1 << 20))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        reason = first_line(exc)
        raise unusable(
            folder, say("`{name}` cannot be read ({reason})", name=name, reason=reason)
        ) from exc
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
