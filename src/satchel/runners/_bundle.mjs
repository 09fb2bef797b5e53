// Turns the TypeScript of one skill into one plain file, by esbuild. Started by typescript.py.
//
// stdin:  {esbuild, typescript, folder, entry, out, target, tsconfig, format, sloppy}
// stdout: {ok: true, format} | {ok: false, errors: [{text, file, line, column}]}
//
// Nothing outside the skill's folder is read: an import may name a file of the folder or a package.

import { readFileSync, realpathSync } from "node:fs";
import { createRequire, isBuiltin } from "node:module";
import { dirname, extname, join, relative, resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";

const asked = JSON.parse(readFileSync(0, "utf8"));
const load = createRequire(import.meta.url);
const esbuild = load(asked.esbuild);
const root = realpathSync(asked.folder);
const sloppy = new Set(asked.sloppy.map((file) => join(root, file)));
const loaders = {
  ".ts": "ts", ".mts": "ts", ".cts": "ts", ".tsx": "tsx",
  ".js": "js", ".mjs": "js", ".cjs": "js", ".jsx": "jsx", ".json": "json",
};
const places = {
  "import.meta.url": "__satchel_url",
  "import.meta.dirname": "__satchel_dirname",
  "import.meta.filename": "__satchel_filename",
  __dirname: "__satchel_dirname",
  __filename: "__satchel_filename",
};

function isInside(path) {
  return path === root || path.startsWith(root + sep);
}

// Where a file believes it stands: in the skill's folder, not in the cache.
function placed(path, text) {
  if (!/\bimport\s*\.\s*meta\b|\b__(?:dirname|filename)\b/.test(text)) return text;
  const shown = join(asked.folder, relative(root, path));
  const facts = [
    `__satchel_url=${JSON.stringify(pathToFileURL(shown).href)}`,
    `__satchel_dirname=${JSON.stringify(dirname(shown))}`,
    `__satchel_filename=${JSON.stringify(shown)}`,
  ];
  return `const ${facts.join(",")};${text}`;
}

// A file that is only right outside strict mode becomes a script. The reference compiler reads it
// and says "use strict" in front, which is taken away again.
function scripted(path, text) {
  const ts = load(asked.typescript);
  const { outputText } = ts.transpileModule(text, {
    fileName: path,
    compilerOptions: {
      module: ts.ModuleKind.CommonJS,
      target: ts.ScriptTarget.ES2022,
      esModuleInterop: true,
      jsx: ts.JsxEmit.React,
    },
  });
  return outputText.replace(/^\s*(["'])use strict\1;?/, "");
}

const fence = {
  name: "fence",
  setup(build) {
    build.onResolve({ filter: /.*/ }, async (args) => {
      if (args.pluginData?.seen) return undefined;
      if (isBuiltin(args.path)) return { path: args.path, external: true };
      const local = /^(?:\.{1,2}(?:[\\/]|$)|[\\/]|[A-Za-z]:[\\/]|file:|#)/.test(args.path);
      if (!local && args.kind !== "entry-point") return { path: args.path, external: true };
      const found = await build.resolve(args.path, {
        kind: args.kind, importer: args.importer, resolveDir: args.resolveDir,
        pluginData: { seen: true },
      });
      if (found.errors.length > 0 || found.external) return found;
      if (!isInside(realpathSync(found.path))) {
        return { errors: [{ text: `"${args.path}" leads outside the skill's folder` }] };
      }
      return found;
    });
    build.onLoad({ filter: /.*/ }, (args) => {
      const path = realpathSync(args.path);
      const loader = loaders[extname(path)];
      if (!isInside(path) || loader === undefined) {
        return { errors: [{ text: `${relative(root, path)} is not a file that is compiled in` }] };
      }
      const text = readFileSync(path, "utf8").replace(/^\ufeff?(?:#!.*)?/, "");
      if (loader === "json") return { contents: text, loader };
      const source = placed(path, text);
      if (sloppy.has(path)) return { contents: scripted(path, source), loader: "js" };
      return { contents: source, loader };
    });
  },
};

async function bundle(format) {
  await esbuild.build({
    absWorkingDir: root,
    entryPoints: [join(root, asked.entry)],
    outfile: resolve(asked.out, format === "esm" ? "main.mjs" : "main.cjs"),
    bundle: true,
    platform: "node",
    format,
    target: asked.target,
    charset: "utf8",
    define: places,
    tsconfigRaw: asked.tsconfig,
    preserveSymlinks: true,
    logLevel: "silent",
    plugins: [fence],
  });
  return format;
}

function shown(error) {
  const { file = "", line = 0, column = 0 } = error.location ?? {};
  return { text: error.text, file, line, column };
}

let answer;
try {
  let format;
  try {
    format = await bundle(asked.format);
  } catch (error) {
    const awaits = (error.errors ?? []).some((one) => one.text.startsWith("Top-level await"));
    if (!awaits || asked.format === "esm") throw error;
    format = await bundle("esm");
  }
  answer = { ok: true, format };
} catch (error) {
  const errors = error.errors ?? [{ text: String(error?.message ?? error), location: null }];
  answer = { ok: false, errors: errors.slice(0, 20).map(shown) };
}
process.stdout.write(JSON.stringify(answer));
