const EXAMPLE = `# two of the same in a row are one                                            [A22] exact
my-relu-relu: Relu(Relu(x))  =>  Relu(x)

# x * relu6(x + 3) / 6 is one op                                                [H8] reals
my-hard-swish: Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)  =>  HardSwish(x)
    where x.dtype in float
`;

/** What the server says, or its complaint. */
async function ask(path, options) {
  try {
    const answer = await fetch(path, { credentials: "omit", ...options });
    const found = await answer.json().catch(() => ({ error: answer.statusText || `status ${answer.status}` }));
    return answer.ok ? found : { error: found.error || `status ${answer.status}` };
  } catch (problem) {
    return { error: problem.name === "AbortError" ? "stopped" : "the server does not answer: is it still running?" };
  }
}

/** The page of the server: a model and rules above, what came of them below. */
class Workbench {
  constructor() {
    this.explorer = null;
    this.models = h("select", { id: "model" });
    this.target = h("select", {});
    this.policy = h("select", {});
    this.which = h(
      "select",
      {},
      h("option", { value: "all" }, "mine and the standard rules"),
      h("option", { value: "mine" }, "mine alone"),
    );
    this.sets = h("select", { id: "set", onchange: () => this.open(this.sets.value) });
    this.rules = h("textarea", {
      id: "editor",
      spellcheck: "false",
      autocapitalize: "off",
      rows: "12",
      wrap: "off",
      "aria-label": "Rules",
      "aria-describedby": "complaint",
    });
    this.lines = h("pre", { class: "lines", "aria-hidden": "true" });
    this.complaint = h("p", { id: "complaint", class: "complaint", role: "alert" });
    this.status = h("span", { class: "note", role: "status" });
    this.button = h("button", { type: "button", class: "primary", id: "run", onclick: () => this.toggle() }, "Run");
    this.file = h("input", {
      type: "file",
      accept: ".onnx",
      class: "unseen",
      id: "upload",
      onchange: () => this.upload(),
    });
    this.fired = h("div", {});
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.result = h("div", { class: "result" });
    this.nav = h("div", {});
    this.rules.addEventListener("input", () => {
      this.number();
      this.keep();
    });
    this.rules.addEventListener("scroll", () => {
      this.lines.scrollTop = this.rules.scrollTop;
    });
    this.main.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.run();
      }
    });
    this.main.append(this.editor(), this.result);
    const { text, opened } = kept();
    this.opened = opened ?? EXAMPLE; // as a file has it
    this.rules.value = text ?? EXAMPLE;
    this.number();
  }

  editor() {
    const choice = (name, control) => h("label", { class: "choice" }, `${name} `, control);
    return section(
      "workbench",
      "Rules on a model",
      "Rules are data: nothing in them runs as a program. Ctrl+Enter runs them.",
      h(
        "div",
        { class: "bar-of-tools" },
        choice("Model", this.models),
        h("label", { class: "file", for: "upload" }, "Upload…"),
        this.file,
        choice("Target", this.target),
        choice("Policy", this.policy),
        choice("Rules that run", this.which),
      ),
      h(
        "div",
        { class: "bar-of-tools" },
        choice("Rules from", this.sets),
        h("button", { type: "button", onclick: () => this.save() }, "Save a copy"),
        this.button,
        this.status,
      ),
      h("div", { class: "editor" }, this.lines, this.rules),
      this.complaint,
      this.fired,
    );
  }

  /** Asks for the models and files of rules that there are now. */
  async fill(model = this.models.value) {
    const found = await ask("/api/files");
    if (found.error) {
      this.complain(found);
      return;
    }
    this.limit = found.upload;
    offer(
      this.models,
      found.models.map((m) => [m.name, `${m.name} (${bytes(m.bytes)})`]),
      model,
    );
    offer(this.sets, [["", "the example"], ...found.rules.map((name) => [name, name])], this.sets.value || kept().set);
    if (!found.models.length) this.complain({ error: "this folder has no models: upload one" });
    if (this.target.options.length) return;
    offer(
      this.target,
      found.targets.map((t) => [t, t]),
    );
    offer(
      this.policy,
      found.policies.map((t) => [t, t]),
      "reals",
    );
  }

  keep() {
    const now = { text: this.rules.value, opened: this.opened, set: this.sets.value };
    try {
      localStorage.setItem(KEPT, JSON.stringify(now));
    } catch {
      /* it lasts as long as the page */
    }
  }

  /** Shows a file of rules of the folder. */
  async open(name) {
    const text = this.rules.value;
    if (text.trim() && text !== this.opened && !confirm("There are unsaved changes: discard them?")) {
      this.sets.value = kept().set ?? "";
      return;
    }
    const found = name ? await ask(`/api/rules?name=${encodeURIComponent(name)}`) : { rules: EXAMPLE };
    if (found.error) {
      this.complain(found);
      return;
    }
    this.rules.value = this.opened = found.rules;
    this.keep();
    this.complain({});
  }

  /** Hands the rules to the browser as a file. */
  save() {
    const place = URL.createObjectURL(new Blob([this.rules.value], { type: "text/plain" }));
    h("a", { href: place, download: this.sets.value.split("/").pop() || "my.rules" }).click();
    setTimeout(() => URL.revokeObjectURL(place), 1000);
    this.opened = this.rules.value;
    this.keep();
  }

  number(wrong = 0) {
    const count = this.rules.value.split("\n").length;
    refill(
      this.lines,
      Array.from({ length: count }, (_, k) => h("span", { class: k + 1 === wrong ? "wrong" : null }, `${k + 1}\n`)),
    );
    this.lines.scrollTop = this.rules.scrollTop;
  }

  complain({ error, line, column }) {
    this.complaint.textContent = line ? `line ${line}, column ${column}: ${error}` : error || "";
    this.number(line);
    if (!line) return;
    const at =
      this.rules.value
        .split("\n")
        .slice(0, line - 1)
        .join("\n").length +
      (line > 1 ? 1 : 0) +
      column -
      1;
    this.rules.focus();
    this.rules.setSelectionRange(at, at + 1);
  }

  toggle() {
    if (this.running) this.running.abort();
    else this.run();
  }

  async run() {
    if (this.running) return;
    this.running = new AbortController();
    this.button.textContent = "Stop";
    this.complain({});
    refill(this.fired);
    const start = performance.now();
    const passed = () => (performance.now() - start) / 1000;
    const timer = setInterval(() => {
      this.status.textContent = `running, ${Math.round(passed())} s`;
    }, 500);
    const body = JSON.stringify({
      name: this.models.value,
      rules: this.rules.value,
      with: this.which.value,
      target: this.target.value,
      policy: this.policy.value,
    });
    const headers = { "Content-Type": "application/json" };
    const found = await ask("/api/run", { method: "POST", headers, body, signal: this.running.signal });
    clearInterval(timer);
    this.running = null;
    this.button.textContent = "Run";
    this.status.textContent = found.error ? "" : seconds(passed());
    if (found.error) this.complain(found);
    else this.show(found);
  }

  show({ page, fired }) {
    refill(
      this.fired,
      fired.length
        ? [h("h3", {}, "What your rules did"), fired.map((f) => this.told(f, page))]
        : h("p", { class: "note" }, "No rules of your own: the standard ones ran."),
    );
    this.explorer = build(page, this.result);
    refill(this.nav, contents(this.result));
    document.documentElement.dataset.shown = page.title;
    announce(fired.map((f) => `${f.rule}: ${f.kept} kept`).join(", ") || "done");
  }

  told(f, page) {
    const first = page.rewriting.changes.findIndex((c) => c.rule === f.rule);
    const [head, kind] = f.kept
      ? [`acts at ${f.kept} place${f.kept > 1 ? "s" : ""} of the result`, "after"]
      : f.fired
        ? [`fires ${f.fired} times, but is not in the result: something else is cheaper`, "changed"]
        : ["fires nowhere", ""];
    const go = () => {
      this.explorer?.choose(first);
      document.getElementById("graph")?.scrollIntoView();
    };
    return h(
      "div",
      { class: "fired", "data-rule": f.rule },
      h(
        "p",
        {},
        h("code", {}, f.rule),
        " ",
        h("span", { class: `chip ${kind}` }, head),
        first >= 0 ? h("button", { type: "button", class: "link", onclick: go }, "Show") : null,
      ),
      f.misses.length
        ? h(
            "ul",
            {},
            f.misses.map(([why, n, sites]) =>
              h(
                "li",
                {},
                `not at ${COUNT.format(n)} node${n > 1 ? "s" : ""}: ${why}`,
                h("small", {}, ` ${sites.join(", ")}${n > sites.length ? ", …" : ""}`),
              ),
            ),
          )
        : null,
    );
  }

  async upload() {
    const [file] = this.file.files;
    if (!file) return;
    if (file.size > this.limit) {
      this.complain({ error: `${file.name} has ${bytes(file.size)}, and an upload may have ${bytes(this.limit)}` });
      this.file.value = "";
      return;
    }
    this.status.textContent = "uploading";
    const headers = { "Content-Type": "application/octet-stream" };
    const found = await ask(`/api/upload?name=${encodeURIComponent(file.name)}`, {
      method: "PUT",
      headers,
      body: file,
    });
    this.file.value = "";
    this.status.textContent = "";
    this.complain(found);
    if (!found.error) await this.fill(found.name);
  }
}

const KEPT = "graphopt-rules";

/** What was edited last, and of which file of the folder it is. */
function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

/** Fills a choice with values and what they are called, and chooses one where it is there. */
function offer(select, pairs, chosen) {
  refill(
    select,
    pairs.map(([value, name]) => h("option", { value }, name)),
  );
  if (pairs.some(([value]) => value === chosen)) select.value = chosen;
}

async function serve() {
  if (document.getElementById("data")) return;
  const bench = new Workbench();
  const [top, dialog] = banner("serve", null);
  document.body.append(top, bench.nav, bench.main);
  tips();
  steer(() => bench.explorer, dialog);
  await bench.fill();
  document.documentElement.dataset.ready = Math.round(performance.now());
}

serve();
