"use strict";

// The page of a job or of a goal follows the events: what is under way is shown as it comes, the rest of the page
// is asked for anew when a goal of the page, or the job, changes.
const REFRESH_MS = 250;

function follow(live) {
  if (live.dataset.ended === "yes") return;
  const { job, after } = live.dataset;
  const events = new EventSource(`/v1/jobs/${encodeURIComponent(job)}/events?after=${after}`);
  const shown = new Map();
  for (const item of live.querySelectorAll("#progress li")) shown.set(item.dataset.subject, item.dataset.line);
  let known = Number(after);
  let waiting = null;

  function refreshSoon() {
    if (waiting === null) waiting = setTimeout(refresh, REFRESH_MS);
  }

  async function refresh() {
    waiting = null;
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const anew = page.getElementById("live");
    document.getElementById("live").replaceWith(anew);
    if (anew.dataset.ended === "yes") events.close();
    showProgress();
    act(anew);
    known = Number(anew.dataset.after);
    window.drawPlots?.();
    window.readCurves?.();
  }

  // Reads an event; null if it is of another goal than the page.
  function read(message) {
    const event = JSON.parse(message.data);
    return [undefined, event.goal_id].includes(live.dataset.goal) ? event : null;
  }

  function showProgress() {
    const list = document.querySelector("#progress ul");
    if (!list) return;
    list.replaceChildren(...[...shown].map(([subject, line]) => {
      const item = document.createElement("li");
      item.textContent = `${subject}: ${line}`;
      return item;
    }));
  }

  events.addEventListener("progress", (message) => {
    const event = read(message);
    if (!event) return;
    const { stage, step, total_steps: total } = event.event;
    shown.set(event.goal_id ?? "source", total ? `${stage}, step ${step} of ${total}` : stage);
    showProgress();
    if (event.sequence > known && window.addToCurves?.(event.event) === false) refreshSoon();
  });
  events.addEventListener("goal", (message) => {
    const event = read(message);
    if (!event) return;
    shown.delete(event.event === "running" ? "source" : event.goal_id);
    refreshSoon();
  });
  events.addEventListener("job", () => {
    shown.clear();
    refreshSoon();
  });
}

// Buttons that ask the server to do something.
function act(part) {
  for (const button of part.querySelectorAll("[data-post]")) {
    button.addEventListener("click", async () => {
      if (!window.confirm(button.dataset.ask)) return;
      button.disabled = true;
      await fetch(button.dataset.post, { method: "POST" });
      location.reload();
    });
  }
}

const live = document.getElementById("live");
if (live) {
  follow(live);
  act(live);
}
