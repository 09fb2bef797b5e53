#!/usr/bin/env python3
import csv
import sys

import openpyxl

book = openpyxl.Workbook()
with open(sys.argv[1], newline="", encoding="utf-8") as file:
    for row in csv.reader(file):
        book.active.append([float(cell) if cell.replace(".", "").isdigit() else cell for cell in row])
book.save(sys.argv[2])
print(f"{book.active.max_row} rows")
