/** How each language is taken apart: comments, strings, words, numbers, and names that stand before something. */
const TOKENS = {
  python:
    /(#[^\n]*)|("""[\s\S]*?(?:"""|$)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\b(def|for|in|with|if|else|return|import|from|as|while|pass|and|or|not|lambda|None|True|False)\b|\b(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\b|([A-Z]\w*(?=\s*\()|@\w+)/g,
  rules:
    /(#[^\n]*)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\b(where|like|as|each|if|else|and|or|not|in|true|false|none|inf)\b|=>|\b(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\b|((?:[\w.]+::)?[A-Z]\w*(?=\s*\())|(^[ \t]*[A-Za-z][\w-]*(?=\s*:(?!:)))|(\.[a-z_]\w*|[a-z_]\w*(?=\())/gm,
};
const KINDS = ["c", "s", "k", "n", "o", "r", "f"];
/** A comment of a rule ends with its family, its class, and when it is tried. */
const HEADER = /(\[[A-Z]\d+(?:\s*,\s*[A-Z]\d+)*\]\s*)?\b(?:exact|finite|reals|approx)\b(?:\s+always)?(?:\s+for\s[\w\s,-]+)?\s*$/;
/** Text of more characters is not taken apart. */
const LONGEST = 200_000;

/** Text as parts with their kinds, or none. */
function tokens(text, language) {
  if (text.length > LONGEST) return [[text, null]];
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(TOKENS[language])) {
    if (found.index > from) parts.push([text.slice(from, found.index), null]);
    const kind = KINDS[found.slice(1).findIndex((g) => g !== undefined)] ?? "k";
    const header = language === "rules" && kind === "c" ? found[0].match(HEADER) : null;
    if (header) parts.push([found[0].slice(0, header.index), "c"], [header[0], "h"]);
    else parts.push([found[0], kind]);
    from = found.index + found[0].length;
  }
  parts.push([text.slice(from), null]);
  return parts;
}

const painted = ([text, kind]) => (kind ? h("span", { class: `code-${kind}` }, text) : text);

/** Text with its parts set apart. */
const coloured = (text, language = "python") => tokens(text, language).map(painted);

/** The same, line by line. */
function colouredLines(text, language) {
  const lines = [[]];
  for (const [part, kind] of tokens(text, language))
    part.split("\n").forEach((piece, k) => {
      if (k) lines.push([]);
      if (piece) lines.at(-1).push(painted([piece, kind]));
    });
  return lines;
}
