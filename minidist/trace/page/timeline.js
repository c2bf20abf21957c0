// What each rank did and when, on a canvas that zooms and moves. `page.js`, which stands before it, has the helpers.
//
//   rank 0  |0|1|   idle  |/0/|/1/|    what it does; what lies in another span is painted over it
//            layers.0 |   |layers.0    its layers
//            --- all_reduce ---        in flight meanwhile
//
// Of a level of spans (contents.py) none overlap, so those that are seen are found by halving; and of those that are
// narrower than a pixel each pixel is painted once. So the time of a drawing hardly grows with the spans there are.

const [START, STOP, KIND, NAME, STEP, MICROBATCH, CHUNK, LAYER, BYTES, PEER] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const canvas = $("timeline"), paper = canvas.getContext("2d");
const patterns = tiles.map(image => paper.createPattern(image, "repeat"));
const LEFT = 58, TOP = 24, GAP = 8, LAYERS = 14, FLIGHT = 5;  // pixels
const HEIGHT = data.tracks.length > 16 ? 14 : 26;
const lanes = [];  // one below the other: {rank, part, levels, y, height}
let bottom = TOP;
data.tracks.forEach((track, rank) => {
  const place = (part, levels, height) => { lanes.push({rank, part, levels, y: bottom, height}); bottom += height; };
  place("spans", track.spans, HEIGHT);
  if (data.tracks.length <= 16 && track.layers.length) place("layers", track.layers, LAYERS);
  if (data.tracks.length <= 16) for (const level of track.flights) place("flights", [level], FLIGHT);
  bottom += GAP;
});
const main = lanes.filter(lane => lane.part === "spans");
const view = {from: 0, to: data.stop || 1};
let chosen = null, due = false;  // {lane, span}; whether a drawing is on its way

const x = t => LEFT + (t - view.from) / (view.to - view.from) * (canvas.clientWidth - LEFT);
const at = px => view.from + (px - LEFT) / (canvas.clientWidth - LEFT) * (view.to - view.from);

function first(level, t) {  // the first span that ends after t: of one level none overlap, so their ends are sorted
  let low = 0, high = level.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (level[middle][STOP] > t) high = middle; else low = middle + 1;
  }
  return low;
}
function show(from, to) {
  const whole = data.stop || 1, wide = Math.min(whole, Math.max(to - from, whole / 1e6, 10));
  view.from = Math.max(0, Math.min(from, whole - wide));
  view.to = view.from + wide;
  if (!due) setTimeout(draw);  // once for all events that have come meanwhile
  due = true;
}
const zoom = (factor, t = (view.from + view.to) / 2) => show(t - (t - view.from) * factor, t + (view.to - t) * factor);
const move = share => show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

