/** Rules that somebody wrote for this run, and what they did. */
function writtenSection(written, rewriting, explorer, ask) {
  const rows = written.fired.map((f) => {
    const first = rewriting.changes.findIndex((c) => c.rule === f.rule);
    const [head, kind] = f.kept
      ? [`acts at ${f.kept} place${f.kept > 1 ? "s" : ""} of the result`, "after"]
      : f.fired
        ? [`fires ${f.fired} time${f.fired > 1 ? "s" : ""}, but is not in the result`, "changed"]
        : ["fires nowhere", ""];
    const show = () => {
      explorer.choose(first);
      document.getElementById("graph")?.scrollIntoView();
    };
    const why = h("div", {});
    if (f.misses) refill(why, missesList(f.misses));
    else if (ask && !f.misses)
      why.append(link("Why nowhere else?", async () => {
        refill(why, h("p", { class: "note" }, "asking…"));
        const found = await ask(f.rule);
        refill(why, found.error ? h("p", { class: "note" }, found.error) : missesList(found.misses));
      }));
    return h(
      "div",
      { class: "fired", "data-rule": f.rule },
      h(
        "p",
        {},
        h("code", {}, f.rule),
        " ",
        h("span", { class: `chip ${kind}` }, head),
        first >= 0 && explorer ? link("Show", show) : null,
      ),
      why,
    );
  });
  return section(
    "written",
    "What these rules did",
    rows.length ? null : "No rules were written: the standard ones ran.",
    rows,
    h(
      "details",
      { open: !ask && rows.length > 0 },
      h("summary", {}, "The rules, and the command that runs them"),
      rows.length ? h("pre", {}, coloured(written.text, written.language)) : null,
      h("pre", { class: "command" }, written.command),
    ),
  );
}

function missesList(misses) {
  if (!misses.length) return h("p", { class: "note" }, "Nothing in the model is near its left side.");
  return h(
    "ul",
    {},
    misses.map(([why, n, sites]) =>
      h(
        "li",
        {},
        `not at ${n ? `${COUNT.format(n)} place${n > 1 ? "s" : ""}` : "all"}: ${why}`,
        h("small", {}, ` ${sites.join(", ")}${n > sites.length ? ", …" : ""}`),
      ),
    ),
  );
}

/** What became of each rule. */
function rulesSection(rewriting) {
  const used = rewriting.rules.filter((r) => r.use);
  if (!used.length) return null;
  const acted = used.filter((r) => r.use.fired);
  const idle = used.filter((r) => !r.use.fired);
  const row = (r) => [
    h(
      "details",
      { class: "rule-row" },
      h("summary", {}, h("code", {}, r.name)),
      r.reason ? h("p", {}, r.reason) : null,
      r.text ? h("pre", {}, coloured(r.text, "rules")) : null,
      r.use.reasons.length
        ? [
            h("p", {}, "Where it did not apply:"),
            h(
              "ul",
              {},
              r.use.reasons.map(([why, n]) => h("li", {}, `${why} (${COUNT.format(n)})`)),
            ),
          ]
        : null,
    ),
    r.family,
    r.use.stage,
    r.use.stage === "native" ? "" : COUNT.format(r.use.tried), // which are not counted
    COUNT.format(r.use.fired),
    COUNT.format(r.use.kept),
    COUNT.format(r.use.refused),
    r.use.seconds ? seconds(r.use.seconds) : "",
  ];
  const heads = [
    "rule",
    "family",
    "stage",
    ["tried", "number"],
    ["fired", "number"],
    ["kept", "number"],
    ["refused", "number"],
    ["time", "number"],
  ];
  return section(
    "rules",
    "Rules",
    "tried: places that the left side matches; fired: its guards held there, and the term was new; kept: it is part of the result.",
    table("Use of each rule", heads, acted.map(row), true),
    idle.length
      ? h(
          "details",
          { class: "idle" },
          h("summary", {}, `${COUNT.format(idle.length)} rule${idle.length > 1 ? "s" : ""} tried that fired nowhere`),
          table("Rules that fired nowhere", heads, idle.map(row), true),
        )
      : null,
  );
}
