"use strict";

// The page of a job or of a goal follows the events: what is under way is shown as it comes, the rest of the page
// is asked for anew when a goal of the page, or the job, changes.
const REFRESH_MS = 250;
const RETRY_MS = 2000;
const RECONNECT_MS = 5000;

function follow(live) {
  if (live.dataset.ended === "yes") return;
  const { job, goal } = live.dataset;
  const shown = new Map();
  for (const item of live.querySelectorAll("#progress li")) shown.set(item.dataset.subject, item.dataset.line);
  let known = Number(live.dataset.after); // the last event that the page has
  let last = known; // the last event that was heard
  let newer = []; // points of the curves that the page does not have
  let ended = false;
  let events = null;
  let waiting = null;
  let busy = false, again = false;

  function refreshIn(milliseconds) {
    if (busy) again = true;
    else waiting ??= setTimeout(refresh, milliseconds);
  }

  // One request at a time, so that no answer comes out of order.
  async function refresh() {
    clearTimeout(waiting);
    waiting = null;
    if (ended || document.hidden) return;
    again = busy;
    if (busy) return;
    busy = true;
    const anew = await latest();
    busy = false;
    if (anew) show(anew);
    if (!anew) refreshIn(RETRY_MS);
    else if (again) refreshIn(REFRESH_MS);
  }

  // Returns what is to be shown from now on; null without an answer, and where it is older than what is shown.
  async function latest() {
    try {
      const answer = await fetch(location.href);
      // Leads to the log-in, or says that the job was removed.
      if (answer.status === 401 || answer.status === 404) location.reload();
      if (!answer.ok) return null;
      const anew = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      return anew && Number(anew.dataset.after) >= known ? anew : null;
    } catch {
      return null;
    }
  }

  function show(anew) {
    const before = document.getElementById("live");
    const restore = remember(before);
    before.replaceWith(anew);
    known = Number(anew.dataset.after);
    ended = anew.dataset.ended === "yes";
    if (ended) events?.close();
    showProgress();
    act(anew);
    window.drawPlots?.();
    window.readCurves?.();
    newer = newer.filter((event) => event.sequence > known);
    newer.forEach(draw);
    restore(anew);
  }

  function showProgress() {
    const list = document.querySelector("#progress ul");
    if (!list) return;
    const lines = [...shown].map(([subject, line]) => `${subject}: ${line}`);
    while (list.children.length > lines.length) list.lastElementChild.remove();
    lines.forEach((line, index) => {
      const item = list.children[index] ?? list.appendChild(document.createElement("li"));
      if (item.textContent !== line) item.textContent = line;
    });
  }

  // Adds a point to the curves; once they have many, the server's are thinner.
  function draw({ event }) {
    if (window.addToCurves(event) === false) refreshIn(REFRESH_MS);
  }

  // Has a state read aloud; its place is not in the part that is replaced.
  function announce(subject, state) {
    document.getElementById("news").textContent = `${subject}: ${state}`;
  }

  function hearProgress(event) {
    const { stage, step, total_steps: total } = event.event;
    shown.set(event.goal_id ?? "source", total ? `${stage}, step ${step} of ${total}` : stage);
    showProgress();
    if (event.sequence <= known || !window.addToCurves) return;
    newer.push(event);
    draw(event);
  }

  function hearGoal({ goal_id: id, event: state }) {
    shown.delete(state === "running" ? "source" : id);
    announce(id, state);
    refreshIn(REFRESH_MS);
  }

  function hearJob({ event: state }) {
    shown.clear();
    announce(job, state);
    refreshIn(REFRESH_MS);
  }

  function connect() {
    events?.close();
    if (ended || document.hidden) return;
    const stream = new EventSource(`/v1/jobs/${encodeURIComponent(job)}/events?after=${last}`);
    events = stream;
    const hear = (kind, take, concerns) => stream.addEventListener(kind, (message) => {
      const event = JSON.parse(message.data);
      last = event.sequence;
      if (concerns(event)) take(event);
    });
    const isShown = ({ goal_id: id }) => goal === undefined || id === goal;
    hear("progress", hearProgress, isShown);
    hear("goal", hearGoal, isShown);
    hear("job", hearJob, () => true);
    // A browser reconnects by itself, except after an answer that is not a stream: a proxy's error, or a 401.
    stream.addEventListener("error", () => {
      if (stream.readyState === EventSource.CLOSED) setTimeout(resume, RECONNECT_MS);
    });
  }

  // The page comes first: then the points that were missed need not be drawn one by one.
  async function resume() {
    await refresh();
    connect();
  }

  // Browsers open at most six connections to a server by HTTP/1.1, and hidden tabs would take them all.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) events?.close();
    else resume();
  });
  connect();
}

// Notes what has the focus and how far everything is scrolled; returns a function that restores both in a new part.
function remember(part) {
  const active = document.activeElement;
  const target = (element) => element.getAttribute("href") ?? element.dataset.post;
  // A goal has a link in the tree and one in the table.
  const alike = (within) => (
    [...within.querySelectorAll("[href], [data-post]")].filter((each) => target(each) === target(active))
  );
  const scrolled = (within) => [document.scrollingElement, ...within.querySelectorAll(".scroll")];
  const focused = alike(part).indexOf(active);
  const positions = scrolled(part).map(({ scrollLeft: left, scrollTop: top }) => ({ left, top }));
  return (anew) => {
    scrolled(anew).forEach((each, index) => each.scrollTo(positions[index]));
    alike(anew)[focused]?.focus({ preventScroll: true });
  };
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
