// Runs before the first paint: marks that scripts run, and applies the chosen theme.
(() => {
  document.documentElement.classList.add("scripted");
  const chosen = localStorage.getItem("satchel-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
