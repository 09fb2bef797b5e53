import sys

for line in sys.stdin:
    if line.startswith("#"):
        depth = len(line) - len(line.lstrip("#"))
        print("  " * (depth - 1) + line.strip("# \n"))
