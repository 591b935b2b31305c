// The table of all points: sorting by any column, and a filter of words and comparisons.

const COMPARISON = /^([a-z0-9_]+)(<=|>=|!=|<|>|=)(.+)$/i;
const OPERATORS = {
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
  "=": (a, b) => a === b,
  "!=": (a, b) => a !== b,
};

function plain(text) {
  return String(text).toLowerCase().replaceAll("×", "x");
}

/** Turn a filter into a test of a row, or throw an Error with a sentence. */
function parseFilter(text, columns) {
  const keys = new Map(columns.map((column) => [column.key, column]));
  const tests = text.split(/\s+/).filter(Boolean).map((term) => {
    const match = COMPARISON.exec(term);
    if (!match) {
      const word = plain(term);
      return (row) => row.haystack.includes(word);
    }
    const [, name, operator, wanted] = match;
    const key = name.toLowerCase();
    if (!keys.has(key)) throw new Error(`There is no column ${name}; compare ${[...keys.keys()].join(", ")}.`);
    const number = Number(wanted.replaceAll(",", ""));
    const ordered = operator.includes("<") || (operator.includes(">"));
    if (ordered && Number.isNaN(number)) throw new Error(`${term}: ${wanted} must be a number.`);
    return (row) => {
      const value = row.values[key];
      if (value === null || value === undefined) return false;
      if (typeof value === "number") return OPERATORS[operator](value, number);
      return !ordered && OPERATORS[operator](plain(value), plain(wanted));
    };
  });
  return (row) => tests.every((test) => test(row));
}

/** Order two values; what is not known comes last in either direction. */
function compare(a, b, descending) {
  const [noA, noB] = [a === null || a === undefined, b === null || b === undefined];
  if (noA || noB) return noA - noB;
  const order = typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
  return descending ? -order : order;
}

/** The rows of a workload: values by column, and the text that words of a filter look in. */
function makeRows(content, workload, onFront) {
  return content.points.map((point) => {
    const run = point.runs[workload] ?? {};
    const values = {};
    for (const { key, of } of content.columns) {
      const found = of === "run" ? run[key] : of === "plot" ? (onFront.has(point.id) ? "yes" : "no") : point.values[key];
      values[key] = found ?? null;
    }
    const texts = content.columns.map((column) => shown(values[column.key], column.digits));
    return { point, values, haystack: plain([...texts, point.words, point.id, point.error ?? ""].join(" ")) };
  });
}

function isText(column, content) {
  return content.points.some((point) => typeof point.values[column.key] === "string") || column.of === "plot";
}

function drawHead(content, sort, onSort) {
  const cells = content.columns.map((column) => element(
    "th",
    {
      scope: "col",
      class: isText(column, content) ? "text" : "",
      "aria-sort": sort.key === column.key ? (sort.descending ? "descending" : "ascending") : "none",
    },
    element("button", { type: "button", text: column.label, "data-key": column.key, title: column.key, on: { click: () => onSort(column.key) } }),
    element("small", { text: column.unit }),
  ));
  byId("points").tHead.replaceChildren(element("tr", {}, ...cells));
}

function drawBody(content, rows, chosen, onChoose) {
  byId("points").tBodies[0].replaceChildren(...rows.map(({ point, values }) => {
    const cells = content.columns.map((column) => {
      const text = shown(values[column.key], column.digits);
      if (column.key === "number") {
        const button = element("button", { type: "button", text, "aria-label": `Choose point ${text}, ${point.words}` });
        return element("td", {}, button);
      }
      if (column.key === "status" && point.error !== null) {
        return element("td", { class: "text reason-cell", text: `failed: ${point.error}` });
      }
      return element("td", { class: isText(column, content) ? "text" : "", text });
    });
    return element("tr", { "data-id": point.id, "aria-current": point.id === chosen, on: { click: () => onChoose(point.id) } }, ...cells);
  }));
}

function markRow(chosen) {
  for (const row of byId("points").tBodies[0].rows) row.setAttribute("aria-current", row.dataset.id === chosen);
}
