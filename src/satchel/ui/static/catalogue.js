// The catalogue page. Driven by attributes:
//
//   data-budget="N"       sets the budget to N characters
//   data-fold="key"       a <details> that stays open when its part is loaded again
//   data-valuetext="…"    the accessible value of the slider, in the part that it loaded
(() => {
  "use strict";
  const one = (id) => document.getElementById(id);

  // The slider and the number show the same value; the number is sent.
  const set = (amount) => {
    one("amount").value = amount;  // the slider knows only whole steps
    one("amount").dispatchEvent(new Event("input", { bubbles: true }));
  };
  document.addEventListener("input", (event) => {
    if (event.target.id === "slider" && one("amount")) one("amount").value = event.target.value;
    if (event.target.id === "amount" && one("slider")) one("slider").value = event.target.value;
  }, true);
  document.addEventListener("click", (event) => {
    const amount = event.target.closest("[data-budget]")?.dataset.budget;
    if (amount) set(amount);
  });

  const folds = new Map([["full", true]]);
  const unfold = () => document.querySelectorAll("[data-fold]").forEach((fold) => {
    const known = folds.get(fold.dataset.fold);
    if (known !== undefined) fold.open = known;
  });
  document.addEventListener("toggle", (event) => {
    const key = event.target.dataset?.fold;
    if (key && event.target.isConnected) folds.set(key, event.target.open);
  }, true);

  let scrolled = 0;
  let focused = "";
  document.addEventListener("htmx:beforeSwap", (event) => {
    scrolled = one("block")?.scrollTop ?? 0;
    focused = event.detail.target.contains(document.activeElement) ? document.activeElement.id : "";
  });
  document.addEventListener("htmx:afterSwap", () => {
    unfold();
    const block = one("block");
    if (block) block.scrollTop = scrolled;
    const told = document.querySelector("[data-valuetext]");
    if (told) one("slider")?.setAttribute("aria-valuetext", told.dataset.valuetext);
    if (focused) one(focused)?.focus();
  });
  unfold();
})();
