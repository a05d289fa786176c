/** The calls of a program, and of the one that is chosen its loops and its source. */
class KernelBrowser {
  constructor(kernels, light) {
    this.data = kernels;
    this.light = light;
    this.total = kernels.calls.reduce((sum, c) => sum + (c.seconds || 0), 0);
    this.isTimed = this.total > 0;
    this.order = this.isTimed ? "seconds" : "index";
    this.body = h("tbody", {});
    oneStop(this.body, "button");
    this.find = h("input", {
      type: "search",
      placeholder: "Find a kernel or node",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": "Find a kernel or a node",
    });
    this.find.addEventListener("input", () => this.fill());
    this.detail = h(
      "div",
      { class: "code", id: "kernel", "aria-live": "polite" },
      h("p", { class: "note" }, "Choose a call to see its loops and its source."),
    );
    this.names = [
      ["index", "#"],
      ["label", "computes"],
      ...(this.isTimed
        ? [
            ["seconds", "time"],
            ["share", "share"],
            ["flops", "GFLOP/s"],
            ["bytes", "GB/s"],
            ["least", "of limit"],
          ]
        : []),
    ];
    this.head = h("tr", {});
    const sources = new Set(kernels.calls.map((c) => c.source)).size;
    this.element = section(
      "kernels",
      "Kernels",
      `${COUNT.format(kernels.calls.length)} calls of ${COUNT.format(sources)} kernels; equal ones are compiled once.`,
      h("div", { class: "finder" }, this.find),
      h(
        "div",
        { class: "kernels" },
        h(
          "div",
          { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Calls of kernels" },
          h(
            "table",
            { class: "choosable" },
            h("caption", { class: "unseen" }, "Calls of kernels"),
            h("thead", {}, this.head),
            this.body,
          ),
        ),
        this.detail,
      ),
      kernels.steps.length
        ? table(
            "What Python does in a run",
            ["what Python does between kernels", ["time", "number"]],
            kernels.steps.map(([name, s]) => [name, seconds(s)]),
          )
        : null,
    );
    this.fill();
  }

  of(call, k, name) {
    if (name === "index") return k;
    if (name === "label") return call.label;
    if (name === "share") return call.seconds || 0;
    if (name === "flops" || name === "bytes") return call.seconds ? call[name] / call.seconds : 0;
    if (name === "least") return this.least(call);
    return call[name] || 0;
  }

  /** The part of its time that the machine would have needed at the least. */
  least(call) {
    const { limits } = this.data;
    if (!limits || !call.seconds) return 0;
    const moved = call.bytes / call.runs;
    const bandwidth = moved <= limits.near ? limits.near_bytes : limits.bytes;
    return Math.min(Math.max(call.flops / limits.flops, call.bytes / bandwidth) / call.seconds, 1);
  }

  fill() {
    const words = this.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.head.replaceChildren(
      ...this.names.map(([name, title]) =>
        h(
          "th",
          {
            scope: "col",
            class: name === "label" ? "" : "number",
            "aria-sort":
              this.order === name ? (name === "index" || name === "label" ? "ascending" : "descending") : null,
          },
          h(
            "button",
            {
              type: "button",
              class: "sort",
              onclick: () => {
                this.order = name;
                this.fill();
                this.head.querySelector("[aria-sort] button").focus();
              },
            },
            title,
          ),
        ),
      ),
    );
    const rows = this.data.calls
      .map((call, k) => [call, k])
      .filter(([c]) => words.every((w) => `${c.label} ${c.nodes.join(" ")}`.toLowerCase().includes(w)));
    const rising = this.order === "index" || this.order === "label";
    rows.sort((a, b) => {
      const [x, y] = [this.of(...a, this.order), this.of(...b, this.order)];
      const way = typeof x === "string" ? x.localeCompare(y) : x - y;
      return (rising ? way : -way) || a[1] - b[1];
    });
    this.body.replaceChildren(...rows.map(([c, k], n) => this.row(c, k, n)));
  }

  /** The row of a call, which stands at place `n`. */
  row(c, k, n) {
    const cells = {
      index: String(k),
      label: h(
        "button",
        { type: "button", class: "link name", tabindex: n ? "-1" : "0", onclick: () => this.choose(k) },
        breakable(opName(c.label)),
        h("small", {}, breakable(c.nodes[0] || ""), c.nodes.length > 1 ? ` +${c.nodes.length - 1}` : ""),
      ),
      seconds: c.seconds === null ? "" : seconds(c.seconds),
      share: c.seconds === null ? "" : `${short((100 * c.seconds) / this.total)} %`,
      flops: c.seconds && c.flops ? short(c.flops / c.seconds / 1e9) : "",
      bytes: c.seconds ? short(c.bytes / c.seconds / 1e9) : "",
      least: c.seconds && this.data.limits ? `${Math.round(100 * this.least(c))} %` : "",
    };
    return h(
      "tr",
      { "data-call": k, "aria-selected": String(k === this.chosen) },
      this.names.map(([name]) =>
        h(
          name === "label" ? "th" : "td",
          { scope: name === "label" ? "row" : null, class: name === "label" ? "" : "number" },
          cells[name],
        ),
      ),
    );
  }

  choose(k) {
    const call = this.data.calls[k];
    this.chosen = k;
    for (const row of this.body.children) row.setAttribute("aria-selected", String(row.dataset.call === String(k)));
    const kinds = [
      ["Loops", call.plain, "before they are scheduled"],
      ["Scheduled", call.loops, "as they run"],
      ["Source", call.source, "that numba compiles"],
    ].filter(([, text]) => text !== null);
    const code = h("pre", { tabindex: "0", role: "tabpanel", id: "code" });
    const tabs = kinds.map(([name, text, note], n) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          "aria-controls": "code",
          "data-tip": note,
          tabindex: n ? "-1" : "0",
          onclick: (event) => {
            for (const tab of tabs) {
              tab.setAttribute("aria-selected", String(tab === event.currentTarget));
              tab.tabIndex = tab === event.currentTarget ? 0 : -1;
            }
            code.replaceChildren(...coloured(this.data.texts[text]));
            code.setAttribute("aria-label", `${name}, ${note}`);
          },
        },
        name,
      ),
    );
    const list = h(
      "div",
      {
        role: "tablist",
        class: "segments",
        "aria-label": "Kernel view",
        onkeydown: (event) => {
          const far = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (!far) return;
          const next = tabs[(tabs.indexOf(document.activeElement) + far + tabs.length) % tabs.length];
          next.focus();
          next.click();
        },
      },
      tabs,
    );
    this.detail.replaceChildren(
      h("h3", {}, opName(call.label), call.seconds ? h("span", { class: "chip" }, seconds(call.seconds)) : null),
      h("p", { class: "note nodes" }, call.nodes.join(", ")),
      h(
        "div",
        { class: "bar-of-tools" },
        list,
        call.boxes.length
          ? h("button", { type: "button", class: "link", onclick: () => this.light(call.boxes) }, "Show in the graph")
          : null,
      ),
      code,
    );
    tabs[0].click();
  }
}
