/** A module's name with those around it. */
function modulePath(scopes, number) {
  const { name, within } = scopes[number];
  return within === null ? name : `${modulePath(scopes, within)} / ${name}`;
}

/** The modules of one side of a picture, with the time and the nodes of each and of all within it. */
function moduleTimes(drawing) {
  const scopes = drawing?.scopes || [];
  const times = scopes.map((s) => ({ name: s.name, within: s.within, seconds: 0, boxes: [], inner: [] }));
  times.forEach((t) => {
    if (t.within !== null) times[t.within].inner.push(t);
  });
  times.forEach((t, k) => {
    t.path = modulePath(scopes, k);
  });
  (drawing?.boxes || []).forEach((box, k) => {
    for (let t = times[box.scope]; t; t = times[t.within]) {
      t.seconds += box.seconds || 0;
      t.boxes.push(k);
    }
  });
  return times;
}

/** Where the time goes by the modules of the framework that nodes come from, before and after; null without modules. */
function modulesSection(explorer) {
  const { pictures } = explorer.data;
  const sides = ["before", "after"].map((side) => moduleTimes(pictures[0]?.[side]));
  if (!sides.some((times) => times.length)) return null;
  const [before, after] = sides.map((times) => new Map(times.map((t) => [t.path, t])));
  const total = Math.max(...sides.map((times) => times.filter((t) => t.within === null).reduce((s, t) => s + t.seconds, 0)));
  const nothing = { seconds: 0, boxes: [], inner: [] };
  const show = (path) => () => {
    if (explorer.picture !== 0) explorer.show(0);
    explorer.clear();
    explorer.panes.before.light((before.get(path) || nothing).boxes);
    explorer.panes.after.light((after.get(path) || nothing).boxes);
    document.getElementById("graph").scrollIntoView();
  };
  const item = (path, depth) => {
    const [was, is] = [before.get(path) || nothing, after.get(path) || nothing];
    const inner = [...new Set([...was.inner, ...is.inner].map((t) => t.path))];
    const share = total ? Math.max(was.seconds, is.seconds) / total : 0;
    const counts = [was, is].map((t) => COUNT.format(t.boxes.length)).join(" → ");
    const row = [
      h("span", { class: "name" }, path.slice(path.lastIndexOf(" / ") < 0 ? 0 : path.lastIndexOf(" / ") + 3)),
      h("span", { class: "note" }, `${counts} nodes`),
      h("span", { class: "times" }, `${seconds(was.seconds)} → ${seconds(is.seconds)}`),
      svg(
        "svg",
        { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { class: "track", x: 0, y: 0, width: 100, height: 10 }),
        svg("rect", { class: "was", x: 0, y: 0, width: total ? (100 * was.seconds) / total : 0, height: 4 }),
        svg("rect", { class: "is", x: 0, y: 5, width: total ? (100 * is.seconds) / total : 0, height: 5 }),
      ),
      h("button", { type: "button", class: "quiet", "aria-label": `Show ${path} in the graph`, onclick: show(path) }, "Show"),
    ];
    if (!inner.length) return h("div", { class: "module" }, h("div", { class: "row" }, row));
    return h(
      "details",
      { class: "module", open: depth < 2 && share > 0.02 },
      h("summary", { class: "row" }, row),
      h("div", { class: "inner" }, inner.map((p) => item(p, depth + 1))),
    );
  };
  const roots = [...new Set(sides.flat().filter((t) => t.within === null).map((t) => t.path))];
  return section(
    "modules",
    "Modules",
    "Where the time goes: the modules that nodes come from, before and after, each node as modelled by itself.",
    h("div", { class: "modules" }, roots.map((path) => item(path, 0))),
  );
}
