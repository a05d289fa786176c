/** The page's data, which is JSON, packed. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const COUNT = new Intl.NumberFormat("en");

/** Three digits, without zeros that say nothing. */
function short(number) {
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return number.toExponential(1);
  return String(Number(number.toPrecision(3)));
}

function inUnit(number, step, units) {
  let k = 0;
  let rest = Math.abs(number);
  while (rest >= step && k < units.length - 1) {
    rest /= step;
    k += 1;
  }
  return `${number < 0 ? "−" : ""}${short(rest)} ${units[k]}`;
}

const bytes = (n) => inUnit(n, 1000, ["B", "kB", "MB", "GB", "TB"]);
const rate = (n, unit) =>
  inUnit(
    n,
    1000,
    ["", "k", "M", "G", "T"].map((p) => p + unit),
  );

function seconds(n) {
  const size = Math.abs(n);
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${short(n * 1e9)} ns`;
  if (size < 1e-3) return `${short(n * 1e6)} µs`;
  if (size < 1) return `${short(n * 1e3)} ms`;
  return `${short(n)} s`;
}

const percent = (part) => `${part > 0 ? "+" : part < 0 ? "−" : ""}${short(Math.abs(100 * part))} %`;

/** An op, or ops that are one kernel, without the domains of those that ONNX does not have. */
const opName = (op) => op.replace(/[\w.]+::/g, "");
