"use strict";
// Draws a report from the JSON in #data. No libraries, no network (but for the live page, which asks its own server).

const hidden = new Set();
const chosen = new Map(); // which strategy each heat map shows
let data = JSON.parse(document.getElementById("data").textContent);

const SVG = "http://www.w3.org/2000/svg";
function element(name, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "circle", "rect", "text", "title"].includes(name);
  const node = drawn ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const colour = (strategy) => data.colours[strategy] || "#888";
const format = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const plusMinus = (mean, half, digits) => format(mean, digits) + (half === null ? "" : " ± " + format(half, digits));

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(+v.toPrecision(10));
  return found;
}

function tooltip(figure) {
  const tip = element("div", { class: "tip", hidden: "" });
  figure.append(tip);
  return {
    show(event, ...content) {
      tip.replaceChildren(...content);
      tip.hidden = false;
      const box = figure.getBoundingClientRect();
      const x = event.clientX - box.left, y = event.clientY - box.top;
      const left = x + 16 + tip.offsetWidth > box.width ? Math.max(0, x - tip.offsetWidth - 16) : x + 16;
      tip.style.left = left + "px";
      tip.style.top = Math.max(0, y - tip.offsetHeight - 10) + "px";
    },
    hide() { tip.hidden = true; },
  };
}

// Curves with confidence bands ---------------------------------------------------------------

function curves(holder, { title, lines, digits, window: view, target, caption, most = Infinity }) {
  const width = Math.max(280, holder.clientWidth || 460), height = Math.round(Math.min(340, width * 0.66));
  const margin = { left: 44, right: 10, top: 10, bottom: 34 };
  const shown = lines.filter((line) => !hidden.has(line.strategy) && line.mean.some((v) => v !== null));
  const all = shown.length ? shown : lines;
  const inside = (line) => line.rounds.map((r, i) => i).filter((i) =>
    line.mean[i] !== null && (!view || (line.rounds[i] >= view.rounds[0] && line.rounds[i] <= view.rounds[1])));
  let [x0, x1, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const line of all) for (const i of inside(line)) {
    x0 = Math.min(x0, line.rounds[i]); x1 = Math.max(x1, line.rounds[i]);
    // A band of two seeds can be enormous: it may stretch the axis by no more than the curves' own range.
    low = Math.min(low, line.mean[i]); high = Math.max(high, line.mean[i]);
  }
  if (!isFinite(x0)) return;
  const range = high - low || 1;
  for (const line of all) for (const i of inside(line)) {
    const half = line.half[i] || 0;
    low = Math.min(low, Math.max(line.mean[i] - half, line.mean[i] - 0.15 * range, 0));
    high = Math.max(high, Math.min(line.mean[i] + half, line.mean[i] + 0.15 * range, most));
  }
  if (view && view.accuracy && digits === 2) [low, high] = view.accuracy.map((v) => 100 * v);
  if (x1 === x0) x1 = x0 + 1;
  if (high === low) { high += 1; low -= 1; }
  const x = (r) => margin.left + (r - x0) / (x1 - x0) * (width - margin.left - margin.right);
  const y = (v) => height - margin.bottom - (v - low) / (high - low) * (height - margin.top - margin.bottom);
  const clipId = "clip" + Math.random().toString(36).slice(2);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  svg.innerHTML = `<clipPath id="${clipId}"><rect x="${margin.left}" y="${margin.top - 4}" width="${width - margin.left - margin.right}" height="${height - margin.top - margin.bottom + 8}"/></clipPath>`;
  for (const v of ticks(low, high, 5)) {
    svg.append(element("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(v), y2: y(v) }));
    svg.append(element("text", { x: margin.left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v)));
  }
  for (const r of ticks(x0, x1, width / 70).filter(Number.isInteger)) {
    svg.append(element("text", { x: x(r), y: height - margin.bottom + 17, "text-anchor": "middle" }, String(r)));
  }
  svg.append(element("text", { x: width - margin.right, y: height - 3, "text-anchor": "end" }, "round"));
  if (target !== null && target !== undefined && target > low && target < high)
    svg.append(element("line", { class: "zero", x1: margin.left, x2: width - margin.right, y1: y(target), y2: y(target) }),
      element("text", { class: "target", x: margin.left + 4, y: y(target) - 4 }, `${target} %`));
  const plot = element("g", { "clip-path": `url(#${clipId})` });
  for (const line of shown) {
    const points = inside(line);
    const up = points.map((i) => `${x(line.rounds[i]).toFixed(2)},${y(line.mean[i] + (line.half[i] || 0)).toFixed(2)}`);
    const down = points.map((i) => `${x(line.rounds[i]).toFixed(2)},${y(line.mean[i] - (line.half[i] || 0)).toFixed(2)}`).reverse();
    plot.append(element("path", { class: "band", d: `M${up.join("L")}L${down.join("L")}Z`, fill: colour(line.strategy), opacity: 0.15 }));
  }
  for (const line of shown) {
    const d = "M" + inside(line).map((i) => `${x(line.rounds[i]).toFixed(2)},${y(line.mean[i]).toFixed(2)}`).join("L");
    plot.append(element("path", { class: "curve", "data-strategy": line.strategy, d, fill: "none", stroke: colour(line.strategy), "stroke-width": 2, "stroke-linejoin": "round" }));
  }
  const cross = element("line", { class: "cross", y1: margin.top, y2: height - margin.bottom, visibility: "hidden" });
  svg.append(plot, cross);
  const figure = element("figure", {}, element("h3", {}, title), svg, caption ? element("figcaption", {}, caption) : null);
  holder.append(figure);
  const tip = tooltip(figure);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * width;
    const round = Math.round(Math.min(x1, Math.max(x0, x0 + (at - margin.left) / (width - margin.left - margin.right) * (x1 - x0))));
    const rows = shown.map((line) => [line, line.rounds.indexOf(round)]).filter(([line, i]) => i >= 0 && line.mean[i] !== null)
      .sort(([a, i], [b, j]) => b.mean[j] - a.mean[i]);
    if (!rows.length) return tip.hide();
    cross.setAttribute("x1", x(round)); cross.setAttribute("x2", x(round)); cross.setAttribute("visibility", "visible");
    tip.show(event, element("b", {}, `round ${round}`), element("table", {}, ...rows.map(([line, i]) => element("tr", {},
      element("td", { style: `color:${colour(line.strategy)}` }, line.strategy), element("td", {}, plusMinus(line.mean[i], line.half[i], digits))))));
  });
  svg.addEventListener("pointerleave", () => { tip.hide(); cross.setAttribute("visibility", "hidden"); });
}

