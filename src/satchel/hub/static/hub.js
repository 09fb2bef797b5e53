// Search without a server: the list of all skills is read from static files and kept in memory.
const MAX_ROWS = 100;
const root = document.body.dataset.root;
document.documentElement.classList.add("scripted");

for (const code of document.querySelectorAll("[data-command]")) {
  code.textContent = `${code.dataset.command} ${new URL(code.dataset.of, location.href)}`;
}

const place = (digest) => `${root}search/${digest.slice(0, 2)}/${digest}`;

async function lines(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(path);
  const text = await new Response(answer.body.pipeThrough(new DecompressionStream("gzip"))).text();
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** The digests of the bins below a node of the search list, only of those for keys that begin so. */
async function bins(node, start = "") {
  const entries = (await lines(place(node))).filter((entry) => entry.prefix.startsWith(start) || start.startsWith(entry.prefix));
  return (await Promise.all(entries.map((entry) => (entry.node ? bins(entry.node, start.slice(entry.prefix.length)) : [entry.bin])))).flat();
}

const readState = async () => JSON.parse((await (await fetch(`${root}state`, { cache: "no-cache" })).text()).split("\n")[0]);

let loading = null;

function load(report) {
  loading ??= (async () => {
    const digests = await bins((await readState()).search);
    const ranker = new Ranker();
    for (const [at, digest] of digests.entries()) {
      for (const row of await lines(place(digest))) if (row.version) ranker.add(row);
      report(Math.round((100 * (at + 1)) / digests.length));
    }
    return ranker;
  })().catch((failure) => {
    loading = null;
    throw failure;
  });
  return loading;
}

function cell(kind, text, link) {
  const made = document.createElement(kind);
  const inside = link === undefined ? made : made.appendChild(document.createElement(link ? "a" : "bdi"));
  inside.textContent = text;
  if (link) inside.href = link;
  return made;
}

function show(rows, body) {
  body.replaceChildren(...rows.map((row) => {
    const line = document.createElement("tr");
    const name = cell("th", row.name, `${root}${row.name}/`);
    name.scope = "row";
    const version = cell("td", row.version);
    version.className = "nowrap pale";
    const about = cell("td", row.description, "");
    about.firstChild.className = "about";
    line.append(name, version, about);
    return line;
  }));
}

const input = document.getElementById("words");
if (input) {
  const body = document.getElementById("rows");
  const status = document.getElementById("status");
  const first = [...body.children];
  const told = status.textContent;
  let turn = 0;
  input.addEventListener("input", async () => {
    const mine = ++turn;
    const words = input.value.trim();
    if (!words) {
      body.replaceChildren(...first);
      status.textContent = told;
      return;
    }
    try {
      const ranker = await load((percent) => {
        status.textContent = status.dataset.loading.replace("{percent}", percent);
      });
      if (mine !== turn) return;
      const found = ranker.rank(words);
      show(found.slice(0, MAX_ROWS), body);
      const { none, one, all, found: some } = status.dataset;
      status.textContent = ([none, one][found.length] ?? (found.length > MAX_ROWS ? some : all))
        .replace("{count}", Math.min(found.length, MAX_ROWS).toLocaleString())
        .replace("{total}", found.length.toLocaleString());
    } catch {
      status.textContent = status.dataset.failed;
    }
  });
}

/** Show the skills of a publisher. */
async function list(body) {
  const { publisher, bits } = body.dataset;
  const digests = await bins((await readState()).search, bits);
  const rows = (await Promise.all([...new Set(digests)].map((digest) => lines(place(digest))))).flat();
  show(rows.filter((row) => row.version && row.name.startsWith(`${publisher}/`)).sort((a, b) => (a.name < b.name ? -1 : 1)), body);
}

const listed = document.querySelector("[data-publisher]");
if (listed) {
  list(listed).catch(() => {
    const status = document.getElementById("status");
    status.textContent = status.dataset.failed;
  });
}
