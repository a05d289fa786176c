/** Up to which ratio modelled costs are told, as in run/report.py. */
const TRUSTED = 10;

/** The counts before and after. */
function overview(page) {
  const { rewriting } = page;
  const cards = [];
  const card = (name, value, note, kind = "") =>
    cards.push(h("div", { class: `card ${kind}` }, h("dt", {}, name), h("dd", {}, value, h("small", {}, note || ""))));
  let rows = null;
  if (rewriting) {
    const [before, after] = [1, 2].map((k) => rewriting.ops.reduce((sum, row) => sum + row[k], 0));
    card("Ops", `${COUNT.format(before)} → ${COUNT.format(after)}`, before ? percent(after / before - 1) : "");
    const { race } = rewriting;
    const [costBefore, costAfter] = rewriting.costs;
    if (race)
      card("Measured speed", `${short(race[0] / race[1])}×`, `${seconds(race[0])} → ${seconds(race[1])}`, "strong");
    else if (costBefore && costAfter) {
      // beyond that, what a call costs outside of its ops decides
      const ratio = costBefore / costAfter > TRUSTED ? `over ${TRUSTED}×` : `${short(costBefore / costAfter)}×`;
      card("Modelled speed", ratio, `${seconds(costBefore)} → ${seconds(costAfter)}`, "strong");
    }
    const [bytesBefore, bytesAfter] = rewriting.bytes;
    if (bytesBefore && bytesAfter)
      card("File", bytes(bytesAfter), `${percent(bytesAfter / bytesBefore - 1)} from ${bytes(bytesBefore)}`);
    card(
      "Rewrites",
      COUNT.format(rewriting.changes.length),
      `by ${new Set(rewriting.changes.map((c) => c.rule)).size} rules and passes`,
    );
    const found = rewriting.verification;
    if (found && found.status !== "off")
      card(
        "Check",
        found.status,
        found.error === 0
          ? "no difference"
          : found.error !== null ? `error ${short(found.error)} ${found.error > 1 ? "times" : "of"} the tolerance` : "",
        found.status === "verified" ? "good" : "warn",
      );
    rows = opsTable(rewriting.ops);
  }
  if (page.kernels) {
    const { engines, arena, calls } = page.kernels;
    if (engines.length)
      card(
        "A run",
        seconds(engines[0].median),
        engines
          .slice(1)
          .map((e) => `${short(e.ratio)}× as fast as ${e.name}`)
          .join(", "),
        "strong",
      );
    card("Kernels", COUNT.format(new Set(calls.map((c) => c.source)).size), `in ${COUNT.format(calls.length)} calls`);
    if (arena) card("Arena", bytes(arena.arena), `${bytes(arena.separate)} without sharing`);
  }
  const facts = page.facts.length
    ? h(
        "dl",
        { class: "facts" },
        page.facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
      )
    : null;
  const warned = page.warnings.length
    ? h(
        "details",
        { class: "warnings" },
        h("summary", {}, `${page.warnings.length} warning${page.warnings.length > 1 ? "s" : ""}`),
        h(
          "ul",
          {},
          page.warnings.map((w) => h("li", {}, w)),
        ),
      )
    : null;
  return section(
    "overview",
    "Overview",
    null,
    cards.length ? h("dl", { class: "cards" }, cards) : null,
    facts,
    warned,
    enginesTable(page.kernels),
    rows,
  );
}

function enginesTable(kernels) {
  if (!kernels || kernels.engines.length < 2) return null;
  return table(
    "Runs in several engines",
    [
      "engine",
      ["median", "number"],
      ["p90", "number"],
      ["time relative to graphopt", "number"],
      ["error, in tolerances", "number"],
    ],
    kernels.engines.map((e) => [
      e.name,
      seconds(e.median),
      seconds(e.p90),
      `${short(e.ratio)}×`,
      e.error === null ? "" : short(e.error),
    ]),
  );
}

function opsTable(ops) {
  const most = Math.max(1, ...ops.flatMap(([, a, b]) => [a, b]));
  const changed = ops.filter(([, a, b]) => a !== b);
  const same = ops.filter(([, a, b]) => a === b);
  const row = ([op, a, b]) => [
    h("code", {}, op),
    String(a || "·"),
    String(b || "·"),
    a === b ? "" : h("span", { class: b < a ? "fewer" : "more" }, `${b > a ? "+" : "−"}${Math.abs(b - a)}`),
    svg(
      "svg",
      { class: "bar two", viewBox: "0 0 200 14", "aria-hidden": "true", preserveAspectRatio: "none" },
      svg("rect", { class: "was", x: 0, y: 1, width: (200 * a) / most, height: 5, rx: 2 }),
      svg("rect", { class: "is", x: 0, y: 8, width: (200 * b) / most, height: 5, rx: 2 }),
    ),
  ];
  const heads = ["op", ["before", "number"], ["after", "number"], ["change", "number"], ""];
  return h(
    "div",
    { class: "ops" },
    table("Ops before and after", heads, changed.map(row)),
    same.length
      ? h(
          "details",
          {},
          h("summary", {}, `${same.length} op${same.length > 1 ? "s" : ""} unchanged`),
          table("Unchanged ops", heads, same.map(row)),
        )
      : null,
  );
}
