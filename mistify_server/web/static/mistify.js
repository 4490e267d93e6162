"use strict";

// A job's page follows its events: what is under way is shown as it comes, the rest of the page is asked for
// anew when a goal or the job changes.
const REFRESH_MS = 250;

function follow(live) {
  if (live.dataset.ended === "yes") return;
  const { job, after } = live.dataset;
  const events = new EventSource(`/v1/jobs/${encodeURIComponent(job)}/events?after=${after}`);
  const shown = new Map();
  for (const item of live.querySelectorAll("#progress li")) shown.set(item.dataset.subject, item.dataset.line);
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
    if (window.drawPlots) window.drawPlots();
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
    const event = JSON.parse(message.data);
    const { stage, step, total_steps: total } = event.event;
    shown.set(event.goal_id ?? "source", total ? `${stage}, step ${step} of ${total}` : stage);
    showProgress();
  });
  events.addEventListener("goal", (message) => {
    const event = JSON.parse(message.data);
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
