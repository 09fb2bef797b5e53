import json
import sys

import requests

answer = requests.get(sys.argv[1], timeout=10)
answer.raise_for_status()
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(answer.json(), file, indent=2)
print(f"{len(answer.content)} bytes from {sys.argv[1]}")
