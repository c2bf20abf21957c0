"use strict";
// Draw what the data of this page say. Whatever comes from there is written as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);

function add(parent, tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (className) node.className = className;
  return parent.appendChild(node);
}
function scaled(value, units) {  // units: [size, name], largest first
  const [size, name] = units.find(([size]) => Math.abs(value) >= size) || units[units.length - 1];
  return `${Number((value / size).toPrecision(3)).toLocaleString("en")} ${name}`;
}
const bytes = n => scaled(n, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
const time = ns => ns ? scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]) : "0";
const percent = share => `${Math.round(100 * share)} %`;

function ticks(from, to, most) {  // round numbers: 1, 2 or 5 times a power of ten apart
  const rough = (to - from) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const apart = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
  const found = [];
  for (let n = Math.ceil(from / apart - 1e-9); n * apart <= to + apart * 1e-9; n++) found.push(n * apart);
  return found;
}

// ---- a colour and a pattern for each kind: either alone is enough to tell it

function tile(kind) {
  const image = document.createElement("canvas"), pen = image.getContext("2d"), n = 8;
  const [colour, hatching] = data.looks[kind] || ["#555555", ""];
  image.width = image.height = n;
  pen.fillStyle = colour;
  pen.fillRect(0, 0, n, n);
  pen.strokeStyle = pen.fillStyle = "rgba(0, 0, 0, .4)";
  const line = (x0, y0, x1, y1) => { pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, y1); pen.stroke(); };
  if (hatching.includes("/") || hatching.includes("x")) for (const x of [-n, 0, n]) line(x - 1, n + 1, x + n + 1, -1);
  if (hatching.includes("x")) for (const x of [-n, 0, n]) line(x - 1, -1, x + n + 1, n + 1);
  if (hatching.includes("|")) line(n / 2, 0, n / 2, n);
  if (hatching.includes(".")) pen.fillRect(3, 3, 2, 2);
  return image;
}
const tiles = data.kinds.map(tile);
function swatch(parent, kind) {
  const node = add(parent, "i");
  node.style.background = `url(${tiles[data.kinds.indexOf(kind)].toDataURL()})`;
  return node;
}
for (const kind of Object.keys(data.split)) {
  const item = add($("legend"), "li");
  swatch(item, kind);
  item.append(data.looks[kind][2]);
}

// ---- texts and tables; a section of which nothing is known is not shown

function table(id, head, rows) {
  $(id).closest("section").hidden = !rows || !rows.length;
  const grid = add($(id), "table"), top = grid.createTHead().insertRow(), body = grid.createTBody();
  for (const text of head) add(top, "th", text);
  return (rows || []).map(row => {
    const line = body.insertRow();
    row.forEach((text, n) => add(line, n ? "td" : "th", text));
    return line;
  });
}
$("title").textContent = data.title;
$("command").textContent = data.command;
for (const [name, value] of data.result) {
  const pair = add($("result"), "div");
  add(pair, "dt", name);
  add(pair, "dd", value);
}
table("environment", [], data.environment);
table("costs", ["", "", "messages: predicted", "measured", "ratio", "bytes: predicted", "measured", "ratio",
  "memory: arrays", "process"], data.costs);
const [ranks, drawn] = data.ranks;
if (drawn < ranks) data.notes.step = `Of ${ranks.toLocaleString("en")} ranks the first ${drawn} are drawn.`;
for (const [id, text] of Object.entries(data.notes)) add($(id).closest("section"), "p", text, "note");

const names = data.tracks.map((_, rank) => `rank ${rank}`), places = data.mesh.rows;
table("mesh", ["", ...data.mesh.columns], places.map(row => [row.place, ...row.ranks.map(rank => names[rank])]))
  .forEach((line, n) => {
    for (const cell of [...line.cells].slice(1)) cell.className = places[n].server ? "server" : "rank";
    add(line.cells[0], "div", places[n].holds, "note");
  });

const kinds = Object.keys(data.split);
table("split", ["", "", "computes", "communicates", "idle"], names.map((name, rank) => {
  const seconds = kinds.map(kind => data.split[kind][rank]), all = seconds.reduce((sum, more) => sum + more, 0) || 1;
  const of = kind => kinds.includes(kind) ? data.split[kind][rank] / all : 0;
  return [name, "", percent(1 - of("communication") - of("idle")), percent(of("communication")), percent(of("idle"))];
})).forEach((line, rank) => {
  const most = Math.max(...names.map((_, r) => kinds.reduce((sum, kind) => sum + data.split[kind][r], 0))) || 1;
  line.cells[1].className = "bar";
  const bar = add(line.cells[1], "div");
  for (const kind of kinds) {
    const part = swatch(bar, kind), seconds = data.split[kind][rank];
    part.style.width = `${100 * seconds / most}%`;
    part.title = `${data.looks[kind][2]}: ${time(1e9 * seconds)}`;
  }
});

const largest = Math.max(...data.sent.flat()), row = source => data.sent[source].map(n => n ? bytes(n) : "–");
table("sent", ["from \\ to", ...names], largest > 0 ? names.map((name, source) => [name, ...row(source)]) : [])
  .forEach((line, source) => data.sent[source].forEach((n, dest) => {
    line.cells[dest + 1].style.background = `rgba(86, 180, 233, ${n / largest})`;
  }));

// ---- curves

function curve(id, points, mark) {  // points: [step, value]
  const box = $(id), width = box.clientWidth, height = 230, left = 52, under = 36;
  box.replaceChildren();
  if (!points || points.length < 2) { box.closest("section").hidden = true; return; }
  const svg = box.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
  const put = (tag, facts, text) => {
    const node = svg.appendChild(document.createElementNS(svg.namespaceURI, tag));
    for (const [name, value] of Object.entries(facts)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
  };
  const steps = points.map(point => point[0]), values = points.map(point => point[1]).filter(value => value !== null);
  const low = Math.min(...values, 0), ys = ticks(low, Math.max(...values), 5), last = Math.max(...steps);
  const top = Math.max(...values, ys[ys.length - 1]), xs = ticks(0, last, Math.max(2, width / 90));
  const x = step => left + (width - left - 12) * step / last;
  const y = value => 8 + (height - under - 8) * (top - value) / (top - low || 1);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${id}: from ${values[0]} to ${values[values.length - 1]}`);
  for (const value of ys) {
    put("line", {x1: left, x2: width - 12, y1: y(value), y2: y(value), stroke: "#ddd"});
    put("text", {x: left - 6, y: y(value) + 4, "text-anchor": "end"}, Number(value.toPrecision(6)));
  }
  for (const step of xs) put("text", {x: x(step), y: height - 20, "text-anchor": "middle"}, step);
  put("text", {x: (left + width) / 2, y: height - 3, "text-anchor": "middle"}, "step");
  const known = points.filter(point => point[1] !== null);
  const path = known.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`);
  put("polyline", {points: path.join(" "), fill: "none", stroke: "#0072B2", "stroke-width": 1.6});
  if (points.length <= 40) for (const point of path) {
    const [cx, cy] = point.split(",");
    put("circle", {cx, cy, r: 3.5, fill: "#0072B2"});
  }
}
const curves = () => { for (const id of ["loss", "accuracy"]) curve(id, data.curves[id]); };
addEventListener("resize", curves);
curves();
