"use strict";
// Charts are drawn, tables are sorted. Everything the page knows stands in it: nothing is asked for.

// Okabe & Ito (2008), as light or dark as both grounds take.
const FONT = "system-ui, sans-serif";
const COLORS = ["#1f86d1", "#c97f00", "#009e73", "#c9679b", "#d55e00", "#5a9bc4", "#8c7a00", "#7f7f7f"];
const INK = "currentColor";
const CONFIG = {
  background: null,
  font: FONT,
  view: { stroke: null },
  range: { category: COLORS, symbol: ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"] },
  axis: {
    labelColor: INK, titleColor: INK, domainColor: INK, tickColor: INK, gridColor: INK, gridOpacity: 0.13,
    labelFontSize: 12.5, titleFontSize: 12.5, titleFontWeight: "normal",
  },
  legend: { labelColor: INK, titleColor: INK, labelFontSize: 12.5, orient: "bottom", columns: 2, labelLimit: 260, title: null },
  header: { labelColor: INK, titleColor: INK },
  text: { color: INK, fontSize: 12.5 },
  title: { color: INK },
};

function drawCharts() {
  const specs = JSON.parse(document.getElementById("chart-data").textContent);
  document.querySelectorAll("[data-chart]").forEach((place, i) => {
    const failed = (error) => { place.classList.add("failed"); if (error) console.error(error); };
    if (typeof vegaEmbed === "undefined") { failed(); return; }
    const width = place.clientWidth;
    const axisY = { labelLimit: Math.max(110, 0.42 * width) };
    const legend = { ...CONFIG.legend, columns: width < 520 ? 1 : 2 };
    const actions = { export: true, source: false, compiled: false, editor: false };
    const options = { actions, renderer: "svg", config: { ...CONFIG, axisY, legend } };
    vegaEmbed(place, specs[i], options).then(() => place.classList.add("drawn"), failed);
  });
}

function keyOf(row, column) {
  const cell = row.cells[column];
  return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
}

function compare(a, b) {
  const numbers = [typeof a === "number", typeof b === "number"];
  if (numbers[0] && numbers[1]) return a - b;
  if (numbers[0] !== numbers[1]) return numbers[0] ? -1 : 1;
  return a.localeCompare(b, undefined, { numeric: true });
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const body = table.tBodies[0];
    const down = head.getAttribute("aria-sort") === "descending";
    const sign = down ? 1 : -1;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
    const unknown = (entry) => entry.key === "—" || entry.key === "";
    rows.sort((a, b) => unknown(a) - unknown(b) || sign * compare(a.key, b.key));
    body.append(...rows.map((entry) => entry.row));
  }));
}

drawCharts();
document.querySelectorAll("table").forEach(sortable);
