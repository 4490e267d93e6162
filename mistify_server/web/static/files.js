"use strict";

// Files that are chosen or dropped on the editor are uploaded, and named in the config by their content.
const chosen = document.getElementById("files");
const sent = document.getElementById("sent");
const editor = document.getElementById("config");

// A browser computes a digest of a whole file in memory.
const MOST_BYTES = 1e9;

async function digestOf(file) {
  if (!crypto.subtle) throw new Error("browsers send files only over HTTPS, or to localhost; use mistify port");
  if (file.size > MOST_BYTES) throw new Error(`${file.name} has more than 1 GB; use mistify port`);
  const digest = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function upload(file) {
  const digest = await digestOf(file);
  const response = await fetch(`/v1/files/${digest}`, { method: "PUT", body: file });
  if (!response.ok) throw new Error(`${file.name}: ${(await response.json()).detail}`);
  return `upload:${digest}/${file.name}`;
}

// Replaces texts such as "train.npz", "data/train.npz" or "net.onnx?image=3,32,32" in the config. If there is none, or
// files of this name in several directories, the new name is inserted instead.
function nameInConfig(file, name) {
  const escaped = JSON.stringify(file.name).slice(1, -1).replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const old = new RegExp(`"((?:[^"\\\\\n]*/)?${escaped})((?:[?:][^"\\\\\n]*)?)"`, "g");
  const paths = new Set([...editor.value.matchAll(old)].map((match) => match[1]));
  if (paths.size === 1) editor.value = editor.value.replace(old, (text, path, options) => JSON.stringify(name + options));
  else editor.setRangeText(JSON.stringify(name), editor.selectionStart, editor.selectionEnd, "end");
  editor.dispatchEvent(new Event("input"));
}

async function add(files) {
  const names = [];
  try {
    for (const file of files) {
      sent.textContent = `Sending ${file.name}...`;
      nameInConfig(file, await upload(file));
      names.push(file.name);
    }
    sent.textContent = `Sent ${names.join(", ")}.`;
    sent.className = "";
  } catch (error) {
    sent.textContent = error.message;
    sent.className = "problem";
  }
  chosen.value = "";
}

// Directories have no content that can be sent.
function droppedFiles(transfer) {
  const entries = [...transfer.items].filter((item) => item.kind === "file");
  if (entries.some((item) => item.webkitGetAsEntry()?.isDirectory)) {
    sent.textContent = "Only files can be dropped; mistify port sends directories.";
    sent.className = "problem";
    return [];
  }
  return [...transfer.files];
}

chosen.addEventListener("change", () => add([...chosen.files]));
editor.addEventListener("dragover", (event) => {
  if (event.dataTransfer.types.includes("Files")) event.preventDefault();
});
editor.addEventListener("drop", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  const files = droppedFiles(event.dataTransfer);
  if (files.length) add(files);
});
