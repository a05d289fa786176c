/** Builds the page of a run into an element. What comes back steers it by keys. Where there is somebody who knows why a
 * rule is not in the result, `ask` asks. */
function build(page, place, ask = null) {
  const parts = [overview(page)];
  const { rewriting, kernels } = page;
  let explorer = null;
  if (rewriting && rewriting.pictures.length) explorer = new Explorer(rewriting);
  if (page.written) parts.push(writtenSection(page.written, rewriting, explorer, ask));
  if (explorer) parts.push(explorer.element, modulesSection(explorer));
  if (page.layers) parts.push(layersSection(page.layers));
  if (page.egraphs.length) {
    const browser = new EGraphBrowser(page.egraphs);
    if (explorer)
      explorer.toClass = (names) => {
        const found = browser.find(names);
        if (!found) return null;
        return () => {
          browser.open(...found);
          document.getElementById("egraph").scrollIntoView();
        };
      };
    parts.push(browser.element);
  }
  if (kernels && kernels.calls.length) {
    const browser = new KernelBrowser(kernels, (boxes) => {
      if (!explorer) return;
      explorer.clear();
      if (explorer.picture !== 0) explorer.show(0);
      explorer.turn("after");
      explorer.panes.after.light(boxes);
      document.getElementById("graph").scrollIntoView();
    });
    parts.push(
      browser.element,
      rooflineSection(kernels, (k) => {
        browser.choose(k);
        document.getElementById("kernel").scrollIntoView({ block: "center" });
      }),
      memorySection(kernels.arena),
    );
  }
  if (rewriting) parts.push(checkSection(rewriting.verification), saturationSection(rewriting.explorations));
  parts.push(stepsSection(page.steps), rewriting ? rulesSection(rewriting) : null);
  place.classList.add("sections");
  place.replaceChildren(...parts.filter(Boolean));
  return explorer;
}

/** The links to the sections. */
function contents(place) {
  return h(
    "nav",
    { "aria-label": "Sections", class: "contents" },
    [...place.querySelectorAll(":scope > section")].map((s) =>
      h("a", { href: `#${s.id}` }, s.querySelector("h2").textContent),
    ),
  );
}

const KEYS = [
  ["/", "find a rewrite or a node"],
  ["n, p", "next and previous rewrite"],
  ["Tab", "to the next list, graph or chart; arrows lead on in it"],
  ["arrows", "move the graph that has the focus"],
  ["+, −, 0", "zoom in and out, show all; so does the wheel with Ctrl"],
  ["Enter", "choose the node in the middle"],
  ["[ and ]", "to what the node reads, to what reads it"],
  ["Esc", "choose nothing"],
  ["?", "this list"],
];

function help(more) {
  const dialog = h(
    "dialog",
    { "aria-labelledby": "keys-title" },
    h("h2", { id: "keys-title" }, "Keys"),
    h(
      "dl",
      { class: "keys" },
      [...more, ...KEYS].map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what))),
    ),
    h("form", { method: "dialog" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")),
  );
  document.body.append(dialog);
  return dialog;
}

/** The bar at the top; `more` are keys that only this page has. */
function banner(title, kind, more = []) {
  const dialog = help(more);
  return [
    h(
      "header",
      { class: "banner" },
      h("a", { class: "skip", href: "#main" }, "To the content"),
      h(
        "div",
        { class: "names" },
        h("span", { class: "product" }, "graphopt"),
        h("h1", {}, title),
        kind ? h("span", { class: "chip" }, kind) : null,
      ),
      h(
        "button",
        {
          type: "button",
          class: "quiet icon",
          "aria-label": "Keys",
          "data-tip": "Keys",
          onclick: () => dialog.showModal(),
        },
        "?",
      ),
      themeButton(),
    ),
    dialog,
  ];
}

function steer(current, dialog) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const explorer = current();
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key === "Escape" && !isTyping) explorer?.clear();
    if (isTyping) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/" && explorer) {
      event.preventDefault();
      explorer.search.focus();
      explorer.search.select();
    }
    if (event.key === "n") explorer?.step(1);
    if (event.key === "p") explorer?.step(-1);
    if (event.key === "?") dialog.showModal();
  });
}

/** The page of a report: its data lie in it. */
async function start() {
  const packed = document.getElementById("data");
  if (!packed) return;
  const page = await unpacked(packed.textContent);
  const [top, dialog] = banner(page.title, page.kind);
  const main = h("main", { id: "main", tabindex: "-1" });
  const explorer = build(page, main);
  document.body.append(
    top,
    contents(main),
    main,
    h("footer", {}, "One file, nothing from the network. Made by graphopt."),
  );
  tips();
  steer(() => explorer, dialog);
  document.documentElement.dataset.ready = Math.round(performance.now());
}

start();
