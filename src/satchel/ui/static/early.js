// Before anything is painted: that scripts run here, and the reader's choice of light or dark.
(() => {
  document.documentElement.classList.add("scripted");
  const chosen = localStorage.getItem("satchel-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
