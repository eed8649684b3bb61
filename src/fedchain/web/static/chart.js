// Reads the values of a chart at the pointer or by keyboard, and shows a part of it: the server draws every picture.
// Without this script the form below each chart asks for parts, and its table has the values.
"use strict";

(() => {
  const WIDTH = 1000;
  const KEYS = "arrow keys read values, plus and minus show a smaller or a larger part, 0 shows all";
  const SVG = "http://www.w3.org/2000/svg";
  const read = new Map(); // by name of a chart: the x at which a reader reads it
  const asked = new Map(); // by id of a chart: how many parts of it were asked for
  let drag = null;

  const figureOf = (node) => (node instanceof Element ? node.closest("figure.chart") : null);
  const planeOf = (node) => (node instanceof Element ? node.closest("svg.plane") : null);
  const number = (x) => Number(x.replaceAll(",", ""));

  // The lines and areas of a picture, in the order of its legend, and the places where one of them has a value.
  const readingsOf = (plane) => {
    const shapes = [...plane.querySelectorAll("polyline[data-x]"), ...plane.querySelectorAll("polygon[data-x]")];
    const stops = new Map();
    const values = shapes.map((shape) => {
      const points = shape.getAttribute("points").split(" ");
      const texts = shape.dataset.y.split(";");
      return new Map(shape.dataset.x.split(";").map((x, place) => {
        const [left, top] = points[place].split(",").map(Number);
        stops.set(x, left);
        return [x, { text: texts[place], top: shape.nodeName === "polyline" ? top : null }];
      }));
    });
    return { values, stops: [...stops].sort(([, one], [, other]) => one - other) };
  };

  const add = (group, kind, attributes) => {
    const item = group.appendChild(document.createElementNS(SVG, kind));
    for (const [name, value] of Object.entries(attributes)) item.setAttribute(name, value);
  };

  // Show the values at a stop, or the last ones again.
  const show = (figure, x) => {
    const plane = figure.querySelector("svg.plane");
    const { values, stops } = readingsOf(plane);
    const place = stops.findIndex(([name]) => name === x);
    plane.querySelector(".cursor")?.remove();
    const at = figure.querySelector(".legend .at");
    at.hidden = place < 0;
    at.querySelector("b").textContent = x;
    const left = place < 0 ? 0 : stops[place][1];
    const group = document.createElementNS(SVG, "g");
    group.setAttribute("class", "cursor");
    if (place >= 0) add(plane.appendChild(group), "path", { d: `M${left} 0V300` });
    const told = [...figure.querySelectorAll(".legend li:not(.at)")].map((entry, item) => {
      const value = entry.querySelector("b");
      value.dataset.last ??= value.textContent;
      const found = values[item].get(x);
      value.textContent = place < 0 ? value.dataset.last : found ? found.text : "–";
      if (found && found.top !== null) add(group, "path", { class: "at", d: `M${left} ${found.top}h0` });
      return entry.textContent.trim();
    });
    plane.setAttribute("aria-valuenow", place < 0 ? stops.length - 1 : place);
    plane.setAttribute("aria-valuetext", `${at.textContent.replace(/^at /, "")}: ${told.join(", ")}`);
    if (place < 0) read.delete(figure.dataset.name); else read.set(figure.dataset.name, x);
  };

  const prepare = () => {
    for (const plane of document.querySelectorAll("figure.chart svg.plane")) {
      const figure = figureOf(plane);
      const { stops } = readingsOf(plane);
      const label = `${figure.querySelector("figcaption").firstChild.textContent.trim()}: ${KEYS}`;
      const attributes = { role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 0, "aria-valuemax": stops.length - 1 };
      for (const [name, value] of Object.entries(attributes)) plane.setAttribute(name, value);
      show(figure, read.get(figure.dataset.name));
    }
  };

  const nearest = (plane, event) => {
    const box = plane.getBoundingClientRect();
    const left = ((event.clientX - box.left) / box.width) * WIDTH;
    const away = ([, place]) => Math.abs(place - left);
    return readingsOf(plane).stops.reduce((best, stop) => (away(stop) < away(best) ? stop : best));
  };

  // Ask the server for another part and put it in the place of the figure; what had the focus has it again. The page has
  // the address of what was asked for last, which the next one starts from, and an answer that comes later is not shown.
  const ask = async ({ id }, address) => {
    const number = (asked.get(id) ?? 0) + 1;
    asked.set(id, number);
    history.replaceState(null, "", address);
    let fresh = null;
    try {
      const answer = await fetch(address, { headers: { accept: "text/html" } });
      fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(id);
    } catch { /* the browser itself says below what went wrong */ }
    if (asked.get(id) !== number) return;
    const figure = document.getElementById(id);
    if (!fresh || !figure) { location.reload(); return; }
    const active = figure.contains(document.activeElement) ? document.activeElement : null;
    const again = active && (active.name ? `[name="${active.name}"]` : active === planeOf(active) ? "svg.plane" : "button");
    figure.replaceWith(fresh);
    prepare();
    if (again) fresh.querySelector(again)?.focus({ preventScroll: true });
  };

  const zoom = (figure, first, last) => {
    const address = new URL(location.href);
    for (const [end, x] of [["first", first], ["last", last]]) {
      const name = `${figure.dataset.name}.${end}`;
      if (x === null) address.searchParams.delete(name); else address.searchParams.set(name, number(x));
    }
    ask(figure, address);
  };

  // A part of half the points around the one that is read, or of twice as many.
  const scale = (figure, stops, place, factor) => {
    const count = Math.max(1, Math.round(((stops.length - 1) * factor) / 2));
    const [first, last] = [number(stops[0][0]), number(stops[stops.length - 1][0])];
    if (factor < 1) {
      zoom(figure, stops[Math.max(0, place - count)][0], stops[Math.min(stops.length - 1, place + count)][0]);
    } else {
      const more = Math.max(1, Math.round((last - first) / 2));
      zoom(figure, String(Math.max(0, first - more)), String(last + more));
    }
  };

  const onKey = (event) => {
    const plane = planeOf(event.target);
    if (!plane || event.ctrlKey || event.metaKey || event.altKey) return;
    const figure = figureOf(plane);
    const { stops } = readingsOf(plane);
    const known = stops.findIndex(([x]) => x === read.get(figure.dataset.name));
    const place = known < 0 ? stops.length - 1 : known;
    const ten = Math.max(1, Math.round(stops.length / 10));
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -ten, PageUp: ten, Home: -place, End: stops.length };
    if (event.key in moves) {
      show(figure, stops[Math.max(0, Math.min(stops.length - 1, place + moves[event.key]))][0]);
    } else if (event.key === "+") scale(figure, stops, place, 0.5);
    else if (event.key === "-") scale(figure, stops, place, 2);
    else if (event.key === "0") zoom(figure, null, null);
    else if (event.key === "Escape") show(figure, undefined);
    else return;
    event.preventDefault();
  };

  document.addEventListener("keydown", onKey);
  document.addEventListener("pointermove", (event) => {
    const plane = drag ? drag.plane : planeOf(event.target);
    if (!plane || !plane.isConnected) return;
    const [x, left] = nearest(plane, event);
    show(figureOf(plane), x);
    if (!drag) return;
    const [from, to] = [Math.min(drag.left, left), Math.max(drag.left, left)];
    add(plane.querySelector(".cursor"), "rect", { x: from, width: to - from, height: 300 });
  });
  document.addEventListener("pointerout", (event) => {
    const plane = planeOf(event.target);
    if (plane && !drag && planeOf(event.relatedTarget) !== plane && document.activeElement !== plane) show(figureOf(plane), undefined);
  });
  document.addEventListener("pointerdown", (event) => {
    const plane = planeOf(event.target);
    if (!plane || event.pointerType === "touch" || event.button !== 0) return; // a finger reads values, and scrolls
    const [x, left] = nearest(plane, event);
    drag = { plane, x, left };
    event.preventDefault();
    plane.focus({ preventScroll: true });
  });
  document.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { plane, x, left } = drag;
    drag = null;
    if (!plane.isConnected) return;
    const [other, right] = nearest(plane, event);
    if (other !== x) zoom(figureOf(plane), ...(left < right ? [x, other] : [other, x]));
  });
  document.addEventListener("dblclick", (event) => {
    const plane = planeOf(event.target);
    if (plane) zoom(figureOf(plane), null, null);
  });
  document.addEventListener("submit", (event) => {
    const figure = figureOf(event.target);
    if (!figure) return;
    event.preventDefault();
    const address = new URL(location.href);
    address.search = new URLSearchParams(new FormData(event.target));
    ask(figure, address);
  });
  document.addEventListener("content", prepare); // explorer.js has brought the page up to date
  prepare();
})();
