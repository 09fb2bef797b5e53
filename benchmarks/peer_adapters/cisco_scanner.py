"""cisco-ai-skill-scanner: static analysis of folders, in one process.

Reads a JSON list of folders from stdin and writes one JSON line per folder: the worst severity and
the seconds it took. Start-up is paid once and is not in the seconds.
"""

import json
import sys
import time


def main() -> None:
    """Answer for each folder."""
    from skill_scanner import SkillScanner

    scanner = SkillScanner()
    for folder in json.load(sys.stdin):
        started = time.process_time()
        try:
            result = scanner.scan_skill(folder)
            severity = result.max_severity
            word = getattr(severity, "value", str(severity))
        except Exception as exc:  # noqa: BLE001 - what a peer cannot read is part of its result
            word = f"error: {type(exc).__name__}"
        row = {"folder": folder, "worst": word, "s": time.process_time() - started}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
