import argparse
import re

parser = argparse.ArgumentParser()
parser.add_argument("path")
parser.add_argument("--over", type=int, default=1000, help="milliseconds")
options = parser.parse_args()
with open(options.path, encoding="utf-8", errors="replace") as file:
    for number, line in enumerate(file, 1):
        match = re.search(r"(\d+) ?ms", line)
        if match and int(match[1]) > options.over:
            print(f"{options.path}:{number}: {match[1]} ms")
