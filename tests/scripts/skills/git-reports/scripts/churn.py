import subprocess
from collections import Counter

log = subprocess.run(
    ["git", "log", "--name-only", "--format="], capture_output=True, text=True, check=True
).stdout
for path, count in Counter(log.split()).most_common(5):
    print(f"{count:4d}  {path}")
