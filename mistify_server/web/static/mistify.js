"use strict";

// The page of a job or goal follows its events: progress is shown immediately, and the rest of the page is
// reloaded when the job or a goal on the page changes.
const REFRESH_MS = 250;
const RETRY_MS = 2000;
const RECONNECT_MS = 5000;

function follow(live) {
  if (live.dataset.ended === "yes") return;
  const { job, goal } = live.dataset;
  const shown = new Map();
  for (const item of live.querySelectorAll("#progress li")) {
    const bar = item.querySelector("progress");
    const { subject, stage } = item.dataset;
    shown.set(subject, { stage, step: bar?.value ?? 0, total: bar?.max ?? 0 });
  }
  let known = Number(live.dataset.after); // the last event included in the page
  let last = known; // the last received event
  let newer = []; // curve points that the page does not include yet
  let ended = false;
  let events = null;
  let waiting = null;
  let busy = false, again = false;

  function refreshIn(milliseconds) {
    if (busy) again = true;
    else waiting ??= setTimeout(refresh, milliseconds);
  }

  // One request at a time, so that responses arrive in order.
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

  // Returns the new content; null without a response, or if it is older than the current content.
  async function latest() {
    try {
      const answer = await fetch(location.href);
      // The reloaded page asks for a login, or reports that the job was removed.
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
    window.arrangeGoals?.();
    window.drawPlots?.();
    window.readCurves?.();
    newer = newer.filter((event) => event.sequence > known);
    newer.forEach(draw);
    restore(anew);
  }

  function showProgress() {
    const list = document.querySelector("#progress ul");
    if (!list) return;
    while (list.children.length > shown.size) list.lastElementChild.remove();
    [...shown].forEach(([subject, now], index) => {
      const item = list.children[index] ?? list.appendChild(document.createElement("li"));
      showSteps(item, subject, now);
    });
  }

  // Adds a point to the curves; beyond a number of points, loads the server's thinned-out curves.
  function draw({ event }) {
    if (window.addToCurves(event) === false) refreshIn(REFRESH_MS);
  }

  // Announces a state to screen readers; the element is outside the part that is replaced.
  function announce(subject, state) {
    document.getElementById("news").textContent = `${subject}: ${state}`;
  }

  function hearProgress(event) {
    const { stage, step, total_steps: total, job_share: share, seconds_left: left } = event.event;
    const subject = event.goal_id ?? "source";
    // Stages of a goal without steps keep those of its training; pages/progress.py does the same.
    const before = event.goal_id === null ? undefined : shown.get(subject);
    if (total > 1) shown.set(subject, { stage: `${stage}, step ${count(step)} of ${count(total)}`, step, total });
    else shown.set(subject, { stage, step: before?.step ?? 0, total: before?.total ?? 0 });
    showProgress();
    if (share !== null) showShare(share, left);
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
    // Browsers reconnect automatically, except after a response that is not a stream: a proxy's error or a 401.
    stream.addEventListener("error", () => {
      if (stream.readyState === EventSource.CLOSED) setTimeout(resume, RECONNECT_MS);
    });
  }

  // Refresh the page first, so that missed points need not be drawn one by one.
  async function resume() {
    await refresh();
    connect();
  }

  // With HTTP/1.1, browsers open at most six connections to a server, and hidden tabs would use them all.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) events?.close();
    else resume();
  });
  connect();
}

function count(number) {
  return number.toLocaleString("en");
}

// Shows the current work on a subject as text and as a bar of its training steps.
function showSteps(item, subject, { stage, step, total }) {
  const text = item.querySelector("span") ?? item.appendChild(document.createElement("span"));
  const line = `${subject}: ${stage}`;
  if (text.textContent !== line) text.textContent = line;
  let bar = item.querySelector("progress");
  if (!total) {
    bar?.remove();
    return;
  }
  if (!bar) {
    bar = document.createElement("progress");
    item.append(" ", bar);
  }
  bar.ariaLabel = `Steps of ${subject}`;
  bar.max = total;
  bar.value = step;
}

// Shows the share of the job's work that is done, and the time left.
function showShare(share, left) {
  const bar = document.getElementById("share");
  if (!bar) return;
  bar.value = share;
  document.getElementById("left").textContent = `, about ${duration(left)} left`;
}

// Formats a time like duration() in mistify/jobs/formatting.py.
function duration(seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 100) return `${seconds.toFixed(0)} s`;
  return seconds < 6000 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// Remembers focus, scroll positions and what is unfolded; returns a function that restores them in a new part.
function remember(part) {
  const active = document.activeElement;
  const target = (element) => element.getAttribute("href") ?? element.dataset.send ?? element.name;
  // A goal has a link in the tree and one in the table.
  const alike = (within) => (
    [...within.querySelectorAll("[href], [data-send], [name]")].filter((each) => target(each) === target(active))
  );
  const scrolled = (within) => [document.scrollingElement, ...within.querySelectorAll(".scroll")];
  const folded = (within) => [...within.querySelectorAll("details")];
  const focused = alike(part).indexOf(active);
  const { selectionStart: start, selectionEnd: end } = active;
  const positions = scrolled(part).map(({ scrollLeft: left, scrollTop: top }) => ({ left, top }));
  const open = folded(part).map((each) => each.open);
  return (anew) => {
    folded(anew).forEach((each, index) => { each.open = open[index] ?? each.open; });
    scrolled(anew).forEach((each, index) => { if (positions[index]) each.scrollTo(positions[index]); });
    const again = alike(anew)[focused];
    again?.focus({ preventScroll: true });
    if (Number.isInteger(start)) again?.setSelectionRange(start, end);
  };
}

// Sends the request of a button, and then reloads the page or goes to another one.
async function send(button, address, request) {
  button.disabled = true;
  const answer = await fetch(address, request);
  if (!answer.ok) window.alert((await answer.json()).detail);
  if (answer.ok && button.dataset.then) location.href = button.dataset.then;
  else location.reload();
}

const QUESTIONS = { name: "Name of the job", tags: "Tags of the job, separated by spaces" };

// Attaches handlers to buttons and selections that send a request.
function act(part) {
  for (const button of part.querySelectorAll("[data-send]")) {
    button.addEventListener("click", () => {
      if (button.dataset.ask && !window.confirm(button.dataset.ask)) return;
      const [method, address] = button.dataset.send.split(" ");
      send(button, address, { method });
    });
  }
  for (const select of part.querySelectorAll("select[data-change]")) {
    select.addEventListener("change", () => {
      const { change, field } = select.dataset;
      const headers = { "content-type": "application/json" };
      send(select, change, { method: "PATCH", body: JSON.stringify({ [field]: select.value }), headers });
    });
  }
  for (const button of part.querySelectorAll("button[data-change]")) {
    button.addEventListener("click", () => {
      const { change, field, value } = button.dataset;
      const given = window.prompt(QUESTIONS[field], value);
      if (given === null) return;
      const changed = field === "tags" ? given.split(" ").filter(Boolean) : given;
      const headers = { "content-type": "application/json" };
      send(button, change, { method: "PATCH", body: JSON.stringify({ [field]: changed }), headers });
    });
  }
}

const live = document.getElementById("live");
if (live) follow(live);
act(live ?? document);
