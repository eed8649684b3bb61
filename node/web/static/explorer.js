// Keeps an open page as a reload would show it: when the explorer tells of a change, the page is fetched again and its
// live parts are replaced. Without this script a reload does the same.
"use strict";

(() => {
  const events = document.body.dataset.events;
  const state = document.getElementById("live-state");
  if (!events || !window.EventSource) return;

  let source = null;
  let busy = false;
  let again = false;

  const say = (text, isOn) => {
    if (!state) return;
    state.textContent = text;
    state.classList.toggle("on", isOn);
  };

  const replaceParts = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || next.innerHTML === part.innerHTML) continue;
      const open = [...part.querySelectorAll("details")].map((item) => item.open);
      const focused = part.contains(document.activeElement) ? document.activeElement : null;
      const place = focused && focused.getAttribute("href");
      part.replaceChildren(...next.childNodes);
      [...part.querySelectorAll("details")].forEach((item, at) => { item.open = open[at] ?? item.open; });
      if (place) {
        const same = [...part.querySelectorAll("a[href]")].find((item) => item.getAttribute("href") === place);
        if (same) same.focus({ preventScroll: true });
      }
    }
    document.title = fresh.title;
  };

  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      replaceParts(await answer.text());
      say("live", true);
    } catch {
      say("the explorer does not answer", false);
    }
    busy = false;
    if (again) { again = false; setTimeout(refresh, 50); }
  };

  const watch = () => {
    if (source) return;
    source = new EventSource(events);
    source.onopen = () => say("live", true);
    source.onmessage = refresh;
    source.onerror = () => say("the explorer does not answer", false);
  };

  // A browser opens few connections to one place: only pages that somebody sees hold one.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { watch(); return; }
    if (source) source.close();
    source = null;
    say("paused", false);
  });
  if (!document.hidden) watch();
})();
