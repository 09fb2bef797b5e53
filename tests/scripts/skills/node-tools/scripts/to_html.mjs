import { readFileSync, writeFileSync } from "node:fs";
import { marked } from "marked";

const [source, target] = process.argv.slice(2);
writeFileSync(target, marked.parse(readFileSync(source, "utf8")));
console.log(`Wrote ${target}`);
