import sys

path = sys.argv[1]
with open(path, encoding="utf-8") as file:
    lines = file.readlines()
unique = list(dict.fromkeys(lines))
with open(path, "w", encoding="utf-8") as file:
    file.writelines(unique)
print(f"{len(lines) - len(unique)} lines removed")
