// Small helpers: elements, numbers, and the results out of the page.

const DASH = "–";

/** Make an element; text always goes in as text, never as markup. */
function element(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") node.textContent = value;
    else if (name === "class") node.className = value;
    else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function byId(id) {
  return document.getElementById(id);
}

/** A number with thousands separators; text as it is; a dash where nothing is known. */
function shown(value, digits = 0) {
  if (value === null || value === undefined) return DASH;
  if (typeof value !== "number") return String(value);
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function withUnit(value, unit, digits = 0) {
  const text = shown(value, digits);
  return unit && text !== DASH ? `${text} ${unit}` : text;
}

function plural(number, word) {
  return `${shown(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** The results: gzip in base64 in a script element of no executable type. */
async function readContent() {
  const packed = atob(byId("content").textContent.trim());
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
