// The two Vega-Lite plots: themed, drawn one after the other, and with clicks on their dots.

function themeConfig() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const [ink, muted, line] = [color("--ink"), color("--muted"), color("--line")];
  return {
    background: null,
    font: color("--font"),
    view: { stroke: null },
    axis: { domainColor: muted, tickColor: muted, gridColor: line, labelColor: ink, titleColor: ink },
    legend: { labelColor: ink, titleColor: muted },
    style: { front: { color: muted }, tag: { color: ink }, ring: { color: ink } },
  };
}

class Plot {
  /** `onPick` gets the datum of a clicked mark. */
  constructor(id, onPick) {
    this.node = byId(id);
    this.onPick = onPick;
    this.view = null;
    this.work = Promise.resolve();
  }

  /** Draw a specification, or a sentence where there is none. */
  draw(specification, datasets, signals) {
    // Vega-Embed clears the element before it has drawn, so that two at once would both stay.
    this.work = this.work.then(() => this._draw(specification, datasets, signals));
    return this.work;
  }

  async _draw(specification, datasets, signals) {
    if (this.view) this.view.finalize();
    this.view = null;
    this.node.classList.remove("vega-embed");
    if (typeof specification === "string") {
      this.node.replaceChildren(element("p", { class: "none", text: specification }));
      return;
    }
    const whole = {
      ...structuredClone(specification),
      datasets: datasets ?? specification.datasets,
      params: specification.params.map((entry) => (entry.name in signals ? { ...entry, value: signals[entry.name] } : entry)),
      width: "container",
      autosize: { type: "fit-x", contains: "padding" },
    };
    const result = await window.vegaEmbed(this.node, whole, {
      mode: "vega-lite",
      renderer: "svg",
      // Expressions are interpreted: the page forbids code from text.
      ast: true,
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: `haloconv-${this.node.id}`,
      config: themeConfig(),
      tooltip: { styleId: "haloconv-tooltip-style", disableDefaultStyle: true, theme: "haloconv" },
    });
    this.view = result.view;
    this.view.addEventListener("click", (event, item) => {
      if (item && item.datum) this.onPick(item.datum);
    });
  }

  /** Set signals such as the chosen mark without drawing anew. */
  signal(signals) {
    this.work = this.work.then(() => this._signal(signals));
    return this.work;
  }

  async _signal(signals) {
    if (!this.view) return;
    for (const [name, value] of Object.entries(signals)) this.view.signal(name, value);
    await this.view.runAsync();
  }
}
