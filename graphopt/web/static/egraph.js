const PER_PAGE = 50;

/** The e-graph: classes of equal terms, the members of the chosen one, and what another choice would change. */
class EGraphBrowser {
  constructor(graphs) {
    this.graphs = graphs;
    this.number = 0;
    this.page = 0;
    this.search = h("input", {
      type: "search",
      placeholder: "Find a class, op or rule",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": "Find a class",
      "aria-controls": "classes",
      oninput: () => this.fill(),
    });
    this.order = h(
      "select",
      { "aria-label": "Order of the classes", onchange: () => this.fill() },
      [
        ["number", "as in the graph"],
        ["members", "most members first"],
        ["close", "closest choices first"],
      ].map(([value, text]) => h("option", { value }, text)),
    );
    this.status = h("p", { class: "note", role: "status" });
    this.list = h("div", { class: "list", id: "classes", role: "group", "aria-label": "Classes of equal terms" });
    oneStop(this.list, ".option");
    this.pager = pager((far) => this.turn(far));
    this.detail = h("div", { class: "detail", tabindex: "-1", role: "region", "aria-label": "The class" });
    this.scope =
      graphs.length > 1
        ? h(
            "label",
            { class: "choice" },
            "E-graph: ",
            h(
              "select",
              { onchange: (event) => this.show(Number(event.target.value)) },
              graphs.map((g, k) => h("option", { value: k }, `${k + 1}: ${COUNT.format(g.nodes)} e-nodes`)),
            ),
          )
        : null;
    this.summary = h("p", { class: "note" });
    this.element = section(
      "egraph",
      "Equal terms",
      "Terms of one class compute the same value. Of each class that is needed one member is chosen, so that the model costs least. Prices are modelled.",
      h("div", { class: "bar-of-tools" }, this.scope, this.summary),
      h(
        "div",
        { class: "egraph" },
        h(
          "div",
          { class: "side" },
          h("div", { class: "finder" }, this.search, this.order),
          this.status,
          this.list,
          this.pager.element,
        ),
        this.detail,
      ),
    );
    this.show(0);
  }

  get graph() {
    return this.graphs[this.number];
  }

  show(number) {
    this.number = number;
    const g = this.graph;
    const told = g.classes.length < g.choices ? `, of which ${COUNT.format(g.classes.length)} are told` : "";
    this.summary.textContent = `${COUNT.format(g.nodes)} e-nodes in ${COUNT.format(g.total)} classes, ${COUNT.format(g.choices)} with a choice${told}. Chosen: ${seconds(g.seconds)}; as it was: ${seconds(g.original)}.`;
    this.at = new Map(g.classes.map((c, k) => [c.number, k]));
    this.fill();
    const first = g.classes.find((c) => c.chosen !== null) ?? g.classes[0];
    if (first) this.choose(first.number, false);
  }

  /** Where a class is that one of these values is of: the number of the e-graph, and that of the class. */
  find(names) {
    for (const [k, g] of this.graphs.entries()) {
      const found = g.classes.find((c) => names.includes(c.name));
      if (found) return [k, found.number];
    }
    return null;
  }

  open(number, wanted) {
    if (this.scope) this.scope.querySelector("select").value = String(number);
    this.show(number);
    this.go(wanted);
  }