// Dots with intervals (R_p), and the forest of paired differences ------------------------------------

// Text in lines of at most ``room`` characters; it is broken after a comma or a space where there is one.
function wrap(text, room) {
  const lines = [];
  while (text.length > room) {
    const at = Math.max(text.lastIndexOf(" ", room), text.lastIndexOf(",", room - 1) + 1);
    lines.push(text.slice(0, at > 0 ? at : room).trim());
    text = text.slice(at > 0 ? at : room).trim();
  }
  return [...lines, text];
}

const between = (low, high, [least, most]) => [least === null ? low : Math.max(low, least), most === null ? high : Math.min(high, most)];

function rows(holder, { title, items, digits, zero, caption, unit, within }) {
  const visible = items.filter((item) => !hidden.has(item.strategy) && item.mean !== null);
  if (!visible.length) return;
  const width = Math.max(280, holder.clientWidth || 460);
  const wide = 12 + 6.9 * Math.max(...visible.map((item) => item.strategy.length));
  const above = wide > width * 0.46; // long names stand over their rows, in as many lines as they need
  const written = visible.map((item) => above ? wrap(item.strategy, Math.floor((width - 14) / 6.9)) : [item.strategy]);
  const names = above ? 14 : wide, head = above ? 15 * Math.max(...written.map((lines) => lines.length)) : 0, step = 34 + head;
  const margin = { left: names, right: 14, top: 6, bottom: 36 };
  const height = margin.top + margin.bottom + step * visible.length;
  const values = visible.flatMap((item) => [item.mean - (item.half || 0), item.mean + (item.half || 0),
    ...(item.points || []).map((p) => p.value), ...(item.published ? [item.published.mean - (item.published.half || 0), item.published.mean + (item.published.half || 0)] : [])]);
  let low = Math.min(...values, ...(zero ? [0] : [])), high = Math.max(...values, ...(zero ? [0] : []));
  const pad = (high - low) * 0.06 || 1; // where all values are equal, no more than the value would be on the axis
  [low, high] = between(low - pad, high + pad, within);
  const x = (v) => margin.left + (Math.min(high, Math.max(low, v)) - low) / (high - low) * (width - margin.left - margin.right);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const v of ticks(low, high, (width - names) / 70)) {
    svg.append(element("line", { class: "grid", x1: x(v), x2: x(v), y1: margin.top, y2: height - margin.bottom }));
    svg.append(element("text", { x: x(v), y: height - margin.bottom + 16, "text-anchor": "middle" }, String(v)));
  }
  svg.append(element("text", { x: width - margin.right, y: height - 4, "text-anchor": "end" }, unit));
  if (zero) svg.append(element("line", { class: "zero", x1: x(0), x2: x(0), y1: margin.top, y2: height - margin.bottom }));
  const figure = element("figure", {}, element("h3", {}, title), svg, caption ? element("figcaption", {}, caption) : null);
  holder.append(figure);
  const tip = tooltip(figure);
  visible.forEach((item, index) => {
    const y = margin.top + step * index + head + 17, paint = colour(item.strategy);
    const row = element("g", { class: "row", "data-strategy": item.strategy });
    written[index].forEach((line, k) => row.append(element("text", above ? { class: "name", x: 0, y: margin.top + step * index + 15 * k + 13 }
      : { class: "name", x: names - 10, y: y + 4, "text-anchor": "end" }, line)));
    row.append(element("rect", { x: 0, y: margin.top + step * index, width, height: step, fill: "transparent" }));
    (item.points || []).forEach((p, k) => row.append(element("circle", { cx: x(p.value), cy: y + 5 + (k % 3) * 3, r: 2.6, fill: p.reached ? paint : "none", stroke: paint, opacity: 0.45 })));
    if (item.half !== null) row.append(element("line", { x1: x(item.mean - item.half), x2: x(item.mean + item.half), y1: y - 2, y2: y - 2, stroke: paint, "stroke-width": 2.5, "stroke-linecap": "round" }));
    row.append(element("circle", { cx: x(item.mean), cy: y - 2, r: 5, fill: item.bound ? "var(--paper)" : paint, stroke: paint, "stroke-width": 2 }));
    if (item.published) {
      const p = item.published, top = y - 11;
      if (p.half) row.append(element("line", { x1: x(p.mean - p.half), x2: x(p.mean + p.half), y1: top, y2: top, stroke: "var(--faint)", "stroke-width": 1.5 }));
      row.append(element("path", { d: `M${x(p.mean)},${top - 4}l4,4l-4,4l-4,-4Z`, fill: "var(--faint)" }));
    }
    row.addEventListener("pointermove", (event) => tip.show(event, element("b", {}, item.strategy), element("br"), item.text,
      ...(item.detail ? [element("br"), item.detail] : [])));
    row.addEventListener("pointerleave", () => tip.hide());
    svg.append(row);
  });
}

