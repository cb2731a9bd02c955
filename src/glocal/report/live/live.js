// Keeps a page up to date: it asks for itself again, and what changed is put in its place.
//
// What the reader did stays: scroll, focus, the sort order of tables, what was typed, chosen and
// opened. Elements that are the same are left alone; others are changed, not replaced.
(() => {
  "use strict";

  const EVERY = 1500; // milliseconds
  const PATIENCE = 15000; // after which a request has failed
  let stamp = document.currentScript.dataset.stamp;
  const connection = document.getElementById("connection");

  // ---- asking

  async function ask() {
    let answer;
    try {
      answer = await fetch(location.pathname + location.search, {
        headers: { "If-None-Match": `"${stamp}"` },
        cache: "no-store",
        credentials: "same-origin",
        signal: AbortSignal.timeout(PATIENCE),
      });
      if (answer.status === 304) return say("");
      if (answer.status === 200) {
        put(await answer.text());
        stamp = answer.headers.get("ETag").replaceAll('"', "");
        return say("");
      }
      say(answer.status === 404
        ? "What this page shows is not there any more; this is what it was last."
        : (await answer.text()).trim());
    } catch {
      say("The server does not answer: it was stopped, or cannot be reached. Trying again …");
    }
  }

  function say(sentence) {
    if (connection.textContent !== sentence) connection.textContent = sentence;
    connection.hidden = !sentence;
  }

  async function keepAsking() {
    if (!document.hidden) await ask();
    setTimeout(keepAsking, EVERY);
  }

  // ---- putting in what changed

  function put(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const main = document.querySelector("main");
    const incoming = document.adoptNode(fresh.querySelector("main"));
    document.title = fresh.title;
    const data = [document, fresh].map((page) => page.getElementById("data"));
    if (data[0] && data[1]) data[0].textContent = data[1].textContent;
    for (const head of main.querySelectorAll("th[aria-sort]")) {
      const name = head.closest("[data-name]").dataset.name;
      const next = incoming.querySelector(`[data-name="${CSS.escape(name)}"] thead`);
      next?.rows[0].cells[head.cellIndex]?.setAttribute("aria-sort", head.getAttribute("aria-sort"));
    }
    window.glocal.enhance(incoming); // sorted, before rows are compared
    const focused = document.activeElement;
    become(main, incoming);
    window.glocal.enhance(main);
    search();
    if (focused.isConnected && focused !== document.activeElement) {
      focused.focus({ preventScroll: true }); // it was moved
    }
  }

  function become(old, next) {
    if (old.isEqualNode(next)) return;
    if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) {
      old.replaceWith(next);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = next.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    children(old, next);
  }

  function children(old, next) {
    const known = new Map();
    for (const child of old.childNodes) if (key(child)) known.set(key(child), child);
    let place = old.firstChild;
    for (const child of [...next.childNodes]) {
      const match = key(child) ? known.get(key(child)) : place && !key(place) ? place : null;
      if (!match) {
        old.insertBefore(child, place);
        continue;
      }
      if (match === place) place = place.nextSibling;
      else old.insertBefore(match, place);
      known.delete(key(match));
      become(match, child);
    }
    while (place) {
      const rest = place.nextSibling;
      place.remove();
      place = rest;
    }
  }

  // Elements that are the same thing before and after, wherever they are.
  function key(node) {
    if (node.nodeType !== Node.ELEMENT_NODE) return "";
    if (node.id || node.dataset.name) return `${node.nodeName} ${node.id || node.dataset.name}`;
    return node.nodeName === "TR" ? node.querySelector("th")?.textContent ?? "" : "";
  }

  // ---- the list: show only some rows

  function search() {
    const field = document.getElementById("search");
    if (!field) return;
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    let all = 0;
    for (const row of document.querySelectorAll("main tbody tr")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      all += 1;
      shown += row.hidden ? 0 : 1;
    }
    const said = words.length ? `${shown} of ${all} rows` : "";
    const output = document.getElementById("search-count");
    if (output.textContent !== said) output.textContent = said;
  }

  document.addEventListener("input", (event) => {
    if (event.target.id === "search") search();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) ask();
  });
  window.addEventListener("online", ask);
  setTimeout(keepAsking, EVERY);
})();
