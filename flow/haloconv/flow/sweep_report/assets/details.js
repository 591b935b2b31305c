// Everything about the chosen point: figures, area by block, layers, tile picture, parameters.

function fact(name, text) {
  return [element("dt", { text: name }), element("dd", { text })];
}

function drawChosen(content, point, workload) {
  const node = byId("chosen");
  if (!point) {
    node.replaceChildren(element("p", { class: "none", text: "Click a point in the plot or a row of the table." }));
    return;
  }
  const { values } = point;
  const run = point.runs[workload];
  const parts = [
    element("p", { class: "words", text: `Point ${values.number}: ${point.words}` }),
    element("span", { class: `badge ${values.status}`, text: values.status }),
  ];
  if (point.error !== null) parts.push(element("p", { class: "reason", text: point.error }));
  const facts = [];
  for (const { key, label } of content.resources) {
    if (values[key] !== undefined) facts.push(...fact(label, shown(values[key])));
  }
  if (values.budget_bytes !== null) facts.push(...fact("Buffers", withUnit(values.budget_bytes, "B")));
  if (values.fmax_mhz !== null) {
    const runs = point.fmax_runs;
    const spread = runs.length > 1 ? ` (${shown(Math.min(...runs), 1)} to ${shown(Math.max(...runs), 1)}, ${runs.length} seeds)` : "";
    facts.push(...fact("Fmax, median", withUnit(values.fmax_mhz, "MHz", 1) + spread));
  }
  if (run) {
    facts.push(
      ...fact(`Cycles of ${workload}`, shown(run.cycles)),
      ...fact("Frames a second", run.fps === null ? DASH : `${shown(run.fps, 2)} at ${shown(values.fmax_mhz ?? content.clock_mhz, 1)} MHz`),
      ...fact("Lanes used", withUnit(run.utilisation, "%", 1)),
      ...fact("MACs", shown(run.macs)),
      ...fact("Read", withUnit(run.read_bytes, "B")),
      ...fact("Written", withUnit(run.write_bytes, "B")),
    );
  } else if (workload) {
    parts.push(element("p", { class: "none", text: `No result for the workload ${workload}.` }));
  }
  if (point.seconds !== null) facts.push(...fact("Synthesis took", withUnit(point.seconds, "s", 1)));
  facts.push(...fact("Identity", point.id.slice(0, 12)));
  node.replaceChildren(...parts, element("dl", { class: "facts" }, ...facts));
}

function drawParameters(point) {
  byId("parameters").replaceChildren(...(point ? point.parameters : []).map(
    ([name, value, unit]) => element("div", {}, ...fact(name, withUnit(value, unit))),
  ));
}

/** A cell with a bar that is as long as its share of the whole. */
function barCell(value, whole) {
  const cell = element("td", { class: "bar", text: shown(value) });
  cell.style.setProperty("--share", `${whole ? (100 * value) / whole : 0}%`);
  return cell;
}

function drawBlocks(content, point) {
  const table = byId("blocks");
  const whole = point && point.blocks.length ? point.values : null;
  if (!whole) {
    table.tHead.replaceChildren();
    table.tBodies[0].replaceChildren(element("tr", {}, element("td", { class: "text none", text: "No area is known for this point." })));
    return;
  }
  const resources = content.resources.filter(({ key }) => whole[key]);
  table.tHead.replaceChildren(element("tr", {},
    element("th", { class: "text", scope: "col", text: "Block" }),
    ...resources.map(({ label }) => element("th", { scope: "col", text: label })),
  ));
  const body = table.tBodies[0];
  body.replaceChildren(element("tr", { class: "total" },
    element("th", { scope: "row", text: "all" }),
    ...resources.map(({ key }) => element("td", { text: shown(whole[key]) })),
  ));
  const cells = (block) => resources.map(({ key }) => barCell(block.area[key] ?? 0, whole[key]));
  const rowOf = (block, depth) => {
    const name = element("th", { scope: "row" });
    name.style.paddingLeft = `${0.4 + 1.2 * depth}rem`;
    const row = element("tr", {}, name, ...cells(block));
    if (!block.parts.length) {
      name.append(element("span", { text: block.name }));
      name.style.paddingLeft = `${1.6 + 1.2 * depth}rem`;
      return row;
    }
    let inner = null;
    const button = element("button", { type: "button", text: "▸", "aria-expanded": "false", "aria-label": `Parts of ${block.name}` });
    const drop = (rows) => rows.forEach((entry) => { entry.close?.(); entry.remove(); });
    row.close = () => {
      if (inner) drop(inner);
      inner = null;
      button.textContent = "▸";
      button.setAttribute("aria-expanded", "false");
    };
    row.open = () => {
      inner = block.parts.map((part) => rowOf(part, depth + 1));
      row.after(...inner);
      button.textContent = "▾";
      button.setAttribute("aria-expanded", "true");
    };
    button.addEventListener("click", () => (inner ? row.close() : row.open()));
    name.append(button, element("span", { text: block.name }));
    return row;
  };
  const rows = point.blocks.map((block) => rowOf(block, 0));
  body.append(...rows);
  // The engine may sit in one outermost block, whose parts are what one wants to see.
  rows.slice(0, 2).forEach((row, at) => {
    if (row.open && point.blocks[at].parts.length > 1) row.open();
  });
}

