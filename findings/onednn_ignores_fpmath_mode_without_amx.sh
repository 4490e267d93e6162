#!/usr/bin/env bash
# oneDNN 3.7.3 in TensorFlow 2.21.0 ignores ONEDNN_DEFAULT_FPMATH_MODE=BF16 on processors with AVX-512 BF16 but without AMX.
#
# Expected: with this mode, which allows float32 operations to compute in bfloat16, convolutions and matrix products use
# the processor's bfloat16 instructions, and their results differ slightly from those of the mode STRICT.
# Observed: on an AMD EPYC (Zen 5), oneDNN's log shows the mode as an attribute (attr-fpmath:bf16), but the kernel is that
# of float32 (brg_conv_fwd:avx512_core), although it has one for bfloat16 inputs (avx512_core_bf16). A convolution, its
# gradients and a matrix product are equal bit for bit in all modes. Without AMX, only tensors of type bfloat16 are faster.
#
# Exits with 1 if the behaviour has changed, and with 77 on processors with AMX or without AVX-512 BF16.
set -euo pipefail
if ! grep -qw avx512_bf16 /proc/cpuinfo || grep -qw amx_bf16 /proc/cpuinfo; then
  echo "needs a processor with AVX-512 BF16 and without AMX"
  exit 77
fi
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
cd "$directory"
cat > results.py <<'PYTHON'
import hashlib

import tensorflow as tf

generator = tf.random.Generator.from_seed(0)
image, kernel = generator.normal((16, 16, 16, 32)), generator.normal((3, 3, 32, 32))
square = generator.normal((256, 256))
with tf.GradientTape() as tape:
    tape.watch([image, kernel])
    result = tf.nn.conv2d(image, kernel, 1, "SAME")
    loss = tf.reduce_sum(result * result)
parts = [result, *tape.gradient(loss, [image, kernel]), tf.matmul(square, square)]
print(hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest())
PYTHON
export TF_CPP_MIN_LOG_LEVEL=3
for mode in STRICT BF16 ANY; do
  ONEDNN_DEFAULT_FPMATH_MODE=$mode "$directory/venv/bin/python" results.py 2> /dev/null | tee "$mode"
done
cmp STRICT BF16
cmp STRICT ANY
