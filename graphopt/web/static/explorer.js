/** Both graphs, the rewrites beside them, and what is told of what is chosen. */
class Explorer {
  constructor(rewriting) {
    this.data = rewriting;
    this.rules = new Map(rewriting.rules.map((r) => [r.name, r]));
    this.picture = 0;
    this.chosen = -1;
    this.panes = { before: new Pane("before", "Before"), after: new Pane("after", "After") };
    for (const [side, pane] of Object.entries(this.panes)) pane.onchoose = (k) => this.chooseNode(side, k);
    this.detail = h(
      "div",
      { class: "detail", id: "detail", tabindex: "-1", "aria-label": "What is chosen", role: "region" },
      this.hint(),
    );
    this.list = h("div", { class: "list", role: "listbox", id: "rewrites", tabindex: "0", "aria-label": "Rewrites" });
    this.search = h("input", {
      type: "search",
      id: "find",
      placeholder: "Find a rule, op or name",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": "Find a rewrite or a node",
      "aria-controls": "rewrites",
    });
    this.sort = h(
      "select",
      { "aria-label": "Order of the rewrites" },
      [
        ["gain", "by gain"],
        ["id", "in order"],
        ["rule", "by rule"],
      ].map(([v, t]) => h("option", { value: v }, t)),
    );
    this.count = h("p", { class: "note", role: "status" });
    this.search.addEventListener("input", () => this.fill());
    this.sort.addEventListener("change", () => this.fill());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        event.preventDefault();
        this.list.focus();
        if (this.at < 0) this.step(1);
      }
      if (event.key === "Escape" && this.search.value) {
        event.stopPropagation();
        this.search.value = "";
        this.fill();
      }
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    const pictures = rewriting.pictures;
    const scope =
      pictures.length > 1
        ? h(
            "label",
            { class: "choice" },
            "Graph: ",
            (this.scope = h(
              "select",
              { onchange: () => this.show(Number(this.scope.value)) },
              pictures.map((p, k) => h("option", { value: k }, p.name)),
            )),
          )
        : null;
    this.sides = h(
      "div",
      { class: "segments sides", role: "group", "aria-label": "Which side is shown" },
      ["before", "after"].map((side) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(side === "before"),
            "data-side": side,
            onclick: () => this.turn(side),
          },
          side === "before" ? "Before" : "After",
        ),
      ),
    );
    this.isHot = false;
    const isPriced = pictures.some((p) => [p.before, p.after].some((d) => d?.boxes.some((b) => b.seconds)));
    this.kinds = h(
      "div",
      { class: "segments", role: "group", "aria-label": "What colours say" },
      ["changes", "time"].map((kind) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(kind === "changes"),
            "data-kind": kind,
            onclick: () => this.colour(kind),
          },
          kind === "changes" ? "Changes" : "Time",
        ),
      ),
    );
    const legend = (this.legend = h(
      "p",
      { class: "legend" },
      h("span", { class: "key heat" }, "the warmer, the more modelled time a node takes by itself"),
      h("span", { class: "key before" }, "rewritten"),
      h("span", { class: "key after" }, "made by rewrites"),
      h("span", { class: "key changed" }, "other inputs or attributes"),
      h("span", { class: "key lit" }, "chosen"),
    ));
    this.stage = h(
      "div",
      { class: "stage", "data-side": "before" },
      this.panes.before.element,
      this.panes.after.element,
    );
    this.element = section(
      "graph",
      "The graph",
      null,
      h("div", { class: "bar-of-tools" }, this.sides, isPriced ? this.kinds : null, scope, legend),
      h(
        "div",
        { class: "explorer" },
        h("div", { class: "side" }, h("div", { class: "finder" }, this.search, this.sort), this.count, this.list),
        this.stage,
        this.detail,
      ),
    );
    if (pictures.length) this.show(0);
    this.fill();
  }

  hint() {
    return h(
      "p",
      { class: "note" },
      "Choose a rewrite to highlight its nodes on both sides, or a node to see its inputs and outputs.",
    );
  }

  turn(side) {
    this.stage.dataset.side = side;
    for (const b of this.sides.children) b.setAttribute("aria-pressed", String(b.dataset.side === side));
  }

  /** Colours nodes by what became of them, or by the share of the time that they take. */
  colour(kind) {
    this.isHot = kind === "time";
    for (const b of this.kinds.children) b.setAttribute("aria-pressed", String(b.dataset.kind === kind));
    this.legend.classList.toggle("hot", this.isHot);
    const boxes = Object.values(this.panes).flatMap((pane) => pane.drawing?.boxes || []);
    const hottest = this.isHot ? boxes.reduce((most, b) => Math.max(most, b.seconds || 0), 0) : null;
    for (const pane of Object.values(this.panes)) {
      pane.hottest = hottest;
      pane.canvas.dataset.colours = kind;
      pane.view.draw();
    }
  }

  show(number) {
    this.picture = number;
    const p = this.data.pictures[number];
    this.panes.before.show(p.before, p.marks_before);
    this.panes.after.show(p.after, p.marks_after);
    this.twins = new Map((p.after?.boxes || []).map((b, k) => [b.id, k]));
    this.twinsBefore = new Map((p.before?.boxes || []).map((b, k) => [b.id, k]));
    if (this.scope) this.scope.value = String(number);
    this.colour(this.isHot ? "time" : "changes");
  }

  /** The rewrites that the words in the field are in, and the nodes. */
  fill() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (...texts) => {
      const all = texts.join(" ").toLowerCase();
      return words.every((w) => all.includes(w));
    };
    let found = this.data.changes
      .map((c, k) => [c, k])
      .filter(
        ([c]) =>
          !words.length || fits(c.rule, c.site, c.before, c.after, `#${c.id}`, this.rules.get(c.rule)?.family || ""),
      );
    if (this.sort.value === "gain")
      found.sort((a, b) => (b[0].gain ?? -Infinity) - (a[0].gain ?? -Infinity) || a[1] - b[1]);
    if (this.sort.value === "rule") found.sort((a, b) => a[0].rule.localeCompare(b[0].rule) || a[1] - b[1]);
    this.options = found.map(([c, k]) => this.option(c, k));
    const nodes = [];
    if (words.length && this.data.pictures.length)
      for (const side of ["before", "after"]) {
        this.panes[side].drawing.boxes.forEach((box, k) => {
          if (nodes.length < 60 && fits(box.op, box.name, ...box.makes.map((m) => m.name)))
            nodes.push(this.nodeOption(side, box, k));
        });
      }
    this.options.push(...nodes);
    this.options.forEach((o, k) => {
      o.id = `option-${k}`;
    });
    const rewrites = found.length;
    this.count.textContent = `${COUNT.format(rewrites)} rewrite${rewrites === 1 ? "" : "s"}${words.length ? `, ${nodes.length}${nodes.length === 60 ? " or more" : ""} node${nodes.length === 1 ? "" : "s"}` : ""}`;
    this.list.replaceChildren(
      ...this.options.slice(0, rewrites),
      ...(nodes.length ? [h("p", { class: "list-head", role: "presentation" }, "Nodes"), ...nodes] : []),
    );
    if (!this.options.length) this.list.append(h("p", { class: "note" }, "No match."));
    this.at = this.options.findIndex((o) => o.dataset.change === String(this.chosen));
    this.mark();
  }

  option(c, k) {
    const gain =
      c.gain === null || Math.abs(c.gain) < 1e-12 ? "" : `${c.gain > 0 ? "−" : "+"}${seconds(Math.abs(c.gain))}`;
    return h(
      "div",
      { role: "option", class: "option", "aria-selected": "false", "data-change": k, onclick: () => this.choose(k) },
      h("span", { class: "rule" }, c.rule),
      h("span", { class: "gain" }, gain),
      h("span", { class: "site" }, c.site || "the graph"),
    );
  }

  nodeOption(side, box, k) {
    return h(
      "div",
      {
        role: "option",
        class: "option node",
        "aria-selected": "false",
        onclick: () => {
          this.turn(side);
          this.panes[side].choose(k);
          this.panes[side].go(k);
        },
      },
      h("span", { class: "rule" }, opName(box.op)),
      h("span", { class: "gain" }, side),
      h("span", { class: "site" }, box.name),
    );
  }

  key(event) {
    const far = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 }[event.key];
    if (far) {
      event.preventDefault();
      this.step(far);
    }
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.options[this.at]?.click();
    }
  }

  /** Goes to another rewrite of the list, and chooses it. */
  step(far) {
    if (!this.options.length) return;
    this.at = Math.max(0, Math.min(this.options.length - 1, (this.at < 0 ? (far > 0 ? -1 : 0) : this.at) + far));
    this.options[this.at].click();
  }

  mark() {
    this.options.forEach((o, k) => o.setAttribute("aria-selected", String(k === this.at)));
    if (this.at >= 0) {
      this.list.setAttribute("aria-activedescendant", `option-${this.at}`);
      const [row, list] = [this.options[this.at], this.list];
      if (row.offsetTop < list.scrollTop) list.scrollTop = row.offsetTop - 4;
      else if (row.offsetTop + row.offsetHeight > list.scrollTop + list.clientHeight)
        list.scrollTop = row.offsetTop + row.offsetHeight - list.clientHeight + 4;
    } else this.list.removeAttribute("aria-activedescendant");
  }

  choose(k) {
    const c = this.data.changes[k];
    this.chosen = k;
    this.at = this.options.findIndex((o) => o.dataset.change === String(k));
    this.mark();
    if (c.picture !== null) {
      if (c.picture !== this.picture) this.show(c.picture);
      this.panes.before.light(c.taken);
      this.panes.after.light(c.made, c.around);
    } else this.clear(true);
    refill(this.detail, toldOfChange(this, c));
    announce(`Rewrite ${c.id}, ${c.rule}: ${c.taken.length} nodes before, ${c.made.length} after.`);
  }

  chooseNode(side, k) {
    const other = side === "before" ? "after" : "before";
    this.panes[other].choose(-1, true);
    if (k < 0) {
      this.clear();
      return;
    }
    for (const pane of Object.values(this.panes)) {
      pane.lit = new Set();
      pane.near = new Set();
    }
    this.chosen = -1;
    this.at = -1;
    this.mark();
    const box = this.panes[side].drawing.boxes[k];
    const twin = (side === "before" ? this.twins : this.twinsBefore).get(box.id);
    if (twin !== undefined) {
      this.panes[other].choose(twin, true);
      this.panes[other].go(twin);
    }
    this.panes[other].view.draw();
    refill(this.detail, toldOfNode(this, side, box, k));
    announce(`${box.op} ${box.name}, ${MEANINGS[side][this.panes[side].marks[k]]}`);
  }

  clear(isKept = false) {
    for (const pane of Object.values(this.panes)) {
      pane.lit = new Set();
      pane.near = new Set();
      pane.choose(-1, true);
      pane.canvas.dataset.lit = 0;
    }
    if (isKept) return;
    this.chosen = -1;
    this.at = -1;
    this.mark();
    this.detail.replaceChildren(this.hint());
  }
}
