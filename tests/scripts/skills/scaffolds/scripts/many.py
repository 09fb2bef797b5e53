import sys
from pathlib import Path

for number in range(int(sys.argv[1])):
    path = Path("data") / f"{number % 10}" / f"{number}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"id": {number}}}\n')
print(f"{sys.argv[1]} files")
