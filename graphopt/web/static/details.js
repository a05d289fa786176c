const SOUND = {
  exact: "bit for bit",
  finite: "exact for finite inputs",
  reals: "equal over the reals",
  approx: "approximate",
};

/** A button that looks like a link. */
const link = (text, act) => h("button", { type: "button", class: "link", onclick: act }, text);

/** What is told of a rewrite. */
function toldOfChange(explorer, c) {
  const rule = explorer.rules.get(c.rule);
  const gain =
    c.gain === null
      ? "not priced"
      : c.gain >= 0
        ? `${seconds(c.gain)} less`
        : `${seconds(-c.gain)} more, which others gain from`;
  const needs = c.needs.map((id) => explorer.data.changes.findIndex((o) => o.id === id)).filter((k) => k >= 0);
  return [
    h(
      "h3",
      {},
      c.rule,
      h("span", { class: "chip" }, `#${c.id}`),
      rule?.soundness ? h("span", { class: "chip", "data-tip": SOUND[rule.soundness] }, rule.soundness) : null,
    ),
    rule?.reason ? h("p", { class: "reason" }, rule.reason) : null,
    h(
      "dl",
      { class: "told" },
      h("dt", {}, "Where"),
      h("dd", {}, h("code", {}, c.site || "the graph")),
      rule?.family ? [h("dt", {}, "Family"), h("dd", {}, rule.family)] : null,
      h("dt", {}, "Gain, modelled"),
      h("dd", {}, gain),
      c.taken.length ? [h("dt", {}, "Ops"), h("dd", {}, `${c.taken.length} → ${c.made.length}`)] : null,
    ),
    h(
      "div",
      { class: "terms" },
      c.before ? h("code", { class: "was" }, c.before) : null,
      c.after ? h("code", { class: "is" }, c.after) : null,
    ),
    c.taken.length + c.made.length + c.around.length
      ? null
      : h("p", { class: "note" }, "It changed only what is not drawn: constants or functions."),
    rule?.text ? h("details", {}, h("summary", {}, "The rule"), h("pre", {}, coloured(rule.text, "rules"))) : null,
    needs.length
      ? h(
          "p",
          { class: "links" },
          "Depends on ",
          needs
            .slice(0, 12)
            .map((k) =>
              link(`#${explorer.data.changes[k].id} ${explorer.data.changes[k].rule}`, () => explorer.choose(k)),
            ),
          needs.length > 12 ? ` and ${needs.length - 12} more` : null,
        )
      : null,
  ];
}

/** What is told of a node: what it is, reads and makes, and which rewrites it is part of. */
function toldOfNode(explorer, side, box, k) {
  const pane = explorer.panes[side];
  const go = (n) => {
    pane.choose(n);
    pane.go(n);
  };
  const value = (v) =>
    v === null
      ? h("li", { class: "note" }, "left out")
      : h(
          "li",
          {},
          v.box !== null && v.box !== undefined && v.box !== k ? link(v.name, () => go(v.box)) : h("code", {}, v.name),
          h("span", { class: "type" }, v.type),
        );
  const acted = explorer.data.changes
    .map((c, n) => [c, n])
    .filter(([c]) => c.picture === explorer.picture && (side === "before" ? c.taken : c.made).includes(k))
    .slice(0, 20);
  const readers = pane.readers[k].slice(0, 20);
  const toClass = explorer.toClass?.(box.makes.map((m) => m.name));
  return [
    h(
      "h3",
      {},
      box.op,
      MEANINGS[side][pane.marks[k]]
        ? h("span", { class: `chip ${pane.marks[k] === "other" ? side : pane.marks[k]}` }, MEANINGS[side][pane.marks[k]])
        : null,
    ),
    h("p", {}, h("code", {}, box.name)),
    box.attrs ? h("p", { class: "attrs" }, h("code", {}, box.attrs)) : null,
    box.scope === null ? null : h("p", { class: "note" }, `In ${modulePath(pane.drawing.scopes, box.scope)}`),
    box.seconds === null ? null : h("p", { class: "note" }, `${seconds(box.seconds)} by itself, as modelled`),
    box.reads.length ? [h("h4", {}, "Reads"), h("ul", {}, box.reads.map(value))] : null,
    h("h4", {}, "Makes"),
    h("ul", {}, box.makes.map(value)),
    toClass ? h("p", {}, link("Equal terms, and why one was chosen", toClass)) : null,
    readers.length
      ? [
          h("h4", {}, "Read by"),
          h(
            "p",
            { class: "links" },
            readers.map((n) => link(`${opName(pane.drawing.boxes[n].op)} ${pane.drawing.boxes[n].name}`, () => go(n))),
          ),
        ]
      : null,
    acted.length
      ? [
          h("h4", {}, side === "before" ? "Rewritten by" : "Made by"),
          h(
            "p",
            { class: "links" },
            acted.map(([c, n]) => link(`#${c.id} ${c.rule}`, () => explorer.choose(n))),
          ),
        ]
      : null,
  ];
}
