// What pages need beyond htmx: light and dark, news from the server, keys, dialogs.
// Everything works on attributes, so no page has a script of its own:
//
//   data-open="ID"        opens the <dialog> of that id          data-close   closes its own
//   data-key="a"          this key clicks or focuses the element
//   data-live="goal:ID"   on <body> or <main>: further events that the page listens to
//   data-confirm="…"      asks before a form is sent
//   data-told             on #notes: the page says what was just done; the keyboard goes on there
//   data-away="…"         on #notes: what is said when the server cannot be reached, and when
//   data-unknown="…"      nobody knows whether it did what it was asked for
//   .by-script            is of no use, and not shown, where no script runs
//
// Whoever leaves a page where they wrote something is asked first, whichever form it is.
//
// The server says that something changed; `library`, `goals` and `goal:ID` reach htmx as events on
// <body>: hx-trigger="satchel:library from:body". While it cannot be heard, <html data-live> is
// "off"; where nobody is signed in any more, "out".
//
// Other scripts find here: satchel.note(text, type), which shows an answer of the server, and
// satchel.revive(), which says whether somebody is signed in and fails when nobody answers, and
// satchel.away(), which says so.
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
    const answer = await fetch("/session");
    if (!meta || answer.status === 401) return false;
    if (!answer.ok) throw new Error(String(answer.status));  // a proxy, whose server is away
    const { csrf } = await answer.json();
    if (meta.content !== csrf) {
      meta.content = csrf;
      for (const form of document.querySelectorAll('form[action*="csrf="]')) {
        const address = new URL(form.getAttribute("action"), location.href);
        address.searchParams.set("csrf", csrf);
        form.setAttribute("action", address.pathname + address.search);
      }
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
  // Beside what was told before, till somebody answers.
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

  // A click that came to nothing says so. What the server said against it goes when the same part
  // was asked for again.
  let failed = null;
  const part = (detail) => detail.requestConfig.target?.id || detail.pathInfo.requestPath.split("?")[0];
  document.addEventListener("htmx:responseError", (event) => { failed = part(event.detail); });
  document.addEventListener("htmx:sendError", (event) => {
    const { triggeringEvent, verb } = event.detail.requestConfig;
    const type = triggeringEvent?.type ?? "satchel:library";
    if (type === "satchel:library" || (type === "input" && verb !== "get")) return;  // nobody's click
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

  // Links that htmx follows open a tab of their own as all links do.
  document.addEventListener("click", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    if (event.target.closest("a[hx-get]")) event.stopImmediatePropagation();
  }, true);

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

  // The second click of two would ask for what the first one changes: it is not sent.
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

  // A text is unsaved when it was typed, or came back with a refusal; its own form may go with it.
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
    const modal = document.querySelector("dialog:modal");
    if (!found || (modal && !modal.contains(found))) return;
    event.preventDefault();
    found.matches("input, textarea, select") ? found.focus() : found.click();
  });

  // One stream a page, while somebody looks at it. The page says which change it has seen last:
  // what happened since, and while nobody looked, is told at once.
  let stream = null;
  let seen = document.querySelector('meta[name="live"]')?.content ?? "0";
  const told = (name) => { document.body.dispatchEvent(new CustomEvent(`satchel:${name}`, { bubbles: true })); };
  // The browser tries again by itself where nobody answers, but not where the answer was a no.
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
    if (stream || document.hidden || !document.querySelector('meta[name="csrf"]')) return;
    const more = [...document.querySelectorAll("[data-live]")].map((one) => one.dataset.live);
    const names = [...new Set(["library", "goals", ...more])];
    stream = new EventSource("/live?" + new URLSearchParams([["seen", seen], ...more.map((one) => ["on", one])]));
    stream.addEventListener("hello", () => {
      const gone = ["off", "out"].includes(root.dataset.live);
      root.dataset.live = "on";
      back();
      if (gone) names.forEach(told);  // whatever was asked for meanwhile came to nothing
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
  const hush = () => { stream?.close(); stream = null; };
  addEventListener("pagehide", hush);
  // Browsers hold six lines to a server: a page that nobody looks at gives its own back.
  document.addEventListener("visibilitychange", () => { document.hidden ? hush() : listen(); });
  addEventListener("pageshow", listen);
})();
