import sqlite3
import sys

with sqlite3.connect(sys.argv[1]) as database:
    database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
    database.executemany("INSERT INTO notes (text) VALUES (?)", [("a",), ("b",)])
    print(database.execute("SELECT count(*) FROM notes").fetchone()[0])
