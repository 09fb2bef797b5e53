import argparse
import csv

parser = argparse.ArgumentParser(description="Join two CSV files by a column.")
parser.add_argument("left")
parser.add_argument("right")
parser.add_argument("key")
parser.add_argument("target")
options = parser.parse_args()
with open(options.right, newline="") as file:
    known = {row[options.key]: row for row in csv.DictReader(file)}
with open(options.left, newline="") as file:
    rows = [{**row, **known.get(row[options.key], {})} for row in csv.DictReader(file)]
with open(options.target, "w", newline="") as file:
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
print(f"{len(rows)} rows joined by {options.key}")
