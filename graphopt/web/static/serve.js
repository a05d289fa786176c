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
  } catch { return { error: "the server does not answer: is it still running?" }; }
}

/** The page of the server: a model and rules above, what came of them below. */
class Workbench {
  constructor() {
    this.explorer = null;
    this.models = h("select", { id: "model", "aria-label": "Model" });
    this.target = h("select", { "aria-label": "Target" });
    this.policy = h("select", { "aria-label": "Policy" });
    this.which = h("select", { "aria-label": "Which rules run" }, h("option", { value: "all" }, "mine and the standard rules"), h("option", { value: "mine" }, "mine alone"));
    this.rules = h("textarea", { id: "rules", spellcheck: "false", autocapitalize: "off", rows: "12", "aria-label": "Rules", "aria-describedby": "complaint", wrap: "off" });
    this.rules.value = stored() ?? EXAMPLE;
    this.lines = h("pre", { class: "lines", "aria-hidden": "true" });
    this.complaint = h("p", { id: "complaint", class: "complaint", role: "alert" });
    this.status = h("span", { class: "note", role: "status" });
    this.button = h("button", { type: "button", class: "primary", id: "run", onclick: () => this.run() }, "Run");
    this.file = h("input", { type: "file", accept: ".onnx", class: "unseen", id: "upload", onchange: () => this.upload() });
    this.fired = h("div", {});
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.result = h("div", { class: "result" });
    this.nav = h("div", {});
    this.rules.addEventListener("input", () => { this.number(); keep(this.rules.value); });
    this.rules.addEventListener("scroll", () => { this.lines.scrollTop = this.rules.scrollTop; });
    this.rules.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.run(); } });
    this.main.append(section("workbench", "Rules on a model", "Rules are data: nothing in them runs as a program. Ctrl+Enter runs them.",
      h("div", { class: "bar-of-tools" }, this.models, h("label", { class: "file", for: "upload" }, "Upload…"), this.file, this.target, this.policy, this.which, this.button, this.status),
      h("div", { class: "editor" }, this.lines, this.rules), this.complaint, this.fired), this.result);
    this.number();
  }

  async fill(chosen = null) {
    const found = await ask("/api/models");
    if (found.error) { this.complain(found); return; }
    this.limit = found.upload;
    const old = chosen ?? this.models.value;
    refill(this.models, found.models.map((m) => h("option", { value: m.name }, `${m.name} (${bytes(m.bytes)})`)));
    if (found.models.some((m) => m.name === old)) this.models.value = old;
    if (!found.models.length) this.complain({ error: "this folder has no models: upload one" });
    if (!this.target.options.length) {
      refill(this.target, found.targets.map((t) => h("option", {}, t)));
      refill(this.policy, found.policies.map((t) => h("option", { selected: t === "reals" }, t)));
    }
  }

  number(wrong = 0) {
    const count = this.rules.value.split("\n").length;
    refill(this.lines, Array.from({ length: count }, (_, k) => h("span", { class: k + 1 === wrong ? "wrong" : null }, `${k + 1}\n`)));
    this.lines.scrollTop = this.rules.scrollTop;
  }

  complain({ error, line, column }) {
    this.complaint.textContent = line ? `line ${line}, column ${column}: ${error}` : error || "";
    this.number(line);
    if (!line) return;
    const at = this.rules.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0) + column - 1;
    this.rules.focus();
    this.rules.setSelectionRange(at, at + 1);
  }

  async run() {
    if (this.button.disabled) return;
    this.button.disabled = true;
    this.complain({});
    const start = performance.now();
    const timer = setInterval(() => { this.status.textContent = `running, ${Math.round((performance.now() - start) / 1000)} s`; }, 500);
    const body = JSON.stringify({ name: this.models.value, rules: this.rules.value, with: this.which.value, target: this.target.value, policy: this.policy.value });
    const found = await ask("/api/run", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    clearInterval(timer);
    this.button.disabled = false;
    this.status.textContent = found.error ? "" : `${seconds((performance.now() - start) / 1000)}`;
    if (found.error) { this.complain(found); return; }
    this.show(found);
  }

  show({ page, fired }) {
    refill(this.fired, fired.length ? [h("h3", {}, "What your rules did"), fired.map((f) => this.told(f, page))] : h("p", { class: "note" }, "No rules of your own: the standard ones ran."));
    this.explorer = build(page, this.result);
    refill(this.nav, contents(this.result));
    document.documentElement.dataset.shown = page.title;
    announce(fired.map((f) => `${f.rule}: ${f.kept} kept`).join(", ") || "done");
  }

  told(f, page) {
    const first = page.rewriting.changes.findIndex((c) => c.rule === f.rule);
    const head = f.kept ? `acts at ${f.kept} place${f.kept > 1 ? "s" : ""} of the result` : f.fired ? `fires ${f.fired} times, but is not in the result: something else is cheaper` : "fires nowhere";
    return h("div", { class: "fired", "data-rule": f.rule },
      h("p", {}, h("code", {}, f.rule), " ", h("span", { class: `chip ${f.kept ? "after" : f.fired ? "changed" : ""}` }, head),
        first >= 0 ? h("button", { type: "button", class: "link", onclick: () => { this.explorer?.choose(first); document.getElementById("graph")?.scrollIntoView(); } }, "Show") : null),
      f.misses.length ? h("ul", {}, f.misses.map(([why, n, sites]) => h("li", {}, `not at ${COUNT.format(n)} node${n > 1 ? "s" : ""}: ${why}`, h("small", {}, ` ${sites.join(", ")}${n > sites.length ? ", …" : ""}`)))) : null);
  }

  async upload() {
    const [file] = this.file.files;
    if (!file) return;
    this.file.value = "";
    if (file.size > this.limit) { this.complain({ error: `${file.name} has ${bytes(file.size)}, and an upload may have ${bytes(this.limit)}` }); return; }
    this.status.textContent = "uploading";
    const found = await ask(`/api/upload?name=${encodeURIComponent(file.name)}`, { method: "PUT", headers: { "Content-Type": "application/octet-stream" }, body: file });
    this.status.textContent = "";
    if (found.error) this.complain(found);
    else { this.complain({}); await this.fill(found.name); }
  }
}

function stored() { try { return localStorage.getItem("graphopt-rules"); } catch { return null; } }
function keep(text) { try { localStorage.setItem("graphopt-rules", text); } catch { /* it lasts as long as the page */ } }

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
