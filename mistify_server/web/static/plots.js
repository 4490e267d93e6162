"use strict";

// The colors of a page and the common layout of all plots.
window.plotStyle = function plotStyle() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: color("--line"), zerolinecolor: color("--line"), automargin: true };
  const layout = (x, y) => ({
    autosize: true,
    margin: { l: 50, r: 10, t: 10, b: 45 },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { family: "system-ui, sans-serif", size: 13, color: color("--text") },
    showlegend: false,
    hovermode: "closest",
    xaxis: { ...axis, title: { text: x }, exponentformat: "SI" },
    yaxis: { ...axis, title: { text: y } },
  });
  return { color, layout };
};

// The axis of scores that are shares: as percentages, and not beyond 100 %.
window.shareAxis = function shareAxis(scores) {
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const margin = Math.max(0.01, (high - low) / 10);
  return { tickformat: ".1~%", range: [Math.max(0, low - margin), Math.min(1.005, high + margin)] };
};

// The output whose score is plotted, chosen in a list if there are several; empty for all of them together.
function chosenOutput(plots) {
  const label = document.getElementById("plotted");
  const select = label.querySelector("select");
  const outputs = [...new Set(plots.map(({ output }) => output))];
  label.hidden = outputs.length < 2;
  if (!select.options.length) {
    select.append(...outputs.map((output) => new Option(output || "of all outputs", output)));
    select.addEventListener("change", window.drawPlots);
  }
  return select.value;
}

// The plots of a job, from the data in its page.
window.drawPlots = function drawPlots() {
  const data = document.getElementById("plots-data");
  const place = document.getElementById("plots");
  if (!data || !place || !window.Plotly) return;
  const { color, layout } = window.plotStyle();
  const colors = { best: color("--soft"), met: color("--good"), "not met": color("--bad"), source: color("--accent") };
  const all = JSON.parse(data.textContent);
  const plots = all.filter(({ output }) => output === chosenOutput(all));
  // Create all elements first, because their width depends on their number.
  place.replaceChildren(...plots.map(({ batch }) => {
    const figure = document.createElement("figure");
    if (batch) figure.append(Object.assign(document.createElement("figcaption"), { textContent: batch }));
    figure.append(Object.assign(document.createElement("div"), { className: "plot" }));
    return figure;
  }));
  plots.forEach((plot, index) => {
    const drawing = place.children[index].lastChild;
    const traces = plot.traces.map((trace) => ({
      ...trace,
      type: "scatter",
      marker: { ...trace.marker, color: colors[trace.name] },
      line: { ...trace.line, color: colors[trace.name] },
    }));
    // Draw all limits as one trace: a thousand shapes would take half a minute.
    traces.push({
      type: "scatter", mode: "lines", yaxis: "y2", hoverinfo: "skip", showlegend: false,
      line: { color: color("--soft"), width: 1, dash: "dash" },
      x: plot.limits.flatMap((limit) => [limit, limit, null]),
      y: plot.limits.flatMap(() => [0, 1, null]),
    });
    const limits = { yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false } };
    const shown = { ...layout(plot.title, plot.score), ...limits };
    if (plot.share) Object.assign(shown.yaxis, window.shareAxis(plot.traces.flatMap(({ y }) => y)));
    window.Plotly.newPlot(drawing, traces, shown, { displayModeBar: false, responsive: true });
    drawing.on("plotly_click", ({ points }) => {
      const goal = points[0].customdata;
      if (goal) location.href = place.dataset.goals + encodeURIComponent(goal);
    });
  });
};

window.drawPlots();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", window.drawPlots);
