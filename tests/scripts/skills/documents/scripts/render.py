# /// script
# requires-python = ">=3.9"
# dependencies = [
#   "jinja2",
#   "pyyaml",
# ]
# ///
import sys

import yaml
from jinja2 import StrictUndefined, Template

template, values, target = sys.argv[1:]
with open(values, encoding="utf-8") as file:
    table = yaml.safe_load(file)
with open(template, encoding="utf-8") as file:
    text = Template(file.read(), undefined=StrictUndefined).render(**table)
with open(target, "w", encoding="utf-8") as file:
    file.write(text)
print(f"Wrote {target}")
