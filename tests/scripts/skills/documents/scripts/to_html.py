import pathlib
import sys

import markdown

path = pathlib.Path(sys.argv[1])
path.with_suffix(".html").write_text(markdown.markdown(path.read_text("utf-8")) + "\n", "utf-8")
print(path.with_suffix(".html"))
