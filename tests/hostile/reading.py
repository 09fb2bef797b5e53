"""Reads hostile sources in a separate process, and reports the result of each.

    python reading.py LIST STAGING < nothing > report

`LIST` is JSON: name -> the word to import. Whatever is read is written below `STAGING`, as an
import would. Every other attempt to write, and every program that is started, is in the report.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel.errors import SatchelError, Unsafe
from satchel.store.sources import find_skills, source_of, subtree

if TYPE_CHECKING:
    from satchel.skill.file_tree import Tree

CHANGES = {
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.chown", "os.utime", "os.setxattr",
}  # fmt: skip


def watch(allowed: str) -> list[str]:
    """Note what is written outside `allowed`, and which programs run."""
    seen: list[str] = []

    def hook(event: str, args: tuple) -> None:
        if event == "open":
            path, _, flags = args
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                check(event, path)
        elif event in CHANGES:
            # The removal of a folder names its files relative to an open descriptor.
            base = args[-1] if event in {"os.remove", "os.rmdir", "os.mkdir"} else -1
            check(event, args[0], base)
        elif event == "subprocess.Popen":
            if os.path.basename(os.fsdecode(args[0])) != "git":
                seen.append(f"ran {args[0]}")
        elif event in {"os.system", "os.exec", "socket.connect"}:
            seen.append(event)

    def check(event: str, path: object, base: int = -1) -> None:
        if isinstance(path, (str, bytes)):
            near = os.readlink(f"/proc/self/fd/{base}") if base >= 0 else ""
            full = os.path.abspath(os.path.join(near, os.fsdecode(path)))
            if not full.startswith(allowed + os.sep) and full not in {
                os.devnull,
                allowed,
                "/proc/self/clear_refs",
            }:
                seen.append(f"{event} {full}")

    sys.addaudithook(hook)
    return seen


def write_out(tree: Tree, folder: str) -> None:
    for file in tree.files:
        path = os.path.join(folder, file.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as stream:
            stream.writelines(tree.chunks(file.path))


def read(word: str, folder: str) -> str:
    try:
        with source_of(word, base=folder).fetch() as bundle:
            for found in find_skills(bundle.tree, bundle.place.path, name="top"):
                write_out(subtree(bundle.tree, found.path), os.path.join(folder, found.id))
    except Unsafe as exc:
        return exc.rule
    except SatchelError as exc:
        return f"{type(exc).__name__}: {exc.message}"
    except Exception as exc:  # noqa: BLE001 - whatever comes is what we want to know
        return f"uncaught {exc!r}"
    return "accepted"


def main() -> None:
    listing, staging = sys.argv[1:]
    with open(listing, encoding="utf-8") as stream:
        words: dict[str, str] = json.load(stream)
    seen = watch(staging)
    report: dict[str, dict[str, object]] = {}
    for number, (name, word) in enumerate(words.items()):
        folder = os.path.join(staging, str(number))
        os.mkdir(folder)
        forget()
        began, cpu = time.perf_counter(), spent()
        outcome = read(word, folder)
        report[name] = {
            "outcome": outcome,
            "seconds": spent() - cpu,
            "wall": time.perf_counter() - began,
            "megabytes": memory(),
        }
    descriptors = -1
    with suppress(OSError):
        descriptors = len(os.listdir("/proc/self/fd"))
    json.dump({"cases": report, "seen": seen, "descriptors": descriptors}, sys.stdout)


def spent() -> float:
    """Seconds of work, git's included. The wall's clock would measure the machine's other work."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def memory() -> float:
    """The most that this process has held since `forget`, or one that it started at any time.

    `getrusage` does not serve for the process itself: it remembers who started it.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with open("/proc/self/status", encoding="ascii") as stream:
        own = next(int(line.split()[1]) for line in stream if line.startswith("VmHWM:"))
    return max(own, children) / 1024


def forget() -> None:
    """Begin to measure anew."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
        stream.write("5")


if __name__ == "__main__":
    main()
