#!/usr/bin/env bash
# TensorFlow.js 4.22.0 takes the inverse scale of random numbers with a gamma distribution for the scale.
#
# Expected: `beta` of `tf.randomGamma` is "the inverse scale parameter", as its documentation says, and as in TensorFlow
# for Python: with `alpha` = 2 and `beta` = 4, the mean is 2 / 4 and the variance 2 / 16.
# Observed: numbers are multiplied by `beta`: the mean is 8 and the variance 32, 16 times and 256 times as much. With
# `beta` = 1, the default, both are the same. There is no warning. Noise, or rates of arrival, that a simulation or an
# augmentation draws in a browser are on another scale than those in Python with the same parameters.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-backend-cpu@4.22.0
cat > run.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";

console.log("TensorFlow.js", tf.version_core);
const close = (value, expected) => assert(Math.abs(value / expected - 1) < 0.05, `${value} is not about ${expected}`);
for (const [alpha, beta] of [[2, 1], [2, 4], [0.5, 4], [2, 0.25]]) {
  const moments = tf.moments(tf.randomGamma([100000], alpha, beta, "float32", 1));
  const [mean, variance] = [moments.mean.dataSync()[0], moments.variance.dataSync()[0]];
  const figures = `mean ${mean.toFixed(3)}, variance ${variance.toFixed(3)}`;
  console.log(`alpha ${alpha}, beta ${beta}: ${figures}, expected ${alpha / beta} and ${alpha / beta ** 2}`);
  close(mean, alpha * beta);
  close(variance, alpha * beta ** 2);
}
JAVASCRIPT
node run.mjs
