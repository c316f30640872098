"use strict";
// Says the values of a curve where the pointer is, or where arrow keys have gone.
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; ++unit; }
  return (unit === 0 ? n : n.toFixed(1)) + " " + units[unit];
}

// The index of the point whose step is nearest.
function nearest(points, step) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < step) low = middle + 1; else high = middle;
  }
  return low > 0 && step - points[low - 1][0] < points[low][0] - step ? low - 1 : low;
}

for (const figure of document.querySelectorAll("figure[tabindex]")) {
  const chart = JSON.parse(figure.querySelector("script").textContent);
  const drawing = figure.querySelector("svg"), output = figure.querySelector("output");
  const lines = chart.lines.filter(line => line.points.length > 0);
  if (lines.length === 0) continue;
  const text = value => chart.unit === "bytes" ? bytes(value) : String(Number(value.toPrecision(6))) + (chart.unit ? " " + chart.unit : "");
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
  mark.setAttribute("class", "mark");
  drawing.appendChild(mark);
  let at = lines[0].points.length - 1;

  function show() {
    const step = lines[0].points[at][0];
    const share = (step - chart.low) / (chart.high - chart.low);
    mark.setAttribute("d", `M${chart.left + (chart.right - chart.left) * share} ${chart.top}V${chart.bottom}`);
    output.textContent = `${chart.axis} ${step}: ` + lines.map(line => {
      const point = line.points[nearest(line.points, step)];
      return `${line.name} ${text(point[1])}` + (point[0] === step ? "" : ` (${chart.axis} ${point[0]})`);
    }).join(", ");
  }

  drawing.addEventListener("pointermove", event => {
    const box = drawing.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * drawing.viewBox.baseVal.width;
    const share = (x - chart.left) / (chart.right - chart.left);
    at = nearest(lines[0].points, chart.low + share * (chart.high - chart.low));
    show();
  });
  figure.addEventListener("keydown", event => {
    const last = lines[0].points.length - 1, stride = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: at - stride, ArrowRight: at + stride, Home: 0, End: last };
    if (!(event.key in moves)) return;
    event.preventDefault();
    at = Math.max(0, Math.min(moves[event.key], last));
    show();
  });
  figure.addEventListener("focus", show);
}
