/** What became of each rule. */
function rulesSection(rewriting) {
  const used = rewriting.rules.filter((r) => r.use);
  if (!used.length) return null;
  const body = used.map((r) => [
    h(
      "details",
      { class: "rule-row" },
      h("summary", {}, h("code", {}, r.name)),
      r.reason ? h("p", {}, r.reason) : null,
      r.text ? h("pre", {}, r.text) : null,
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
    COUNT.format(r.use.tried),
    COUNT.format(r.use.fired),
    COUNT.format(r.use.kept),
    COUNT.format(r.use.refused),
    seconds(r.use.seconds),
  ]);
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
    table("Use of each rule", heads, body),
  );
}
