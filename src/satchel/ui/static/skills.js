// The list of skills: search, filters, bulk selection; the open file of a skill.
(() => {
  "use strict";
  const list = () => document.getElementById("list");

  // --- bulk selection: kept when the list is loaded again ---
  const chosen = () => [...document.querySelectorAll("#chosen [name=ref]:checked")];
  const showBar = () => {
    const bar = document.querySelector(".bulk");
    if (!bar) return;
    const count = chosen().length;
    bar.hidden = count === 0;
    bar.querySelector("[data-count]").textContent = count;
    bar.querySelector("[value=remove]").hidden = chosen().some((box) => "fixed" in box.dataset);
    const boxes = document.querySelectorAll("#chosen [name=ref]");
    const all = document.querySelector("[data-all-rows]");
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all-rows]")) {
      for (const box of document.querySelectorAll("#chosen [name=ref]")) box.checked = event.target.checked;
    }
    if (event.target.closest("#chosen")) showBar();
  });
  document.addEventListener("reset", () => setTimeout(showBar));
  addEventListener("pageshow", showBar);

  // --- keys: Enter in the search opens the first skill, Escape clears, arrows move ---
  document.addEventListener("keydown", (event) => {
    const links = [...document.querySelectorAll(".naming a")];
    const at = links.indexOf(document.activeElement);
    const search = document.getElementById("q");
    if (event.target === search && event.key === "ArrowDown") links[0]?.focus();
    else if (at >= 0 && event.key === "ArrowDown") links[at + 1]?.focus();
    else if (at >= 0 && event.key === "ArrowUp") (links[at - 1] ?? search).focus();
    else if (event.key === "Escape" && chosen().length && !document.querySelector("dialog:modal")) document.getElementById("chosen").reset();
    else return;
    event.preventDefault();
  });

  // --- one list is loaded at a time; news that arrive meanwhile are dispatched again after it ---
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
    request.addEventListener("loadend", () => setTimeout(came, request.status ? 500 : 0, request));
  });
  document.addEventListener("htmx:afterSettle", (event) => came(event.detail.xhr));

  // The typed words go with every request for the list.
  document.addEventListener("htmx:configRequest", (event) => {
    const { elt, target } = event.detail;
    const typed = document.getElementById("q");
    if (target?.id !== "list" || !typed || !elt.matches("a")) return;
    const there = new URL(event.detail.path, location.href);
    if ((there.searchParams.get("q") ?? "") === typed.value) return;
    there.searchParams.set("q", typed.value);
    there.searchParams.delete("page");
    event.detail.path = there.pathname + there.search;
  });
  // An address without empty parameters.
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.target?.id !== "list") return;
    const { parameters } = event.detail;
    for (const name of Object.keys(parameters)) if (parameters[name] === "") delete parameters[name];
  });

  // A reason that is being typed stays, also when an update was under way.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const reason = document.getElementById("reason");
    if (!reason || !event.detail.target?.contains(reason)) return;
    if (reason.value || reason === document.activeElement) event.detail.shouldSwap = false;
  });

  let kept = [];
  let focused = "";
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target?.id !== "list") return;
    kept = chosen().map((box) => box.id);
    focused = list().contains(document.activeElement) ? document.activeElement.id || "list" : "";
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of kept) { const box = document.getElementById(id); if (box) box.checked = true; }
    kept = [];
    showBar();
    if (focused) (document.getElementById(focused) ?? list()).focus({ preventScroll: true });
    focused = "";
  });

  // --- the open file is marked in the tree ---
  document.addEventListener("htmx:beforeRequest", (event) => {
    const link = event.target.closest?.(".tree a");
    if (!link) return;
    for (const one of document.querySelectorAll(".tree a[aria-current]")) one.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
  });
})();
