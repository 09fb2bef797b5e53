#!/usr/bin/env python3
import sys

from openpyxl import load_workbook

book = load_workbook(sys.argv[1])
sheet = book.active
last = sheet.max_row
sheet.append(["Total", *(f"=SUM({c}2:{c}{last})" for c in "B")])
book.save(sys.argv[1])
print(f"Totals in row {last + 1}")
