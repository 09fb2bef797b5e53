with open("AGENTS.md", "w", encoding="utf-8") as file:
    file.write("# For agents\n\nRun the tests with `just test`.\n")
with open("notes.md", "w", encoding="utf-8") as file:
    file.write("Wrote AGENTS.md\n")
