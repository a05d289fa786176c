const EXAMPLES = {
  rules: `# two of the same in a row are one                                            [A22] exact
my-relu-relu:  Relu(Relu(x))  =>  Relu(x)

# x * relu6(x + 3) / 6 is one op                                                [H8] reals
my-hard-swish:  Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)  =>  HardSwish(x)
    where x.dtype in float
`,
  python: `from graphopt import ops, rule


@rule(family="A22", exact=True)
def my_relu_relu(x):
    """Two of the same in a row are one."""
    return ops.Relu(ops.Relu(x)).becomes(ops.Relu(x))
`,
};
const STOPPED = "stopped";
const PAUSE = 400; // milliseconds without a key, after which rules are checked

/** What the server says, or its complaint. */
async function ask(path, options) {
  try {
    const answer = await fetch(path, { credentials: "omit", ...options });
    const found = await answer.json().catch(() => ({ error: answer.statusText || `status ${answer.status}` }));
    return answer.ok ? found : { error: found.error || `status ${answer.status}` };
  } catch (problem) {
    return { error: problem.name === "AbortError" ? STOPPED : "the server does not answer: is it still running?" };
  }
}

/** The same, sent as JSON. */
const tell = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

/** A model as it is before anything ran, and what is told of the node that is chosen. */
class ModelView {
  constructor(onrule) {
    this.onrule = onrule;
    this.pane = new Pane("model", "The model");
    this.pane.onchoose = (k) => this.choose(k);
    this.panes = { model: this.pane };
    this.data = { changes: [] };
    this.picture = 0;
    this.facts = h("p", { class: "note" });
    this.detail = h("div", { class: "detail", role: "region", "aria-label": "The node" });
    this.scope = h("select", { "aria-label": "Graph", hidden: true, onchange: () => this.turn(Number(this.scope.value)) });
    this.element = h("div", { class: "model" }, this.facts, this.scope, this.pane.element, this.detail);
  }

  async draw(name) {
    this.drawing?.abort();
    this.drawing = new AbortController();
    this.facts.textContent = "reading the model…";
    const found = await tell("/api/draw", { name }, this.drawing.signal);
    if (found.error === STOPPED) return;
    this.graphs = found.error ? [] : found.model.graphs;
    this.facts.textContent = found.error || found.model.facts.map(([n, value]) => `${n} ${value}`).join(" · ");
    offer(
      this.scope,
      this.graphs.map(([n], k) => [k, n]),
    );
    this.scope.hidden = this.graphs.length < 2;
    this.turn(0);
  }

  turn(number) {
    const drawing = this.graphs[number]?.[1] ?? null;
    this.pane.show(drawing, (drawing?.boxes ?? []).map(() => "kept"));
    this.pane.canvas.dataset.boxes = drawing?.boxes.length ?? 0;
    this.choose(-1);
  }

  choose(k) {
    const box = this.pane.drawing.boxes[k];
    if (!box) {
      refill(this.detail, h("p", { class: "note" }, "Choose a node to see its inputs and outputs."));
      return;
    }
    const isOp = box.op !== "Input";
    const [title, ...told] = toldOfNode(this, "model", box, k);
    const begin = () => this.onrule(beginning(this.pane.drawing, box));
    refill(this.detail, title, isOp ? link("Begin a rule here", begin) : null, told);
  }
}

/** The left side of a rule that matches a node and the ops whose values it reads. */
function beginning(drawing, box) {
  const letters = "xyzuvwabcdefghijklmnopqrst".split("");
  const names = new Map();
  const attributes = [];
  const term = (node, isRoot) => {
    const inputs = node.reads.map((r) => {
      const from = r && r.box !== null ? drawing.boxes[r.box] : null;
      if (r === null) return "_";
      if (isRoot && from && from.op !== "Input" && from.makes.length === 1) return term(from, false);
      if (!names.has(r.name)) names.set(r.name, letters.shift() ?? `v${names.size}`);
      return names.get(r.name);
    });
    const own = [...node.attrs.matchAll(/(?:^|, )(\w+)=/g)].map(([, name]) => {
      attributes.push(name);
      return `${name}=${name}_${attributes.length}`;
    });
    return `${node.op}(${[...inputs, ...own].join(", ")})`;
  };
  return term(box, true);
}