  /** The classes that the words in the field are in. */
  fill() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.found = this.graph.classes.filter((c) => {
      const text = [c.name, c.type, ...c.members.flatMap((m) => [m.text, m.rule])].join(" ").toLowerCase();
      return words.every((w) => text.includes(w));
    });
    const margin = (c) => Math.min(...c.members.filter((m) => m.instead).map((m) => m.instead.seconds), Infinity);
    if (this.order.value === "members") this.found.sort((a, b) => b.members.length - a.members.length);
    if (this.order.value === "close") this.found.sort((a, b) => (margin(a) > margin(b)) - (margin(a) < margin(b)));
    this.page = 0;
    this.turn(0);
  }

  /** Another page of the list. */
  turn(far) {
    const last = Math.max(0, Math.ceil(this.found.length / PER_PAGE) - 1);
    this.page = Math.max(0, Math.min(last, this.page + far));
    const shown = this.found.slice(this.page * PER_PAGE, (this.page + 1) * PER_PAGE);
    this.status.textContent = `${COUNT.format(this.found.length)} ${this.found.length === 1 ? "class" : "classes"}${last ? `, page ${this.page + 1} of ${last + 1}` : ""}`;
    refill(
      this.list,
      shown.map((c, k) => this.option(c, k)),
    );
    if (!shown.length) this.list.append(h("p", { class: "note" }, "No match."));
    this.pager.at(this.page, last);
    this.mark();
  }

  option(c, k) {
    return h(
      "button",
      {
        type: "button",
        class: "option",
        tabindex: k ? "-1" : "0",
        "data-class": c.number,
        onclick: () => this.choose(c.number),
      },
      h("span", { class: "rule" }, c.name),
      h("span", { class: "gain" }, `${c.members.length + c.omitted}`),
      h("span", { class: "site" }, c.chosen === null ? "not needed" : c.members[c.chosen].text),
    );
  }

  mark() {
    for (const o of this.list.querySelectorAll(".option"))
      o.setAttribute("aria-pressed", String(Number(o.dataset.class) === this.current));
  }

  /** Shows a class, with its chosen member. */
  choose(number, isTold = true) {
    this.current = number;
    const c = this.graph.classes[this.at.get(number)];
    this.mark();
    this.what = h("div", { class: "what-if", "aria-live": "polite" });
    refill(
      this.detail,
      h("h3", {}, breakable(c.name), c.type ? h("span", { class: "chip" }, c.type) : null),
      h("p", {}, c.chosen === null ? "Nothing that was chosen needs this class." : `Why: ${c.why}.`),
      h("div", { class: "choosable" }, table("Members of the class", HEADS, c.members.map((m, k) => this.row(c, m, k)), true)),
      c.omitted ? h("p", { class: "note" }, `${COUNT.format(c.omitted)} dearer members are left out.`) : null,
      this.what,
    );
    if (isTold) announce(`${c.name}: ${c.members.length} members`);
  }

  row(c, m, k) {
    const reads = m.reads
      .filter((n) => n !== null)
      .map((n) => {
        if (this.at.has(n)) return link(this.graph.classes[this.at.get(n)].name, () => this.go(n));
        return h("code", {}, this.graph.names[n] ?? `class ${n}`);
      });
    return [
      h("button", { type: "button", class: "link name", onclick: () => this.try(c, m, k) }, h("code", {}, m.text)),
      m.rule ? h("code", {}, m.rule) : "the model",
      h("span", { class: "links" }, reads),
      seconds(m.seconds),
      k === c.chosen ? h("span", { class: "chip after" }, "chosen") : m.instead ? change(m.instead.seconds) : "",
    ];
  }

  go(number) {
    this.choose(number);
    this.detail.focus();
  }

  /** What the model is with another member. */
  try(c, m, k) {
    const list = (title, kind, terms) =>
      terms.length
        ? [h("h4", {}, title), h("div", { class: "terms" }, terms.map((t) => h("code", { class: kind }, t)))]
        : null;
    if (k === c.chosen) refill(this.what, h("p", {}, "This is the chosen member."));
    else if (c.chosen === null) refill(this.what, h("p", {}, "Nothing reads this class, so that no member of it is computed."));
    else if (!m.instead)
      refill(this.what, h("p", {}, "It does not go with all else as it is: what it reads would read it, or it was not looked for."));
    else
      refill(
        this.what,
        h("h4", {}, "What if this were chosen?"),
        h(
          "p",
          {},
          `The model would take ${seconds(this.graph.seconds + m.instead.seconds)}, ${change(m.instead.seconds)}`,
          m.instead.bytes ? `, and store ${bytes(Math.abs(m.instead.bytes))} ${m.instead.bytes > 0 ? "more" : "less"}` : "",
          ".",
        ),
        list("Then gone", "was", m.instead.gone),
        list("Then there", "is", m.instead.added),
        m.instead.more ? h("p", { class: "note" }, `and ${COUNT.format(m.instead.more)} more`) : null,
      );
  }
}

const HEADS = ["member", "made by", "reads", ["by itself", "number"], ["the model", "number"]];

const change = (n) => (n === 0 ? "no more" : `${seconds(Math.abs(n))} ${n > 0 ? "more" : "less"}`);
