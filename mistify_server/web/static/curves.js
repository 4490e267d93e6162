"use strict";

// The training curves of a goal, from the data in its page and from later events.
(() => {
  let curves = null;
  const number = (value) => value !== null && value !== undefined;

  // A retried task, or another task of the same goal, restarts its step count.
  function steps(points) {
    let before = 0, last = 0;
    return points.map(({ step }) => {
      if (step < last) before += last;
      last = step;
      return before + step;
    });
  }

  function plots({ points, labels, metric, share }) {
    const x = steps(points);
    const trace = (name, of) => {
      const shown = points.flatMap((point, index) => number(of(point)) ? [[x[index], of(point)]] : []);
      return { name, x: shown.map(([at]) => at), y: shown.map(([, value]) => value) };
    };
    const byAxis = (part) => Object.keys(labels)
      .map((axis) => trace(labels[axis], (point) => point[part][axis]))
      .filter((drawn) => drawn.x.length);
    const weights = byAxis("structure_loss_weights");
    return [
      { title: "Training loss", traces: [trace("loss", (point) => point.loss)] },
      { title: `Validation data: ${metric}`, traces: [trace(metric, (point) => point.accuracy)], share },
      { title: "Costs, as multiples of their limits", traces: byAxis("relative_costs"), limit: 1 },
      // A single limit always has the full weight.
      { title: "Weights of the structure losses", traces: weights.length > 1 ? weights : [], range: [0, 1.05] },
    ].filter(({ traces }) => traces.some((drawn) => drawn.x.length));
  }

  function stages(points) {
    const x = steps(points);
    return points.flatMap(({ stage }, index) => stage !== points[index - 1]?.stage ? [{ stage, at: x[index] }] : []);
  }

  window.drawCurves = function drawCurves() {
    const place = document.getElementById("curves");
    if (!place || !curves || !window.Plotly) return;
    const { color, layout } = window.plotStyle();
    const all = layout("training steps", "");
    const drawn = plots(curves);
    document.getElementById("training").hidden = !drawn.length;
    while (place.children.length > drawn.length) place.lastChild.remove();
    while (place.children.length < drawn.length) {
      const figure = document.createElement("figure");
      const drawing = Object.assign(document.createElement("div"), { className: "plot" });
      figure.append(document.createElement("figcaption"), drawing);
      place.append(figure);
    }
    const begun = stages(curves.points);
    const end = Math.max(...steps(curves.points), 1);
    const colors = ["--accent", "--run", "--good", "--bad", "--soft"].map(color);
    drawn.forEach(({ title, traces, limit, range, share }, index) => {
      const lines = begun.slice(1).map(({ at }) => (
        { type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: color("--line"), width: 1 } }
      ));
      if (limit) {
        const dashed = { color: color("--soft"), width: 1, dash: "dash" };
        lines.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: limit, y1: limit, line: dashed });
      }
      const [caption, drawing] = place.children[index].children;
      caption.textContent = title;
      // The name of a short stage would overlap the next one.
      const long = begun.filter(({ at }, stage) => (begun[stage + 1]?.at ?? end) - at >= 0.15 * end);
      const names = long.map(({ stage, at }) => (
        { text: stage, x: at, yref: "paper", y: 1, xanchor: "left", yanchor: "bottom", showarrow: false,
          font: { size: 11, color: color("--soft") } }
      ));
      window.Plotly.react(
        drawing,
        traces.map((trace, at) => ({
          ...trace,
          type: "scatter",
          mode: trace.x.length > 40 ? "lines" : "lines+markers",
          line: { color: colors[at % colors.length], dash: ["solid", "dash", "dot"][at % 3] },
          hovertemplate: `%{y:${share ? ".1~%" : ".4g"}} at step %{x}<extra>${trace.name}</extra>`,
        })),
        {
          ...all,
          xaxis: { ...all.xaxis, range: [-0.02 * end, 1.02 * end] },
          yaxis: {
            ...all.yaxis,
            ...(range ? { range } : {}),
            ...(share ? window.shareAxis(traces.flatMap(({ y }) => y)) : {}),
          },
          margin: { l: 45, r: 10, t: 22, b: 45 },
          showlegend: traces.length > 1,
          legend: { orientation: "h", y: -0.3, yanchor: "top" },
          shapes: lines,
          annotations: names,
        },
        { displayModeBar: false, responsive: true },
      );
    });
  };

  // Reads the data of the page.
  window.readCurves = function readCurves() {
    const data = document.getElementById("curves-data");
    if (data) curves = JSON.parse(data.textContent);
    window.drawCurves();
  };

  // Adds a later point; returns false once there are so many that the server's thinned-out curve should replace them.
  window.addToCurves = function addToCurves(point) {
    if (!curves || (!number(point.loss) && !Object.keys(point.relative_costs).length)) return true;
    curves.points.push(point);
    window.drawCurves();
    return curves.points.length < 1000;
  };

  window.readCurves();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", window.drawCurves);
})();
