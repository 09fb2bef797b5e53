// Goals, as they happen. The server says that something changed; the part is asked for anew and
// put into the page piece by piece, so that focus, scroll and what somebody types stay as they are.
//
//   data-fresh="ADDRESS" data-on="goals"   this element's content, and the event that renews it
//   data-step="ID"        a link to a step: its details open beside the drawing
//   data-act              a form that is sent without leaving the page; the answer is the board
//   data-confirm="…"      on a button of such a form: asks before it is sent
//   data-sent="…"         what a button says while its form is on the way
//   data-since="SECONDS"  a clock that ticks
(() => {
  "use strict";
  const goal = document.querySelector("[data-goal]");
  const panel = document.querySelector("[data-step-panel]");
  const notes = document.getElementById("notes");
  let offset = 0;  // of the server's clock

  const key = (node) => (node.nodeType === 1 ? node.id : "");
  const morph = (old, now) => {
    if (old.dataset && "sent" in old.dataset && old.matches("form")) return;  // on its way
    if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName || key(old) !== key(now)) {
      old.replaceWith(now);
      return;
    }
    if (old.nodeType !== 1) {
      if (old.data !== now.data) old.data = now.data;
      return;
    }
    if (old.isEqualNode(now)) return;
    for (const { name } of [...old.attributes]) {
      if (!now.hasAttribute(name) && !["open", "aria-current"].includes(name)) old.removeAttribute(name);
    }
    for (const { name, value } of now.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.matches("input, textarea, select")) return;
    const known = new Map([...old.children].filter(key).map((one) => [one.id, one]));
    const kept = new Set([...now.children].map(key).filter((id) => known.has(id)));
    let at = old.firstChild;
    for (const child of [...now.childNodes]) {
      while (at && key(at) && !kept.has(key(at))) { const next = at.nextSibling; at.remove(); at = next; }
      const same = known.get(key(child));
      if (same) {
        // What stands before it goes: an element that is moved loses the focus.
        while (at && at !== same && !kept.has(key(at))) { const next = at.nextSibling; at.remove(); at = next; }
        if (same === at) at = at.nextSibling; else old.insertBefore(same, at);
        morph(same, child);
      } else if (at && !key(at) && at.nodeName === child.nodeName && !key(child)) {
        const next = at.nextSibling;
        morph(at, child);
        at = next;
      } else {
        old.insertBefore(child, at);
      }
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };
  const put = (into, text) => {
    const made = into.cloneNode(false);
    made.innerHTML = text;  // of our own server, where everything is escaped
    morph(into, made);
    after();
  };

  const ask = async (address, options = {}) => {
    const answer = await fetch(address, { ...options, headers: { "HX-Request": "true", ...options.headers } });
    const target = answer.headers.get("HX-Redirect");
    if (target) { location.href = target; return null; }
    const text = await answer.text();
    const kind = options.method ?? "look";  // what a look found out says nothing of what was sent
    if (!answer.ok && answer.status !== 503) { window.satchel.note(text, answer.headers.get("content-type")); notes.dataset.goals = kind; return null; }
    if (notes.dataset.goals === kind) { notes.replaceChildren(); delete notes.dataset.goals; }
    return text;
  };

  // What changes while one looks: one question at a time, and once more when it changed meanwhile.
  const renew = (element) => {
    if (element.renewing) { element.again = true; return; }
    element.renewing = true;
    element.again = false;
    ask(element.dataset.fresh)
      .then((text) => { if (text !== null) { put(element, text); refresh(); } })
      .catch(() => {})  // the server is away; the stream tells when it is back
      .finally(() => { element.renewing = false; if (element.again) renew(element); });
  };
  for (const element of document.querySelectorAll("[data-fresh]")) {
    document.addEventListener(`satchel:${element.dataset.on}`, () => renew(element));
    // An engine that did not answer is asked again.
    setInterval(() => { if (element.querySelector('[role="alert"]') || !element.firstElementChild) renew(element); }, 3000);
  }

  // A step, beside the drawing.
  const chosen = () => new URLSearchParams(location.search).get("step") ?? "";
  const address = (step, more) => `/goals/${goal.dataset.goal}/steps/${encodeURIComponent(step)}${more ? "?more=1" : ""}`;
  const mark = () => {
    const step = chosen();
    for (const one of document.querySelectorAll("#board [data-step]")) {
      if (one.dataset.step === step) one.setAttribute("aria-current", "true");
      else one.removeAttribute("aria-current");
    }
  };
  let last = 0;
  const show = async (step, more) => {
    const turn = ++last;
    const before = panel.querySelector("[data-of]")?.dataset.of;
    const text = step ? await ask(address(step, more)) : "";
    if (text === null || turn !== last) return;  // somebody chose another one since
    const focused = panel.contains(document.activeElement);
    history.replaceState(null, "", `?step=${encodeURIComponent(step)}`);
    if (step) panel.innerHTML = text;
    else panel.replaceChildren();
    panel.closest(".goal-split").classList.toggle("open", step !== "");
    panel.dataset.more = more ? "1" : "";
    panel.scrollTop = 0;
    after();
    const head = panel.querySelector("h2");
    const badge = panel.querySelector(".badge");
    document.getElementById("said").textContent = head ? `${head.textContent}: ${badge.textContent}` : "";
    if (focused) {  // what was pressed is gone: the keyboard goes on at the head, or where it came from
      const from = [...document.querySelectorAll("#board [data-step]")].find((one) => one.dataset.step === before && one.checkVisibility());
      (head ?? from ?? panel).focus({ preventScroll: true });
    }
    const box = panel.getBoundingClientRect();
    if (box.top > innerHeight - 120) panel.scrollIntoView({ block: "start" });
  };
  const refresh = () => {
    const inside = panel?.querySelector("[data-of]");
    if (!inside) return;
    const now = document.getElementById(`row-${inside.dataset.of}`)?.dataset.state;
    if (now === inside.dataset.state && panel.dataset.of === document.getElementById("board-in")?.dataset.state) return;
    panel.dataset.of = document.getElementById("board-in")?.dataset.state ?? "";
    ask(address(inside.dataset.of, panel.dataset.more)).then((text) => {
      if (text !== null && panel.querySelector("[data-of]")?.dataset.of === inside.dataset.of) put(panel, text);
    }).catch(() => {});
  };
  document.addEventListener("click", (event) => {
    if (!panel || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest("[data-step], [data-close-step]");
    if (!link) return;
    event.preventDefault();
    show(link.dataset.step ?? "", "more" in link.dataset).catch(() => {});
  });

  // What somebody does about a goal. The page says at once that it heard; what is typed after that
  // would reach nobody, so nothing can be.
  const sending = (form, pressed) => {
    const words = pressed.textContent;
    const buttons = [...form.querySelectorAll("button")].filter((one) => !one.disabled);
    const fields = [...form.querySelectorAll("input, textarea")].filter((one) => !one.readOnly);
    form.dataset.sent = "";
    form.setAttribute("aria-busy", "true");
    for (const one of buttons) one.disabled = true;
    for (const one of fields) one.readOnly = true;
    pressed.textContent = goal.dataset.sent;
    document.getElementById("said").textContent = goal.dataset.sent;
    return () => {
      delete form.dataset.sent;
      form.removeAttribute("aria-busy");
      for (const one of buttons) one.disabled = false;
      for (const one of fields) one.readOnly = false;
      pressed.textContent = words;
      document.getElementById("said").textContent = "";
    };
  };
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (event.defaultPrevented || !("act" in form.dataset)) return;
    event.preventDefault();
    const pressed = event.submitter ?? form.querySelector("button");
    if ("sent" in form.dataset || (pressed.dataset.confirm && !confirm(pressed.dataset.confirm))) return;
    const body = new URLSearchParams(new FormData(form, event.submitter));
    const free = sending(form, pressed);
    let text = null;
    try {
      text = await ask(form.action, { method: "POST", body });
    } catch {
      document.documentElement.dataset.live = "off";
    }
    if (text === null) {
      free();
      if (pressed.isConnected) pressed.focus();  // what was typed is still there
      return;
    }
    const isAnswer = form.closest(".ask") !== null;
    if (!isAnswer) free();
    put(document.getElementById("board"), text);
    refresh();
    // A recorded answer is taken by a process that begins only now: till then nobody answers anew.
    for (let tries = 0; isAnswer && form.isConnected && tries < 60; tries += 1) {
      if (document.getElementById("trouble")) break;
      await new Promise((done) => { setTimeout(done, 250); });
    }
    if (isAnswer) free();
  });

  // Clocks.
  const told = (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    const hours = Math.floor(whole / 3600);
    const minutes = Math.floor((whole % 3600) / 60);
    if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
    return minutes ? `${minutes} min ${String(whole % 60).padStart(2, "0")} s` : `${whole} s`;
  };
  const tick = () => {
    const now = Date.now() / 1000 + offset;
    for (const one of document.querySelectorAll("[data-since]")) {
      const time = told(now - Number(one.dataset.since));
      one.textContent = one.dataset.word ? `${one.dataset.word} · ${time}` : time;
    }
  };
  const after = () => {
    const board = document.getElementById("board-in");
    if (board) offset = Number(board.dataset.now) - Date.now() / 1000;
    mark();
    tick();
  };
  if (panel) panel.dataset.of = document.getElementById("board-in")?.dataset.state ?? "";
  after();
  refresh();
  if (matchMedia("(max-width: 640px)").matches) document.getElementById("as-list")?.setAttribute("open", "");
  setInterval(tick, 1000);
})();