// One measure over the cases -----------------------------------------------------------------------

function across(holder, { title, cases, axis, ordered, lines, within }) {
  const shown = lines.filter((line) => !hidden.has(line.strategy) && line.points.some((p) => p));
  if (!shown.length) return;
  const width = Math.max(280, holder.clientWidth || 460), height = Math.round(Math.min(340, width * 0.66));
  const margin = { left: 44, right: 10, top: 10, bottom: axis ? 48 : 34 };
  const values = shown.flatMap((line) => line.points.filter((p) => p).flatMap((p) => [p.mean - (p.half || 0), p.mean + (p.half || 0)]));
  let low = Math.min(...values), high = Math.max(...values);
  const pad = (high - low || 1) * 0.06;
  [low, high] = between(low - pad, high + pad, within);
  const step = (width - margin.left - margin.right) / cases.length;
  const x = (k, i) => margin.left + step * (k + 0.5) + Math.min(9, step / (2 * shown.length)) * (i - (shown.length - 1) / 2);
  const y = (v) => height - margin.bottom - (Math.min(high, Math.max(low, v)) - low) / (high - low) * (height - margin.top - margin.bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const v of ticks(low, high, 5)) {
    svg.append(element("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(v), y2: y(v) }));
    svg.append(element("text", { x: margin.left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v)));
  }
  const numbered = cases.some((name) => name.length * 6.6 > step);  // names that do not fit stand below
  cases.forEach((name, k) => svg.append(element("text", { x: margin.left + step * (k + 0.5), y: height - margin.bottom + 17, "text-anchor": "middle" },
    numbered ? String(k + 1) : name)));
  if (axis) svg.append(element("text", { x: width - margin.right, y: height - 6, "text-anchor": "end" }, axis));
  shown.forEach((line, i) => {
    const paint = colour(line.strategy), there = line.points.map((p, k) => [p, k]).filter(([p]) => p);
    if (ordered) svg.append(element("path", { class: "curve", "data-strategy": line.strategy, d: "M" + there.map(([p, k]) => `${x(k, i).toFixed(2)},${y(p.mean).toFixed(2)}`).join("L"), fill: "none", stroke: paint, "stroke-width": 1.2 }));
    for (const [p, k] of there) {
      if (p.half) svg.append(element("line", { x1: x(k, i), x2: x(k, i), y1: y(p.mean - p.half), y2: y(p.mean + p.half), stroke: paint, "stroke-width": 2 }));
      svg.append(element("circle", { cx: x(k, i), cy: y(p.mean), r: 4, fill: p.reached ? paint : "var(--paper)", stroke: paint, "stroke-width": 1.5 }));
    }
  });
  const late = shown.some((line) => line.points.some((p) => p && !p.reached)) ? "; hollow: some runs never reached it, the value is higher" : "";
  const names = numbered ? ` ${cases.map((name, k) => `${k + 1}: ${name}`).join("; ")}.` : "";
  const figure = element("figure", {}, element("h3", {}, title), svg, element("figcaption", {}, `Mean ± 95 %${late}.${names}`));
  holder.append(figure);
  const tip = tooltip(figure);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const k = Math.floor(((event.clientX - box.left) / box.width * width - margin.left) / step);
    const found = shown.filter((line) => line.points[k]);
    if (!found.length) return tip.hide();
    tip.show(event, element("b", {}, cases[k]), element("table", {}, ...found.map((line) => element("tr", {},
      element("td", { style: `color:${colour(line.strategy)}` }, line.strategy), element("td", {}, line.points[k].text)))));
  });
  svg.addEventListener("pointerleave", () => tip.hide());
}

