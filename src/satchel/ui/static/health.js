// The result is loaded anew: what is unfolded stays so, and the keyboard stays where it was.
//
//   data-keep-open   on the element that is loaded anew      #health-said   says when a check ends
(() => {
  "use strict";
  let open = [];
  let focused = null;
  let worked = false;
  const inside = (event) => event.detail.target?.closest?.("[data-keep-open]");
  const works = (root) => root.querySelector(".working") !== null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const root = inside(event);
    if (!root) return;
    open = [...root.querySelectorAll("details[id][open]")].map((one) => one.id);
    focused = root.contains(document.activeElement) ? document.activeElement.id : null;
    worked = works(root);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const root = inside(event);
    if (!root) return;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused !== null) (document.getElementById(focused) ?? root).focus({ preventScroll: true });
    if (works(root) === worked) return;
    const words = root.querySelector(worked ? ".none, .badge" : "#working-words")?.textContent ?? "";
    document.getElementById("health-said").textContent = `${document.querySelector("h1").textContent}: ${words}`;
  });
})();
