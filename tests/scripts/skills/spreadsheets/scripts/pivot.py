import csv
import sys
from collections import Counter

path, group, value = sys.argv[1:]
sums = Counter()
with open(path, newline="") as file:
    for row in csv.DictReader(file):
        sums[row[group]] += float(row[value])
for name, amount in sums.most_common():
    print(f"{name}\t{amount:g}")
