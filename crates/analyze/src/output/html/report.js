"use strict";
// Draws the charts that the page's data describes. The page is whole without them: nothing here works out a figure.
(() => {
  const root = document.documentElement;
  const DASHES = ["solid", "dashed", "dotted", [9, 3, 2, 3]];
  const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
  const drawn = [];
  let errors = 0;

  function failed(error) {
    errors += 1;
    root.dataset.errors = errors;
    const note = document.getElementById("fault");
    note.hidden = false;
    note.textContent = "Charts could not be drawn (" + error + "); the tables hold every number.";
  }
  addEventListener("error", event => failed(event.message));
  addEventListener("unhandledrejection", event => failed(event.reason));

  // Labels of ticks and tooltips, in the digits of the tables: three significant ones.
  const digits = value =>
    value >= 1e6 ? value.toExponential(2).replace("+", "") : value >= 100 ? value.toFixed(0) : value.toPrecision(3);
  const short = value => String(Number(digits(value)));
  function size(bytes) {
    const power = Math.min(4, Math.max(0, Math.floor(Math.log2(bytes) / 10 + 1e-9)));
    return short(bytes / 1024 ** power) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][power];
  }
  // From a million on, powers: there is room for some seven letters beside an axis.
  const raised = number => [...String(number)].map(digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
  const tick = value => value >= 20 ? "2" + raised(value) : short(2 ** value);

  // An axis on which equal steps are equal factors is drawn as a linear one over log2: its ticks then fall on powers
  // of two, which the library's own logarithmic axis does not promise.
  const isLog = axis => axis.scale === "sizes" || axis.scale === "log";
  const place = (axis, value) => isLog(axis) ? Math.log2(value) : value;

  function colours() {
    const style = getComputedStyle(root);
    const of = name => style.getPropertyValue("--" + name).trim();
    const names = ["raised", "ink", "faint", "line", "shade", "mark", "alert"];
    return { palette: [0, 1, 2, 3, 4, 5, 6, 7].map(i => of("c" + i)), ...Object.fromEntries(names.map(n => [n, of(n)])) };
  }

  // Names that don't fit beside each other (a tick has room for some ten letters) stand aslant.
  const slant = (spec, ticks) => spec.names.join("  ").length > 10 * ticks ? 40 : 0;

  function axis(spec, values, ticks, theme, frame = {}) {
    const shared = {
      name: spec.name, nameLocation: "middle",
      nameTextStyle: { color: theme.faint, fontSize: 12 },
      axisLabel: { color: theme.faint, fontSize: 12, hideOverlap: true },
      axisLine: { show: true, lineStyle: { color: theme.line } },
      splitLine: { lineStyle: { color: theme.line, opacity: .6 } },
    };
    if (spec.scale === "names") {
      const axisLabel = { ...shared.axisLabel, interval: 0, hideOverlap: false, rotate: slant(spec, ticks) };
      return { ...shared, type: "category", data: spec.names, axisTick: { show: false }, axisLabel };
    }
    const value = { ...shared, type: "value", splitNumber: ticks };
    if (spec.scale === "order") return { ...value, min: 0, max: "dataMax", minInterval: 1 };
    if (spec.scale === "offsets") return { ...value, min: "dataMin", max: "dataMax" };
    if (spec.scale === "close") return { ...value, scale: true, ...frame };
    if (spec.scale === "linear") return { ...value, min: 0, minInterval: spec.name === "threads" ? 1 : 0, ...frame };
    const low = Math.floor(Math.min(...values)), most = Math.max(...values);
    // Above the highest line there is room for the bands' names.
    const high = Math.max(low + 1, Math.ceil(spec.scale === "log" ? most + (most - low) * .08 : most));
    const step = Math.ceil((high - low) / ticks);
    const label = spec.scale === "sizes" ? v => size(2 ** v) : tick;
    // The last tick stands off the rhythm unless the steps fill the axis.
    return {
      ...value, min: low, max: high, interval: step,
      axisLabel: { ...shared.axisLabel, formatter: label, showMaxLabel: (high - low) % step === 0 },
    };
  }

  // The interval of each point: a vertical stroke with two caps. Bars stand side by side, so theirs must be shifted.
  function whiskers(chart, series, index, colour) {
    const bars = chart.series.length;
    return {
      type: "custom", name: series.name, silent: true, clip: true, tooltip: { show: false }, z: 5,
      data: points(chart, series), encode: { x: 0, y: [2, 3] },
      renderItem({ coordSys: { y: top, height } }, api) {
        const [low, high] = [2, 3].map(column => api.coord([api.value(0), api.value(column)]));
        let x = low[0];
        if (series.shape === "bar" && !isLog(chart.y)) {
          const visible = api.currentSeriesIndices().filter(i => i < bars);
          x += api.barLayout({ barGap: "10%", barCategoryGap: "30%", count: visible.length })[visible.indexOf(index)].offsetCenter;
        }
        const stroke = (x1, y1, x2, y2) =>
          ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 1.3 } });
        // A cap, or where the end lies beyond the frame, an arrow that points there.
        const end = (y, edge, back) => {
          const beyond = back > 0 ? y < edge - .5 : y > edge + .5;
          return beyond ? [stroke(x - 3, edge + 5 * back, x, edge), stroke(x, edge, x + 3, edge + 5 * back)] : [stroke(x - 3, y, x + 3, y)];
        };
        return {
          type: "group",
          children: [stroke(x, low[1], x, high[1]), ...end(low[1], top + height, -1), ...end(high[1], top, 1)],
        };
      },
    };
  }

  // x, median, low, high as they are placed; then the plain x, median, low, high, number of samples.
  const points = (chart, series) => series.points.map(point =>
    [place(chart.x, point[0]), ...point.slice(1, 4).map(y => place(chart.y, y)), ...point]);

  // Symbols tell apart what shares a colour; where all lines would have one, it is the plainest.
  const symbol = (chart, series) =>
    chart.series.every(other => other.symbol === series.symbol) ? SYMBOLS[0] : SYMBOLS[series.symbol % 4];

  function body(chart, series, theme) {
    const colour = theme.palette[series.colour % theme.palette.length];
    const shared = { name: series.name, data: points(chart, series), encode: { x: 0, y: 1 }, color: colour };
    // A bar's length counts from zero, which a logarithmic axis has not.
    if (series.shape === "bar" && isLog(chart.y)) return { ...shared, type: "scatter", symbolSize: 9 };
    if (series.shape === "bar") return { ...shared, type: "bar", barGap: "10%", barCategoryGap: "30%" };
    if (series.shape === "dot") return { ...shared, type: "scatter", symbolSize: 6, itemStyle: { opacity: .8 } };
    return {
      ...shared, type: "line", symbol: symbol(chart, series), symbolSize: 6, showSymbol: chart.x.scale !== "offsets" && series.shape !== "curve",
      lineStyle: { width: 2, type: DASHES[series.dash % 4] },
    };
  }

  // Bands, marks and limits hang on a series without points, so that no click in the legend takes them away.
  function backdrop(chart, range, theme) {
    const x = value => place(chart.x, value);
    const along = at => (x(at) - range[0]) / (range[1] - range[0]);
    const bands = chart.bands.filter(band => band.to > band.from).map((band, index) => [
      { xAxis: x(band.from), name: band.name, itemStyle: { color: index % 2 ? theme.shade : "transparent" } },
      { xAxis: x(band.to) },
    ]);
    const intervals = chart.marks.map(mark =>
      [{ xAxis: x(mark.from), name: "", itemStyle: { color: theme.mark } }, { xAxis: x(mark.to) }]);
    // Names of neighbours stand on two lines, so that they don't run into each other.
    const marks = chart.marks.map((mark, index) => ({
      xAxis: x(mark.at), name: mark.name + (index % 2 ? "\n " : ""), lineStyle: { color: theme.alert },
      label: { color: theme.alert, align: along(mark.at) > .7 ? "right" : along(mark.at) < .3 ? "left" : "center" },
    }));
    // On the left: curves over sizes come near their limits on the right.
    const limits = chart.limits.map((limit, index) => ({
      yAxis: place(chart.y, limit.at), name: limit.name, lineStyle: { color: theme.ink },
      label: { color: theme.ink, position: index < chart.limits.length - 1 ? "insideStartBottom" : "insideStartTop", textBorderColor: theme.raised, textBorderWidth: 3 },
    }));
    return {
      type: "line", data: [], silent: true, tooltip: { show: false },
      markArea: { silent: true, label: { color: theme.faint, position: "insideTop" }, data: [...bands, ...intervals] },
      markLine: {
        silent: true, symbol: "none", lineStyle: { type: "dashed", width: 1.5 },
        label: { formatter: "{b}", fontSize: 12 }, data: [...marks, ...limits],
      },
    };
  }

  function tooltip(chart, theme) {
    const where = value => ({
      sizes: () => size(value), names: () => chart.x.names[value], order: () => "sample " + value,
    })[chart.x.scale]?.() ?? value + " " + chart.x.unit;
    const line = ({ data, marker, seriesName }) => {
      const [, value, low, high, samples] = data.slice(4);
      const spread = high > low && samples > 1 ? ` [${digits(low)}, ${digits(high)}], ${samples} samples` : "";
      return `${marker}${echarts.format.encodeHTML(seriesName)}: <b>${digits(value)}</b> ${chart.y.unit}${spread}`;
    };
    return {
      trigger: chart.x.scale === "order" ? "item" : "axis", confine: true,
      backgroundColor: theme.raised, borderColor: theme.line, textStyle: { color: theme.ink, fontSize: 12 },
      formatter(found) {
        const all = [found].flat().filter(item => item.data && item.seriesType !== "custom");
        if (!all.length) return "";
        const x = all[0].data[4];
        const here = all.filter(item => item.data[4] === x).sort((a, b) => b.data[5] - a.data[5]);
        return [echarts.format.encodeHTML(where(x)), ...here.map(line)].join("<br>");
      },
    };
  }

  // Lines that the legend takes, counted generously; the library wraps it but makes no room for it.
  const LEGEND = { itemWidth: 30, itemGap: 12, line: 22 };
  function legendLines(names, width) {
    const lines = names.reduce(([count, used], name) => {
      const item = LEGEND.itemWidth + LEGEND.itemGap + 5 + 6.6 * name.length;
      return used + item > width - 10 ? [count + 1, item] : [count, used + item];
    }, [1, 0]);
    return lines[0];
  }

  // Medians and limits decide how far the y axis reaches: one wide interval must not flatten all lines. Whiskers that go
  // beyond end in an arrow at the frame. Returns what lies in it, and the frame where something was cut.
  function reach(chart, all, ticks) {
    const sure = [...all.map(point => point[1]), ...chart.limits.map(limit => place(chart.y, limit.at))].filter(Number.isFinite);
    const least = Math.min(...sure), most = Math.max(...sure);
    const { scale } = chart.y;
    const room = scale === "log" ? 1 : scale === "linear" ? .2 * most : Math.max(.5 * (most - least), .1 * Math.abs(most));
    const from = scale === "linear" ? 0 : least - room, to = most + room;
    const every = [...sure, ...all.flatMap(point => point.slice(2, 4)).filter(Number.isFinite)];
    const ys = every.map(y => Math.min(to, Math.max(from, y)));
    if (every.every((y, index) => y === ys[index])) return { ys };
    const low = Math.min(...ys), high = Math.max(...ys), rough = (high - low) / ticks;
    const step = [1, 2, 5, 10].map(n => n * 10 ** Math.floor(Math.log10(rough))).find(step => step >= rough);
    return { ys, frame: { min: Math.floor(low / step) * step, max: Math.ceil(high / step) * step, interval: step } };
  }

  function option(chart, { clientWidth: width, clientHeight: height }, theme) {
    const all = chart.series.flatMap(series => points(chart, series));
    const rows = height < 300 ? 4 : 8, { ys, frame } = reach(chart, all, rows), xs = all.map(point => point[0]);
    const x = axis(chart.x, xs, Math.max(4, Math.min(9, Math.floor(width / 72))), theme), y = axis(chart.y, ys, rows, theme, frame);
    const range = isLog(chart.x) ? [x.min, x.max] : [Math.min(...xs), Math.max(...xs)];
    const names = chart.series.map(series => series.name), named = names.length > 1;
    const lines = named ? legendLines(names, width) : 0;
    const deep = x.axisLabel.rotate ? 4.4 * Math.max(...chart.x.names.map(name => name.length)) : 0;
    return {
      animation: false, backgroundColor: theme.raised, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      grid: { left: 66, right: 30, top: [12, 26][chart.marks.length] ?? 42, bottom: 50 + deep + LEGEND.line * lines },
      xAxis: { ...x, nameGap: 28 + deep }, yAxis: { ...y, nameGap: 48 },
      legend: {
        show: named, bottom: 0, itemWidth: LEGEND.itemWidth, itemGap: LEGEND.itemGap, inactiveColor: theme.faint,
        textStyle: { color: theme.ink }, data: names,
        selected: Object.fromEntries(chart.series.map(series => [series.name, series.shown])),
      },
      tooltip: tooltip(chart, theme),
      series: [
        ...chart.series.map(series => body(chart, series, theme)),
        ...chart.series.flatMap((series, index) => !series.points.some(p => p[3] > p[2]) ? []
          : [whiskers(chart, series, index, series.shape === "bar" ? theme.ink : theme.palette[series.colour % 8])]),
        backdrop(chart, range, theme),
      ],
    };
  }

  function makeRoom(box, chart) {
    const lines = legendLines(chart.series.map(series => series.name), box.clientWidth);
    box.style.setProperty("--legend", LEGEND.line * (lines - 1) + "px");
  }

  // What the reader picked in a legend outlives a redraw.
  function redraw() {
    const theme = colours();
    // What is folded away has no width.
    for (const { box, chart, view } of drawn.filter(({ box }) => box.clientWidth > 0)) {
      const picked = view.getOption()?.legend?.[0]?.selected;
      makeRoom(box, chart);
      view.resize();
      const next = option(chart, box, theme);
      if (picked) next.legend.selected = picked;
      view.setOption(next);
    }
  }

  async function library() {
    const packed = Uint8Array.from(atob(document.getElementById("library").textContent), letter => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  function watch() {
    let waiting;
    const later = () => { clearTimeout(waiting); waiting = setTimeout(redraw, 80); };
    addEventListener("resize", later);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    // Paper is white.
    addEventListener("beforeprint", () => { root.dataset.theme = "light"; redraw(); });
    addEventListener("afterprint", () => { delete root.dataset.theme; redraw(); });
  }

  // The first part is open, the others when the reader asks for them, here or in the contents.
  function fold() {
    const parts = [...document.querySelectorAll("details.part")];
    for (const part of parts.slice(1)) part.open = false;
    for (const part of parts) part.addEventListener("toggle", redraw);
    const reveal = id => {
      const part = id && document.getElementById(id)?.querySelector("details.part");
      if (part) { part.open = true; part.scrollIntoView(); }
    };
    for (const link of document.querySelectorAll("a[href^='#']")) {
      link.addEventListener("click", () => reveal(link.hash.slice(1)));
    }
    addEventListener("hashchange", () => reveal(location.hash.slice(1)));
    reveal(location.hash.slice(1));
  }

  // Tables of rows: found, sorted and taken along. What is shown is what is downloaded.
  const cells = row => [...row.cells].map(cell => cell.textContent.trim());
  const amount = text => {
    const [, number, unit] = text.match(/^~?([-+]?[\d.]+(?:e[-+]?\d+)?)\s*([KMGT]iB)?/) ?? [];
    return number === undefined ? NaN : Number(number) * 1024 ** ["", "KiB", "MiB", "GiB", "TiB"].indexOf(unit ?? "");
  };
  const quoted = text => /[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  function tools(box) {
    const table = box.querySelector("table"), body = table.tBodies[0], rows = [...body.rows];
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    const names = heads.map(head => head.textContent.trim());
    const bar = document.createElement("div"), count = document.createElement("span");
    const add = (tag, text, made = {}) => bar.appendChild(Object.assign(document.createElement(tag), { textContent: text, ...made }));
    bar.className = "tools";
    const find = add("input", "", { type: "search", placeholder: "find rows: triad nt memory" });
    find.setAttribute("aria-label", "Find rows that hold all of these words");
    const shown = () => rows.filter(row => !row.hidden);
    const filter = () => {
      const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const own = cells(row).map(text => text.toLowerCase());
        row.hidden = !words.every(word => own.some(text => text.includes(word)));
      }
      count.textContent = shown().length + " of " + rows.length + " rows";
    };
    find.addEventListener("input", filter);
    add("button", "CSV", { type: "button" }).addEventListener("click", () =>
      save("rows.csv", "text/csv", [names, ...[...body.rows].filter(row => !row.hidden).map(cells)].map(line => line.map(quoted).join(",")).join("\n") + "\n"));
    add("button", "JSON", { type: "button" }).addEventListener("click", () =>
      save("rows.json", "application/json", JSON.stringify([...body.rows].filter(row => !row.hidden).map(row => Object.fromEntries(cells(row).map((text, index) => [names[index] || "name", text]))), null, 1)));
    bar.append(count);
    box.before(bar);
    heads.forEach((head, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const keyed = rows.map(row => { const text = cells(row)[index] ?? ""; return [row, text, amount(text)]; });
        const order = ([, a, x], [, b, y]) => Number.isNaN(x) || Number.isNaN(y) ? Number.isNaN(x) - Number.isNaN(y) || a.localeCompare(b) : x - y;
        keyed.sort((a, b) => rising ? order(a, b) : order(b, a));
        body.append(...keyed.map(([row]) => row));
      });
    });
    filter();
  }

  async function start() {
    root.dataset.errors = errors;
    const charts = JSON.parse(document.getElementById("data").textContent);
    // A point without an interval is written as x, value, number of samples.
    const whole = point => point.length === 3 ? [point[0], point[1], point[1], point[1], point[2]] : point;
    charts.flatMap(chart => chart.series).forEach(series => { series.points = series.points.map(whole); });
    if (charts.length) {
      await library();
      root.classList.add("scripted");
      const theme = colours();
      document.querySelectorAll(".chart").forEach((box, index) => {
        try {
          makeRoom(box, charts[index]);
          const view = echarts.init(box, null, { renderer: "svg" });
          view.setOption(option(charts[index], box, theme));
          drawn.push({ box, chart: charts[index], view });
        } catch (error) { failed(error); }
      });
      watch();
    }
    document.querySelectorAll(".box.sortable").forEach(tools);
    fold();
    root.dataset.charts = drawn.length;
  }

  // What a test asks of a drawn page.
  start().catch(failed).finally(() => {
    root.dataset.background = getComputedStyle(document.body).backgroundColor;
    root.dataset.scrollWidth = root.scrollWidth;
    root.dataset.innerWidth = innerWidth;
    root.dataset.ready = "1";
  });
})();
