"""Random configs: arbitrary JSON, valid configs with mutations, and their texts with mutations."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from tests.support.random_json import at, changed, inside

#: Valid configs, which together have most of the settings; no server has their models.
VALID: tuple[Any, ...] = (
    {
        "id": "half",
        "model": "small.keras",
        "dataset": {
            "train": "builtin:digits-train",
            "test": "builtin:digits-test",
            "validation": 0.2,
            "metric": "accuracy",
            "class_weights": "balanced",
            "augment": {"crop": 1},
            "scale": {"mean": [0.5], "std": [0.25]},
            "labels": ["a", "b"],
            "preparation": {"x": {"image": {"size": [8, 8], "colour": "grey"}}},
        },
        "algorithm": {"name": "morphnet", "config": {"tune_steps": 300, "layers": {"head*": "keep"}}},
        "adaptation_goal": {"FLOP": "0.5x", "size": "30kB", "accuracy": "0.80"},
        "hardware": {"name": "board", "compute_power": "10GFLOP/s", "memory_bandwidth": "8GB/s"},
        "threads": 4,
        "quantization": {"precision": "int8", "inputs": "int8"},
        "compression": {"sparsity": 0.5},
    },
    [
        {
            "id": "net-{hardware}-{task}",
            "model": "net.keras",
            "dataset": {"unlabelled": "images", "tasks": "tasks.json", "scale": {"factor": 2.0}},
            "algorithm": "nnfactory",
            "tasks": [["exactly:2", "odd"], "even"],
            "adaptation_goal": {"latency": ["5ms", "0.5x", 3], "num_of_params": 1e6, "energy": "2 mJ"},
            "hardware": ["raspberry-pi-5", {"compute_power": "1TFLOP/s", "memory_bandwidth": 20}],
        },
        {
            "id": "cut",
            "model": "net.onnx?image=3,224,224",
            "dataset": {
                "train": "a.npz",
                "test": "b.npz",
                "metrics": {"price": "mse", "kind": "code.py:share"},
                "losses": {"price": "code.py:loss"},
                "text": {"hashing": 100},
                "preparation": {"x": {"tokens": {"length": 8, "vocabulary": "words.txt"}}},
            },
            "task": {"classes": ["cat", 2]},
            "adaptation_goal": {"memory": "1GiB", "accuracy": {"price": 0.05}},
            "exits": {"loss": ["1%", 0.02], "after": ["add_3"]},
        },
    ],
    {
        "defaults": {
            "id": "{hardware}-{latency}",
            "model": "keras.applications/MobileNetV2?classes=10&weights=w.h5",
            "dataset": {"train": "train.npz", "test": "test.npz"},
            "adaptation_goal": {"latency": ["0.7x", "0.5x"]},
            "branches": {"count": 3, "from": "1/3x", "to": "3x", "saved_model": True},
        },
        "goals": [
            {"hardware": ["jetson-nano", "t4"]},
            {"id": "own", "tuning": {"trainable": "head", "batch_size": 16, "micro_batch": 4}},
            {"id": "q", "quantization": "int8-qat", "compression": {"clusters": 16}},
            {"id": "m", "model": "net.py:make?weights=w.pt&layout=channels_first"},
        ],
    },
)

#: Texts that parsers take for something else than a text.
SPECIAL = (
    *(
        "",
        " ",
        ".",
        "..",
        "/",
        "\x00",
        "{",
        "{}",
        "{id}",
        "{hardware}",
        "[0]",
        "x",
        "-",
        "%",
        "a\nb",
        "\ud800",
    ),
    *(
        "1e999",
        "1e-999",
        "1e99999999",
        "1/0",
        "1/1e9",
        "NaN",
        "inf",
        "-1ms",
        "0x",
        "0.5x",
        "٣ms",
        "²",
        "1_000",
    ),
    *(
        "upload:",
        f"upload:{'0' * 64}/a",
        "builtin:",
        "../../etc/passwd",
        "/etc/passwd",
        "~",
        "a.py:b",
        "a" * 300,
    ),
    *(
        "keras.applications/",
        "keras_hub/",
        "https://tfhub.dev/x",
        "a.onnx?x=1",
        "?=",
        "?a=b&a=c",
        "%zz",
        "é",
        "🙂",
    ),
)


_PARTS = [at(value, keys) for value in VALID for keys in inside(value)]
_KEYS = sorted({key for value in VALID for keys in inside(value) for key in keys if isinstance(key, str)})

keys = st.sampled_from(_KEYS) | st.sampled_from(SPECIAL) | st.text(max_size=8)
numbers = (
    st.integers(-3, 300)
    | st.floats()
    | st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, 5e-324, 1e-308])
)
leaves = (
    st.none()
    | st.booleans()
    | numbers
    | st.sampled_from(SPECIAL)
    | st.text(max_size=8)
    | st.sampled_from([part for part in _PARTS if not isinstance(part, dict | list)])
)
values = st.recursive(
    leaves | st.sampled_from(_PARTS).map(deepcopy),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)


#: Valid configs with a few changes.
mutated = st.sampled_from(VALID).flatmap(lambda config: changed(config, values, keys))


_FRAGMENTS = st.sampled_from(
    [
        *(
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            '"',
            "\\",
            "//",
            "/*",
            "*/",
            "NaN",
            "-Infinity",
            "1e999",
            "-0",
            "00",
            "1.",
        ),
        *("9" * 5_000, '"id":', '"a": 1, "a": 2', "\\ud800", "null", "\ufeff", "\x00", "\u2028", "\r\n"),
        *("[" * 50, "[" * 100_000, '{"a":' * 50),
    ]
) | st.text(max_size=5)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Return a text with a config that is probably invalid, or not even JSON."""
    value = draw(mutated | values)
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.sampled_from([start, start, start + 1, start + 10]))
        text = text[:start] + draw(_FRAGMENTS) + text[end:]
    return text


def _with(**changes: Any) -> str:
    return json.dumps({"id": "a", "model": "m", "dataset": {"train": "a"}, "adaptation_goal": {}, **changes})


#: Configs that were once not refused with their place, or not in a bearable time.
CORPUS: tuple[str, ...] = (
    "NaN",
    '"\\ud800"',
    json.dumps({"goals": [False, 3, "algorithm"]}),
    _with(adaptation_goal={"{}": [1, 2]}),
    _with(id="{x}", adaptation_goal={"FLOP\ud800": 1}),
    _with(**{"k" * 1_000_000: 1}),
    _with(**{"k " * 50_000: {"x": 1}}),
    _with(dataset={'"k.[ ' * 20_000: {"x": 1}}),
    _with(branches={"from": "1e99999999x"}),
    _with(branches={"to": "1e-99999999"}),
    _with(id="{FLOP}" * 10_000, adaptation_goal={"FLOP": ["0.5x"] * 100}),
    _with(id="{hardware}" * 20, hardware=["h" * 10_000] * 20),
)
