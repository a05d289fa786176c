const PHONE = matchMedia("(max-width: 760px)");

/** The frame of a chart: axes with ticks and names. `x` and `y` are scales: {low, high, log, show, name}. */
function chart(label, x, y, height, paint) {
  const width = PHONE.matches ? 420 : 720; // so that letters stay as large as they are around it
  const [left, bottom, top, right] = [62, 40, 12, 16];
  const along = (scale, from, to) => {
    const f = scale.log ? Math.log10 : (v) => v;
    const [a, b] = [f(scale.low), f(scale.high)];
    return (v) => from + ((f(v) - a) / (b - a || 1)) * (to - from);
  };
  const at = { x: along(x, left, width - right), y: along(y, height - bottom, top) };
  const lines = [];
  for (const v of ticks(x)) {
    lines.push(svg("text", { x: at.x(v), y: height - bottom + 17, class: "tick", "text-anchor": "middle" }, x.show(v)));
    lines.push(svg("line", { x1: at.x(v), x2: at.x(v), y1: top, y2: height - bottom, class: "grid" }));
  }
  for (const v of ticks(y)) {
    lines.push(svg("text", { x: left - 8, y: at.y(v) + 4, class: "tick", "text-anchor": "end" }, y.show(v)));
    lines.push(svg("line", { x1: left, x2: width - right, y1: at.y(v), y2: at.y(v), class: "grid" }));
  }
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" },
    lines,
    svg("text", { x: (left + width - right) / 2, y: height - 6, class: "axis", "text-anchor": "middle" }, x.name),
    svg(
      "text",
      {
        x: 14,
        y: top + (height - bottom - top) / 2,
        class: "axis",
        "text-anchor": "middle",
        transform: `rotate(-90 14 ${top + (height - bottom - top) / 2})`,
      },
      y.name,
    ),
    paint(at, { left, right: width - right, top, bottom: height - bottom }),
  );
}

function ticks(scale) {
  const found = [];
  if (scale.log) {
    const first = Math.ceil(Math.log10(scale.low) - 1e-9);
    const last = Math.floor(Math.log10(scale.high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first) / 6));
    for (let k = first; k <= last; k += step) found.push(10 ** k);
    return found;
  }
  const span = scale.high - scale.low || 1;
  const raw = span / 5;
  const unit = 10 ** Math.floor(Math.log10(raw));
  let step = unit * [1, 2, 5, 10].find((n) => n * unit >= raw);
  if (scale.whole) step = Math.max(1, Math.round(step));
  for (let v = Math.ceil(scale.low / step) * step; v <= scale.high * (1 + 1e-9); v += step) found.push(v);
  return found;
}

/** How the e-graph grew, round by round. */
function saturationSection(explorations) {
  const told = explorations.filter((e) => e.rounds.length > 1);
  if (!told.length) return null;
  const kinds = [
    ["e-nodes", 0],
    ["e-classes", 1],
    ["matches applied", 2],
  ];
  const place = h("div", {});
  const draw = (k) => {
    const { rounds, stop } = told[k];
    const most = Math.max(...rounds.flat());
    const x = { low: 0, high: rounds.length - 1, whole: true, show: String, name: "round" };
    const y = { low: 0, high: most * 1.05, show: (v) => (v >= 1000 ? `${short(v / 1000)}k` : short(v)), name: "count" };
    const ends = { saturated: "saturated", "put off": "saturated, except for matches put off" };
    const end = ends[stop] ?? `stopped by the limit on ${stop}`;
    const label = `E-graph by round: ${kinds.map(([name, i]) => `${name} from ${rounds[0][i]} to ${rounds.at(-1)[i]}`).join(", ")}; ${end}.`;
    place.replaceChildren(
      chart(label, x, y, 280, (at) =>
        kinds.map(([name, i]) => [
          svg("polyline", {
            class: `line series-${i}`,
            points: rounds.map((r, n) => `${at.x(n)},${at.y(r[i])}`).join(" "),
          }),
          rounds.map((r, n) =>
            svg("circle", {
              class: `dot series-${i}`,
              cx: at.x(n),
              cy: at.y(r[i]),
              r: 4,
              "data-tip": `round ${n}: ${COUNT.format(r[i])} ${name}`,
            }),
          ),
        ]),
      ),
      h(
        "p",
        { class: "legend" },
        kinds.map(([name, i]) => h("span", { class: `key series-${i}` }, `${name} ${COUNT.format(rounds.at(-1)[i])}`)),
        h("span", { class: "note" }, end),
      ),
    );
  };
  const names = told.map((e, k) => `search ${k + 1} of ${told.length}: ${COUNT.format(e.nodes)} e-nodes`);
  const largest = told.reduce((best, e, k) => (e.nodes > told[best].nodes ? k : best), 0);
  const choice =
    told.length > 1
      ? h(
          "label",
          { class: "choice" },
          "Shown: ",
          h(
            "select",
            { onchange: (event) => draw(Number(event.target.value)) },
            names.map((name, k) => h("option", { value: k, selected: k === largest }, name)),
          ),
        )
      : null;
  draw(largest);
  return section(
    "search",
    "Equality saturation",
    "Size of the e-graph after each round of rewriting; the cheapest graph in it was extracted.",
    choice,
    place,
  );
}

