const RULE_START = /^[ \t]*[A-Za-z][\w-]*(?=\s*:(?!:))/gm;
const MOST_WORDS = 50;

/** The call that a place in text is in: its op or function; null where it is in none. */
function enclosingCall(text) {
  let depth = 0;
  for (let k = text.length - 1; k >= 0; k -= 1) {
    if (text[k] === ")") depth += 1;
    else if (text[k] === "(" && depth) depth -= 1;
    else if (text[k] === "(") return text.slice(0, k).match(/(?:[\w.]+::)?\w+$/)?.[0] ?? null;
  }
  return null;
}

/** What may stand at the end of a text: what is there of the word, and words with what is told of them. */
function completions(text, language, words) {
  const line = text.slice(text.lastIndexOf("\n") + 1);
  const named = (list, end = "") => list.map((w) => ({ name: w.name, insert: w.name + end, told: w.meaning }));
  const ops = () => words.ops.map((o) => ({ name: o.name, insert: `${o.name}(`, told: `(${o.inputs.join(", ")})` }));
  const functions = () => named(words.functions, "(");
  const found = (pattern, items) => {
    const word = line.match(pattern)?.[1] ?? "";
    return { word, items: fitting(word, items) };
  };
  const call = enclosingCall(text.slice(-4000));
  const op = call ? words.ops.find((o) => o.name === call.replace(/^ops\./, "")) : null;
  const attributes = () => (op ? op.attributes.map((a) => ({ name: a, insert: `${a}=`, told: `of ${op.name}` })) : []);
  if (language === "python") {
    if (/\bfamily\s*=\s*["'][^"']*$/.test(line)) return found(/(\w*)$/, named(words.families));
    if (/\bin_\(\s*["']\w*$/.test(line)) return found(/(\w*)$/, named(words.sets));
    if (/#|["'][^"']*$/.test(line)) return { word: "", items: [] };
    if (call === "rule") return found(/(\w*)$/, named(words.arguments, "="));
    if (/\bops\.\w*$/.test(line)) return found(/(\w*)$/, [...ops(), ...functions()]);
    if (/[\w)\]]\.\w*$/.test(line))
      return found(/(\w*)$/, [...named(words.facts), { name: "becomes", insert: "becomes(", told: "the right side" }]);
    return found(/(\w*)$/, [...attributes(), ...(/(^|\W)[A-Z]\w*$/.test(line) ? ops() : [])]);
  }
  const comment = line.match(/#[^\n]*$/)?.[0];
  if (comment !== undefined) {
    if (/\[[A-Z\d,\s]*$/.test(comment)) return found(/(\w*)$/, named(words.families));
    if (/\][^\]]*\bfor\s[\w\s,-]*$/.test(comment)) return found(/([\w-]*)$/, named(words.tags));
    if (/\]\s+(\w+\s+)?\w*$/.test(comment))
      return found(/(\w*)$/, [...named(words.soundness), { name: "always" }, { name: "for", insert: "for " }]);
    return { word: "", items: [] };
  }
  if (/[\w)\]]\.\w*$/.test(line)) return found(/(\w*)$/, named(words.facts));
  const start = [...text.matchAll(RULE_START)].at(-1);
  if (!start) return { word: "", items: [] };
  const rule = text.slice(start.index + start[0].length);
  const bound = [...new Set(rule.replace(/[\w.]*$/, "").match(/(?<![\w.:])[a-z_]\w*(?!\w*\s*[(=:])/g) ?? [])]
    .filter((name) => !words.words.some((w) => w.name === name))
    .map((name) => ({ name, told: "bound here" }));
  const isGuard = /\bwhere\b/.test(rule);
  const others = isGuard ? [...functions(), ...named(words.sets), ...named(words.words)] : ops();
  const where = isGuard ? [] : [{ name: "where", told: "guards" }];
  return found(/((?:[\w.]+::)?\w*)$/, [...(isGuard ? [] : attributes()), ...bound, ...others, ...where]);
}

/** The words that begin with what is there, then those that have it within. */
function fitting(word, items) {
  const low = word.toLowerCase();
  const begin = items.filter((i) => i.name.toLowerCase().startsWith(low));
  const within = low.length < 2 ? [] : items.filter((i) => i.name.toLowerCase().indexOf(low) > 0);
  return [...new Map([...begin, ...within].map((i) => [i.name, i])).values()].slice(0, MOST_WORDS);
}

/** A field for rules, which colours them, completes words, and shows what is known of each rule under its last line. */
class Editor {
  constructor(onchange) {
    this.onchange = onchange;
    this.language = "rules";
    this.words = null;
    this.notes = []; // of lines: { line, column, state, text }
    this.height = 1;
    this.field = h("textarea", {
      id: "editor",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      rows: "14",
      wrap: "off",
      "aria-label": "Rules",
      "aria-describedby": "complaint",
      "aria-autocomplete": "list",
      "aria-controls": "completions",
    });
    this.paint = h("pre", { class: "paint", "aria-hidden": "true" });
    this.lines = h("pre", { class: "lines", "aria-hidden": "true" });
    this.list = h("div", { class: "completions", id: "completions", role: "listbox", "aria-label": "Words", hidden: true });
    this.element = h(
      "div",
      { class: "editor" },
      this.lines,
      h("div", { class: "sheet" }, this.paint, this.field),
      this.list,
    );
    this.field.addEventListener("input", (event) => this.changed(event.inputType));
    this.field.addEventListener("scroll", () => this.scroll());
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("blur", () => this.close());
    this.field.addEventListener("click", () => this.close());
  }

  get value() {
    return this.field.value;
  }

  /** Shows another text. */
  set(text, language) {
    this.field.value = text;
    this.language = language;
    this.notes = [];
    this.close();
    this.show();
  }

  changed(how) {
    const [before, now] = [this.height, this.value.split("\n").length];
    const at = this.value.slice(0, this.field.selectionStart).split("\n").length;
    for (const note of this.notes) if (note.line > at - Math.max(0, now - before)) note.line += now - before;
    this.show();
    this.onchange();
    if (/^insert(Text|Composition)/.test(how) || !this.list.hidden) this.complete();
  }

  /** Shows what is known of lines. */
  note(notes) {
    this.notes = notes;
    this.show();
  }

  show() {
    const lines = colouredLines(this.value, this.language);
    const plain = this.value.split("\n");
    this.height = lines.length;
    this.notes = this.notes.filter((note) => note.line > 0 && note.line <= lines.length);
    const under = new Map();
    for (const note of this.notes) {
      let last = note.line;
      if (!note.column)
        while (last < lines.length && plain[last].trim() && !plain[last].startsWith("#")) last += 1;
      const at = last < lines.length && !plain[last].trim() ? last + 1 : last;
      if (!under.has(at)) under.set(at, []);
      under.get(at).push(h("span", { class: `verdict ${note.state}` }, note.text));
    }
    const wrong = new Set(this.notes.filter((n) => n.state === "wrong").map((n) => n.line));
    refill(
      this.paint,
      lines.map((parts, k) => h("div", { class: "code-line" }, parts, under.get(k + 1))),
    );
    refill(
      this.lines,
      lines.map((_, k) => h("span", { class: wrong.has(k + 1) ? "wrong" : null }, `${k + 1}\n`)),
    );
    this.scroll();
  }

  scroll() {
    this.lines.scrollTop = this.paint.scrollTop = this.field.scrollTop;
    this.paint.scrollLeft = this.field.scrollLeft;
  }

  /** Goes to a place. */
  go(line, column = 1, length = 1) {
    const at = this.value.split("\n").slice(0, line - 1).reduce((sum, l) => sum + l.length + 1, 0) + column - 1;
    this.field.focus();
    this.field.setSelectionRange(at, at + length);
    this.field.scrollTop = Math.max(0, (line - 4) * this.paint.firstChild.getBoundingClientRect().height);
  }

  /** Puts text in the place of the characters before the caret, such that it can be undone. */
  insert(text, instead = 0) {
    const end = this.field.selectionEnd;
    this.field.focus();
    this.field.setSelectionRange(this.field.selectionStart - instead, end);
    if (!document.execCommand("insertText", false, text)) {
      this.field.setRangeText(text, this.field.selectionStart, end, "end");
      this.changed();
    }
  }

  // -- completion

  complete(isAsked = false) {
    const at = this.field.selectionStart;
    if (!this.words || at !== this.field.selectionEnd || /\w/.test(this.value[at] ?? "")) return this.close();
    const before = this.value.slice(0, at);
    const { word, items } = completions(before, this.language, this.words);
    const isExact = items.some((i) => i.name === word);
    const isNear = word.length > 1 || /[\w)\]]\.\w?$|\[\w?$/.test(before);
    if (!items.length || (!isAsked && (isExact || !isNear))) return this.close();
    this.word = word;
    this.items = items;
    this.at = 0;
    refill(
      this.list,
      items.map((item, k) =>
        h(
          "div",
          {
            class: "word",
            role: "option",
            id: `word-${k}`,
            onpointerdown: (event) => {
              event.preventDefault(); // the field keeps the focus
              this.at = k;
              this.accept();
            },
          },
          h("code", {}, item.name),
          h("small", {}, item.told ?? ""),
        ),
      ),
    );
    this.list.hidden = false;
    this.place();
    this.mark();
    if (isAsked) announce(`${items.length} words`);
    return true;
  }

  /** Puts the list where the caret is, above it where there is more room. */
  place() {
    const column = this.field.selectionStart - this.value.lastIndexOf("\n", this.field.selectionStart - 1) - 1;
    const line = this.paint.children[this.value.slice(0, this.field.selectionStart).split("\n").length - 1];
    const range = document.createRange();
    range.setStart(line, 0);
    let left = column - this.word.length;
    const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      if (left <= walker.currentNode.length) {
        range.setStart(walker.currentNode, left);
        break;
      }
      left -= walker.currentNode.length;
    }
    const [row, point] = [line.getBoundingClientRect(), range.getBoundingClientRect()];
    const x = point.left || row.left;
    const size = this.list.getBoundingClientRect();
    const isBelow = row.bottom + size.height < innerHeight || row.top < size.height;
    this.list.style.left = `${Math.max(8, Math.min(x - 8, innerWidth - size.width - 8))}px`;
    this.list.style.top = `${isBelow ? row.bottom : row.top - size.height}px`;
  }

  mark() {
    [...this.list.children].forEach((o, k) => o.setAttribute("aria-selected", String(k === this.at)));
    this.list.children[this.at].scrollIntoView({ block: "nearest" });
    this.field.setAttribute("aria-activedescendant", `word-${this.at}`);
  }

  close() {
    this.list.hidden = true;
    this.field.removeAttribute("aria-activedescendant");
  }

  accept() {
    const item = this.items[this.at];
    const text = item.insert ?? item.name;
    const next = this.value[this.field.selectionStart];
    this.close();
    this.insert(text.endsWith(next) ? text.slice(0, -1) : text, this.word.length);
    this.close();
  }

  key(event) {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.complete(true);
    }
    if (this.list.hidden) return;
    const far = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (far) {
      this.at = (this.at + far + this.items.length) % this.items.length;
      this.mark();
    } else if ((event.key === "Enter" && !event.ctrlKey && !event.metaKey) || event.key === "Tab") this.accept();
    else if (event.key === "Escape") {
      event.stopPropagation();
      this.close();
    } else {
      if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") this.close();
      return;
    }
    event.preventDefault();
  }
}