// Heat map of alpha over rounds and clients -----------------------------------------------------

const RAMP = [[247, 248, 250], [198, 219, 239], [107, 174, 214], [33, 113, 181], [8, 48, 107]];
function ramp(share) {
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1), i = Math.min(RAMP.length - 2, Math.floor(at));
  return RAMP[i].map((v, k) => Math.round(v + (RAMP[i + 1][k] - v) * (at - i)));
}

function heat(holder, maps, id) {
  const available = maps.filter((map) => !hidden.has(map.strategy));
  if (!available.length) return;
  const map = available.find((m) => m.strategy === chosen.get(id)) || available.find((m) => m.strategy !== data.reference) || available[0];
  const picker = element("div", { class: "picker", role: "group" }, ...available.map((m) => element("button",
    { "aria-pressed": String(m === map), onclick: () => { chosen.set(id, m.strategy); render(); } }, m.strategy)));
  const cells = map.alpha.length, clients = map.clients;
  const canvas = element("canvas", { width: clients, height: cells, role: "img", "aria-label": `alpha of ${map.strategy} over rounds and clients` });
  canvas.style.height = Math.max(120, Math.min(420, cells * 12)) + "px";
  const pixels = canvas.getContext("2d"), image = pixels.createImageData(clients, cells);
  const top = map.alpha.flat().reduce((most, value) => Math.max(most, value), 0) || 1;
  map.alpha.forEach((line, r) => line.forEach((value, c) => {
    const at = 4 * (r * clients + c), paint = value === null ? [128, 128, 128, 40] : [...ramp(Math.sqrt(value / top)), 255];
    paint.forEach((v, k) => { image.data[at + k] = v; });
  }));
  pixels.putImageData(image, 0, 0);
  const figure = element("figure", {}, element("h3", {}, "Weights α over rounds and clients"), picker, canvas,
    element("div", { class: "axis" }, element("span", {}, "client 0"), element("span", {}, `rounds 1 (top) to ${cells} (bottom), seed ${map.seed}`), element("span", {}, `client ${clients - 1}`)),
    element("figcaption", {}, "α: 0", element("span", { class: "ramp", style: `background:linear-gradient(90deg,${RAMP.map((c) => `rgb(${c})`).join(",")})` }),
      `${top.toPrecision(2)} (square-root scale); 1/n = ${(1 / clients).toPrecision(2)}`));
  holder.append(figure);
  const tip = tooltip(figure);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const c = Math.min(clients - 1, Math.floor((event.clientX - box.left) / box.width * clients));
    const r = Math.min(cells - 1, Math.floor((event.clientY - box.top) / box.height * cells));
    if (r < 0 || c < 0) return;
    const value = map.alpha[r][c];
    tip.show(event, `round ${r + 1}, client ${c}: α = ${value === null ? "not in the cohort" : value.toPrecision(3)}`);
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
}

