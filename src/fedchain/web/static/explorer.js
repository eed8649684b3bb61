// Keeps an open page as a reload would show it: when the explorer reports a change, the page is fetched again and the
// parts that differ are replaced. The other parts keep their scroll position, focus and open details. Without this
// script a reload does the same.
"use strict";

(() => {
  const events = document.body.dataset.events;
  const state = document.getElementById("live-state");
  const content = document.getElementById("content");

  // Before the first chain is there, the page asks until it is.
  const askForChains = async () => {
    try {
      if ((await (await fetch("/api/v1/chains")).json()).length) { location.assign("/"); return; }
    } catch {
      // the explorer reads the chain, or has ended
    }
    setTimeout(askForChains, 500);
  };
  if ("awaits" in document.body.dataset) askForChains();
  if (!events || !window.EventSource) return;

  const LIVE = "live";
  const SILENT = "the explorer does not answer";
  const AGAIN_MS = 2000; // before an explorer that did not answer is asked again
  const SILENT_MS = 40_000; // after which it does not answer: it sends a sign of life every fifteen seconds

  let source = null;
  let busy = false;
  let again = false;
  let later = 0;
  let quiet = 0;

  const say = (text) => {
    if (!state) return;
    if (state.textContent !== text) state.textContent = text; // readers of the screen tell what is written, new or not
    state.classList.toggle("on", text === LIVE);
  };

  // Sections are recognized by their ids, and scrolling boxes by their labels, at any place.
  const nameOf = (node) => (node.nodeType === Node.ELEMENT_NODE && (node.id || node.getAttribute("aria-label"))) || "";
  const isSame = (one, other) => one.nodeName === other.nodeName && nameOf(one) === nameOf(other);

  const following = (node, wanted) => {
    while (node && !isSame(node, wanted)) node = node.nextSibling;
    return node;
  };

  const copyAttributes = (part, fresh) => {
    if (part.matches("svg.plane")) return; // its attributes are those of chart.js
    for (const { name } of [...part.attributes]) {
      const isReaders = part.nodeName === "DETAILS" && name === "open";
      if (!isReaders && !fresh.hasAttribute(name)) part.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (part.getAttribute(name) !== value) part.setAttribute(name, value);
    }
  };

  const bringUpToDate = (part, fresh) => {
    if (part.isEqualNode(fresh)) return;
    if (part.nodeType !== Node.ELEMENT_NODE) { part.nodeValue = fresh.nodeValue; return; }
    if (part.dataset.light && part.dataset.light === fresh.dataset.light) return; // light.js fills it
    copyAttributes(part, fresh);
    let next = part.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const same = nameOf(wanted) ? following(next, wanted) : next && isSame(next, wanted) ? next : null;
      if (!same) { part.insertBefore(wanted, next); continue; }
      for (; next !== same; next = removed(next));
      bringUpToDate(same, wanted);
      next = same.nextSibling;
    }
    while (next) next = removed(next);
  };

  const removed = (node) => {
    const next = node.nextSibling;
    node.remove();
    return next;
  };

  const show = (fresh) => {
    const focused = content.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && focused.getAttribute("href");
    const row = focused && focused.closest("tr");
    bringUpToDate(content, fresh.getElementById("content"));
    // A page may have become another one, such as that of a block that is final now, and needs the scripts of that.
    for (const { src } of fresh.scripts) {
      if ([...document.scripts].some((script) => script.src === src)) continue;
      document.head.append(Object.assign(document.createElement("script"), { src }));
    }
    document.title = fresh.title;
    document.body.dataset.mark = fresh.body.dataset.mark;
    tellAges();
    document.dispatchEvent(new Event("content"));
    if (place && document.activeElement.getAttribute("href") !== place) {
      const links = [...content.querySelectorAll("a[href]")].filter((item) => item.getAttribute("href") === place);
      const link = (row && links.find((item) => row.contains(item))) || links[0];
      if (link) link.focus({ preventScroll: true });
    }
  };

  // Ages of moments, by this machine's clock; the moments themselves are on the page without this script.
  const tellAges = () => {
    for (const place of content.querySelectorAll("[data-since]")) {
      const seconds = Math.max(0, Math.round((Date.now() - Number(place.dataset.since)) / 1000));
      const [count, unit] = seconds < 120 ? [seconds, "s"] : seconds < 7200 ? [Math.round(seconds / 60), "min"]
        : seconds < 172800 ? [Math.round(seconds / 3600), "h"] : [Math.round(seconds / 86400), "days"];
      place.textContent = `(${count} ${unit} ago)`;
    }
  };
  tellAges();
  setInterval(tellAges, 1000);

  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    clearTimeout(later);
    const address = location.href;
    let mark = "";
    try {
      const signal = AbortSignal.timeout?.(SILENT_MS);
      const answer = await fetch(address, { headers: { accept: "text/html" }, signal });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (location.href !== address) again = true; // chart.js shows another part by now
      else if (fresh.body.dataset.mark) show(fresh);
      mark = fresh.body.dataset.mark;
    } catch { /* the page says below that nobody answers */ }
    busy = false;
    if (source) say(mark || SILENT);
    // The explorer reports a change once: a page that did not get it asks for it again.
    if (source && !mark) later = setTimeout(refresh, AGAIN_MS);
    else if (again) later = setTimeout(refresh, 50);
    again = false;
  };

  const watch = () => {
    if (source || document.hidden) return;
    source = new EventSource(events);
    source.onopen = () => { heard(); say(document.body.dataset.mark); };
    source.onmessage = () => { heard(); refresh(); };
    source.addEventListener("here", heard);
    source.onerror = () => {
      say(SILENT);
      // The browser asks again by itself unless another one answers in its place: a proxy, or an explorer that awaits
      // the chain.
      if (source.readyState === EventSource.CLOSED) { leave(); setTimeout(watch, AGAIN_MS); }
    };
    heard();
  };

  const leave = () => {
    clearTimeout(quiet);
    if (source) source.close();
    source = null;
  };

  // A connection on which nobody answers any more stays open: its machine may be off, or the explorer hang.
  const heard = () => {
    clearTimeout(quiet);
    quiet = setTimeout(() => { leave(); say(SILENT); watch(); }, SILENT_MS);
  };

  // A browser opens few connections to one server, so only visible pages hold one.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { watch(); return; }
    leave();
    say("paused");
  });
  watch();
})();
