const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const LEAST = 0.02;
const MOST = 2.5;

/** A canvas that shows a part of a plane: dragged, pinched, scrolled and steered by keys. `paint(context, view)` draws. */
class View {
  constructor(canvas, paint) {
    this.canvas = canvas;
    this.paint = paint;
    this.context = canvas.getContext("2d");
    this.x = 0; // of the plane, in the middle of the canvas
    this.y = 0;
    this.scale = 1;
    this.width = 0;
    this.height = 0;
    this.pointers = new Map();
    this.moved = 0;
    this.onpick = () => {};
    this.onstrip = () => false;
    this.onresize = () => {};
    this.limits = () => [-Infinity, Infinity];
    this.listen();
    new ResizeObserver(() => this.resize()).observe(canvas);
    document.addEventListener("themechange", () => this.draw());
    this.resize();
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width || !box.height) return;
    const ratio = devicePixelRatio || 1;
    const first = !this.width;
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    this.ratio = ratio;
    this.onresize(first);
    this.draw();
  }

  draw() {
    if (this.waits) return;
    this.waits = requestAnimationFrame(() => {
      this.waits = 0;
      if (!this.width) return;
      const c = this.context;
      c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      c.clearRect(0, 0, this.width, this.height);
      this.paint(c, this);
    });
  }

  /** Lets what is drawn next be drawn in the plane. */
  enter(c) {
    const s = this.ratio * this.scale;
    c.setTransform(s, 0, 0, s, this.ratio * (this.width / 2) - s * this.x, this.ratio * (this.height / 2) - s * this.y);
  }

  leave(c) {
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  plane([x, y]) {
    return [this.x + (x - this.width / 2) / this.scale, this.y + (y - this.height / 2) / this.scale];
  }

  pan(dx, dy) {
    this.stop();
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.draw();
  }

  zoom(factor, at = [this.width / 2, this.height / 2]) {
    this.stop();
    const [x, y] = this.plane(at);
    this.scale = Math.min(MOST, Math.max(LEAST, this.scale * factor));
    this.x = x - (at[0] - this.width / 2) / this.scale;
    this.y = y - (at[1] - this.height / 2) / this.scale;
    this.draw();
  }

  stop() {
    cancelAnimationFrame(this.gliding);
    this.gliding = 0;
  }

  /** Goes to a place, gliding where the user likes motion. */
  go(x, y, scale = this.scale) {
    this.stop();
    scale = Math.min(MOST, Math.max(LEAST, scale));
    if (CALM.matches || document.hidden) {
      [this.x, this.y, this.scale] = [x, y, scale];
      this.draw();
      return;
    }
    const from = [this.x, this.y, this.scale];
    const start = performance.now();
    const step = (now) => {
      const t = Math.min(1, Math.max(0, (now - start) / 260));
      const k = 1 - (1 - t) ** 3;
      this.x = from[0] + k * (x - from[0]);
      this.y = from[1] + k * (y - from[1]);
      this.scale = from[2] * (scale / from[2]) ** k;
      this.gliding = t < 1 ? requestAnimationFrame(step) : 0;
      this.draw();
    };
    this.gliding = requestAnimationFrame(step);
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.at(event));
      this.moved = 0;
      this.steers = this.pointers.size === 1 && this.onstrip(this.at(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      const old = this.pointers.get(event.pointerId);
      if (!old) return;
      const now = this.at(event);
      this.pointers.set(event.pointerId, now);
      if (this.steers) {
        this.onstrip(now, true);
        return;
      }
      if (this.pointers.size === 2) {
        const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
        const apart = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
        this.zoom(apart(now) / apart(old), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
        this.moved = 99;
      }
      this.moved += Math.abs(now[0] - old[0]) + Math.abs(now[1] - old[1]);
      if (this.moved > 4) this.pan((now[0] - old[0]) / this.pointers.size, (now[1] - old[1]) / this.pointers.size);
    });
    const end = (event) => {
      if (this.pointers.delete(event.pointerId) && event.type === "pointerup" && this.moved <= 4 && !this.steers) {
        this.onpick(this.plane(this.at(event)));
      }
      if (!this.pointers.size) this.steers = false;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener(
      "wheel",
      (event) => {
        const unit = event.deltaMode === 1 ? 16 : 1;
        const [right, down] = [event.deltaX * unit, event.deltaY * unit];
        if (event.ctrlKey || event.metaKey)
          this.zoom(Math.exp(-Math.max(-60, Math.min(60, down)) * 0.01), this.at(event));
        else {
          const [top, bottom] = this.limits();
          if (!right && ((down < 0 && this.y <= top) || (down > 0 && this.y >= bottom))) return;
          this.pan(-right, -down);
        }
        event.preventDefault();
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const far = event.shiftKey ? 240 : 60;
      const moves = {
        ArrowLeft: [far, 0],
        ArrowRight: [-far, 0],
        ArrowUp: [0, far],
        ArrowDown: [0, -far],
        PageUp: [0, 0.8 * this.height],
        PageDown: [0, -0.8 * this.height],
      };
      if (moves[event.key]) this.pan(...moves[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1.25);
      else if (event.key === "-" || event.key === "_") this.zoom(0.8);
      else return;
      event.preventDefault();
    });
  }
}
