// Makes a table of participation one stop of the Tab key, as grids are: arrow keys go from cell to cell. Without this
// script each cell is a stop.
"use strict";

(() => {
  const stops = new WeakMap(); // by table: the link that Tab goes to
  const linksIn = "table.cells a";

  const arrange = (table) => {
    const links = [...table.querySelectorAll("a")];
    const stop = links.includes(stops.get(table)) ? stops.get(table) : table.querySelector("td a") || links[0];
    if (!stop) return;
    stops.set(table, stop);
    table.setAttribute("role", "grid");
    for (const link of links) link.tabIndex = link === stop ? 0 : -1;
    for (const text of document.querySelectorAll("[data-keys]")) text.hidden = false;
  };

  const arrangeAll = () => document.querySelectorAll("table.cells").forEach(arrange);

  // The cell that a key goes to; null where the key means something else, undefined beyond the edge.
  const target = (table, cell, { key, ctrlKey }) => {
    const row = cell.parentElement.rowIndex;
    const at = (down, right) => table.rows[row + down]?.cells[cell.cellIndex + right];
    const last = (cells) => cells[cells.length - 1];
    if (key === "Home") return (ctrlKey ? table.tBodies[0].rows[0] : cell.parentElement).cells[0];
    if (key === "End") return last((ctrlKey ? last(table.rows) : cell.parentElement).cells);
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    return key in steps && !ctrlKey ? at(...steps[key]) : null;
  };

  document.addEventListener("keydown", (event) => {
    const link = event.target.closest?.(linksIn);
    if (!link || event.altKey || event.metaKey || event.shiftKey) return;
    const found = target(link.closest("table"), link.closest("th, td"), event);
    if (found === null) return;
    event.preventDefault();
    const next = found?.querySelector("a");
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest", inline: "nearest" }); // beside the first column, which would cover it
  });

  document.addEventListener("focusin", (event) => {
    const link = event.target.closest?.(linksIn);
    if (!link) return;
    stops.set(link.closest("table"), link);
    arrange(link.closest("table"));
  });

  document.addEventListener("content", arrangeAll);
  arrangeAll();
})();
