// openskills: `findAllSkills`, which its bundle keeps to itself. The function is taken out of the
// installed file at run time, so what is measured is the peer's own code.
//
//   node openskills.mjs CLI_JS ROOT PAIRS_FILE

import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "fs";
import { tmpdir } from "os";
import { join } from "path";
import { pathToFileURL } from "url";

const [cli, root, pairsFile] = process.argv.slice(2);
const source = readFileSync(cli, "utf-8");
const start = source.indexOf("function getSearchDirs");
const end = source.indexOf("function findSkill(");
if (start < 0 || end < 0) throw new Error("findAllSkills is not where it was in 1.5.0");

const project = mkdtempSync(join(tmpdir(), "openskills-"));
try {
  const imports = [
    'import { readFileSync, readdirSync, existsSync, statSync } from "fs";',
    'import { join, join as join2 } from "path";',
    'import { homedir } from "os";',
  ].join("\n");
  const module = join(project, "find.mjs");
  writeFileSync(module, `${imports}\n${source.slice(start, end)}\nexport { findAllSkills };\n`);
  const loading = process.cpuUsage();
  const { findAllSkills } = await import(pathToFileURL(module));
  const loaded = process.cpuUsage(loading);

  mkdirSync(join(project, ".agent"));
  symlinkSync(root, join(project, ".agent", "skills"));
  process.env.HOME = join(project, "nobody");
  process.chdir(project);

  const before = process.memoryUsage().rss;
  const cpu = process.cpuUsage();
  const wall = process.hrtime.bigint();
  const skills = findAllSkills();
  const took = process.hrtime.bigint() - wall;
  const used = process.cpuUsage(cpu);
  const added = process.memoryUsage().rss - before;

  writeFileSync(pairsFile, JSON.stringify(skills.map((s) => [s.name, s.description])));
  console.log(
    JSON.stringify({
      cpu: (used.user + used.system) / 1e6,
      wall: Number(took) / 1e9,
      rss_added_mb: added / 1e6,
      import_cpu: (loaded.user + loaded.system) / 1e6,
    }),
  );
} finally {
  rmSync(project, { recursive: true, force: true });
}
