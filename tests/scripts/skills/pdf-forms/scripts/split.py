# /// script
# dependencies = ["pypdf>=5"]
# ///
"""Write each page of a PDF into a file of its own."""

import os
import sys

from pypdf import PdfReader, PdfWriter

stem = os.path.splitext(sys.argv[1])[0]
for number, page in enumerate(PdfReader(sys.argv[1]).pages, 1):
    writer = PdfWriter()
    writer.add_page(page)
    writer.write(f"{stem}-{number}.pdf")
    print(f"{stem}-{number}.pdf")
