import sys

from docx import Document

document = Document()
with open(sys.argv[1], encoding="utf-8") as file:
    for line in file:
        level = len(line) - len(line.lstrip("#"))
        text = line.strip("# \n")
        if level:
            document.add_heading(text, level)
        elif text:
            document.add_paragraph(text)
document.save(sys.argv[2])
print(f"{len(document.paragraphs)} paragraphs")
