#!/usr/bin/env bash
# TensorFlow.js 4.22.0 pads dilated pools with zeros that count: maxima of negative numbers are 0 at the edge.
#
# Expected: `pool` with "same" padding leaves the padding out, with dilation as without it: maxima are of the values in
# the window, and averages are divided by their number. TensorFlow for Python refuses dilation with this padding.
# Observed: with dilation 2, the maxima of -1, -2, -3, -4 and -5 in windows of 2 are 0, -1, -2, -3 and 0, and averages
# at the edge are half of what they should be. Without dilation, both are right. There is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-layers@4.22.0 @tensorflow/tfjs-backend-cpu@4.22.0
cat > run.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";

console.log("TensorFlow.js", tf.version_core);
const values = [-1, -2, -3, -4, -5];
const column = tf.tensor(values, [1, 5, 1, 1]);
const average = (window) => window.reduce((sum, value) => sum + value) / window.length;
const rules = { max: (window) => Math.max(...window), avg: average };
for (const [kind, reduce] of Object.entries(rules)) {
  for (const dilation of [1, 2]) {
    const starts = values.map((_, place) => place - Math.floor(dilation / 2));
    const places = starts.map((start) => [start, start + dilation].filter((at) => at in values));
    const windows = places.map((window) => window.map((at) => values[at]));
    const expected = windows.map(reduce);
    const pooled = [...tf.pool(column, [2, 1], kind, "same", [dilation, 1], [1, 1]).dataSync()];
    console.log(`${kind}, dilation ${dilation}: by hand`, expected, "pool", pooled);
    const right = pooled.every((value, place) => value === expected[place]);
    assert.equal(right, dilation === 1);
    if (dilation === 2) assert.deepEqual([pooled[0], pooled[4]], kind === "max" ? [0, 0] : [-1, -2]);
  }
}
JAVASCRIPT
node run.mjs
