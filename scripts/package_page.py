"""Builds the links and the description of the package's page from one repository address.

The address is `repository` in `[tool.hatch.metadata.hooks.custom]` of pyproject.toml. Every build
derives the project's URLs from it, and makes the README's relative links and pictures absolute, at
the tag of the version, because a package page has no files beside it. Files that are not generated
repeat the address; `tests/docs/test_package_page.py` compares them.

Example:
    python scripts/package_page.py            # prints the address; exits 1 if it is a placeholder
    python scripts/package_page.py ADDRESS    # writes another address into every file that has it
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLACEHOLDER_HOST = "example.com"
"""No public address is decided; a release is refused while the address is on this host."""
FILES_WITH_ADDRESS = (
    "pyproject.toml", "zensical.toml", "SECURITY.md", "docs/examples.md",
    ".github/ISSUE_TEMPLATE/config.yml",
)  # fmt: skip
_LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?P<target>[^)\s]+)\)")


class PackagePageHook(MetadataHookInterface):
    """Fills in `readme` and `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the two fields; hatchling calls this for every build."""
        address = current_address(self.root)
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as file:
            text = file.read()
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(text, address, f"v{metadata['version']}"),
        }
        metadata["urls"] = project_urls(address)


def project_urls(address: str) -> dict[str, str]:
    """The links beside the description of a package."""
    return {
        "Homepage": address,
        "Documentation": f"{address}/blob/main/docs/start.md",
        "Repository": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/docs/changelog.md",
    }


def absolute_links(text: str, address: str, tag: str) -> str:
    """Markdown whose relative links and pictures lead to files of the repository at a tag."""

    def absolute(link: re.Match[str]) -> str:
        target = link["target"]
        if target.startswith("#") or re.match(r"[a-z]+:", target):
            return link[0]
        view = "raw" if link["picture"] else "blob"
        return f"{link['picture']}{link['text']}({address}/{view}/{tag}/{target})"

    return _LINK.sub(absolute, text)


def current_address(root: str = ROOT) -> str:
    """The repository address in pyproject.toml."""
    with open(os.path.join(root, "pyproject.toml"), "rb") as file:
        hooks = tomllib.load(file)["tool"]["hatch"]["metadata"]["hooks"]
    return hooks["custom"]["repository"]


def replace_address(old: str, new: str) -> None:
    """Write the new address into every file that has the old one."""
    for name in FILES_WITH_ADDRESS:
        path = os.path.join(ROOT, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new))


def main(arguments: list[str]) -> int:
    """Print the address, or replace it."""
    address = current_address()
    if arguments:
        replace_address(address, arguments[0].rstrip("/"))
        return 0
    print(address)
    if PLACEHOLDER_HOST in address:
        print("\nerror: The repository's address is still a placeholder", file=sys.stderr)
        print("\nhint: Run `just address https://…` with the real one", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
