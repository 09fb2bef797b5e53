# /// script
# dependencies = ["pypdf>=5"]
# ///
"""Print the fields of a PDF form as JSON."""

import json
import sys

from pypdf import PdfReader

fields = PdfReader(sys.argv[1]).get_fields() or {}
print(json.dumps({name: field.get("/V") or "" for name, field in fields.items()}, indent=2))
