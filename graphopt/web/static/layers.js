const ROWS = 100;

/** Whether a value is further apart than the tolerance; an error that is no finite number is null. */
const diverges = (layer) => layer.error === null || layer.error > 1;

/** The values inside two models, in the order in which they are computed: which diverge, and from where on. */
function layersSection(compared) {
  const all = compared.layers;
  const diverging = all.filter(diverges).length;
  const start = all.findIndex(diverges);
  let page = start < 0 ? 0 : Math.floor(start / ROWS);
  const search = h("input", {
    type: "search",
    placeholder: "Find a value or an op",
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": "Find a value",
    oninput: () => fill(true),
  });
  const only = h("input", { type: "checkbox", onchange: () => fill(true) });
  const status = h("p", { class: "note", role: "status" });
  const place = h("div");
  const { element: pages, at } = pager((far) => {
    page += far;
    fill(false);
  });
  const number = (n) => (n === null ? "∞" : short(n));

  function fill(isNew) {
    if (isNew) page = 0;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all
      .map((l, k) => [l, k])
      .filter(
        ([l]) =>
          (!only.checked || diverges(l)) &&
          words.every((w) => `${l.name} ${l.other} ${l.ops.join(" ")}`.toLowerCase().includes(w)),
      );
    const last = Math.max(0, Math.ceil(found.length / ROWS) - 1);
    page = Math.max(0, Math.min(last, page));
    status.textContent = `${COUNT.format(found.length)} value${found.length === 1 ? "" : "s"}${last ? `, page ${page + 1} of ${last + 1}` : ""}`;
    at(page, last);
    const rows = found
      .slice(page * ROWS, (page + 1) * ROWS)
      .map(([l, k]) => [
        h("code", {}, l.name),
        l.other === l.name ? "" : h("code", {}, l.other),
        l.ops[0] === l.ops[1] ? l.ops[0] : l.ops.join(" → "),
        l.by,
        h("span", { class: diverges(l) ? "more" : null }, number(l.error)),
        number(l.absolute),
        number(l.relative),
        k === start ? h("span", { class: "chip before" }, "first") : diverges(l) ? "diverges" : "",
      ]);
    const heads = ["value", "in B", "op", "paired by", ["of tolerance", "number"], ["absolute", "number"], ["relative", "number"], ""];
    refill(place, table("Values inside both models", heads, rows, true));
  }

  const first = all[start];
  const what = first
    ? `${COUNT.format(diverging)} of ${COUNT.format(all.length)} values diverge, the first is ${first.name} (${first.ops[1]}).`
    : `None of ${COUNT.format(all.length)} values diverges.`;
  const alone = `${COUNT.format(compared.unpaired[0])} values of A and ${COUNT.format(compared.unpaired[1])} of B have no partner.`;
  fill(false);
  return section(
    "layers",
    "Values inside",
    `${what} ${alone}`,
    h("div", { class: "bar-of-tools" }, search, h("label", { class: "choice" }, only, " only what diverges"), status),
    place,
    pages,
  );
}
