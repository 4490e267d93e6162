#!/usr/bin/env bash
# keras_hub 0.32.0 drops a digit of Hindi, Marathi and Nepali from texts in a data set.
#
# Expected: a byte-pair tokenizer of bytes loses nothing, so that `detokenize(tokenize(text))` is the text, and gives the
# same tokens if it is called with a text as in `Dataset.map`.
# Observed: the tokenizer for TensorFlow graphs marks the ends of words by "६", the Devanagari digit six, and removes all
# words that are equal to it afterwards. A number or word that ends with the digit loses it, and so does a number that
# begins with it behind a space: "५६" becomes "५", and "kg ६१" "kg १". There is no warning. Called with a text, the
# tokenizer uses another implementation, which keeps the digit, so that a network is trained on other texts than it is
# used with. The tokenizers of GPT-2, RoBERTa, BART, Whisper, Llama 3 and Qwen derive from it. All other digits remain.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet keras-hub==0.32.0 keras==3.15.1 tensorflow==2.21.0 tensorflow-text==2.21.1 \
    tokenizers==0.23.3 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import tensorflow as tf
from keras_hub.tokenizers import BytePairTokenizer

print(*(f"{name} {version(name)}" for name in ("keras-hub", "tensorflow-text", "tokenizers")))
# The alphabet of GPT-2: each byte has a letter, those that cannot be printed from 256 on.
printed = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
others = [byte for byte in range(256) if byte not in printed]
alphabet = [chr(byte) for byte in sorted(printed)] + [chr(256 + place) for place in range(len(others))]
vocabulary = {letter: number for number, letter in enumerate([*alphabet, "ab"])}
tokenizer = BytePairTokenizer(vocabulary=vocabulary, merges=["a b"])


texts = [form.format(digit) for digit in "०१२३४५६७८९" for form in ("{}", "1{}", "{}१", "kg {}१", "क{}")]
(in_data_set,) = tf.data.Dataset.from_tensors(texts).map(tokenizer)
directly = tokenizer.detokenize([list(map(int, tokens)) for tokens in tokenizer(texts)])
read_back = tokenizer.detokenize([list(map(int, tokens)) for tokens in in_data_set])
assert directly == texts
changed = {text: seen for text, seen in zip(texts, read_back) if seen != text}
for text, seen in changed.items():
    print(f"{text!r} becomes {seen!r} in a data set")
assert changed == {"६": "", "1६": "1", "kg ६१": "kg १", "क६": "क"}
PYTHON
