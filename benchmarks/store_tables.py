"""Documentation tables of the store and scanner figures."""

from __future__ import annotations

from typing import Any

Rows = list[list[str]]


def crashes(kept: dict[str, Any]) -> Rows:
    """What was done to the store, how often, and what harm it did."""
    rows = [["", "times", "corrupt or lost", "slowest recovery"]]
    control = kept["control"]["result"]
    for title, name in (
        ("add, import, update, rename, remove and undo, killed at a random moment", "kills"),
        ("bare transactions, killed at a random moment", "bare"),
    ):
        kills = kept[name]["result"]
        rows.append(
            [title, f"{kills['kills']:,}", str(len(kills["harm"])),
             f"{kills['slowest'] * 1000:.0f} ms"]
        )  # fmt: skip
    for title, name in (
        ("the six commands, killed at every system call that writes", "store_calls"),
        ("the six commands, one of ENOSPC, EIO, EACCES, EROFS at every such call", "store_errors"),
        ("bare transactions, killed at every system call that writes", "calls"),
        ("bare transactions, ENOSPC, EIO, EACCES and EROFS at every call", "errors"),
        ("the same, from that call on", "outages"),
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
    rows.append(
        ["*control: written in place, killed at random*", f"{control['kills']:,}",
         str(control["harm"]), ""]
    )  # fmt: skip
    return rows


def sealing(kept: dict[str, Any]) -> Rows:
    """What it costs to know that a skill is still what was checked."""
    sizes = list(kept["us"])
    rows = [["median CPU µs of a load", *(f"{size} files" for size in sizes)]]
    titles = {
        "again": "known before",
        "text read": "text read again, files unchanged",
        "first": "first time, everything hashed",
    }
    for key, title in titles.items():
        for state, word in (("unbound", "nothing to check"), ("locked", "locked")):
            figures = [f"{kept['us'][size][f'{state}, {key}']['value']:.0f}" for size in sizes]
            rows.append([f"{title}, {word}", *figures])
    figures = [f"{kept['us'][size]['check']['value']:.0f}" for size in sizes]
    rows.append(["the check alone", *figures])
    return rows


def scanner(kept: dict[str, Any]) -> Rows:
    """Recall and false positives with their intervals."""
    rows = [["scanner", "set", "blocked of the malicious", "blocked of the benign", "p95, ms"]]
    for row in kept["rows"]:
        part = "" if row["part"] == "all" else f", {row['part']}"
        rows.append(
            [row["scanner"], row["set"] + part, _share(row["recall"]),
             _share(row["false_positives"]), f"{row['p95_ms']:.1f}"]
        )  # fmt: skip
    return rows


def _share(share: dict[str, Any]) -> str:
    if not share["of"]:
        return ""
    low, high = share["interval"]
    rate = share["blocked"] / share["of"]
    return f"{share['blocked']} of {share['of']:,}: {rate:.1%} ({low:.1%} to {high:.1%})"


def bulk(kept: dict[str, Any]) -> Rows:
    """One command for 2,000 skills."""
    rows = [["", "seconds", "× `tar -x`"]]
    for name, row in kept["figures"].items():
        rows.append([f"`{name}`", f"{row['seconds']:.1f}", f"{row['ratio']:.1f}"])
    return rows
