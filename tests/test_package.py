"""Rules for the whole package that no linter checks."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import click
import pytest

import gates
import proofs
import satchel
import satchel.goals
from satchel.cli.app import cli
from sizes import sized

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SRC = os.path.join(ROOT, "src")


# --- modules ------------------------------------------------------------------------------


def _sources() -> list[str]:
    found: list[str] = []
    for here, folders, files in os.walk(os.path.join(SRC, "satchel")):
        folders[:] = sorted(set(folders) - {"system_skills", "locale", "__pycache__"})
        found += [os.path.join(here, name) for name in sorted(files) if name.endswith(".py")]
    return found


def _modules() -> list[str]:
    walk = pkgutil.walk_packages(satchel.__path__, "satchel.")
    names = [module.name for module in walk if not module.name.endswith("__main__")]
    return ["satchel", *(name for name in names if ".system_skills" not in name)]


def test_every_module_has_a_docstring():
    short: list[str] = []
    for path in _sources():
        with open(path, encoding="utf-8") as file:
            words = ast.get_docstring(ast.parse(file.read())) or ""
        if len(words.partition("\n")[0]) <= 10:
            short.append(os.path.relpath(path, SRC))
    assert short == []


def test_every_module_is_imported_and_every_exported_name_exists():
    missing: list[str] = []
    for name in _modules():
        module = importlib.import_module(name)
        exported = list(getattr(module, "__all__", []))
        assert len(set(exported)) == len(exported), name
        missing += [f"{name}.{word}" for word in exported if not hasattr(module, word)]
    assert missing == []


def test_few_names_are_public():
    assert len(satchel.__all__) <= 22
    assert len(satchel.goals.__all__) <= 14


# --- start-up -----------------------------------------------------------------------------

# fmt: off
HEAVY = {
    "argparse", "asyncio", "click", "concurrent.futures", "dataclasses", "difflib", "email",
    "hashlib", "html", "http", "importlib.metadata", "importlib.resources", "inspect", "json",
    "logging", "multiprocessing", "opentelemetry", "pathlib", "pkgutil", "shutil", "socket",
    "sqlite3", "ssl", "subprocess", "tempfile", "tomllib", "unittest", "urllib", "uuid",
    "xml", "yaml", "zipfile",
}
# fmt: on


def _loaded_by(statement: str) -> set[str]:
    """Which modules `statement` brings in, in a fresh interpreter without site-packages."""
    code = (
        f"import sys; sys.path.insert(0, {SRC!r}); before = set(sys.modules)\n"
        f"{statement}\n"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import satchel", "from satchel import Satchel"])
def test_the_front_door_opens_without_heavy_modules(statement):
    loaded = _loaded_by(statement)
    assert "satchel" in loaded
    assert sorted(loaded & HEAVY) == []


# --- commands -----------------------------------------------------------------------------


def _commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[click.Context, click.Command]]:
    context = click.Context(command, parent, name)
    yield context, command
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _commands(found, child, context)


def test_every_command_has_help_with_an_example():
    for context, command in _commands(cli, "satchel"):
        assert command.help, f"`{context.command_path}` has no help"
        examples = command.get_help(context).partition("Example")[2]
        assert context.parent is None or context.command_path in examples


def test_every_option_has_help():
    silent = [
        f"{context.command_path} {option.name}"
        for context, command in _commands(cli, "satchel")
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert silent == []


# --- documentation ------------------------------------------------------------------------


def test_every_requirement_is_proven_or_open():
    rows = proofs.read_rows(ROOT)
    marked = {proof.id for proof in proofs.read_proofs(ROOT)}
    assert len({row.id for row in rows}) == len(rows)
    assert marked <= {row.id for row in rows}
    assert [row.id for row in rows if not row.open and row.id not in marked] == []
    # A row that has a proof is no longer open: say so in docs/requirements.toml.
    assert [row.id for row in rows if row.open and row.id in marked] == []


def test_every_fragment_of_the_changelog_has_a_known_kind():
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        kinds = {kind["directory"] for kind in tomllib.load(file)["tool"]["towncrier"]["type"]}
    names = set(os.listdir(os.path.join(ROOT, "changelog.d"))) - {"README.md"}
    wrong = [name for name in names if name.split(".")[1] not in kinds or name[-3:] != ".md"]
    assert wrong == []


# --- files --------------------------------------------------------------------------------


def test_the_length_gate_sees_a_long_file():
    assert gates.check_length("a.py", "x = 1\n" * 750) == []
    assert len(gates.check_length("a.py", "x = 1\n" * 751)) == 1
    assert gates.check_length("a.md", "x\n" * 1000) == []


@pytest.mark.parametrize(
    "text",
    [
        f"see https://{'py' + 'pi'}.org/project/x",
        f"https://files.python{'hosted'}.org/a.whl",
        f"pip install {'-' * 2}index-url https://example.com x",
        f"{'-' * 2}extra-index-url=https://example.com",
        f"{'-' * 2}find-links wheels",
        f"[global]\nindex{'-'}url = https://example.com",
        f'{{"resol{"ved"}": "https://example.com/a.tgz"}}',
    ],
)
def test_the_registry_gate_sees_where_packages_come_from(text):
    assert len(gates.check_registries("a.txt", text)) == 1


def test_the_registry_gate_lets_ordinary_words_pass():
    text = "the index; resolved: yes; an index-url is refused; --no-emit-index-url; --index-file x"
    assert gates.check_registries("a.txt", text) == []


# --- the tests themselves -----------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("ci", "status"), sized([("true", 1)], [("true", 1), ("", 0)]))
def test_a_skip_fails_on_ci_and_only_there(ci, status, tmp_path):
    for name in ("conftest.py", "sizes.py"):
        shutil.copy(os.path.join(ROOT, "tests", name), tmp_path)
    (tmp_path / "test_skips.py").write_text(
        "import pytest\n\ndef test_it():\n    pytest.skip('x')\n\ndef test_that():\n    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={
            **os.environ,
            "CI": ci,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(tmp_path),
            "PYTEST_ADDOPTS": "",  # may name plug-ins, which are off here
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
