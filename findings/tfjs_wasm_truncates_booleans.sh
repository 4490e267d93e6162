#!/usr/bin/env bash
# TensorFlow.js 4.22.0 with the WASM backend: numbers that are cast to booleans are truncated to bytes.
#
# Expected: `tf.cast(x, "bool")` is true for each number but 0, as with the CPU backend and in TensorFlow for Python.
# Observed: 0.5 and 256 become false, and 2 and -1 become the booleans 2 and 255. Their negations are 3 and 254, which
# are true as well, and a sum of booleans counts up to 255 for one of them. `tf.where` thus replaces values that are to
# stay, and a mask of attention made of weights between 0 and 1 hides everything. There is no warning.
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
const numbers = [0, 0.5, 1, 2, -1, 256];
const truths = numbers.map((number) => Number(number !== 0));
const count = truths.reduce((sum, truth) => sum + truth);

// Return what a backend makes of the numbers.
async function computed(backend) {
  await tf.setBackend(backend);
  const booleans = tf.cast(tf.tensor(numbers), "bool");
  const values = async (tensor) => [...(await tensor.data())];
  return {
    booleans: await values(booleans),
    negations: await values(tf.logicalNot(booleans)),
    count: (await values(tf.sum(tf.cast(booleans, "float32"))))[0],
    chosen: await values(tf.where(booleans, tf.ones([6]), tf.fill([6], 9))),
  };
}

const [cpu, wasm] = [await computed("cpu"), await computed("wasm")];
console.log("numbers", numbers, "\nCPU", cpu, "\nWASM", wasm);
assert.deepEqual(cpu, {
  booleans: truths,
  negations: truths.map((truth) => 1 - truth),
  count,
  chosen: truths.map((truth) => (truth ? 1 : 9)),
});
const bytes = numbers.map((number) => Math.trunc(number) & 255);
assert.deepEqual(wasm, {
  booleans: bytes,
  negations: bytes.map((byte) => byte ^ 1),
  count: bytes.reduce((sum, byte) => sum + byte),
  chosen: bytes.map((byte) => (byte ? 1 : 9)),
});
JAVASCRIPT
node run.mjs
