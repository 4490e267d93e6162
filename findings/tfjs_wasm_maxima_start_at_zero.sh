#!/usr/bin/env bash
# TensorFlow.js 4.22.0 with the WASM backend: the maxima of negative numbers are 0 in maxPool3d and dilation2d.
#
# Expected: a pool takes the largest number of each window, and a dilation the largest sum with its kernel, as with the
# CPU backend and in TensorFlow for Python.
# Observed: the search for the maximum starts at the smallest positive float32, 1.2e-38, instead of the smallest number:
# it is the result wherever all numbers are negative. A network of a video or volume with a pool behind a batch norm, or
# behind any activation with negative values, loses them, as if there was a ReLU. There is no warning; maxPool is right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-backend-cpu@4.22.0 @tensorflow/tfjs-backend-wasm@4.22.0
cat > run.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import path from "node:path";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import { setWasmPaths } from "@tensorflow/tfjs-backend-wasm";

console.log("TensorFlow.js", tf.version_core);
setWasmPaths(path.resolve("node_modules/@tensorflow/tfjs-backend-wasm/dist") + "/");
const SMALLEST = 2 ** -126;

// All take the maximum of each pair of a row.
const operators = {
  maxPool: (row) => tf.maxPool(tf.tensor(row, [1, 1, row.length, 1]), [1, 2], [1, 2], "valid"),
  maxPool3d: (row) => tf.maxPool3d(tf.tensor(row, [1, 1, 1, row.length, 1]), [1, 1, 2], [1, 1, 2], "valid"),
  dilation2d: (row) => tf.dilation2d(tf.tensor(row, [1, 1, row.length, 1]), tf.zeros([1, 2, 1]), [1, 2], "valid"),
};
const row = [-4, -3, -2, -1, -1, 2, 5, 7];
const expected = [0, 2, 4, 6].map((place) => Math.max(row[place], row[place + 1]));
for (const [name, operator] of Object.entries(operators)) {
  const results = {};
  for (const backend of ["cpu", "wasm"]) {
    await tf.setBackend(backend);
    results[backend] = [...(await operator(row).data())];
  }
  console.log(name, "of", row, "by hand", expected, "CPU", results.cpu, "WASM", results.wasm);
  assert.deepEqual(results.cpu, expected);
  const started = expected.map((maximum) => Math.max(maximum, SMALLEST));
  assert.deepEqual(results.wasm, name === "maxPool" ? expected : started);
}
JAVASCRIPT
node run.mjs
