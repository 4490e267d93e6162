#!/usr/bin/env bash
# TensorFlow.js 4.22.0: AlphaDropout replaces dropped values by the upper instead of the lower limit of SELU.
#
# Expected: dropped values become -1.758, to which SELU saturates, before all are scaled and shifted, so that the mean 0
# and the variance 1 of self-normalizing networks stay, as in Keras and as the layer's documentation says.
# Observed: they become +1.758, so that the shift doubles the error instead of removing it: of numbers with the mean 0
# and the variance 1, the mean becomes 0.91 with a rate of 0.3, in each layer. The variance stays. There is no warning:
# a network with SELU is trained on other inputs than those that it has without dropout.
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
import { layers } from "@tensorflow/tfjs-layers";

console.log("TensorFlow.js", tf.version_core);
const LOWEST = -1.0507009873554805 * 1.6732632423543772;
const [rate, size] = [0.3, 100000];
const scale = ((1 - rate) * (1 + rate * LOWEST ** 2)) ** -0.5;
const shift = -scale * LOWEST * rate;

// Return the mean and the variance of numbers behind the layer.
async function moments(numbers) {
  const result = layers.alphaDropout({ rate }).apply(numbers, { training: true });
  const { mean, variance } = tf.moments(result);
  return [(await mean.data())[0], (await variance.data())[0]];
}

const normal = await moments(tf.randomNormal([1, size], 0, 1, "float32", 1));
console.log("normal numbers: mean and variance", normal, "expected 0 and 1");
assert(Math.abs(normal[0] - 2 * shift) < 0.02 && Math.abs(normal[0]) > 0.8);
assert(Math.abs(normal[1] - 1) < 0.02);

const zeros = layers.alphaDropout({ rate }).apply(tf.zeros([1, size]), { training: true });
const values = [...new Set(await zeros.data())].sort((a, b) => a - b);
console.log("zeros become", values, "expected", [scale * LOWEST + shift, shift]);
assert.equal(values.length, 2);
assert(Math.abs(values[0] - shift) < 1e-5 && Math.abs(values[1] - (-scale * LOWEST + shift)) < 1e-5);
JAVASCRIPT
node run.mjs