/** How far the result's outputs are from the original's. */
function checkSection(found) {
  if (!found || found.status === "off") return null;
  const head =
    found.status === "unverified"
      ? `Unverified: ${found.reason}`
      : `Original and result ran in ${found.engine} on ${found.draws === 1 ? "one random input" : `${found.draws} random inputs`}${found.enlarged ? " and one of large values" : ""}${found.inside ? `, and by ${found.inside === 1 ? "one value" : `${found.inside} values`} inside` : ""}${found.parts ? `, and by ${found.parts === 1 ? "one part" : `${found.parts} parts`} on drawn values` : ""}${found.left ? `; ${found.left === 1 ? "one part" : `${found.left} parts`} within rounding were not computed in float64` : ""}${found.reason ? `. Inconclusive: ${found.reason}` : ""}.`;
  const most = Math.max(1, ...found.outputs.map(([, e]) => e || 0));
  const rows = found.outputs.map(([name, error]) => [
    h("code", {}, name),
    error === null ? "no size" : error === 0 ? "0" : short(error),
    svg(
      "svg",
      { class: "bar", viewBox: "0 0 200 10", role: "img", "aria-label": `${error ?? "no"} of the tolerance` },
      svg("rect", { class: "track", x: 0, y: 3, width: 200, height: 4, rx: 2 }),
      svg("rect", {
        class: error > 1 ? "part warn" : "part",
        x: 0,
        y: 2,
        width: error ? Math.max(2, (200 * error) / most) : 0,
        height: 6,
        rx: 3,
      }),
      svg("line", { class: "limit", x1: 200 / most, x2: 200 / most, y1: 0, y2: 10 }),
    ),
  ]);
  const sizes = found.sizes
    .filter((s) => Object.keys(s).length)
    .map((s) =>
      Object.entries(s)
        .map(([k, n]) => `${k}=${n}`)
        .join(", "),
    )
    .join("; ");
  return section(
    "checks",
    "Errors by output",
    `${head}${sizes ? ` Sizes: ${sizes}.` : ""}`,
    rows.length
      ? table(
          "Largest difference of each output",
          ["output", ["largest error, in tolerances", "number"], "relative to the tolerance (the line)"],
          rows,
        )
      : null,
  );
}

