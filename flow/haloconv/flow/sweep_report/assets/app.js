// What is chosen, and what is drawn anew when that changes.

async function start() {
  const content = await readContent();
  const { points, plots } = content;
  const state = {
    workload: content.workloads[0] ?? "",
    x: content.areas[0]?.key ?? "",
    y: content.rates[0]?.key ?? "",
    point: null,
    layer: null,
    sort: { key: "number", descending: false },
  };
  let rows = [];
  let visible = [];
  const find = (id) => points.find((point) => point.id === id) ?? null;
  const plotOf = () => plots[state.workload]?.[state.x]?.[state.y] ?? null;
  const runOf = () => find(state.point)?.runs[state.workload] ?? null;

  const pareto = new Plot("pareto", (datum) => { if (datum.id) choose(datum.id); });
  const roofline = new Plot("roofline", (datum) => { if (datum.index !== undefined) chooseLayer(datum.index); });

  function drawPareto() {
    const plot = plotOf();
    const empty = !plot || !plot.datasets.points.length;
    pareto.draw(
      !content.workloads.length
        ? "This sweep has no workloads, so there is nothing to plot the area against."
        : empty ? "No point has both values, so there is nothing to plot." : plot,
      null,
      { chosen: state.point, shown: shownIds() },
    );
  }

  /** The identities that the filter leaves, null where it leaves all. */
  function shownIds() {
    return visible.length === rows.length ? null : visible.map((row) => row.point.id);
  }

  function drawTable() {
    const front = (plotOf()?.datasets.points ?? []).filter((row) => row.front === "yes");
    rows = makeRows(content, state.workload, new Set(front.map((row) => row.id)));
    const input = byId("filter");
    const message = byId("filter-state");
    let keep = () => true;
    let wrong = "";
    try {
      keep = parseFilter(input.value, content.columns);
    } catch (error) {
      wrong = error.message;
    }
    const frontOnly = byId("front-only").checked;
    visible = rows.filter((row) => keep(row) && (!frontOnly || row.values.front === "yes"));
    const { key, descending } = state.sort;
    visible.sort((a, b) => compare(a.values[key], b.values[key], descending));
    input.setAttribute("aria-invalid", wrong !== "");
    message.textContent = wrong || (visible.length === rows.length ? "" : `${visible.length} of ${plural(rows.length, "point")} shown.`);
    drawHead(content, state.sort, sortBy);
    drawBody(content, visible, state.point, choose);
  }

  function sortBy(key) {
    state.sort = { key, descending: state.sort.key === key && !state.sort.descending };
    drawTable();
    byId("points").tHead.querySelector(`[data-key="${key}"]`).focus();
  }

  function drawDetails() {
    const point = find(state.point);
    const run = runOf();
    const layers = run ? run.layers : [];
    if (!layers[state.layer]?.tile) {
      const first = layers.findIndex((layer) => layer.tile !== null);
      state.layer = first < 0 ? null : first;
    }
    drawChosen(content, point, state.workload);
    drawParameters(point);
    drawBlocks(content, point);
    drawLayers(run, state.layer, chooseLayer);
    drawTile(content, run, state.layer);
    drawRoofline(run);
  }

  function drawRoofline(run) {
    const dots = (run ? run.layers : []).map((layer, index) => ({ ...layer, index })).filter((layer) => layer.x !== null);
    roofline.draw(
      dots.length ? content.roofline : "No layer with multiply-accumulates is known for this point and workload.",
      { roof: run ? run.roof : [], layers: dots },
      run ? { chosen: state.layer, across: run.across, up: run.up } : {},
    );
  }

  function choose(id) {
    state.point = id;
    markRow(id);
    pareto.signal({ chosen: id });
    drawDetails();
    remember();
  }

  function chooseLayer(index) {
    const run = runOf();
    if (!run || run.layers[index].tile === null) return;
    state.layer = index;
    drawLayers(run, index, chooseLayer);
    drawTile(content, run, index);
    roofline.signal({ chosen: index });
  }

  function filterChanged() {
    drawTable();
    pareto.signal({ shown: shownIds() });
  }

  function drawAll() {
    drawTable();
    drawPareto();
    drawDetails();
  }

  /** Keep the choice in the address, so that a reload or a copied link shows the same. */
  function remember() {
    const address = new URLSearchParams({ workload: state.workload, x: state.x, y: state.y, point: state.point ?? "" });
    try {
      history.replaceState(null, "", `#${address}`);
    } catch {
      // Some browsers refuse this for files.
    }
  }

  function recall() {
    const address = new URLSearchParams(location.hash.slice(1));
    if (content.workloads.includes(address.get("workload"))) state.workload = address.get("workload");
    for (const [name, axes] of [["x", content.areas], ["y", content.rates]]) {
      if (axes.some((axis) => axis.key === address.get(name))) state[name] = address.get(name);
    }
    if (find(address.get("point"))) state.point = address.get("point");
  }

  function fill(id, entries, key) {
    const select = byId(id);
    select.replaceChildren(...entries.map(([value, text]) => element("option", { value, text })));
    select.value = state[key];
    select.addEventListener("change", () => {
      state[key] = select.value;
      drawAll();
      remember();
    });
  }

  /** Left and right choose the neighbour on the x axis among the points that the filter leaves. */
  function step(event) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const left = new Set(visible.map((row) => row.point.id));
    const places = (plotOf()?.datasets.points ?? []).filter((row) => left.has(row.id)).sort((a, b) => a.x - b.x || a.y - b.y);
    if (!places.length) return;
    event.preventDefault();
    const at = places.findIndex((row) => row.id === state.point);
    const next = at < 0 ? 0 : at + (event.key === "ArrowRight" ? 1 : -1);
    choose(places[Math.min(Math.max(next, 0), places.length - 1)].id);
  }

  recall();
  const failed = points.filter((point) => point.error !== null).length;
  byId("summary").textContent = [
    `${plural(points.length, "point")} on ${content.family}`,
    failed ? `${failed} failed` : "none failed",
    content.missing ? `${plural(content.missing, "point")} not built yet` : null,
    plural(content.workloads.length, "workload"),
    content.clock_mhz === null || !content.workloads.length ? null : `frames at ${shown(content.clock_mhz)} MHz where no clock was measured`,
  ].filter(Boolean).join(", ") + ".";
  byId("filter-keys").append(...content.columns.filter((column) => column.of !== "plot").flatMap((column, at) => [at ? ", " : "", element("code", { text: column.key })]));
  fill("workload", content.workloads.map((name) => [name, name]), "workload");
  fill("x-axis", content.areas.map(({ key, label }) => [key, label]), "x");
  fill("y-axis", content.rates.map(({ key, label }) => [key, label]), "y");
  byId("filter").addEventListener("input", filterChanged);
  byId("front-only").addEventListener("change", filterChanged);
  byId("layer").addEventListener("change", (event) => chooseLayer(Number(event.target.value)));
  byId("pareto").addEventListener("keydown", step);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawPareto();
    drawRoofline(runOf());
  });
  if (state.point === null) {
    // The last engine of the front is the fastest; it says most about the workload.
    const front = (plotOf()?.datasets.points ?? []).filter((row) => row.front === "yes").sort((a, b) => a.x - b.x);
    state.point = front.at(-1)?.id ?? points[0]?.id ?? null;
  }
  // A sweep for area alone.
  document.body.classList.toggle("no-workloads", !content.workloads.length);
  byId("main").hidden = false;
  drawAll();
}

start().catch((error) => {
  byId("summary").textContent = `This page could not be shown: ${error.message}. It needs a browser of 2023 or later.`;
  throw error;
});
