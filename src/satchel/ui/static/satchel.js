// Shared behaviour of all pages: theme, live updates, keys, dialogs. Driven by attributes:
//
//   data-open="ID"        opens the <dialog> of that id          data-close   closes its own
//   data-key="a"          this key clicks or focuses the element
//   data-href="URL"       a click beside links and buttons opens this URL
//   data-copy="…"         copies this text      data-copy-from="ID"   copies that element's text
//   data-live="goal:ID"   on <body> or <main>: further events of this page
//   data-confirm="…"      asks before a form is sent
//   data-told             on #notes: the page shows the result of a change, and gets the focus
//   data-away="…"         on #notes: message when the server does not respond
//   data-unknown="…"      the same after a change whose result is unknown
//   .by-script            hidden where no script runs
//
// Leaving a page with unsaved text asks first.
//
// Server-sent events `library`, `goals` and `goal:ID` are dispatched on <body>:
// hx-trigger="satchel:library from:body". <html data-live> is "off" while the server does not
// respond, and "out" when the session has ended.
//
// For other scripts: satchel.note(text, type) shows a response, satchel.revive() resolves to
// whether there is a session and rejects without a response, satchel.away() shows that.
(() => {
  "use strict";
  const root = document.documentElement;
  const signedIn = document.querySelector('meta[name="live"]') !== null;

  // A session may end while a page is open. After a new sign-in in another tab this page continues.
  const revive = async () => {
    const answer = await fetch("/session");
    if (!signedIn || answer.status === 401) return false;
    if (!answer.ok) throw new Error(String(answer.status));  // of a proxy
    listen();
    return true;
  };
  addEventListener("focus", () => { if (signedIn) revive().catch(() => {}); });

  const note = (text, type) => {
    const notes = document.getElementById("notes");
    if (type?.startsWith("text/html")) {
      notes.innerHTML = text;  // of our own server, where everything is escaped
      return;
    }
    const made = document.createElement("div");
    made.className = "note bad";
    made.setAttribute("role", "alert");
    made.textContent = text;
    notes.replaceChildren(made);
  };
  const back = () => { document.querySelector("#notes > .away-note")?.remove(); };
  const away = (unknown) => {
    const notes = document.getElementById("notes");
    const made = document.createElement("div");
    made.className = "note bad away-note";
    made.setAttribute("role", "alert");
    made.textContent = unknown ? notes.dataset.unknown : notes.dataset.away;
    back();
    notes.prepend(made);
  };
  window.satchel = { away, note, revive };

  // A failed request shows its error until the same part is loaded.
  let failed = null;
  const part = (detail) => detail.requestConfig.target?.id || detail.pathInfo.requestPath.split("?")[0];
  document.addEventListener("htmx:responseError", (event) => { failed = part(event.detail); });
  document.addEventListener("htmx:sendError", (event) => {
    const { triggeringEvent, verb } = event.detail.requestConfig;
    const type = triggeringEvent?.type ?? "satchel:library";
    if (type.startsWith("satchel:") || (type === "input" && verb !== "get")) return;  // not a click
    away(verb !== "get");
    const dialog = document.querySelector("dialog:modal");
    if (dialog && !dialog.querySelector("form")) dialog.close();  // it was to be filled
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (!event.detail.successful) return;
    back();
    if (part(event.detail) !== failed) return;
    failed = null;
    document.getElementById("notes").replaceChildren();
  });

  // Links of htmx open a new tab like all links.
  document.addEventListener("click", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    if (event.target.closest("a[hx-get]")) event.stopImmediatePropagation();
  }, true);

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open], [data-close]");
    if (!button) return;
    if (button.dataset.open) document.getElementById(button.dataset.open)?.showModal();
    else button.closest("dialog")?.close();
  });

  // The theme follows the system until it is chosen.
  const THEMES = { system: "◐", light: "☀", dark: "☾" };
  const theme = document.getElementById("theme");
  const showTheme = () => {
    const now = root.dataset.theme ?? "system";
    theme.textContent = THEMES[now];
    theme.title = theme.dataset[now];
    theme.setAttribute("aria-label", theme.title);
  };
  theme.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(root.dataset.theme ?? "system") + 1) % names.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    localStorage.setItem("satchel-theme", next);
    showTheme();
  });
  showTheme();

  // A row is opened by a click anywhere but on its own controls, or on selected text.
  document.addEventListener("click", (event) => {
    const row = event.target.closest("[data-href]");
    if (!row || event.target.closest("a, button, input, label, summary, select")) return;
    if (getSelection().toString()) return;
    if (event.ctrlKey || event.metaKey) open(row.dataset.href, "_blank", "noopener");
    else location.assign(row.dataset.href);
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const from = document.getElementById(button.dataset.copyFrom ?? "");
    try {
      await navigator.clipboard.writeText(from ? from.textContent : button.dataset.copy);
    } catch {
      if (from) getSelection().selectAllChildren(from);  // no clipboard: the user copies it
      return;
    }
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });

  // The second click of a double click is not sent.
  const TWICE = 3000;
  let sent = null;
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (sent?.target !== form || sent.defaultPrevented || form.method !== "post") return;
    if (event.timeStamp - sent.timeStamp > TWICE) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);

  document.addEventListener("submit", (event) => {
    const words = event.target.dataset.confirm;
    if (words && !confirm(words)) event.preventDefault();
  }, true);

  // Unsaved: typed, or returned with an error; not when its own form is sent.
  document.addEventListener("submit", (event) => { sent = event; });
  addEventListener("pageshow", () => { sent = null; });
  addEventListener("beforeunload", (event) => {
    const refused = document.querySelector('main .note.bad[role="alert"]') !== null;
    const unsaved = [...document.querySelectorAll('form[method="post"]:has(textarea)')]
      .filter((form) => sent === null || sent.defaultPrevented || sent.target !== form)
      .flatMap((form) => [...form.querySelectorAll('textarea, input:not([type]), input[type="text"]')])
      .some((field) => field.checkVisibility() && (field.value !== field.defaultValue || (refused && field.value !== "")));
    if (unsaved) event.preventDefault();
  });

  // After the browser has scrolled to the row of the URL.
  const news = document.querySelector("#notes[data-told]");
  if (news) addEventListener("load", () => requestAnimationFrame(() => news.focus({ preventScroll: true })));

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    const modal = document.querySelector("dialog:modal");
    if (!found || (modal && !modal.contains(found))) return;
    event.preventDefault();
    found.matches("input, textarea, select") ? found.focus() : found.click();
  });

  // One stream per visible page. It starts after the last change that the page has seen.
  let stream = null;
  let seen = document.querySelector('meta[name="live"]')?.content ?? "0";
  const told = (name) => { document.body.dispatchEvent(new CustomEvent(`satchel:${name}`, { bubbles: true })); };
  // The browser reconnects by itself, but not after an error status.
  const AGAIN = 5000;
  let tried = -AGAIN;
  let timer = 0;
  const retry = async () => {
    tried = performance.now();
    const known = await revive().catch(() => null);
    if (known === false) {
      root.dataset.live = "out";
      back();
    }
    if (stream === null) later();
  };
  const later = () => {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(retry, Math.max(300, tried + AGAIN - performance.now()));
  };
  const listen = () => {
    if (stream?.readyState === EventSource.CLOSED) stream = null;
    if (stream || document.hidden || !signedIn) return;
    const more = [...document.querySelectorAll("[data-live]")].map((one) => one.dataset.live);
    const names = [...new Set(["library", "goals", ...more])];
    stream = new EventSource("/live?" + new URLSearchParams([["seen", seen], ...more.map((one) => ["on", one])]));
    stream.addEventListener("hello", () => {
      const gone = ["off", "out"].includes(root.dataset.live);
      root.dataset.live = "on";
      back();
      if (gone) names.forEach(told);  // requests failed meanwhile
    });
    stream.onerror = () => {
      if (root.dataset.live !== "out") root.dataset.live = "off";
      if (stream?.readyState !== EventSource.CLOSED) return;
      stream = null;
      later();
    };
    for (const name of names) {
      stream.addEventListener(name, (event) => {
        seen = event.lastEventId || seen;
        root.dataset.live = "on";
        told(name);
      });
    }
  };
  // What a pointer has pressed stays until the click: an update that no act of the reader caused is
  // requested again after it.
  let pressed = false;
  const delayed = new Map();
  addEventListener("pointerdown", () => { pressed = true; }, true);
  const release = () => setTimeout(() => {
    pressed = false;
    delayed.forEach((path, source) => htmx.ajax("GET", path, { source }));
    delayed.clear();
  });
  addEventListener("pointerup", release, true);
  addEventListener("pointercancel", release, true);
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { elt, path, triggeringEvent } = event.detail.requestConfig;
    if (!pressed || (triggeringEvent && !triggeringEvent.type.startsWith("satchel:"))) return;
    event.detail.shouldSwap = false;
    delayed.set(elt, path);
  });
  const hush = () => { stream?.close(); stream = null; };
  addEventListener("pagehide", hush);
  // Browsers allow six connections per server: a hidden page closes its stream.
  document.addEventListener("visibilitychange", () => { document.hidden ? hush() : listen(); });
  addEventListener("pageshow", listen);
})();
