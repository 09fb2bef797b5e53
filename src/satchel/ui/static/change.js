// What changing skills needs beyond htmx: uploads with progress, drag and drop, the editor's keys.
//
//   form[data-upload]     sent with a progress bar; data-most, data-most-files are its limits
//   [data-drop]           takes a dropped archive for the form "zip", a folder for "folder"
//   form[data-takes]      counts its ticked boxes in [data-install]; [data-all] ticks all
//   [data-line]           puts the cursor of [data-save] on that line; Ctrl-S there saves
//   form[data-guard]      is sent only by who is signed in: else its text would be replaced
(() => {
  "use strict";

  // --- uploads ---------------------------------------------------------------------------
  const box = document.querySelector("[data-sending]");
  const notes = document.getElementById("notes");
  let sending = null;

  const fail = (words) => {
    const note = document.createElement("div");
    note.className = "note bad";
    note.setAttribute("role", "alert");
    note.textContent = words;
    notes.replaceChildren(note);
  };

  const send = (form, files, label) => {
    if (sending) return;
    const total = files.reduce((sum, [file]) => sum + file.size, 0);
    if (!files.length) return;
    if (total > Number(form.dataset.most)) return fail(form.dataset.tooLarge);
    if (form.dataset.mostFiles && files.length > Number(form.dataset.mostFiles)) return fail(form.dataset.tooMany);
    const data = new FormData();
    for (const name of ["scope", "own"]) data.append(name, form.elements[name].value);
    for (const [file, path] of files) data.append("file", file, path);
    const bar = box.querySelector("progress");
    const words = box.querySelector("[data-sending-words]");
    box.querySelector("[data-sending-name]").textContent = label;
    bar.value = 0;
    box.hidden = false;
    notes.replaceChildren();
    const request = new XMLHttpRequest();
    sending = request;
    const over = () => { sending = null; box.hidden = true; };
    request.upload.addEventListener("progress", (event) => {
      if (!event.lengthComputable) return;
      bar.value = (100 * event.loaded) / event.total;
      words.textContent = `${Math.round(bar.value)} %`;
    });
    request.upload.addEventListener("load", () => {
      bar.removeAttribute("value");
      words.textContent = words.dataset.reading;
    });
    request.addEventListener("load", () => {
      over();
      const next = request.getResponseHeader("HX-Redirect");
      if (next) location.assign(next);
      else window.satchel.note(request.responseText, request.getResponseHeader("content-type"));
    });
    request.addEventListener("error", () => { over(); fail(form.dataset.broken); });
    request.addEventListener("abort", over);
    request.open("POST", form.action);
    request.setRequestHeader("HX-Request", "true");
    request.send(data);
  };

  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-upload]");
    if (!form || !box) return;
    event.preventDefault();
    const picked = [...form.elements.file.files];
    const files = picked.map((file) => [file, file.webkitRelativePath || file.name]);
    const label = form.dataset.upload === "folder" ? (files[0]?.[1] ?? "").split("/")[0] : (picked[0]?.name ?? "");
    send(form, files, label);
  });
  box?.querySelector("[data-abort]").addEventListener("click", () => sending?.abort());

  // --- drag and drop ---------------------------------------------------------------------
  const zone = document.querySelector("[data-drop]");
  const walk = async (entry, path, found) => {
    if (entry.isFile) {
      found.push([await new Promise((yes, no) => entry.file(yes, no)), path + entry.name]);
    } else {
      const reader = entry.createReader();
      for (;;) {
        const some = await new Promise((yes, no) => reader.readEntries(yes, no));
        if (!some.length) break;
        for (const one of some) await walk(one, `${path}${entry.name}/`, found);
      }
    }
  };
  if (zone) {
    zone.hidden = false;
    const over = (on) => zone.classList.toggle("over", on);
    const isFile = (event) => event.dataTransfer?.types.includes("Files");  // else a text, for a field
    for (const name of ["dragover", "dragenter"]) {
      addEventListener(name, (event) => { if (isFile(event)) { event.preventDefault(); over(true); } });
    }
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) over(false); });
    addEventListener("drop", async (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      over(false);
      const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
      const entries = items.map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
      const dropped = [...event.dataTransfer.files];
      if (entries.some((entry) => entry.isDirectory)) {
        const found = [];
        for (const entry of entries) await walk(entry, "", found);
        send(document.querySelector('[data-upload="folder"]'), found, entries[0].name);
      } else if (dropped.length) {
        send(document.querySelector('[data-upload="zip"]'), dropped.map((file) => [file, file.name]), dropped[0].name);
      }
    });
  }

  // --- choosing --------------------------------------------------------------------------
  const takes = document.querySelector("form[data-takes]");
  const install = takes?.querySelector("[data-install]");
  const every = takes?.querySelector("[data-all]");
  const boxes = () => [...takes.querySelectorAll('input[name="take"][type="checkbox"]')];
  const count = () => {
    const all = boxes();
    if (!install || !all.length) return;
    const ticked = all.filter((one) => one.checked);
    const sum = ticked.reduce((total, one) => total + Number(one.dataset.counts), 0);
    install.textContent = sum === 1 ? install.dataset.one : install.dataset.many.replace("{count}", sum);
    install.disabled = sum === 0;
    const risk = document.getElementById("risk");
    if (risk) risk.hidden = !ticked.some((one) => "blocked" in one.dataset || one.value === "*");
    if (every) {
      every.checked = ticked.length === all.length;
      every.indeterminate = ticked.length > 0 && !every.checked;
    }
  };
  takes?.addEventListener("change", (event) => {
    if (event.target === every) for (const one of boxes()) one.checked = every.checked;
    count();
  });
  if (takes) count();
  addEventListener("pageshow", () => { if (takes) count(); });  // a browser may keep the ticks

  // --- differences -------------------------------------------------------------------------
  // Each is asked for when it is unfolded, till it came.
  const file = (event) => (event.target.matches?.("details.file") ? event.target : null);
  document.addEventListener("htmx:beforeRequest", (event) => {
    const one = file(event);
    if (one && (!one.open || one.dataset.filled)) event.preventDefault();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const one = file(event);
    if (one && event.detail.successful) one.dataset.filled = "1";
  });

  // --- the editor ------------------------------------------------------------------------
  const text = document.querySelector("[data-save]");
  // Line numbers: a copy of the text behind the field, of which only the numbers are seen. It wraps
  // at the same places.
  const numbers = document.createElement("div");
  const number = () => {
    const fits = text.value.length < 200_000;
    text.parentElement.classList.toggle("lined", fits);
    numbers.style.width = `${text.clientWidth}px`;
    numbers.style.height = `${text.clientHeight}px`;
    numbers.replaceChildren(...(fits ? text.value.split("\n") : []).map((line) => {
      const one = document.createElement("div");
      one.textContent = line || " ";
      return one;
    }));
    numbers.scrollTop = text.scrollTop;
  };
  if (text) {
    numbers.className = "numbers";
    numbers.setAttribute("aria-hidden", "true");
    text.after(numbers);
    text.addEventListener("input", number);
    text.addEventListener("scroll", () => { numbers.scrollTop = text.scrollTop; });
    new ResizeObserver(number).observe(text);
    number();
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-line]");
    if (!button || !text) return;
    const lines = text.value.split("\n");
    const at = Math.min(Number(button.dataset.line), lines.length) - 1;
    const start = lines.slice(0, at).reduce((sum, line) => sum + line.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + lines[at].length);
    text.scrollTop = (numbers.children[at]?.offsetTop ?? 0) - 80;
  });
  text?.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      text.form.requestSubmit();
    }
  });
  const guarded = document.querySelector("form[data-guard]");
  let asking = false;
  let letting = false;
  guarded?.addEventListener("submit", async (event) => {
    if (letting) return;
    event.preventDefault();
    if (asking) return;  // the second of two clicks
    asking = true;
    // Where nobody is signed in any more, the answer would take the place of what was typed.
    const known = await window.satchel.revive().catch(() => null);
    asking = false;
    if (known === null) return window.satchel.away();  // it would be lost to the browser's own page
    if (known) {
      letting = true;
      guarded.requestSubmit(event.submitter);
      letting = false;
      return;
    }
    const answer = await fetch(guarded.action, { method: "POST", headers: { "HX-Request": "true" } });
    window.satchel.note(await answer.text(), answer.headers.get("content-type"));
  });
})();
