// Keeps a page as it would be if it were loaded again, and draws the map of nodes. Without it pages work all the same.
"use strict";
(() => {
  const main = document.getElementById("main"), live = document.getElementById("live"),
    trouble = document.getElementById("trouble"), url = document.body.dataset.stream;

  // morph makes one element like another, and touches nothing that is alike: focus, selection and scroll stay.
  // Children that have ids are told apart by them. What has data-keep is left alone.
  const morph = (old, now) => {
    for (const a of [...old.attributes]) if (!now.hasAttribute(a.name) && a.name !== "open") old.removeAttribute(a.name);
    for (const a of now.attributes) if (old.getAttribute(a.name) !== a.value && a.name !== "open") old.setAttribute(a.name, a.value);
    const byId = new Map();
    for (const c of old.children) if (c.id) byId.set(c.id, c);
    const wanted = new Set();
    for (const c of now.children) if (c.id) wanted.add(c.id);
    let at = old.firstChild;
    for (const n of [...now.childNodes]) {
      while (at && at.id && !wanted.has(at.id)) { const gone = at; at = at.nextSibling; gone.remove(); }
      let like = n.id ? byId.get(n.id) : at && !at.id && at.nodeType === n.nodeType && at.nodeName === n.nodeName ? at : null;
      if (!like) {
        const made = document.importNode(n, true);
        if (n.nodeName === "TR") made.classList.add("new");
        old.insertBefore(made, at);
        continue;
      }
      if (like !== at) old.insertBefore(like, at); else at = at.nextSibling;
      if (n.nodeType !== 1) { if (like.nodeValue !== n.nodeValue) like.nodeValue = n.nodeValue; }
      else if (!like.hasAttribute("data-keep") && !like.isEqualNode(n)) morph(like, n);
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  };

  const put = (at, text) => { if (at.textContent !== text) at.textContent = text; };
  const say = (text) => { put(trouble, text); trouble.hidden = !text; };
  let source = null, ended = false;
  const open = () => {
    if (source || ended || document.hidden) return;
    source = new EventSource(url);
    source.onopen = () => put(live, "live");
    source.addEventListener("main", (e) => {
      const doc = new DOMParser().parseFromString("<main>" + JSON.parse(e.data) + "</main>", "text/html");
      const now = doc.querySelector("main");
      for (const a of main.attributes) now.setAttribute(a.name, a.value);
      morph(main, now);
      say("");
      put(live, "live");
      cells();
    });
    source.addEventListener("trouble", (e) => say("Not up to date: " + JSON.parse(e.data)));
    source.addEventListener("end", (e) => { ended = true; close(); live.textContent = ""; say("No more updates: " + JSON.parse(e.data)); });
    source.onerror = () => {
      put(live, "connecting again");
      if (source && source.readyState === EventSource.CLOSED) { say("Not up to date: load the page again, or log in again."); close(); setTimeout(open, 5000 + 5000 * Math.random()); }
    };
  };
  const close = () => { if (source) source.close(); source = null; };
  // A browser has few connections to one server: a page that nobody sees gives its own back.
  if (url) {
    document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", open);
    open();
  }

  // cells draws a square for each node, filled as far as it is used; one stroke if cordoned, a cross if not ready.
  let drawn = 0;
  const cells = async () => {
    const at = document.getElementById("cells");
    if (!at || Date.now() - drawn < 30000) return;
    drawn = Date.now();
    const answer = await fetch(at.dataset.cells);
    if (!answer.ok) return;
    const zones = await answer.json() || [], of = at.dataset.resource, style = getComputedStyle(document.documentElement);
    const has = style.getPropertyValue("--has"), bad = style.getPropertyValue("--bad"), dim = style.getPropertyValue("--dim");
    const all = document.createElement("div");
    all.className = "zones";
    for (const zone of zones) for (const rack of zone.Racks) {
      const n = rack.Cells.length, size = n > 4000 ? 5 : 11, across = Math.min(n, Math.max(8, Math.ceil(Math.sqrt(n * 2))),
        Math.floor(Math.min(1200, at.clientWidth || 600) / size));
      const canvas = document.createElement("canvas"), figure = document.createElement("figure"), text = document.createElement("figcaption");
      const scale = Math.min(2, window.devicePixelRatio || 1), rows = Math.ceil(n / across);
      canvas.width = across * size * scale; canvas.height = rows * size * scale;
      canvas.style.width = across * size + "px";
      canvas.setAttribute("role", "img");
      text.textContent = (zone.Name || "no zone") + (rack.Name ? " / " + rack.Name : "") + ": " + n + " nodes";
      canvas.setAttribute("aria-label", text.textContent + ", " + rack.Ready + " ready, " + rack.Cordoned + " cordoned, " + rack.NotReady + " not ready" +
        (of ? "; " + of + " free: under 10 % on " + rack.Free[0] + ", 10 to 49 % on " + rack.Free[1] + ", 50 to 99 % on " + rack.Free[2] + ", all on " + rack.Free[3] : ""));
      const g = canvas.getContext("2d");
      g.scale(scale, scale);
      for (let i = 0; i < n; i++) {
        const x = (i % across) * size, y = Math.floor(i / across) * size, s = size - 2, state = rack.Cells[i];
        const free = "0123456789a".indexOf(state), full = s - Math.round(s * free / 10);
        g.fillStyle = g.strokeStyle = free >= 0 ? has : state === "n" ? bad : dim;
        if (free >= 0) g.fillRect(x, y + s - full, s, full);
        g.beginPath();
        g.rect(x + .5, y + .5, s - 1, s - 1);
        if (state === "c" || state === "n") { g.moveTo(x, y + s); g.lineTo(x + s, y); }
        if (state === "n") { g.moveTo(x, y); g.lineTo(x + s, y + s); }
        if (state === "-") { g.moveTo(x, y + s / 2); g.lineTo(x + s, y + s / 2); }
        g.stroke();
      }
      figure.append(text, canvas);
      all.append(figure);
    }
    const key = document.createElement("p");
    key.className = "hint";
    key.textContent = "A square is a node" + (of ? ", filled as far as its " + of + " is in use; a bar across if it has none" : "") +
      ". One stroke: cordoned. A cross: not ready." + (of ? "" : " Empty: how full it is is not known.");
    at.replaceChildren(all, key);
  };
  cells();
})();