// Labels of the clients ---------------------------------------------------------------------------------

function partition(holder, part) {
  const width = Math.max(280, holder.clientWidth || 900), height = 230, margin = { left: 44, right: 4, top: 8, bottom: 32 };
  const n = part.counts.length, sizes = part.counts.map((line) => line.reduce((a, b) => a + b, 0)), top = Math.max(...sizes);
  const x = (i) => margin.left + i / n * (width - margin.left - margin.right), y = (v) => height - margin.bottom - v / top * (height - margin.top - margin.bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "samples of each client by label" });
  for (const v of ticks(0, top, 4)) {
    svg.append(element("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(v), y2: y(v) }));
    svg.append(element("text", { x: margin.left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v)));
  }
  const bar = (width - margin.left - margin.right) / n;
  part.counts.forEach((line, i) => {
    let sum = 0;
    line.forEach((count, k) => {
      if (count) svg.append(element("rect", { x: x(i) + bar * 0.06, width: bar * 0.88, y: y(sum + count), height: y(sum) - y(sum + count), fill: data.palette[k % data.palette.length] }));
      sum += count;
    });
  });
  for (const i of ticks(0, n - 1, Math.min(12, n)).filter(Number.isInteger)) svg.append(element("text", { x: x(i + 0.5), y: height - margin.bottom + 16, "text-anchor": "middle" }, String(i)));
  svg.append(element("text", { x: width - margin.right, y: height - 2, "text-anchor": "end" }, "client"));
  const key = element("figcaption", {}, `${part.title}; samples by label: `, ...part.names.flatMap((name, k) => [element("span", { style: `color:${data.palette[k % data.palette.length]}` }, "■ "), name + "  "]));
  const figure = element("figure", {}, element("h3", {}, "Labels of the clients"), svg, key);
  holder.append(figure);
  const tip = tooltip(figure);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const i = Math.floor(((event.clientX - box.left) / box.width * width - margin.left) / bar);
    if (i < 0 || i >= n) return tip.hide();
    const held = part.counts[i].map((count, k) => [count, part.names[k]]).filter(([count]) => count).sort(([a], [b]) => b - a).slice(0, 5);
    tip.show(event, element("b", {}, `client ${i}: ${sizes[i]} samples`), element("br"), held.map(([count, name]) => `${name} ${count}`).join(", "));
  });
  svg.addEventListener("pointerleave", () => tip.hide());
}

// The page ------------------------------------------------------------------------------------------

function results(table) {
  const body = element("tbody");
  let before = null;
  for (const [measure, ...cells] of table.body) {
    if (measure !== before) body.append(element("tr", { class: "section" }, element("td", { colspan: cells.length }, measure)));
    before = measure;
    body.append(element("tr", {}, ...cells.map((cell, i) => element("td", { class: i && i < cells.length - 1 ? "number" : null, "data-head": i ? table.header[i + 1] : null }, cell))));
  }
  const head = element("tr", {}, ...table.header.slice(1).map((cell, i, all) => element("th", { class: i && i < all.length - 1 ? "number" : null }, cell)));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), body));
}

function legend() {
  return element("div", { class: "legend", role: "group", "aria-label": "strategies: click to hide or show" }, ...data.strategies.map((strategy) => element("button", {
    "aria-pressed": String(!hidden.has(strategy)), "data-strategy": strategy, title: "click to hide or show",
    onclick: () => {
      if (hidden.has(strategy)) hidden.delete(strategy); else hidden.add(strategy);
      render();
      [...document.querySelectorAll(".legend button")].find((b) => b.dataset.strategy === strategy).focus({ preventScroll: true });
    },
  }, element("i", { style: `background:${colour(strategy)}` }), strategy)));
}

