"use strict";

document.getElementById("log-out").addEventListener("click", async () => {
  const response = await fetch("/v1/session", { method: "DELETE" });
  if (response.ok) location.href = "/login";
});
