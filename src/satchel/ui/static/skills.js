// The list of skills: rows that open, and stay open when the list is made anew.
//
//   data-opens="ID"   on a button: shows or hides the row of that id, and has it loaded once
//   data-clears="ID"  on a link: empties the search field of that id
//   data-mark="…"     on a row: another mark means that what is open below it is out of date
(() => {
  "use strict";
  const show = (button, open) => {
    const row = document.getElementById(button.dataset.opens);
    if (!row) return;
    row.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    button.closest("tr").classList.toggle("is-open", open);
    if (open && !row.dataset.loaded) load(row);
  };
  const load = (row) => {
    row.dataset.loaded = "1";
    row.dataset.mark = row.previousElementSibling?.dataset.mark ?? "";
    window.htmx?.trigger(row.firstElementChild, "satchel:open");
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-opens]");
    if (button) show(button, button.getAttribute("aria-expanded") !== "true");
  });

  // Clearing a search keeps the filters; without htmx the link leads to the whole list.
  document.addEventListener("click", (event) => {
    const input = document.getElementById(event.target.closest("[data-clears]")?.dataset.clears ?? "");
    if (!input || !window.htmx) return;
    event.preventDefault();
    input.value = "";
    input.focus();
    window.htmx.trigger(input, "search");
  });

  // One list is on its way at a time: what somebody asks for goes before news. News that come
  // meanwhile may be missing in it, so they are told again when it is there.
  const coming = new Set();
  let missed = false;
  document.addEventListener("satchel:library", (event) => {
    if (!coming.size) return;
    missed = true;
    event.stopPropagation();
  }, true);
  const came = (request) => {
    coming.delete(request);
    if (coming.size || !missed) return;
    missed = false;
    document.body.dispatchEvent(new CustomEvent("satchel:library", { bubbles: true }));
  };
  document.addEventListener("htmx:beforeSend", (event) => {
    const request = event.detail.xhr;
    if (event.detail.target?.id !== "list") return;
    coming.add(request);
    // One that was given up: who typed on has asked again by then.
    request.addEventListener("loadend", () => setTimeout(came, request.status ? 500 : 0, request));
  });
  // Only now does the new list hear anything.
  document.addEventListener("htmx:afterSettle", (event) => came(event.detail.xhr));

  // Words and filters that are not in the list yet go with whatever is asked for next.
  const FILTERS = ["source", "state"];
  let wanted = null;
  document.addEventListener("htmx:configRequest", (event) => {
    const { elt, target, parameters } = event.detail;
    const typed = document.getElementById("q");
    if (target?.id !== "list" || !typed) return;
    if (elt === typed) {
      for (const name of wanted ? FILTERS : []) {
        if (wanted.has(name)) parameters[name] = wanted.get(name);
        else delete parameters[name];
      }
    } else if (elt.matches("a")) {
      const there = new URL(event.detail.path, location.href);
      if ((there.searchParams.get("q") ?? "") !== typed.value) {
        there.searchParams.set("q", typed.value);
        there.searchParams.delete("page");
        event.detail.path = there.pathname + there.search;
      }
      wanted = there.searchParams;
    }
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (document.getElementById("list")?.contains(event.target)) wanted = null;
  });

  const linkTo = (row, file) => [...row.querySelectorAll(".tree a")].find((one) => file && one.getAttribute("href") === file);

  // Which file is open is marked in the tree.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const open = event.target.matches?.(".look") && event.target.closest("tr.detail");
    if (open && linkTo(open, open.dataset.file)) {
      event.preventDefault(); // another file was open here, and comes instead
      return;
    }
    const link = event.target.closest?.(".tree a");
    if (!link) return;
    for (const one of link.closest(".opened").querySelectorAll('.tree a[aria-current]')) one.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
  });

  // What loads by itself does so once, also when it is put back. Links are htmx's once it settled.
  document.addEventListener("htmx:afterSettle", (event) => {
    const look = event.detail.target;
    const row = look?.closest?.("tr.detail");
    if (look?.matches?.(".look")) {
      // Its name is read out, not the whole file.
      look.closest(".opened").querySelector(".said").textContent = look.querySelector("h2")?.textContent ?? "";
      for (const name of ["hx-get", "hx-trigger"]) look.removeAttribute(name);
      if (row) delete row.dataset.file;
    }
    if (!row?.dataset.file || look !== row.firstElementChild) return;
    linkTo(row, row.dataset.file)?.click();
  });

  // A row that could not be loaded is asked for when it is opened again.
  for (const name of ["htmx:responseError", "htmx:sendError"]) {
    document.addEventListener(name, (event) => {
      const row = event.detail.elt.closest?.("tr.detail");
      if (!row || event.detail.elt !== row.firstElementChild) return;
      delete row.dataset.loaded;
      const button = row.previousElementSibling?.querySelector("[data-opens]");
      if (button && !row.querySelector(".opened")) show(button, false);
    });
  }

  // The list is replaced as a whole: what was open is taken out before and put back after, with
  // its file, its place in it, and the keyboard's.
  let kept = new Map();
  let focused = null;
  let within = false;
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target?.id !== "list") return;
    kept = new Map();
    for (const row of document.querySelectorAll("#list tr.detail:not([hidden])")) {
      const place = row.querySelector(".prose, .source-code");
      kept.set(row.id, [row, place, place?.scrollTop ?? 0, place?.scrollLeft ?? 0]);
    }
    focused = document.activeElement?.closest("tr.detail") ? document.activeElement : null;
    within = event.detail.target.contains(document.activeElement);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target?.id !== "list") return;
    for (const [id, [old, place, top, left]] of kept) {
      const fresh = document.getElementById(id);
      if (!fresh || fresh === old) continue;
      fresh.replaceWith(old);
      window.htmx.process(old);
      const row = old.previousElementSibling;
      const button = row?.querySelector("[data-opens]");
      if (!button) continue;
      button.setAttribute("aria-expanded", "true");
      row.classList.add("is-open");
      place?.scrollTo(left, top);
      if (old.dataset.mark !== row.dataset.mark) {
        old.dataset.file = old.querySelector(".tree a[aria-current]")?.getAttribute("href") ?? "";
        load(old);
      }
    }
    if (focused?.isConnected) focused.focus({ preventScroll: true });
    else if (within && document.activeElement === document.body) {
      document.getElementById("list").focus({ preventScroll: true }); // what was pressed is gone
    }
    kept = new Map();
    focused = null;
  });
})();
