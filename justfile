# Every task has one line: `just --list` shows them.

set shell := ["bash", "-euo", "pipefail", "-c"]

compile := "uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-config --quiet --custom-compile-command 'just requirements'"

# Show the tasks
default:
    @just --list

# Everything that is quick: lint, types, contracts, gates, reference, docs, tests
check: lint reference-check docs test

# Everything that CI does, in fresh environments and on two Pythons: 20 minutes on two cores
ci *options:
    .ci/run {{ options }}

# The same tests at full size, with coverage: before a release
soak:
    .ci/soak

# Style, types, import contracts and file gates
lint:
    ruff check .
    ruff format --check .
    pyright
    PYTHONPATH=src lint-imports
    python scripts/gates.py

# Repair what can be repaired
fix:
    ruff check --fix .
    ruff format .

# Run the tests; `just test tests/skill -k name` runs some
test *options:
    python -m pytest -n 2 --dist loadfile {{ options }}

# Run the tests and say which lines none of them reached
coverage:
    python -m pytest -n 2 --dist loadfile --cov --cov-report=term

# Write the generated pages of the reference
reference:
    python scripts/reference.py
    python scripts/skill_pages.py

# Fail when the generated pages do not match the code
reference-check:
    python scripts/reference.py --check
    python scripts/skill_pages.py --check

# Make every picture of the docs: the terminal, the drawings, the plots, the browser
pictures: assets
    python scripts/pictures.py
    python scripts/drawings.py
    python benchmarks/plots.py
    python scripts/screens.py --docs

# Fail when a picture does not show what its command prints
pictures-check:
    python scripts/pictures.py --check
    python scripts/drawings.py --check
    python benchmarks/plots.py --check

# Put htmx, which is not part of the sources, where the pages look for it
assets *folder:
    python scripts/assets.py {{ folder }}

# Take the pictures of the browser: all of them into a folder; `just screens --docs` those of the docs
screens *options:
    python scripts/screens.py {{ options }}

# Build the documentation in both languages; a broken link fails
docs:
    python scripts/docs_site.py

# Show the English documentation while writing it
serve:
    zensical serve

# Measure speed and size; `just bench peers --broken` runs another script of benchmarks/
bench script="discovery" *options:
    python benchmarks/{{ script }}.py {{ options }}

# Pin the newest versions of everything, with hashes
requirements:
    {{ compile }} --upgrade --group dev --all-extras -o requirements/dev.txt
    {{ compile }} --upgrade --group test --all-extras --constraints requirements/dev.txt -o requirements/test.txt
    {{ compile }} --upgrade --constraints requirements/dev.txt -o requirements/runtime.txt

# Build the source archive and the wheel
build: assets
    python -m build --no-isolation

# Show the repository's address; `just address https://…` sets it everywhere
address *url:
    python scripts/package_page.py {{ url }}

# Gather the changelog for a release: `just changelog 0.2.0`
changelog version:
    towncrier build --yes --version {{ version }}