/** The page of the server: a model and rules above, what came of them below. */
class Workbench {
  constructor() {
    this.explorer = null;
    this.model = new ModelView((left) => this.begin(left));
    this.models = h("select", { id: "model", onchange: () => this.model.draw(this.models.value) });
    this.target = h("select", {});
    this.policy = h("select", {});
    this.which = h(
      "select",
      {},
      h("option", { value: "all" }, "mine and the standard rules"),
      h("option", { value: "mine" }, "mine alone"),
    );
    this.sets = h("select", { id: "set", onchange: () => this.open(this.sets.value) });
    this.editor = new Editor(() => this.edited());
    this.complaint = h("p", { id: "complaint", class: "complaint", role: "alert" });
    this.checks = h("div", { class: "checks", id: "checks-typed", role: "status" });
    this.status = h("span", { class: "note", role: "status" });
    this.button = h("button", { type: "button", class: "primary", id: "run", onclick: () => this.toggle() }, "Run");
    this.file = h("input", {
      type: "file",
      accept: ".onnx",
      class: "unseen",
      id: "upload",
      onchange: () => this.upload(this.file.files[0]),
    });
    this.summary = h("div", { class: "summary", id: "summary" });
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.result = h("div", { class: "result" });
    this.nav = h("div", {});
    this.main.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.run();
      }
    });
    this.main.addEventListener("dragover", (event) => event.preventDefault());
    this.main.addEventListener("drop", (event) => {
      event.preventDefault();
      this.upload(event.dataTransfer.files[0]);
    });
    this.main.append(this.bench(), this.result);
    const { text, opened, language } = kept();
    this.opened = opened ?? EXAMPLES.rules; // as a file has it
    this.editor.set(text ?? EXAMPLES.rules, language ?? "rules");
  }

  bench() {
    const choice = (name, control) => h("label", { class: "choice" }, `${name} `, control);
    return section(
      "workbench",
      "Rules on a model",
      "Rules are checked as you type them, and run on the model.",
      h(
        "div",
        { class: "bar-of-tools" },
        choice("Model", this.models),
        h("label", { class: "file", for: "upload" }, "Upload…"),
        this.file,
        choice("Target", this.target),
        choice("Policy", this.policy),
      ),
      h(
        "div",
        { class: "bench" },
        h(
          "div",
          { class: "writing" },
          h(
            "div",
            { class: "bar-of-tools" },
            choice("Rules from", this.sets),
            h("button", { type: "button", onclick: () => this.save() }, "Save a copy"),
          ),
          this.editor.element,
          this.complaint,
          this.checks,
          h("div", { class: "bar-of-tools" }, choice("Run", this.which), this.button, this.status),
          this.summary,
        ),
        this.model.element,
      ),
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
    const examples = [
      ["", "an example"],
      ["python", found.code ? "an example in Python" : "Python (graphopt serve --allow-code)", !found.code],
    ];
    offer(this.sets, [...examples, ...found.rules.map((name) => [name, name])], this.sets.value || kept().set);
    if (found.models.length) this.model.draw(this.models.value);
    else this.complain({ error: "this folder has no models: upload one, or drop it here" });
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
    this.check();
    ask("/api/words").then((words) => {
      if (!words.error) this.editor.words = words;
    });
  }

  keep() {
    const { value: text, language } = this.editor;
    try {
      localStorage.setItem(KEPT, JSON.stringify({ text, language, opened: this.opened, set: this.sets.value }));
    } catch {
      /* it lasts as long as the page */
    }
  }

  /** Shows a file of rules of the folder. */
  async open(name) {
    const text = this.editor.value;
    if (text.trim() && text !== this.opened && !confirm("There are unsaved changes: discard them?")) {
      this.sets.value = kept().set ?? "";
      return;
    }
    const language = name === "python" || name.endsWith(".py") ? "python" : "rules";
    const isExample = name in { "": 1, python: 1 };
    const found = isExample ? { rules: EXAMPLES[language] } : await ask(`/api/rules?name=${encodeURIComponent(name)}`);
    if (found.error) {
      this.complain(found);
      return;
    }
    this.opened = found.rules;
    this.editor.set(found.rules, language);
    this.keep();
    this.check();
  }

  /** Hands the rules to the browser as a file. */
  save() {
    const place = URL.createObjectURL(new Blob([this.editor.value], { type: "text/plain" }));
    const plain = this.editor.language === "python" ? "my_rules.py" : "my.rules";
    const name = this.sets.value.includes(".") ? this.sets.value.split("/").pop() : plain;
    h("a", { href: place, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(place), 1000);
    this.opened = this.editor.value;
    this.keep();
  }

  /** Puts the beginning of a rule behind the others. */
  begin(left) {
    const field = this.editor.field;
    field.setSelectionRange(field.value.length, field.value.length);
    const isPython = this.editor.language === "python";
    const space = field.value.trim() ? (isPython ? "\n\n" : "\n") : "";
    const python = `@rule(reals=True)\ndef my_rule(${names(left)}):\n    """What it is good for."""\n    return ${inPython(left)}.becomes()\n`;
    this.editor.insert(`${space}${isPython ? python : `# what it is good for  reals\nmy-rule:  ${left}  =>  `}`);
  }

  edited() {
    this.keep();
    clearTimeout(this.pause);
    this.checking?.abort();
    this.pause = setTimeout(() => this.check(), PAUSE);
  }

  /** What is known of the rules that are there now, rule by rule. */
  async check() {
    clearTimeout(this.pause);
    this.checking?.abort();
    const checking = (this.checking = new AbortController());
    const { value: rules, language } = this.editor;
    for (let [isDone, left] = [false, Infinity]; !isDone; ) {
      const found = await tell("/api/check", { rules, language }, checking.signal);
      if (checking.signal.aborted) return;
      if (found.error) {
        this.complain(found);
        refill(this.checks);
        return;
      }
      this.complain({});
      this.editor.note(found.checks.map((c) => ({ line: c.line ?? 1, state: c.state, text: VERDICTS[c.state](c) })));
      refill(this.checks, found.checks.filter((c) => c.state in STATES).map((c) => this.checked(c)));
      const waiting = found.checks.filter((c) => c.state === "waiting").length;
      isDone = !waiting || waiting >= left;
      left = waiting;
    }
    this.checks.dataset.done = rules;
  }

  checked(c) {
    const proof = h("span", { class: "note" });
    const prove = async () => {
      proof.textContent = "proving…";
      const { value: rules, language } = this.editor;
      const found = await tell("/api/prove", { rules, language, rule: c.rule });
      proof.textContent = found.error || found.evidence || `refuted: ${found.refuted}`;
    };
    return h(
      "div",
      { class: "checked", "data-rule": c.rule, "data-state": c.state },
      h("p", {}, link(c.rule, () => this.editor.go(c.line ?? 1)), h("span", { class: `chip ${c.state}` }, STATES[c.state]), c.state === "right" ? [h("span", { class: "note" }, `on ${COUNT.format(c.compared)} random inputs`), link("Prove", prove), proof] : null),
      c.problem ? h("pre", { class: "problem" }, c.problem) : null,
    );
  }

  complain({ error, line, column }) {
    this.complaint.textContent = line ? `line ${line}, column ${column}: ${error}` : error || "";
    if (line) this.editor.note([{ line, column, state: "wrong", text: `✗ ${error}` }]);
  }

  toggle() {
    if (this.running) this.running.abort();
    else this.run();
  }

  request() {
    return {
      name: this.models.value,
      rules: this.editor.value,
      language: this.editor.language,
      with: this.which.value,
      target: this.target.value,
      policy: this.policy.value,
    };
  }

  async run() {
    if (this.running) return;
    this.running = new AbortController();
    this.button.textContent = "Stop";
    this.complain({});
    refill(this.summary);
    const start = performance.now();
    const passed = () => (performance.now() - start) / 1000;
    const timer = setInterval(() => {
      this.status.textContent = `running, ${Math.round(passed())} s`;
    }, 500);
    const request = this.request();
    const found = await tell("/api/run", request, this.running.signal);
    clearInterval(timer);
    this.running = null;
    this.button.textContent = "Run";
    this.status.textContent = found.error ? "" : seconds(passed());
    if (!found.error) this.show(found, request);
    else if (found.error !== STOPPED) {
      this.complain(found);
      if (found.line) this.editor.go(found.line, found.column);
    }
  }

  show({ page, result }, request) {
    const why = (rule) => tell("/api/explain", { ...request, rule });
    this.explorer = build(page, this.result, why);
    refill(this.nav, contents(this.result));
    refill(this.summary, this.summed(page, result, request));
    document.documentElement.dataset.shown = page.title;
    announce(page.written.fired.map((f) => `${f.rule}: ${f.kept} kept`).join(", ") || "done");
  }

  /** One line of what came of a run, and the files that it left. */
  summed(page, result, request) {
    const { rewriting } = page;
    const [before, after] = [1, 2].map((k) => rewriting.ops.reduce((sum, row) => sum + row[k], 0));
    const { status, reason } = rewriting.verification ?? { status: "unverified", reason: "" };
    const stem = page.title.replace(/^.*: /, "").replace(/\.onnx$/, "");
    const file = (name, text, download) =>
      h("a", { href: `/api/results/${result.key}/${name}`, download, class: "file" }, `${text} (${bytes(result.files[name])})`);
    const isWhole = Object.keys(result.files).every((name) => name === "result.onnx" || !name.endsWith(".data"));
    return [
      h(
        "p",
        {},
        h("span", { class: `chip ${status === "verified" ? "right" : "wrong"}` }, status),
        ` ${COUNT.format(before)} → ${COUNT.format(after)} ops `,
        reason ? h("span", { class: "note" }, reason) : null,
      ),
      page.written.fired.map((f) => h("p", { class: "note" }, h("code", {}, f.rule), f.kept ? ` acts at ${f.kept} place${f.kept > 1 ? "s" : ""}` : " is not in the result")),
      h(
        "p",
        { class: "bar-of-tools" },
        isWhole
          ? file("result.onnx", "Download the model", `${stem}.opt.onnx`)
          : h("span", { class: "note" }, "The model is several files: the command below writes them."),
        file("page.html", "Save this page", `${stem}.html`),
        h("a", { href: "#overview" }, "What changed"),
      ),
    ];
  }

  async upload(file) {
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
const EDITING = [
  ["Ctrl+Enter", "run the rules"],
  ["Ctrl+Space", "words that may stand here; arrows choose, Enter or Tab takes one"],
];
const STATES = { right: "agrees", wrong: "wrong", late: "no time to compare" };
const VERDICTS = {
  right: (c) => `✓ agrees on ${COUNT.format(c.compared)} random inputs`,
  wrong: (c) => `✗ ${c.problem.replace(/^.*?  with (?=\w+: )/s, "with ")}`, // the rule itself stands above
  late: () => "no time to compare its sides",
  waiting: () => "…",
  beyond: () => "not checked while you type: there are too many rules",
};

/** The variables of a term, and the term as Python writes it. */
const names = (term) => [...new Set(term.match(/(?<![\w.:])[a-z]\w*(?![\w(=:])/g) ?? [])].join(", ");
const inPython = (term) => term.replace(/([\w.]+::\w+)(?=\()/g, 'ops["$1"]').replace(/(?<![\w.:"])([A-Z]\w*)(?=\()/g, "ops.$1").replace(/\b_\b/g, "None");

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
    pairs.map(([value, name, disabled]) => h("option", { value, disabled }, name)),
  );
  if (pairs.some(([value]) => value === chosen)) select.value = chosen;
}

async function serve() {
  if (document.getElementById("data")) return;
  const bench = new Workbench();
  const [top, dialog] = banner("serve", null, EDITING);
  document.body.append(top, bench.nav, bench.main);
  tips();
  steer(() => bench.explorer, dialog);
  await bench.fill();
  document.documentElement.dataset.ready = Math.round(performance.now());
}

serve();
