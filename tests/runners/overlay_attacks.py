"""Attacks on the overlay, the list of changes and applying; run by root or by an ordinary user.

Run as a program with a JSON object: `package` (where Satchel is), `folder` (for workspaces), `tier`
and `only` (a part of a name). Prints what was seen of each attack as JSON: `seen` are reasons and
results, `through` what an attack reached, which must be nothing.

All proposed changes are applied, as if a person accepted each of them.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sys.path[:0] = [given["package"], os.path.join(given["package"], "tests")]

from runners.overlay_attack_table import ATTACKS, PROGRAM
from runners.writing import START, run
from satchel.errors import SatchelError
from satchel.settings import load_settings

if TYPE_CHECKING:
    from runners.overlay_attack_table import Attack


def snapshot(folder: pathlib.Path) -> dict[str, Any]:
    """The content of files, the targets of links."""
    seen: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            seen[str(path)] = os.readlink(path)
        elif path.is_file():
            seen[str(path)] = path.read_bytes()
        else:
            seen[str(path)] = stat.S_IFMT(path.lstat().st_mode)
    return seen


def protected(workspace: pathlib.Path) -> dict[str, Any]:
    """What no program may change."""
    return snapshot(workspace / ".git") | snapshot(workspace / "skills/own")


def special(workspace: pathlib.Path) -> list[str]:
    """Entries with a type, mode or target that no program may make."""
    found: list[str] = []
    for path in workspace.rglob("*"):
        info = path.lstat()
        if path.is_symlink():
            inside = os.path.realpath(path).startswith(f"{os.path.realpath(workspace)}/")
            if not inside and os.readlink(path) != path.name:
                found.append(str(path))
        elif not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)) or (
            stat.S_IMODE(info.st_mode) & 0o6002
        ):
            found.append(str(path))
    return found


def ran(workspace: pathlib.Path, mark: pathlib.Path) -> bool:
    """Whether git runs a command in any folder that looks like a repository."""
    for folder in (workspace, *(path for path in workspace.rglob("*") if path.is_dir())):
        if {name.lower() for name in os.listdir(folder)} & {"head", ".git"}:
            subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
            subprocess.run(
                ["git", "--git-dir", ".", "status"], cwd=folder, capture_output=True, check=False
            )
    return mark.exists()


def prepare(root: pathlib.Path) -> pathlib.Path:
    """A workspace with a repository, a skill and files; and what lies outside."""
    workspace = root / "ws"
    texts = {
        "outside/secret.txt": "secret\n", "ws/old.txt": "old.txt\n", "ws/gone.txt": "gone.txt\n",
        "ws/sub/inner.txt": "inner\n", "ws/sub/deep/far.txt": "far\n", "ws/run.sh": "true\n",
        "ws/skills/own/SKILL.md": "own\n", "ws/skills/x.txt": "x\n", "ws/.gitattributes": "",
        "ws/.git/HEAD": "ref: refs/heads/x\n",
        "ws/.git/config": "[core]\n\trepositoryformatversion = 0\n", "ws/.git/objects/x": "",
        "ws/.git/refs/x": "",
    }  # fmt: skip
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (workspace / "run.sh").chmod(0o755)
    return workspace


class Attempt:
    """One attack on a workspace of its own."""

    def __init__(self, root: pathlib.Path, tier: Any) -> None:
        self.root, self.tier = root, tier
        self.workspace = prepare(root)
        self.shm = f"/dev/shm/satchel-{os.getpid()}"
        self.held: list[Any] = []
        self.seen: list[str] = []

    def fill(self, code: str) -> str:
        code = (PROGRAM + code).replace("OUTSIDE", str(self.root / "outside"))
        return code.replace("MARK", str(self.root / "mark"))

    def run(self, code: str) -> Any:
        """The result of the program."""
        skill, code = self.root / "skill", self.fill(code)
        return run(skill, self.workspace, self.tier, code, protected=["skills/own"])

    def second(self, code: str) -> None:
        """Run another program, and apply what it proposes."""
        proposal = self.run(code).changes
        proposal.apply(proposal.changes)

    def act(self, code: str) -> None:
        """Do something as the user."""
        names = {"second": self.second, "held": self.held, "SHM": self.shm}
        os.chdir(self.workspace)
        try:
            exec(START + self.fill(code), {"subprocess": subprocess, **names})
        finally:
            os.chdir("/")

    def untouched(self) -> tuple[Any, ...]:
        """What no program may change."""
        return snapshot(self.root / "outside"), protected(self.workspace)

    def make(self, attack: Attack) -> list[str]:
        """Make the attack; gives what got through."""
        self.act(attack.before)
        before, known = self.untouched(), special(self.workspace)
        try:
            result = self.run(attack.code)
        except SatchelError as exc:
            self.seen.append(exc.message)
            return []
        self.seen += [result.output, result.error, f"fault {result.fault} {result.detail}"]
        if attack.meanwhile:
            self.act(attack.meanwhile)
            before, known = self.untouched(), special(self.workspace)
        if result.changes:
            self.apply(result.changes, permitted=attack.permitted)
        elif result.changes is not None:
            self.seen.append("seen nothing")
            result.changes.discard()
        through = ["it changed what it must not"] * (self.untouched() != before)
        through += [f"special {path}" for path in special(self.workspace) if path not in known]
        through += ["git ran"] * ran(self.workspace, self.root / "mark")
        lists = [os.listxattr(self.workspace / "old.txt")] if attack.name == "access list" else []
        through += ["others may write"] * (lists == [[]])
        state = pathlib.Path(load_settings().paths.state, "overlays")
        left = (*self.workspace.glob(".satchel-change-*"), *state.glob("[!.]*"))
        return [*through, *(f"left {path}" for path in left)]

    def apply(self, proposal: Any, *, permitted: bool) -> None:
        """Apply the changes as a person does who accepts all of them."""
        seen = [f"{row.path}: {row.reason}" for row in proposal.refused]
        seen += [f"consent: {row.path}" for row in proposal.changes if row.needs_consent]
        for change in proposal.changes:
            proposal.diff(change)
        done = proposal.apply(proposal.permitted if permitted else proposal.changes)
        seen += [f"kept {path}" for path in done.kept]
        seen += [f"conflict {path}" for path in done.conflicts]
        seen += [f"trouble {done.trouble}"] if done.trouble else []
        for row in done.applied:
            link = f" -> {row.link}" if row.link else ""
            seen.append(f"applied {row.path}{link}{' executable' * row.executable}")
        self.seen += seen

    def close(self) -> None:
        """Remove what lies elsewhere."""
        for item in self.held:
            os.close(item) if isinstance(item, int) else item.close()
        for path in (self.workspace, self.workspace / "sub"):
            if os.path.ismount(path):
                subprocess.run(["umount", path], check=False)
        shutil.rmtree(self.shm, ignore_errors=True)


def answer(attack: Attack, root: pathlib.Path, tier: Any) -> dict[str, Any]:
    """What is seen of an attack, what got through, and what should have been seen."""
    attempt = Attempt(root, tier)
    try:
        through = attempt.make(attack)
    except Exception as exc:  # noqa: BLE001 - one broken attack must not hide the others
        through = [f"the attack could not be made: {exc!r}"]
    finally:
        attempt.close()
    seen = [text for text in attempt.seen if text]
    missing = [
        part
        for part in attack.expected.split(";")
        if not any(word in text for text in seen for word in part.split("|"))
    ]
    return {"seen": seen, "through": through, "missing": missing}


def main() -> None:
    """Make the attacks."""
    os.umask(0o022)
    rows: dict[str, Any] = {}
    for number, attack in enumerate(ATTACKS):
        if given["only"] in attack.name and not (attack.root and os.geteuid()):
            root = pathlib.Path(given["folder"]) / str(number)
            began = time.monotonic()
            rows[attack.name] = answer(attack, root, given["tier"])
            rows[attack.name]["seconds"] = round(time.monotonic() - began, 2)
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main()
