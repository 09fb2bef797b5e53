// Sections that are loaded anew: what is unfolded stays so, and the keyboard stays where it was.
//
//   data-keep-open   on such a section      #health-said   says when work begins, and how it ended
(() => {
  "use strict";
  let open = [];
  let shut = [];
  let place = null;  // the section with the keyboard's focus
  let focused = "";  // and what had it there, also while that is away, or disabled
  let worked = false;
  const inside = (event) => event.detail.target?.closest?.("[data-keep-open]");
  const works = (root) => root.querySelector(".working") !== null;
  const look = () => {
    const active = document.activeElement;
    if (active === place) return;
    if (active === document.body) {
      const was = document.getElementById(focused);
      if (was && !was.disabled) place = null;  // somebody left it
      return;
    }
    place = active.closest("[data-keep-open]");
    focused = active.id;
  };
  document.addEventListener("htmx:beforeRequest", look);
  document.addEventListener("htmx:beforeSwap", (event) => {
    const root = inside(event);
    if (!root) return;
    const every = [...root.querySelectorAll("details[id]")];
    open = every.filter((one) => one.open).map((one) => one.id);
    shut = every.filter((one) => !one.open).map((one) => one.id);
    look();
    worked = works(root);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const root = inside(event);
    if (!root) return;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const id of shut) document.getElementById(id)?.removeAttribute("open");
    if (place === root) (document.getElementById(focused) ?? root).focus({ preventScroll: true });
    if (works(root) === worked) return;
    const said = document.getElementById("health-said");
    const title = document.getElementById(root.id.replace("-body", "-title")).textContent;
    const end = root.querySelector(".verdict, p")?.textContent.trim() ?? "";
    said.textContent = title + said.dataset.between + (worked ? end : said.dataset.working);
  });
})();
