import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

interface Row { path: string; lines: number }

const folder: string = process.argv[2];
const rows: Row[] = readdirSync(folder)
  .filter((name: string) => name.endsWith(".ts"))
  .map((name: string) => ({ path: name, lines: readFileSync(join(folder, name), "utf8").split("\n").length - 1 }));
for (const row of rows) console.log(`${row.lines}\t${row.path}`);
