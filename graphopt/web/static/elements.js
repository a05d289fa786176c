"use strict";

/** An element of HTML. What is given as text stays text: nothing is ever parsed as markup. `on…` are listeners. */
function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of SVG. */
function svg(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

/** Puts children in the place of those that an element has. */
function refill(element, ...children) {
  element.replaceChildren();
  return filled(element, null, children);
}

/** Makes what is alike in a place one stop of the Tab key: arrows lead from one to the next. */
function oneStop(place, selector) {
  const far = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  place.addEventListener("keydown", (event) => {
    const all = [...place.querySelectorAll(selector)];
    const at = all.indexOf(document.activeElement);
    if (!(event.key in far) || at < 0) return;
    event.preventDefault();
    const next = all[Math.max(0, Math.min(all.length - 1, at + far[event.key]))];
    all[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}

/** A name that may go on in another line where its parts end. */
function breakable(name) {
  return name.split(/(?<=[+/])/).flatMap((part) => [part, h("wbr", {})]);
}

/** The buttons that lead to other pages of a list: `turn` goes so many on. `at` shows where it is, of the last. */
function pager(turn) {
  const back = h("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const forth = h("button", { type: "button", onclick: () => turn(1) }, "Next");
  const element = h("div", { class: "pages" }, back, forth);
  const at = (page, last) => {
    element.hidden = last === 0;
    back.disabled = page === 0;
    forth.disabled = page === last;
  };
  return { element, at };
}

/** A section of the page with its heading. */
function section(id, title, note, ...children) {
  return h(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    h(
      "header",
      { class: "section-head" },
      h("h2", { id: `${id}-title` }, title),
      note ? h("p", { class: "note" }, note) : null,
    ),
    ...children,
  );
}

/** A table from heads ("name" or ["name", "number"]) and rows of cells (text or elements). One that is `wide` shows each
 * row as a few lines on a phone, cells behind what their columns are called. */
function table(caption, heads, rows, isWide = false) {
  const kinds = heads.map((head) => (Array.isArray(head) ? head[1] : ""));
  const titles = heads.map((head) => (Array.isArray(head) ? head[0] : head));
  return h(
    "div",
    { class: `scroll ${isWide ? "wide" : ""}`, tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((_, k) => h("th", { scope: "col", class: kinds[k] }, titles[k])),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            row.map((cell, k) =>
              h(
                k ? "td" : "th",
                { scope: k ? null : "row", class: kinds[k], "data-title": k ? titles[k] || null : null },
                cell ?? "",
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

/** A note under the pointer, or beside what has the focus, for all that has `data-tip`. */
function tips() {
  const tip = h("div", { class: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  const show = (event) => {
    const at = event.target.closest?.("[data-tip]");
    tip.hidden = !at;
    if (!at) return;
    tip.textContent = at.dataset.tip;
    const box = at.getBoundingClientRect();
    const x = event.clientX ?? box.left + box.width / 2;
    const y = event.clientY ?? box.bottom;
    tip.style.left = `${Math.max(8, Math.min(x + 12, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
  };
  for (const kind of ["pointerover", "pointermove", "focusin"]) document.addEventListener(kind, show);
  document.addEventListener("focusout", () => {
    tip.hidden = true;
  });
  document.addEventListener(
    "scroll",
    () => {
      tip.hidden = true;
    },
    { passive: true, capture: true },
  );
}

/** Tells a screen reader what has just happened. */
function announce(text) {
  let live = document.getElementById("live");
  if (!live) {
    live = h("div", { id: "live", class: "unseen", "aria-live": "polite" });
    document.body.append(live);
  }
  live.textContent = text;
}