const LAYER_COLUMNS = [
  ["Layer", "text", (layer) => layer.name],
  ["Shape", "text", (layer) => layer.words || DASH],
  ["Tile, Th x Tw x Tc -> Tm", "text", (layer) => layer.tile ?? DASH],
  ["Mode", "text", (layer) => layer.mode ?? DASH],
  ["Order", "text", (layer) => layer.order ?? DASH],
  ["Cycles", "bar", (layer) => layer.cycles],
  ["MACs", "", (layer) => shown(layer.macs)],
  ["MACs a cycle", "", (layer) => shown(layer.cycles ? layer.macs / layer.cycles : null, 2)],
  ["Read, B", "", (layer) => shown(layer.read_bytes)],
  ["Written, B", "", (layer) => shown(layer.write_bytes)],
  ["Bound by", "text", (layer) => layer.bound ?? DASH],
];

function drawLayers(run, chosen, onChoose) {
  const table = byId("layers");
  const kind = (name) => (name === "text" ? "text" : "");
  table.tHead.replaceChildren(element("tr", {}, ...LAYER_COLUMNS.map(([label, type]) => element("th", { scope: "col", class: kind(type), text: label }))));
  if (!run || !run.layers.length) {
    table.tHead.replaceChildren();
    table.tBodies[0].replaceChildren(element("tr", {}, element("td", { class: "text none", text: "No layers are known for this point and workload." })));
    return;
  }
  table.tBodies[0].replaceChildren(...run.layers.map((layer, index) => {
    const cells = LAYER_COLUMNS.map(([, type, value]) => (type === "bar" ? barCell(value(layer), run.cycles) : element("td", { class: kind(type), text: value(layer) })));
    const pickable = layer.tile !== null;
    return element("tr", { class: pickable ? "pickable" : "", "aria-current": index === chosen, on: pickable ? { click: () => onChoose(index) } : {} }, ...cells);
  }));
}

function drawTile(content, run, chosen) {
  const select = byId("layer");
  const drawn = (run ? run.layers : []).map((layer, index) => [layer, index]).filter(([layer]) => layer.tile !== null);
  select.replaceChildren(...drawn.map(([layer, index]) => element("option", { value: index, text: `${index + 1} ${layer.name}` })));
  select.disabled = !drawn.length;
  const node = byId("tile");
  if (chosen === null || !drawn.length) {
    node.replaceChildren(element("p", { class: "none", text: "No tile is known for this point and workload." }));
    return;
  }
  select.value = String(chosen);
  if (run.layers[chosen].figure === null) {
    node.replaceChildren(element("p", { class: "none", text: "This picture was left out to keep the page small; haloconv plan --figure draws it." }));
    return;
  }
  const picture = new DOMParser().parseFromString(content.figures[run.layers[chosen].figure], "image/svg+xml").documentElement;
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `Tile grid and storage of layer ${run.layers[chosen].name}`);
  node.replaceChildren(document.importNode(picture, true));
}
