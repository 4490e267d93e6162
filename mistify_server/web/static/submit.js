"use strict";

// The editor: line numbers, errors marked at their lines, the plan, and the started job.
const form = document.getElementById("submit");
const config = document.getElementById("config");
const lines = document.getElementById("lines");
const answer = document.getElementById("answer");
const busy = document.getElementById("busy");

function numberLines(wrong = new Set()) {
  const count = config.value.split("\n").length;
  lines.replaceChildren(...Array.from({ length: count }, (_, index) => {
    const line = document.createElement("span");
    line.textContent = `${index + 1}\n`;
    if (wrong.has(index + 1)) line.className = "wrong";
    return line;
  }));
  lines.scrollTop = config.scrollTop;
}

function goTo(line) {
  const before = config.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  const end = config.value.indexOf("\n", before);
  config.focus();
  config.setSelectionRange(before, end < 0 ? config.value.length : end);
}

function element(name, text, className) {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function showProblems(details) {
  const list = document.createElement("ul");
  for (const problem of details.problems) {
    const item = document.createElement("li");
    const place = element(problem.line ? "a" : "span", problem.line ? `line ${problem.line}` : problem.place);
    if (problem.line) {
      place.href = "#config";
      place.addEventListener("click", (event) => { event.preventDefault(); goTo(problem.line); });
      item.append(place, " ", element("span", problem.place, "place"));
    } else {
      item.append(place);
    }
    item.append(`: got ${problem.value}; expected ${problem.expected}; ${problem.fix}`);
    list.append(item);
  }
  answer.replaceChildren(element("p", details.detail, "problem"), list);
  numberLines(new Set(details.problems.map((problem) => problem.line).filter(Boolean)));
}

// Formats a share as a percentage and an error as a number.
function scoreInterval(metric, interval) {
  if (!interval) return "";
  const isError = ["mse", "mae"].includes(metric) || metric.endsWith("_error");
  const shown = (figure) => isError ? Number(figure.toPrecision(4)) : (100 * figure).toFixed(1);
  return `${shown(interval.middle)}${isError ? "" : " %"} (${shown(interval.low)} to ${shown(interval.high)})`;
}

function showPlan(plan) {
  const parts = [];
  for (const batch of plan.batches) {
    parts.push(element("h2", `Plan of ${batch.model}: about ${Math.ceil(batch.seconds)} s`));
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const title of ["Goals", "From", "Algorithm", batch.metric, "Seconds", ""]) head.append(element("th", title));
    const body = table.createTBody();
    for (const edge of batch.edges) {
      const row = body.insertRow();
      const figures = [edge.goals.join(", "), edge.parent ?? "source", edge.algorithm || "-",
        scoreInterval(batch.metric, edge.accuracy), Math.ceil(edge.seconds), edge.warning];
      for (const figure of figures) row.append(element("td", figure));
    }
    const scroll = element("div", "", "scroll");
    scroll.append(table);
    parts.push(scroll);
  }
  for (const limit of plan.out_of_reach) {
    parts.push(element("p", `${limit.goal}: ${limit.limit} ${limit.value} is out of reach; the nearest is ${limit.nearest}`, "problem"));
  }
  answer.replaceChildren(...parts);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const planned = event.submitter?.value === "plan";
  const buttons = [...form.querySelectorAll("button")];
  buttons.forEach((button) => { button.disabled = true; });
  busy.textContent = planned ? "Planning..." : "Checking...";
  numberLines();
  answer.replaceChildren();
  try {
    const response = await fetch(planned ? "/v1/plans" : "/v1/jobs", {
      method: "POST", body: config.value, headers: { "content-type": "application/json" },
    });
    const content = await response.json();
    if (!response.ok) showProblems(content);
    else if (planned) showPlan(content);
    else location.href = `/jobs/${encodeURIComponent(content.job.id)}`;
  } catch (error) {
    answer.replaceChildren(element("p", `The server cannot be reached (${error.message}); try again.`, "problem"));
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
    busy.textContent = "";
  }
});
config.addEventListener("input", () => numberLines());
config.addEventListener("scroll", () => { lines.scrollTop = config.scrollTop; });
numberLines();