function label(lane, span) {
  if (data.kinds[span[KIND]] === "idle" || lane.part === "flights") return "";
  const computes = lane.part === "spans" && data.kinds[span[KIND]] !== "communication";
  return computes && span[MICROBATCH] != null ? String(span[MICROBATCH]) : data.names[span[NAME]];
}
function drawLevel(lane, level) {  // spans narrower than a pixel share it: of each kind as much as there is
  const {y, height} = lane, shares = new Float64Array(tiles.length), narrow = tiles.map(() => []);
  let column = -1;
  const flush = () => {
    let left = column;
    shares.forEach((share, kind) => { if (share > 0) narrow[kind].push([left, share]); left += share; });
    shares.fill(0);
  };
  for (let n = first(level, view.from); n < level.length && level[n][START] < view.to; n++) {
    const span = level[n], left = Math.max(LEFT, x(span[START])), right = Math.min(canvas.clientWidth, x(span[STOP]));
    if (right - left < 1.5) {
      if (Math.floor(left) !== column) { flush(); column = Math.floor(left); }
      shares[span[KIND]] += right - left;
      continue;
    }
    paper.fillStyle = patterns[span[KIND]];
    paper.fillRect(left, y, right - left, height);
    if (right - left > 3) paper.strokeRect(left + .5, y + .5, right - left - 1, height - 1);
    const text = label(lane, span);
    if (!text || right - left < 7 * text.length + 4) continue;
    paper.strokeStyle = "#fff";
    paper.lineWidth = 4;
    paper.strokeText(text, (left + right) / 2, y + height / 2 + 1);
    paper.fillStyle = paper.strokeStyle = "#000";
    paper.lineWidth = .7;
    paper.fillText(text, (left + right) / 2, y + height / 2 + 1);
  }
  flush();
  narrow.forEach((pieces, kind) => {  // one kind after another, and without patterns: that is fast
    paper.fillStyle = (data.looks[data.kinds[kind]] || ["#555"])[0];
    for (const [left, share] of pieces) paper.fillRect(left, y, share, height);
  });
}
function drawFlows() {
  const seen = data.flows.filter(flow => flow[2] < view.to && flow[3] > view.from);
  if (seen.length > canvas.clientWidth / 6) return;
  paper.strokeStyle = paper.fillStyle = "rgba(0, 0, 0, .75)";
  for (const [source, dest, sent, received] of seen) {
    const down = dest > source, y0 = main[source].y + (down ? HEIGHT : 0), y1 = main[dest].y + (down ? 0 : HEIGHT);
    paper.beginPath();
    paper.moveTo(x(sent), y0);
    paper.lineTo(x(received), y1);
    paper.stroke();
    paper.fillRect(x(received) - 1.5, y1 - 1.5, 3, 3);
  }
}
function draw() {
  due = false;
  const width = canvas.clientWidth, density = window.devicePixelRatio || 1;
  canvas.style.height = `${bottom}px`;
  canvas.width = width * density;
  canvas.height = bottom * density;
  paper.setTransform(density, 0, 0, density, 0, 0);
  paper.font = "12px system-ui, sans-serif";
  paper.textBaseline = "middle";
  paper.lineWidth = .7;
  paper.lineJoin = "round";
  paper.save();
  paper.beginPath();
  paper.rect(LEFT, 0, width - LEFT, bottom);
  paper.clip();
  paper.textAlign = "left";
  for (const t of ticks(view.from, view.to, width / 110)) {
    paper.fillStyle = "#ccc";
    paper.fillRect(x(t), 0, 1, bottom);
    paper.fillStyle = "#444";
    paper.fillText(time(t), x(t) + 4, 9);
  }
  paper.textAlign = "center";
  paper.strokeStyle = "#000";
  for (const lane of lanes) for (const level of lane.levels) drawLevel(lane, level);
  drawFlows();
  if (chosen) {
    const {lane, span} = chosen;
    paper.strokeStyle = "#D55E00";
    paper.lineWidth = 3;
    paper.strokeRect(x(span[START]), lane.y, Math.max(2, x(span[STOP]) - x(span[START])), lane.height);
  }
  paper.restore();
  paper.fillStyle = "#1a1a1a";
  paper.textAlign = "left";
  for (const lane of main) paper.fillText(`rank ${lane.rank}`, 0, lane.y + HEIGHT / 2 + 1);
  $("range").textContent = `${time(view.from)} to ${time(view.to)}`;
}
function spansAt(lane, t) {  // what is there then, outer ones first
  return lane.levels.map(level => level[first(level, t)]).filter(span => span && span[START] <= t);
}
function choose(lane, span) {
  chosen = span ? {lane, span} : null;
  const say = [];
  if (span) {
    const kind = data.kinds[span[KIND]], name = data.names[span[NAME]];
    say.push(`rank ${lane.rank}: ${name === kind ? kind : `${kind}, ${name}`}`, time(span[STOP] - span[START]));
    say.push(`from ${time(span[START])} to ${time(span[STOP])}`);
    if (span[STEP] != null) say.push(`step ${span[STEP]}`);
    if (span[MICROBATCH] != null) say.push(`microbatch ${span[MICROBATCH]}`);
    if (span[CHUNK] != null) say.push(`chunk ${span[CHUNK]}`);
    if (span[LAYER] != null && span[LAYER] !== span[NAME]) say.push(`layer ${data.names[span[LAYER]]}`);
    if (span[BYTES] != null) say.push(bytes(span[BYTES]));
    if (span[PEER] != null) say.push(`peer rank ${span[PEER]}`);
    const around = spansAt(lane, span[START]).filter(other => other !== span && other[STOP] >= span[STOP]);
    if (around.length) say.push(`in ${around.reverse().map(other => data.names[other[NAME]]).join(", in ")}`);
  }
  $("details").textContent = say.join(" · ");
  show(view.from, view.to);
}
function walk(by, down) {  // to a later or an earlier span, by their starts, of this rank or of one further down
  const lane = main[chosen ? Math.max(0, Math.min(main.length - 1, chosen.lane.rank + down)) : 0];
  lane.all = lane.all || lane.levels.flat().sort((one, two) => one[START] - two[START] || two[STOP] - one[STOP]);
  const now = chosen && chosen.lane === lane ? lane.all.indexOf(chosen.span)
    : lane.all.findIndex(span => span[START] >= (chosen ? chosen.span[START] : view.from)) - 1;
  const span = lane.all[now + by];
  if (!span) return;
  const half = (view.to - view.from) / 2;
  if (span[STOP] < view.from || span[START] > view.to) show(span[START] - half, span[START] + half);
  choose(lane, span);
}
const KEYS = {
  "+": () => zoom(1 / 1.5), "=": () => zoom(1 / 1.5), "-": () => zoom(1.5), "0": () => show(0, data.stop),
  PageUp: () => move(-.5), PageDown: () => move(.5),
  ArrowRight: () => walk(1, 0), ArrowLeft: () => walk(-1, 0), ArrowDown: () => walk(1, 1), ArrowUp: () => walk(1, -1),
};
let drag = null;
canvas.addEventListener("keydown", event => {
  if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  KEYS[event.key]();
});
canvas.addEventListener("wheel", event => {
  const whole = view.to - view.from >= data.stop;
  if (whole && event.deltaY > 0) return;  // there is no more to see: the page may scroll
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / canvas.clientWidth);
  else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), at(event.offsetX));
}, {passive: false});
canvas.addEventListener("pointerdown", event => { drag = {px: event.offsetX, ...view}; });
addEventListener("pointerup", () => { drag = null; });
canvas.addEventListener("pointermove", event => {
  if (drag && event.buttons) {
    const shift = (drag.px - event.offsetX) / (canvas.clientWidth - LEFT) * (drag.to - drag.from);
    return show(drag.from + shift, drag.to + shift);
  }
  const lane = lanes.find(lane => event.offsetY >= lane.y && event.offsetY < lane.y + lane.height);
  const found = lane && event.offsetX >= LEFT ? spansAt(lane, at(event.offsetX)) : [];
  if (found.length && !(chosen && chosen.span === found[found.length - 1])) choose(lane, found[found.length - 1]);
});
addEventListener("resize", () => show(view.from, view.to));

const buttons = {in: KEYS["+"], out: KEYS["-"], earlier: KEYS.PageUp, later: KEYS.PageDown};
for (const [name, press] of Object.entries(buttons)) $(name).addEventListener("click", press);
const pick = $("step");
add(pick, "option", data.steps.length > 1 ? `all ${data.steps.length} steps` : "everything");
for (const [number] of data.steps) add(pick, "option", `step ${number}`);
pick.addEventListener("change", () => {
  const [, from, to] = data.steps[pick.selectedIndex - 1] || [0, 0, data.stop];
  show(from, to);
});
pick.selectedIndex = data.steps.length > 2 ? 2 : 0;  // the first step is not like the others
pick.dispatchEvent(new Event("change"));
