const fs = require("fs");

const [path] = process.argv.slice(2);
const table = JSON.parse(fs.readFileSync(path, "utf8"));
const sorted = Object.fromEntries(Object.entries(table).sort(([a], [b]) => a.localeCompare(b)));
fs.writeFileSync(path, JSON.stringify(sorted, null, 2) + "\n");
console.log(Object.keys(sorted).join(" "));
