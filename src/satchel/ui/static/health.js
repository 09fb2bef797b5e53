// What is unfolded stays unfolded when a section is loaded anew: <div data-keep-open>.
(() => {
  "use strict";
  let open = [];
  let shut = [];
  const inside = (event) => event.detail.target?.closest?.("[data-keep-open]");
  document.addEventListener("htmx:beforeSwap", (event) => {
    const root = inside(event);
    if (!root) return;
    const every = [...root.querySelectorAll("details[id]")];
    open = every.filter((one) => one.open).map((one) => one.id);
    shut = every.filter((one) => !one.open).map((one) => one.id);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (!inside(event)) return;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const id of shut) document.getElementById(id)?.removeAttribute("open");
  });
})();
