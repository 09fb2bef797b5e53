import subprocess
import sys
from pathlib import Path

source, target = map(Path, sys.argv[1:])
beside = Path(__file__).parent / "to_html.py"
for page in sorted(source.rglob("*.md")):
    subprocess.run([sys.executable, str(beside), str(page)], check=True)
    place = target / page.relative_to(source).with_suffix(".html")
    place.parent.mkdir(parents=True, exist_ok=True)
    page.with_suffix(".html").rename(place)
