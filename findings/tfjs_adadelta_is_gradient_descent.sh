#!/usr/bin/env bash
# TensorFlow.js 4.22.0: `tf.train.adadelta` is plain gradient descent, whatever its options.
#
# Expected: steps as in the method's paper and in Keras: the gradient is divided by the root of its running mean square, with
# the present gradient in it, so that the size of gradients hardly matters.
# Observed: the mean square is that of before the present gradient. It begins at 0, as that of the steps does, so that their
# quotient is 1, and stays 1 for ever, as both take in the same numbers: each step is the learning rate times the gradient.
# `rho` and `epsilon` have no effect. With the default rate of 0.001 and gradients of 1,000, the first step is 1 instead of
# 0.0000014; networks that Adadelta trains elsewhere diverge or stand still.
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
const gradients = [1000, -500, 2000, 3, 0.5];

// Return the weight after each step with a given gradient.
function steps(optimizer) {
  const weight = tf.variable(tf.scalar(0));
  return gradients.map((gradient) => {
    optimizer.applyGradients({ [weight.name]: tf.scalar(gradient) });
    return weight.dataSync()[0];
  });
}

// Compute the steps of Zeiler's "ADADELTA: an adaptive learning rate method", algorithm 1, times the learning rate.
function algorithm(rate, rho, epsilon) {
  let [weight, squares, updates] = [0, 0, 0];
  return gradients.map((gradient) => {
    squares = rho * squares + (1 - rho) * gradient ** 2;
    const update = (Math.sqrt(updates + epsilon) / Math.sqrt(squares + epsilon)) * gradient;
    updates = rho * updates + (1 - rho) * update ** 2;
    return (weight -= rate * update);
  });
}

const descent = steps(tf.train.sgd(0.001));
console.log("algorithm:", algorithm(0.001, 0.95, 1e-7));
console.log("gradient descent:", descent);
for (const [rho, epsilon] of [[0.95, 1e-7], [0.5, 1e-3]]) {
  const found = steps(tf.train.adadelta(0.001, rho, epsilon));
  console.log(`adadelta with rho ${rho}, epsilon ${epsilon}:`, found);
  assert.ok(found.every((weight, step) => Math.abs(weight - descent[step]) < 1e-4));
  assert.ok(Math.abs(algorithm(0.001, rho, epsilon)[0]) < 1e-3);
}
JAVASCRIPT
node run.mjs
