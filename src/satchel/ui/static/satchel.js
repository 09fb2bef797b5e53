// What pages need beyond htmx: light and dark, news from the server, keys, dialogs.
// Everything works on attributes, so no page has a script of its own:
//
//   data-open="ID"        opens the <dialog> of that id          data-close   closes its own
//   data-key="a"          this key clicks or focuses the element
//   data-live="goal:ID"   on <body> or <main>: further events that the page listens to
//   data-confirm="…"      asks before a form is sent
//   data-told             on #notes: the page says what was just done; the keyboard goes on there
//   .by-script            is of no use, and not shown, where no script runs
//
// Whoever leaves a page where they wrote something is asked first, whichever form it is.
//
// The server says that something changed; `library`, `goals` and `goal:ID` reach htmx as events on
// <body>: hx-trigger="satchel:library from:body".
//
// Other scripts find here: satchel.note(text, type), which shows an answer of the server, and
// satchel.revive(), which says whether somebody is signed in.
(() => {
  "use strict";
  const root = document.documentElement;

  document.addEventListener("htmx:configRequest", (event) => {
    const mark = document.querySelector('meta[name="csrf"]');
    if (mark) event.detail.headers["X-Satchel-CSRF"] = mark.content;
  });

  // A session may end while a page is open, by time or with the server. Who came in again with
  // another tab goes on here: what was typed stays, and only the forms' mark is another.
  const revive = async () => {
    const meta = document.querySelector('meta[name="csrf"]');
    const answer = await fetch("/api/session");
    if (!meta || !answer.ok) return false;
    const { csrf } = await answer.json();
    if (meta.content === csrf) return true;
    meta.content = csrf;
    for (const form of document.querySelectorAll('form[action*="csrf="]')) {
      const address = new URL(form.getAttribute("action"), location.href);
      address.searchParams.set("csrf", csrf);
      form.setAttribute("action", address.pathname + address.search);
    }
    listen();
    return true;
  };
  addEventListener("focus", () => {
    if (document.querySelector('meta[name="csrf"]')) revive().catch(() => {});
  });

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
  window.satchel = { note, revive };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open], [data-close], #theme");
    if (!button) return;
    if (button.id === "theme") {
      const dark = getComputedStyle(root).colorScheme === "dark"
        || (root.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("satchel-theme", root.dataset.theme);
    } else if (button.dataset.open) {
      document.getElementById(button.dataset.open)?.showModal();
    } else {
      button.closest("dialog")?.close();
    }
  });

  document.addEventListener("submit", (event) => {
    const words = event.target.dataset.confirm;
    if (words && !confirm(words)) event.preventDefault();
  }, true);

  // A text is unsaved when it was typed, or came back with a refusal; its own form may go with it.
  let sent = null;
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

  // The address may name a row, to which the browser scrolls while it loads: after that.
  const news = document.querySelector("#notes[data-told]");
  if (news) addEventListener("load", () => requestAnimationFrame(() => news.focus({ preventScroll: true })));

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.matches("input, textarea, select, [contenteditable]")) return;
    const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!found) return;
    event.preventDefault();
    found.matches("input, textarea, select") ? found.focus() : found.click();
  });

  // One stream a page, while somebody looks at it. The page says which change it has seen last:
  // what happened since, and while nobody looked, is told at once.
  let stream = null;
  let seen = document.querySelector('meta[name="live"]')?.content ?? "0";
  const told = (name) => {
    if (window.htmx) window.htmx.trigger(document.body, `satchel:${name}`);
    document.dispatchEvent(new CustomEvent(`satchel:${name}`));
  };
  const listen = () => {
    if (stream?.readyState === EventSource.CLOSED) stream = null;
    if (stream || document.hidden || !document.querySelector('meta[name="csrf"]')) return;
    const more = [...document.querySelectorAll("[data-live]")].map((one) => one.dataset.live);
    const names = [...new Set(["library", "goals", ...more])];
    stream = new EventSource("/live?" + new URLSearchParams([["seen", seen], ...more.map((one) => ["on", one])]));
    stream.addEventListener("hello", () => { root.dataset.live = "on"; });
    stream.onerror = () => { root.dataset.live = "off"; };
    for (const name of names) {
      stream.addEventListener(name, (event) => { seen = event.lastEventId || seen; told(name); });
    }
  };
  const hush = () => { stream?.close(); stream = null; };
  addEventListener("pagehide", hush);
  // Browsers hold six lines to a server: a page that nobody looks at gives its own back.
  document.addEventListener("visibilitychange", () => { document.hidden ? hush() : listen(); });
  addEventListener("pageshow", listen);
})();
