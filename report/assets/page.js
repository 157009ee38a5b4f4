"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = (wanted) => { root.dataset.theme = wanted; };
  paint(dark.matches ? "dark" : "light");
  const failures = ["#8c6d31", "#d62728", "#ff7f0e", "#9467bd", "#e377c2", "#7f3b08", "#17a2b8", "#7f7f7f", "#a6a6a6", "#bcbd22"];
  const activities = { light: ["#9aa4b1", "#8a3ea8", "#0b62c4", "#3d8f8b", "#c9a227", "#c2570c", "#cfd6df"],
                       dark: ["#657184", "#d08bea", "#6db0ff", "#5cc2bc", "#e2c04a", "#f2a05c", "#414c5b"] };

  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }
  const once = (make) => { let made; return () => (made ??= make()); };
  const data = once(async () => JSON.parse(await unpacked("data")));
  const vega = once(async () => {
    const script = document.createElement("script");
    script.type = "module";
    const ready = new Promise((resolve) => { window.vegaIsThere = resolve; });
    script.textContent = (await unpacked("vega")) + "\n;window.vegaIsThere();";
    document.head.append(script);
    await ready;
  });

  // ---- charts: drawn as soon as their part of the page is there, wherever that is; again when the theme changes
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  function coloured(value) {
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v)]));
    if (typeof value !== "string" || value[0] !== "@") return value;
    const numbered = /^@(fail|act)(\d)$/.exec(value);
    if (!numbered) return css("--" + value.slice(1));
    return numbered[1] === "fail" ? failures[numbered[2]] : activities[root.dataset.theme][numbered[2]];
  }
  function look() {
    const ink = css("--dim"), line = css("--line");
    const text = { labelColor: ink, titleColor: ink, labelFontSize: 11, titleFontSize: 11, titleFontWeight: 500 };
    return { background: null, font: "system-ui, sans-serif", view: { stroke: null }, padding: 4,
             axis: { ...text, gridColor: line, domainColor: line, tickColor: line, labelOverlap: "greedy", tickCount: 6 },
             legend: { ...text, symbolStrokeWidth: 0, columns: 4 } };
  }
  async function draw(place) {
    place.dataset.drawn = root.dataset.theme;
    const spec = (await data()).charts[place.dataset.chart];
    if (!spec) return;
    await vega();
    const rows = spec.data && spec.data.values;
    const painted = { ...coloured({ ...spec, data: null }), data: { values: rows }, config: look(),
                      $schema: "https://vega.github.io/schema/vega-lite/v6.json", autosize: { type: "fit-x", contains: "padding" } };
    await window.vegaEmbed(place, painted, { actions: false, renderer: "svg" });
  }
  function drawAll(inside) {  // but what is folded away, which has no width yet
    for (const place of inside.querySelectorAll(".chart")) {
      if (place.clientWidth && place.dataset.drawn !== root.dataset.theme) draw(place);
    }
  }
  drawAll(document);

  // ---- tasks: their part of the page is unpacked when they are opened
  async function fill(task) {
    const body = task.querySelector(".body");
    if (!body.dataset.filled) {
      body.dataset.filled = "yes";
      body.innerHTML = (await data()).bodies[task.id];
    }
    drawAll(body);
  }
  for (const task of document.querySelectorAll("details.task")) {
    task.addEventListener("toggle", () => { if (task.open) fill(task); });
    if (task.open) fill(task);
  }
  async function follow() {
    const task = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!task || !task.matches("details.task")) return;
    task.open = true;
    await fill(task);
    task.scrollIntoView();
  }
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest('a[href^="#"]');
    if (link && link.getAttribute("href") === location.hash) follow();
  });
  follow();

  // ---- tables that sort by a column, the theme's button
  for (const head of document.querySelectorAll("th[data-sort]")) {
    head.addEventListener("click", () => {
      const body = head.closest("table").tBodies[0], column = head.cellIndex;
      const up = head.dataset.order === "down";
      head.dataset.order = up ? "up" : "down";
      const value = (row) => Number(row.cells[column].dataset.value);
      [...body.rows].sort((a, b) => (up ? 1 : -1) * (value(a) - value(b))).forEach((row) => body.append(row));
    });
  }
  const repaint = (wanted) => {
    paint(wanted);
    drawAll(document);
  };
  document.getElementById("theme").addEventListener("click", () => repaint(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => repaint(dark.matches ? "dark" : "light"));
})();