/** Each kernel's intensity and rate beside what the machine does at most. */
function rooflineSection(kernels, choose) {
  const { limits } = kernels;
  const shown = kernels.calls
    .map((call, k) => ({ ...call, k }))
    .filter((c) => c.seconds && c.flops && c.bytes)
    .sort((a, b) => b.seconds - a.seconds);
  if (!limits || !shown.length) return null;
  const total = kernels.calls.reduce((sum, c) => sum + (c.seconds || 0), 0);
  const where = shown.map((c) => c.flops / c.bytes);
  const heights = shown.map((c) => c.flops / c.seconds);
  const x = {
    low: Math.min(...where, limits.flops / limits.near_bytes) / 3,
    high: Math.max(...where, limits.flops / limits.bytes) * 3,
    log: true,
    show: short,
    name: "operations for each byte",
  };
  const y = {
    low: Math.min(...heights) / 3,
    high: limits.flops * 2.2,
    log: true,
    show: (v) => short(v / 1e9),
    name: "GFLOP/s",
  };
  const label = `Roofline of ${shown.length} kernels: at most ${short(limits.flops / 1e9)} GFLOP/s and ${short(limits.bytes / 1e9)} GB/s from memory.`;
  const picture = chart(label, x, y, 400, (at, frame) => {
    const roof = (bandwidth, name, kind) => {
      const start = Math.max(x.low, y.low / bandwidth);
      const corner = limits.flops / bandwidth;
      return [
        svg("polyline", {
          class: `roof ${kind}`,
          points: `${at.x(start)},${at.y(start * bandwidth)} ${at.x(corner)},${at.y(limits.flops)} ${frame.right},${at.y(limits.flops)}`,
        }),
        svg(
          "text",
          {
            class: "tick",
            x: at.x(start) + 8,
            y: at.y(start * bandwidth) - 10,
            transform: `rotate(${(Math.atan2(at.y(corner * bandwidth) - at.y(start * bandwidth), at.x(corner) - at.x(start)) * 180) / Math.PI} ${at.x(start) + 8} ${at.y(start * bandwidth) - 10})`,
          },
          `${name}, ${short(bandwidth / 1e9)} GB/s`,
        ),
      ];
    };
    return [
      roof(limits.bytes, "memory", ""),
      roof(limits.near_bytes, "near cache", "near"),
      svg(
        "text",
        { class: "tick", x: frame.right - 4, y: at.y(limits.flops) - 8, "text-anchor": "end" },
        `${short(limits.flops / 1e9)} GFLOP/s, ${limits.threads} thread${limits.threads > 1 ? "s" : ""}`,
      ),
      shown.map((c, n) =>
        svg("circle", {
          class: "kernel",
          cx: at.x(c.flops / c.bytes),
          cy: at.y(c.flops / c.seconds),
          r: 4 + 26 * Math.sqrt(c.seconds / total),
          tabindex: n ? "-1" : "0",
          role: "button",
          "aria-label": `${c.label}: ${seconds(c.seconds)}, ${rate(c.flops / c.seconds, "FLOP/s")}`,
          "data-tip": `${c.label}\n${c.nodes[0] || ""}\n${seconds(c.seconds)}, ${percent(c.seconds / total).replace("+", "")} of the time\n${rate(c.flops / c.seconds, "FLOP/s")}, ${rate(c.bytes / c.seconds, "B/s")}`,
          onclick: () => choose(c.k),
          onkeydown: (event) => {
            if (event.key === "Enter" || event.key === " ") {
              event.preventDefault();
              choose(c.k);
            }
          },
        }),
      ),
    ];
  });
  oneStop(picture, ".kernel");
  return section(
    "roofline",
    "Roofline",
    "Each dot is a kernel; its area is its share of the time. Below the roof, the machine could do more.",
    picture,
  );
}

/** Which part of the arena each value has, when. */
function memorySection(arena) {
  if (!arena || !arena.leases.length) return null;
  const last = Math.max(1, arena.moments.length);
  const x = { low: 0, high: last, whole: true, show: String, name: "step" };
  const y = { low: 0, high: arena.arena * 1.02, show: bytes, name: "arena" };
  const sizes = Object.entries(arena.sizes)
    .map(([k, n]) => `${k}=${n}`)
    .join(", ");
  const label = `The arena of ${bytes(arena.arena)} over ${last} steps: ${arena.leases.length} values share it; without sharing they would take ${bytes(arena.separate)}.`;
  const picture = chart(label, x, y, 360, (at) =>
    arena.leases.map((l) =>
      svg("rect", {
        class: `lease series-${l.first % 4}`,
        x: at.x(l.first),
        width: Math.max(1, at.x(l.last + 1) - at.x(l.first) - 0.5),
        y: at.y(l.offset + l.bytes),
        height: Math.max(0.8, at.y(l.offset) - at.y(l.offset + l.bytes)),
        "data-tip": `${l.name}\n${bytes(l.bytes)} at ${bytes(l.offset)}, steps ${l.first} to ${l.last}`,
      }),
    ),
  );
  const saved = arena.separate ? 1 - arena.arena / arena.separate : 0;
  return section(
    "memory",
    "Memory",
    `${bytes(arena.arena)} of arena, ${percent(-saved)} beside ${bytes(arena.separate)} without sharing, and ${bytes(arena.constants)} of constants${sizes ? `; with ${sizes}` : ""}. A block is a value: its height is its size, its width the time for which it is needed.`,
    picture,
  );
}

/** What was done, each as long as it took. */
function stepsSection(steps) {
  const told = steps.filter(([, s]) => s > 0);
  const total = told.reduce((sum, [, s]) => sum + s, 0);
  if (!total) return null;
  const order = [...told].sort((a, b) => b[1] - a[1]);
  return section(
    "steps",
    "Time by step",
    `${seconds(total)} in all.`,
    h(
      "dl",
      { class: "bars" },
      order
        .slice(0, 14)
        .map(([name, s]) => [
          h("dt", {}, name),
          h(
            "dd",
            {},
            svg(
              "svg",
              { class: "bar", viewBox: "0 0 200 10", "aria-hidden": "true", preserveAspectRatio: "none" },
              svg("rect", { class: "part", x: 0, y: 2, width: Math.max(1, (200 * s) / order[0][1]), height: 6, rx: 3 }),
            ),
            h("span", {}, seconds(s)),
          ),
        ]),
    ),
  );
}
