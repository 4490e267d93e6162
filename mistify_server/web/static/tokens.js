"use strict";

const answer = document.getElementById("answer");

async function changed(method, path, body) {
  const response = await fetch(path, {
    method, body: body && JSON.stringify(body), headers: body ? { "content-type": "application/json" } : {},
  });
  if (response.ok) return response;
  const { detail, problems } = await response.json();
  answer.textContent = problems.length ? `${problems[0].expected}; ${problems[0].fix}` : detail;
  return null;
}

document.getElementById("new-token").addEventListener("submit", async (event) => {
  event.preventDefault();
  answer.textContent = "";
  const scopes = [...document.querySelectorAll("[name=scope]:checked")].map((box) => box.value);
  const days = document.getElementById("days").valueAsNumber || null;
  const name = document.getElementById("name").value;
  const limits = {
    max_uploads: document.getElementById("max-uploads").value || undefined,
    max_jobs: document.getElementById("max-jobs").valueAsNumber || undefined,
    max_workers: document.getElementById("max-workers").valueAsNumber || undefined,
  };
  const response = await changed("POST", "/v1/tokens", { name, scopes, days, ...limits });
  if (!response) return;
  const made = document.getElementById("made");
  made.querySelector("span").textContent = name;
  made.querySelector("code").textContent = (await response.json()).token;
  made.hidden = false;
  event.target.reset();
});

for (const button of document.querySelectorAll("[data-limits]")) {
  button.addEventListener("click", async () => {
    const { limits: name, value } = button.dataset;
    const entered = prompt(`Limits of ${name}: uploads, unfinished jobs, steps in progress ("none" for no limit)`, value);
    if (entered === null) return;
    const [uploads, jobs, workers] = entered.split(",").map((limit) => limit.trim()).map((limit) => limit === "none" ? null : limit);
    const body = { max_uploads: uploads, max_jobs: jobs, max_workers: workers };
    if (await changed("PATCH", `/v1/tokens/${encodeURIComponent(name)}`, body)) location.reload();
  });
}

for (const button of document.querySelectorAll("[data-revoke]")) {
  button.addEventListener("click", async () => {
    const name = button.dataset.revoke;
    if (!confirm(`Revoke the token ${name}? Whoever uses it is refused at once.`)) return;
    if (await changed("DELETE", `/v1/tokens/${encodeURIComponent(name)}`)) location.reload();
  });
}
