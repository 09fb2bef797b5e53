// What one skill's page and the catalogue need beyond htmx. Everything works on attributes:
//
//   data-copy="…"         copies these words        data-copy-from="ID"   copies what that element says
//   data-budget="N"       sets the budget to so many characters
//   data-fold="key"       a <details> that stays open when its part is shown anew
//   data-valuetext="…"    what the slider says about itself, in the part that it loaded
(() => {
  "use strict";
  const one = (id) => document.getElementById(id);

  const copy = async (button, words, from) => {
    try {
      await navigator.clipboard.writeText(words);
    } catch {
      if (!from) return;
      getSelection().selectAllChildren(from); // no clipboard here: the reader copies it
      return;
    }
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  };

  // The slider and the number are two faces of one thing; the number is what is sent.
  const STEP = 4; // characters of a token, as budgets count
  const set = (amount) => {
    one("amount").value = amount;  // the slider knows only whole steps
    one("amount").dispatchEvent(new Event("input", { bubbles: true }));
  };
  document.addEventListener("input", (event) => {
    if (event.target.id === "slider" && one("amount")) one("amount").value = event.target.value;
    if (event.target.id === "amount" && one("slider")) one("slider").value = event.target.value;
  }, true);
  document.addEventListener("change", (event) => {
    if (event.target.id !== "unit") return;
    const tokens = event.target.value === "tokens";
    const counted = (value) => Math.round(tokens ? value / STEP : value * STEP);
    const slider = one("slider");
    const value = counted(one("amount").value);
    [slider.min, slider.max, slider.step] = [counted(slider.min), counted(slider.max), counted(slider.step)];
    slider.value = value;
    one("amount").value = value;
  }, true);

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from], [data-budget]");
    if (!button) return;
    if (button.dataset.budget) {
      set(one("unit").value === "tokens" ? Math.floor(button.dataset.budget / STEP) : button.dataset.budget);
    } else {
      const from = button.dataset.copyFrom ? one(button.dataset.copyFrom) : null;
      copy(button, from ? from.textContent : button.dataset.copy, from);
    }
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
    if (focused) one(focused)?.focus(); // a switch that was pressed stays under the finger
  });
  unfold();
})();
