#!/usr/bin/env bash
# TensorFlow.js 4.22.0 with the WASM backend: some convolutions with "same" padding give zeros.
#
# Expected: conv2d and depthwiseConv2d give the same with each backend, or refuse what they cannot compute.
# Observed: if strides leave rows or columns at the end that no window covers, the whole result is zero: with a kernel
# of 1 x 3 and strides of 2 for 4 x 6 pixels, 2 x 2 and 3 for 6 x 6, or 3 x 3 and 4 for 8 x 8, while 2 x 2 and 3 are
# right for 7 x 7. Kernels of 1 x 1 are right, and so are all with the CPU backend. There is no warning; a network goes
# on with the biases alone.
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

// Return the places of the windows along one dimension that "same" padding defines.
function windows(size, kernel, stride) {
  const count = Math.ceil(size / stride);
  const before = Math.floor(Math.max((count - 1) * stride + kernel - size, 0) / 2);
  const starts = Array.from({ length: count }, (_, window) => window * stride - before);
  return starts.map((start) => Array.from({ length: kernel }, (_, at) => start + at).filter((at) => at >= 0 && at < size));
}

// Return the sums of the windows of an image of the numbers from 1, which is a convolution with ones.
function byHand([height, width], [rows, columns], stride) {
  const sum = (window, others) => window.flatMap((y) => others.map((x) => y * width + x + 1)).reduce((a, b) => a + b, 0);
  return windows(height, rows, stride).flatMap((y) => windows(width, columns, stride).map((x) => sum(y, x)));
}

const cases = [
  [[4, 6], [1, 3], 2, false],
  [[6, 6], [2, 2], 3, false],
  [[8, 8], [3, 3], 4, false],
  [[7, 7], [2, 2], 3, true],
  [[4, 6], [3, 3], 2, true],
  [[4, 6], [1, 1], 2, true],
];
for (const [size, kernel, stride, right] of cases) {
  const expected = byHand(size, kernel, stride);
  for (const name of ["conv2d", "depthwiseConv2d"]) {
    const results = {};
    for (const backend of ["cpu", "wasm"]) {
      await tf.setBackend(backend);
      const image = tf.reshape(tf.range(1, size[0] * size[1] + 1), [1, ...size, 1]);
      results[backend] = [...(await tf[name](image, tf.ones([...kernel, 1, 1]), stride, "same").data())];
    }
    console.log(`${name}, ${size}, kernel ${kernel}, strides ${stride}: by hand`, expected, "WASM", results.wasm);
    assert.deepEqual(results.cpu, expected);
    assert.deepEqual(results.wasm, right ? expected : expected.map(() => 0));
  }
}
JAVASCRIPT
node run.mjs
