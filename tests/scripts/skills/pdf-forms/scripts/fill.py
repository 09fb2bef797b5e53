# /// script
# dependencies = ["pypdf>=5"]
# ///
"""Fill a PDF form from a JSON file."""

import json
import sys

from pypdf import PdfReader, PdfWriter

source, values, target = sys.argv[1:4]
with open(values, encoding="utf-8") as file:
    wanted = json.load(file)
reader = PdfReader(source)
unknown = set(wanted) - set(reader.get_fields() or {})
if unknown:
    sys.exit(f"The form has no field {', '.join(sorted(unknown))}")
writer = PdfWriter()
writer.append(reader)
writer.update_page_form_field_values(writer.pages[0], wanted, auto_regenerate=False)
writer.write(target)
print(f"Filled {len(wanted)} fields in {target}")
