const BOX_WIDTH = 148;
const BOX_HEIGHT = 34;
const LAYER = 66;
const BAND = 24 * LAYER; // wires are drawn by bands, of which few are in sight
const STRIP = 14;

const MEANINGS = {
  before: { kept: "as it was", changed: "other inputs or attributes", other: "rewritten" },
  after: { kept: "as it was", changed: "other inputs or attributes", other: "made by rewrites" },
  model: {},
};

/** One side of a picture: a graph on a canvas, with a strip beside it that shows all of it at once. */
class Pane {
  constructor(side, title) {
    this.side = side;
    this.lit = new Set();
    this.near = new Set();
    this.chosen = -1;
    this.hottest = null;
    this.onchoose = () => {};
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      id: `graph-${side}`,
      "aria-label":
        `${title}. Arrow keys move, plus and minus zoom, 0 shows all, Enter chooses the node in the middle, ` +
        "brackets go to what it reads and what reads it.",
    });
    this.count = h("span", { class: "note" });
    this.element = h(
      "figure",
      { class: "pane", "data-side": side },
      h(
        "figcaption",
        {},
        h("strong", {}, title),
        " ",
        this.count,
        h(
          "span",
          { class: "tools" },
          this.tool("−", "Zoom out", () => this.view.zoom(0.7)),
          this.tool("+", "Zoom in", () => this.view.zoom(1.4)),
          this.tool("⤢", "Show all", () => this.fit()),
        ),
      ),
      this.canvas,
    );
    this.view = new View(this.canvas, (c, view) => this.paint(c, view));
    this.view.onpick = (at) => this.choose(this.boxAt(at));
    this.view.onstrip = (at, isDragged) => this.steer(at, isDragged);
    this.view.onresize = (isFirst) => {
      if (isFirst) this.enter();
    };
    this.view.limits = () => this.limits();
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  tool(sign, label, act) {
    return h(
      "button",
      { type: "button", class: "quiet icon", "aria-label": `${label}, ${this.side}`, "data-tip": label, onclick: act },
      sign,
    );
  }

  /** Shows another graph: a drawing, or nothing. */
  show(drawing, marks) {
    this.drawing = drawing || { width: 0, height: 0, boxes: [], wires: [] };
    this.marks = marks;
    this.lit = new Set();
    this.near = new Set();
    this.chosen = -1;
    this.rows = new Map();
    this.drawing.boxes.forEach((box, k) => {
      if (!this.rows.has(box.y)) this.rows.set(box.y, []);
      this.rows.get(box.y).push(k);
    });
    this.readers = this.drawing.boxes.map(() => []);
    this.bands = [];
    this.long = new Path2D();
    for (const [a, b, bends] of this.drawing.wires) {
      this.readers[a].push(b);
      this.thread(this.drawing.boxes[a], this.drawing.boxes[b], bends);
    }
    const ops = this.drawing.boxes.filter((b) => b.op !== "Input").length;
    const moved = marks.filter((m) => m === "other").length;
    const changed = { before: "rewritten", after: "new" }[this.side];
    this.count.textContent = drawing
      ? `${COUNT.format(ops)} op${ops === 1 ? "" : "s"}${changed ? `, ${COUNT.format(moved)} ${changed}` : ""}`
      : "not on this side";
    this.start();
  }

  thread(from, to, bends) {
    const top = from.y + BOX_HEIGHT / 2;
    const bottom = to.y - BOX_HEIGHT / 2;
    const first = Math.floor(top / BAND);
    const isLong = Math.floor(bottom / BAND) - first > 1;
    const path = isLong ? this.long : (this.bands[first] ||= new Path2D());
    path.moveTo(from.x, top);
    let [x, y] = [from.x, top];
    for (const [bx, by] of [...bends, [to.x, bottom]]) {
      const half = (by - y) / 2;
      path.bezierCurveTo(x, y + half, bx, by - half, bx, by);
      [x, y] = [bx, by];
    }
  }

  /** What is seen when the pane is first there: what is lit, or else the first layers. */
  enter() {
    this.start();
    const lit = [...this.lit, ...this.near];
    if (lit.length) this.fit(new Set(this.compact(lit)));
  }

  /** How far the wheel goes: beyond, the page scrolls. */
  limits() {
    const half = (this.view.height / 2 - 40) / this.view.scale;
    const middle = this.drawing.height / 2;
    return [Math.min(middle, half), Math.max(middle, this.drawing.height - half)];
  }

  /** The first look: the width where it can be read, from the first layer on. */
  start() {
    const view = this.view;
    if (!view.width || !this.drawing) return;
    view.stop();
    const room = view.width - STRIP - 24;
    view.scale = Math.min(1, Math.max(0.66, room / (this.drawing.width + BOX_WIDTH)));
    const first = this.drawing.boxes[0];
    const isWide = (this.drawing.width + BOX_WIDTH) * view.scale > room;
    view.x = isWide && first ? first.x : this.drawing.width / 2;
    view.y = (view.height / 2 - 36) / view.scale - BOX_HEIGHT / 2;
    view.draw();
  }

  fit(which = null) {
    const all = which ? [...which].map((k) => this.drawing.boxes[k]) : this.drawing.boxes;
    if (!all.length || !this.view.width) return;
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y } of all) {
      left = Math.min(left, x);
      right = Math.max(right, x);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y);
    }
    const view = this.view;
    const scale = Math.min(
      (view.width - STRIP - 40) / (right - left + BOX_WIDTH),
      (view.height - 48) / (bottom - top + BOX_HEIGHT + (which ? LAYER : 0)),
    );
    view.go((left + right) / 2, (top + bottom) / 2, which ? Math.max(0.25, Math.min(1, scale)) : Math.min(1, scale));
  }

  /** Lights nodes, those of a rewrite or of a kernel, and goes there. */
  light(boxes, near = []) {
    this.lit = new Set(boxes);
    this.near = new Set(near);
    this.chosen = -1;
    this.canvas.dataset.lit = boxes.length;
    this.canvas.dataset.near = near.length;
    const all = boxes.length ? boxes : near;
    if (all.length) this.fit(new Set(this.compact(all)));
    this.view.draw();
  }

  /** Of boxes that lie far apart, those near the first: all of them would be too small to be seen. */
  compact(boxes) {
    const first = this.drawing.boxes[boxes[0]];
    return boxes.filter(
      (k) =>
        Math.abs(this.drawing.boxes[k].y - first.y) < 14 * LAYER &&
        Math.abs(this.drawing.boxes[k].x - first.x) < 10 * BOX_WIDTH,
    );
  }

  choose(k, isQuiet = false) {
    this.chosen = k;
    this.canvas.dataset.chosen = k;
    this.view.draw();
    if (!isQuiet) this.onchoose(k);
  }

  go(k) {
    const { x, y } = this.drawing.boxes[k];
    this.view.go(x, y, Math.max(this.view.scale, 0.7));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const v = this.view;
    const next = {
      "[": () => this.drawing.boxes[this.chosen]?.reads.find((r) => r && r.box !== null)?.box,
      "]": () => this.readers[this.chosen]?.[0],
    }[event.key];
    if (event.key === "0") this.fit();
    else if (event.key === "Enter") this.choose(this.nearest(v.x, v.y));
    else if (next) {
      const k = next();
      if (k !== undefined) {
        this.choose(k);
        this.go(k);
      }
    } else return;
    event.preventDefault();
  }

  nearest(x, y) {
    let [best, at] = [Infinity, -1];
    this.drawing.boxes.forEach((box, k) => {
      const far = Math.hypot(box.x - x, 2 * (box.y - y));
      if (far < best) [best, at] = [far, k];
    });
    return at;
  }

  boxAt([x, y]) {
    const row = this.rows.get(Math.round(y / LAYER) * LAYER) || [];
    const found = row.find((k) => Math.abs(this.drawing.boxes[k].x - x) <= BOX_WIDTH / 2);
    return found === undefined || Math.abs(this.drawing.boxes[found].y - y) > BOX_HEIGHT / 2 ? -1 : found;
  }

  steer([x, y], isDragged = false) {
    if (!isDragged && x < this.view.width - STRIP - 4) return false;
    const part = Math.min(1, Math.max(0, (y - 4) / (this.view.height - 8)));
    this.view.stop();
    this.view.y = part * this.drawing.height;
    this.view.draw();
    return true;
  }

  /** What share of the dearest node's time a node takes, where nodes are coloured so. */
  heat(k) {
    return this.hottest ? (this.drawing.boxes[k].seconds || 0) / this.hottest : 0;
  }

  colours(k, p, dims) {
    const alpha = dims && !this.lit.has(k) && !this.near.has(k) ? 0.38 : 1;
    if (this.hottest !== null) return { fill: p.node, line: p["node-line"], alpha };
    const mark = this.marks[k];
    const names =
      mark === "other"
        ? [`${this.side}-soft`, this.side]
        : mark === "changed"
          ? ["changed-soft", "changed"]
          : ["node", "node-line"];
    return { fill: p[names[0]], line: p[names[1]], alpha };
  }

  paint(c, view) {
    if (!this.drawing) return;
    const p = palette();
    const colours = { node: p.node, text: p.text, wire: p.wire, muted: p.muted, accent: p.accent, heat: p.before };
    const dims = this.lit.size + this.near.size > 0;
    view.enter(c);
    const [left, top] = view.plane([0, 0]);
    const [right, bottom] = view.plane([view.width, view.height]);
    c.lineWidth = Math.max(1.1, 0.6 / view.scale);
    c.strokeStyle = colours.wire;
    c.globalAlpha = dims ? 0.45 : 0.9;
    for (let band = Math.floor(top / BAND) - 2; band <= Math.floor(bottom / BAND); band += 1)
      if (this.bands[band]) c.stroke(this.bands[band]);
    c.stroke(this.long);
    c.globalAlpha = 1;
    const isPlain = view.scale < 0.28;
    const isNamed = view.scale > 0.75;
    const cache = new Map();
    c.textAlign = "center";
    for (let y = Math.max(0, Math.ceil((top - BOX_HEIGHT) / LAYER) * LAYER); y <= bottom + BOX_HEIGHT; y += LAYER) {
      for (const k of this.rows.get(y) || []) {
        const box = this.drawing.boxes[k];
        if (box.x + BOX_WIDTH / 2 < left || box.x - BOX_WIDTH / 2 > right) continue;
        const key = `${this.marks[k]}${dims && !this.lit.has(k) && !this.near.has(k)}`;
        if (!cache.has(key)) cache.set(key, this.colours(k, p, dims));
        this.paintBox(c, box, k, cache.get(key), colours, isPlain, isNamed);
      }
    }
    view.leave(c);
    this.paintStrip(c, view, p);
  }

  paintBox(c, box, k, look, colours, isPlain, isNamed) {
    const [x, y] = [box.x - BOX_WIDTH / 2, box.y - BOX_HEIGHT / 2];
    c.globalAlpha = look.alpha;
    c.fillStyle = look.fill;
    c.strokeStyle = look.line;
    if (isPlain) {
      c.fillStyle = this.lit.has(k) || this.near.has(k) || k === this.chosen ? colours.accent : look.line;
      c.fillRect(x, y, BOX_WIDTH, BOX_HEIGHT);
      this.paintHeat(c, x, y, k, look, colours);
      c.globalAlpha = 1;
      return;
    }
    c.beginPath();
    c.roundRect(x, y, BOX_WIDTH, BOX_HEIGHT, box.op === "Input" ? BOX_HEIGHT / 2 : 6);
    c.fill();
    this.paintHeat(c, x, y, k, look, colours);
    c.lineWidth = 1.2;
    if (this.hottest === null && this.marks[k] === "other" && this.side === "before") c.setLineDash([5, 3]);
    c.stroke();
    c.setLineDash([]);
    if (box.is_output) c.fillRect(x + 12, y + BOX_HEIGHT - 1, BOX_WIDTH - 24, 3);
    if (this.lit.has(k) || this.near.has(k) || k === this.chosen) {
      c.strokeStyle = colours.accent;
      c.lineWidth = this.near.has(k) ? 1.5 : 3;
      c.beginPath();
      c.roundRect(x - 4, y - 4, BOX_WIDTH + 8, BOX_HEIGHT + 8, 9);
      if (this.near.has(k)) c.setLineDash([2, 4]);
      c.stroke();
      c.setLineDash([]);
    }
    c.fillStyle = colours.text;
    c.font = "600 12.5px system-ui, sans-serif";
    const more = isNamed ? shownType(box) : "";
    const name = box.op === "Input" ? box.name || "Input" : opName(box.op);
    c.fillText(cut(name, 24), box.x, box.y + (more ? -1 : 4.5), BOX_WIDTH - 12);
    if (more) {
      c.fillStyle = colours.muted;
      c.font = "10px system-ui, sans-serif";
      c.fillText(cut(more, 30), box.x, box.y + 11, BOX_WIDTH - 12);
    }
    c.globalAlpha = 1;
  }

  /** Over the box that is the path, or else over its whole place: the warmer, the more of the time it takes. */
  paintHeat(c, x, y, k, look, colours) {
    const heat = this.heat(k);
    if (!heat) return;
    c.globalAlpha = look.alpha * (0.12 + 0.73 * Math.sqrt(heat));
    c.fillStyle = colours.heat;
    c.fillRect(x + 1, y + 1, BOX_WIDTH - 2, BOX_HEIGHT - 2);
    c.globalAlpha = look.alpha;
    c.fillStyle = look.line;
  }

  paintStrip(c, view, p) {
    const x = view.width - STRIP - 2;
    const height = view.height - 8;
    const step = height / (this.drawing.height + BOX_HEIGHT);
    c.fillStyle = p.strip;
    c.fillRect(x, 4, STRIP, height);
    const colours = { changed: p.changed, other: p[this.side], lit: p.accent };
    const size = Math.max(1, step * BOX_HEIGHT);
    if (this.hottest) {
      c.fillStyle = p.before;
      this.drawing.boxes.forEach((box, k) => {
        c.globalAlpha = Math.sqrt(this.heat(k));
        c.fillRect(x + 3, 4 + step * box.y, STRIP - 6, size);
      });
      c.globalAlpha = 1;
    }
    for (const wanted of this.hottest === null ? ["changed", "other", "lit"] : ["lit"]) {
      c.fillStyle = colours[wanted];
      this.drawing.boxes.forEach((box, k) => {
        const isLit = this.lit.has(k) || this.near.has(k) || k === this.chosen;
        if (wanted === "lit" ? isLit : this.marks[k] === wanted) {
          c.fillRect(
            x + (wanted === "lit" ? 0 : 3),
            4 + step * box.y,
            STRIP - (wanted === "lit" ? 0 : 6),
            wanted === "lit" ? Math.max(3, size) : size,
          );
        }
      });
    }
    const [, top] = view.plane([0, 0]);
    const [, bottom] = view.plane([0, view.height]);
    const from = Math.max(4, 4 + step * top);
    const to = Math.min(view.height - 4, 4 + step * bottom);
    c.strokeStyle = p.muted;
    c.lineWidth = 1.5;
    if (to > from) c.strokeRect(x + 0.5, from, STRIP - 1, Math.max(4, to - from));
  }
}

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function shownType(box) {
  const type = box.makes[0]?.type || "";
  return type === "?" ? box.name : type;
}
