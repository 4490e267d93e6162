"use strict";

const form = document.getElementById("login");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = document.getElementById("token").value;
  const response = await fetch("/v1/session", {
    method: "POST", body: JSON.stringify({ token }), headers: { "content-type": "application/json" },
  });
  if (!response.ok) {
    document.getElementById("answer").textContent = (await response.json()).detail;
    return;
  }
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  const target = new URL(next, location.origin);
  location.href = target.origin === location.origin ? target.href : "/";
});
