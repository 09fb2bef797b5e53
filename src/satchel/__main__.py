"""Entry point of `python -m satchel`."""

from __future__ import annotations

from satchel.cli.main import main

if __name__ == "__main__":
    main()
