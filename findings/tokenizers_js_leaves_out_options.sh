#!/usr/bin/env bash
# @huggingface/tokenizers 0.2.0 leaves out options of a tokenizer's model: other tokens reach the network.
#
# Expected: the library for JavaScript reads the `tokenizer.json` of the library for Python and gives the same tokens,
# or refuses options that it does not know.
# Observed: a Unigram model with `byte_fallback` has no bytes for unknown letters, only the unknown token; a BPE model
# with `continuing_subword_prefix` looks for pieces without the prefix, and has other tokens for most words; an added
# token with `single_word` is found inside of words; `truncation` and `padding` of the file have no effect, so that
# sequences are longer than a network of fixed length accepts. There is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tokenizers==0.23.3
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @huggingface/tokenizers@0.2.0
cat > encode.mjs <<'JAVASCRIPT'
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

const tokenizer = new Tokenizer(JSON.parse(readFileSync("tokenizer.json", "utf8")), {});
const texts = JSON.parse(readFileSync("texts.json", "utf8"));
console.log(JSON.stringify(texts.map((text) => tokenizer.encode(text).tokens)));
JAVASCRIPT
"$directory/venv/bin/python" - <<'PYTHON'
import json
import subprocess
from importlib.metadata import version
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE, Unigram
from tokenizers.pre_tokenizers import Whitespace

package = json.loads(Path("node_modules/@huggingface/tokenizers/package.json").read_text())
print(f"tokenizers {version('tokenizers')}, {package['name']} {package['version']}")


def both(tokenizer, *texts):
    """Return the tokens in Python and in JavaScript, of the same file."""
    tokenizer.save("tokenizer.json")
    Path("texts.json").write_text(json.dumps(texts))
    result = subprocess.run(["node", "encode.mjs"], check=True, capture_output=True, text=True)
    by_javascript = json.loads(result.stdout)
    by_python = [tokenizer.encode(text).tokens for text in texts]
    for text, first, second in zip(texts, by_python, by_javascript):
        print(f"  {text!r}: Python {first}, JavaScript {second}")
    return by_python, by_javascript


pieces = [("<unk>", 0.0), *((letter, -2.0) for letter in "helo"), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
print("byte_fallback")
(by_python,), (by_javascript,) = both(Tokenizer(Unigram(pieces, 0, True)), "hexo")
assert by_python == ["h", "e", "<0x78>", "o"] and "<0x78>" not in by_javascript

parts = ["<unk>", "h", "e", "l", "o", "he", "##e", "##l", "##lo", "##o"]
vocabulary = {part: place for place, part in enumerate(parts)}
merges = [("h", "##e"), ("##l", "##o")]
prefixed = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>", continuing_subword_prefix="##"))
prefixed.pre_tokenizer = Whitespace()
print("continuing_subword_prefix")
(by_python,), (by_javascript,) = both(prefixed, "hello")
assert by_python == ["he", "##l", "##lo"] and by_javascript == ["h", "e", "l", "l", "o"]

letters = {letter: place for place, letter in enumerate("abcdtoken ")}
single = Tokenizer(BPE(letters, []))
single.add_tokens([AddedToken("token", single_word=True)])
print("single_word")
(by_python, other), (by_javascript, same) = both(single, "atokenb", "a token")
assert by_python == list("atokenb") and by_javascript == ["a", "token", "b"] and other == same

for option, enable, right in (
    ("truncation", lambda tokenizer: tokenizer.enable_truncation(2), ["a", "b"]),
    ("padding", lambda tokenizer: tokenizer.enable_padding(length=6, pad_token=" "), [*"abcd", " ", " "]),
):
    limited = Tokenizer(BPE(letters, []))
    enable(limited)
    print(option)
    (by_python,), (by_javascript,) = both(limited, "abcd")
    assert by_python == right and by_javascript == list("abcd")
PYTHON