function section(page, item, index) {
  if (item.name) page.append(element("h2", {}, item.name));
  if (!item.curves.length) { page.append(element("p", { class: "soft" }, "No finished cells yet.")); return; }
  // All slots are laid out first, so that each chart knows its final width when it is drawn.
  const charts = element("div", { class: "charts" }), waiting = [];
  page.append(charts);
  const place = (draw, options) => { const slot = element("div"); charts.append(slot); waiting.push(() => draw(slot, options)); };
  const lines = (kind) => item.curves.map((c) => ({ strategy: c.strategy, rounds: c.rounds, ...c[kind] }));
  const cut = item.stopped ? "Cells that stopped early: means go as far as every seed does." : null;
  const band = data.seeds > 1 ? `Mean over ${data.seeds} seeds, 95 % band (Student t). ` : "One seed. ";
  place(curves, { title: "Test accuracy (%)", lines: lines("accuracy"), digits: 2, most: 100, target: item.target, caption: band + (cut || "") });
  place(curves, { title: "Test loss", lines: lines("loss"), digits: 4 });
  for (const view of item.zoom) {
    place(curves, { title: `Test accuracy (%), rounds ${view.rounds[0]}–${view.rounds[1]}`, lines: lines("accuracy"), digits: 2, most: 100, window: view, target: item.target });
  }
  for (const dots of item.dots) {
    place(rows, { ...dots, zero: false, caption: "Large dot and bar: mean ± 95 %; small dots: seeds; hollow: not reached" + (dots.published ? "; grey diamond: published." : ".") });
  }
  for (const forest of item.forests) {
    place(rows, { ...forest, zero: true, caption: `Paired with ${data.reference} on the same seeds; mean ± 95 %${forest.items.some((i) => i.bound) ? "; hollow: a bound, because some runs never reached it." : "."}` });
  }
  waiting.forEach((draw) => draw());
  page.append(element("h3", {}, "Results"), results(item.table),
    ...(item.claims.body.length ? [element("h3", {}, "Tests of the claims on the rows"), results(item.claims)] : []),
    ...(item.processors.body.length ? [element("h3", {}, "Cells by processor"), results(item.processors)] : []), ...item.notes.map((note) => element("p", { class: "soft" }, note)));
  if (item.diagnostics.length) {
    const panels = element("div", { class: "charts small" });
    page.append(element("h3", {}, "Diagnostics: how each round weighed its clients"), panels);
    const slots = item.diagnostics.map(() => element("div"));
    panels.append(...slots);
    item.diagnostics.forEach((panel, i) => curves(slots[i], { title: panel.title, lines: panel.lines, digits: 3 }));
    page.append(element("p", { class: "soft" }, "p: the clients' shares of the cohort's data. ρ = Σ α·F / Σ p·F with the losses before training " +
      "(less the optima where they are known): above 1, clients with larger losses have more weight. No curve of ρ: the strategy did not ask for these losses."));
  }
  if (item.heat.length) { const s = element("div"); page.append(s); heat(s, item.heat, index); }
  if (item.partition) { const s = element("div"); page.append(s); partition(s, item.partition); }
}

function render() {
  const page = document.getElementById("page"), scroll = window.scrollY;
  page.replaceChildren(
    element("h1", {}, data.title), data.note ? element("p", { class: "soft" }, data.note) : "",
    element("ul", { class: "facts" }, ...data.facts.map((fact) => element("li", {}, fact))),
    data.live ? element("p", { class: "live", id: "live" }, data.status) : "", legend());
  if (data.across.length) {
    const charts = element("div", { class: "charts" }), slots = data.across.map(() => element("div"));
    charts.append(...slots);
    page.append(element("h2", {}, "All cases"), charts);
    data.across.forEach((item, i) => across(slots[i], item));
  }
  data.cases.forEach((item, index) => section(page, item, index));
  page.append(element("h2", {}, "What was run"), element("p", { class: "soft" }, data.run),
    element("details", {}, element("summary", {}, "Settings of the first cell"), element("pre", {}, element("code", {}, data.config))),
    element("details", {}, element("summary", {}, "Versions"), element("pre", {}, element("code", {}, data.versions))),
    element("p", { class: "soft" }, "The same numbers: report.md, statistics.csv, rounds.csv; every row: cells.parquet; figures/ holds SVG and PNG."));
  window.scrollTo(0, scroll);
}

let drawnWidth = 0;
window.addEventListener("resize", () => { if (Math.abs(document.body.clientWidth - drawnWidth) > 8) { drawnWidth = document.body.clientWidth; render(); } });
drawnWidth = document.body.clientWidth;
render();
if (data.live) {
  setInterval(async () => {
    try {
      const answer = await fetch("data.json", { cache: "no-store" });
      if (!answer.ok) return;
      const text = await answer.text();
      if (text !== render.last) { render.last = text; data = JSON.parse(text); render(); }
    } catch { document.getElementById("live").textContent = "The server of this page has ended; what is shown is the last state."; }
  }, 2000);
}
