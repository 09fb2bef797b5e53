"""Documentation tables of the store and scanner figures."""

from __future__ import annotations

from typing import Any

Rows = list[list[str]]


def crashes(kept: dict[str, Any]) -> Rows:
    """What was done to the store, how often, and what harm it did."""
    rows = [["", "times", "corrupt or lost", "slowest recovery"]]
    kills = kept["kills"]["result"]
    rows.append(
        ["six commands, killed at a random moment", f"{kills['kills']:,}",
         str(len(kills["harm"])), f"{kills['slowest'] * 1000:.0f} ms"]
    )  # fmt: skip
    for title, name in (
        ("six commands, killed at every write", "store_calls"),
        ("six commands, one error at every write", "store_errors"),
        ("errors from one write on", "outages"),
    ):
        found = list(kept[name]["result"].values())
        rows.append(
            [title, f"{sum(one['faults'] for one in found):,}",
             str(sum(len(one["harm"]) for one in found)),
             f"{max(one['slowest_recovery_ms'] for one in found):.0f} ms"]
        )  # fmt: skip
    crowd = kept["crowd"]["result"]
    done = crowd["operations"] + crowd["conflicts"]
    title = f"{crowd['writers']} writers, {crowd['readers']} readers with {crowd['reads']:,} reads"
    rows.append([title, f"{done:,}", str(len(crowd["harm"])), ""])
    return rows


def scanner(kept: dict[str, Any]) -> Rows:
    """Recall and false positives with their intervals."""
    rows = [["scanner, set", "blocked of the malicious", "blocked of the benign", "p95, ms"]]
    for row in kept["rows"]:
        if row["part"] != "all" and "not read" not in row["part"]:
            continue
        part = "" if row["part"] == "all" else ", unseen half"
        rows.append(
            [f"{row['scanner']}, {row['set']}{part}", _share(row["recall"]),
             _share(row["false_positives"]), f"{row['p95_ms']:.0f}"]
        )  # fmt: skip
    return rows


def _share(share: dict[str, Any]) -> str:
    if not share["of"]:
        return ""
    low, high = share["interval"]
    return f"{share['blocked']} of {share['of']:,} ({100 * low:.0f}–{high:.0%})"
