"""ONNX's own tests of its operators: `python -m benchmarks.porting.onnx_operators [--write FILE]`.

Each test is read as a network (`onnx_node_tests.py` says how), run, and compared with the expected outputs.
Tests that are refused are those of `REFUSALS`, and no others. `--write FILE` writes the table in Markdown.
"""

import re
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.porting.onnx_node_tests import NodeTest, node_tests, refusal_of
from executors.sources.onnx.folding import FOLDED
from executors.sources.onnx.registry import OPERATORS


@dataclass(frozen=True)
class Refusal:
    """Tests that are refused.

    Attributes:
        tests: A pattern of their names.
        error: A part of the error.
        reason: The unsupported feature, as the table names it.
    """

    tests: str
    error: str
    reason: str


REFUSALS: Final[Sequence[Refusal]] = (
    Refusal(
        r"equal_string.*|cast_([a-z0-9]+_)*(FLOAT[48]\w+|U?INT[24])_to_\w+", "one of the types FLOAT, DOUBLE",
        "inputs of other types",
    ),
    Refusal(
        r"cast_\w*FLOAT(16)?_to_(FLOAT[48]|U?INT[24]$)\w*", "neither a usual number nor a truth value",
        "types of 2, 4 and 8 bits",
    ),
    Refusal(
        r"(add|mul|sub)_u?int(8|16)|sub_uint(32|64)", "computes with integers that may wrap around",
        "integers that wrap around",
    ),
    Refusal(
        r"mod_float_edge_cases_fmod_0_\w+", "differ from ONNX's by nan", "remainders of a division by zero"
    ),
    Refusal(r"onehot_with_(negative_)?axis", "indices that are no integers", "indices that are no integers"),
    Refusal(r"pow_types_int\d\d_\w*", "raises integers to a power", "integers"),
    Refusal(
        r"\w+_empty_set\w*|split_zero_size\w*|reshape_allowzero_reordered|slice_start_out_of_bounds",
        "entries", "tensors without entries",
    ),
    Refusal(
        r"flatten_(axis[023]|negative_axis[124])", "without a batch as an axis of its own",
        "the batch as a part of an axis of an output",
    ),
    Refusal(r"gathernd_example_\w+32", "computed index", "computed indices along several axes"),
    Refusal(r"gathernd_example_int32_batch_dim1", "selects integers", "integers"),
    Refusal(
        r"attention_\w*(nonpad|padded_kv|ext_cache)\w*", "sequences of different lengths",
        "sequences of different lengths",
    ),
    Refusal(
        r"attention_(\w*boolmask\w*nan|2[34]_fullymasked|24_qk_matmul)\w*", "must not read any key",
        "queries without any key",
    ),
    Refusal(r"attention_\w*(qk_matmul|rank4_mask)\w*", "as output 4", "the scores as an output"),
    Refusal(r"gemm_(all_attributes|transposeA)", "combines the examples", "the batch as the second axis"),
    Refusal(r"(average|max)pool_\dd_dilations\w*", "by dilations", "dilations"),
    Refusal(r"maxpool_with_argmax\w*", "as output 2", "indices of the maxima"),
    Refusal(
        r"training_dropout(_default)?(_mask)?|batchnorm\w+_training_mode", "is in training mode",
        "training mode",
    ),
    Refusal(
        r"resize_downsample_scales_\w+_align_corners", "aligns corners by scales",
        "aligned corners with scales that make fractions of a position",
    ),
)  # fmt: skip

#: Operator -> what is refused and not among ONNX's tests.
LIMITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("GRU", "LSTM", "RNN"),
        "sequences of different lengths; activations other than PyTorch's; clips; an initial state, "
        "peepholes or a memory as output with more than 64 steps",
    ),
    "Conv": "strides together with dilations",
    "ConvTranspose": "more than 32 groups",
    "Einsum": "more than two operands; constants that are not summed over",
    "MatMul": "products of vectors for each example",
    "GatherElements": "indices that differ along several axes; integers",
    "Pad": "removing entries at one end and repeating others",
    "Upsample": "other tensors than images",
}


def refusal_for(test: NodeTest) -> Refusal | None:
    """Return the refusal that is expected for a test; None if it has to pass."""
    return next((each for each in REFUSALS if re.fullmatch(each.tests, test.name)), None)


def mistakes(operator: str) -> Iterator[str]:
    """Yield the tests of an operator that fail, or are refused otherwise than expected."""
    for test in node_tests()[operator]:
        expected = refusal_for(test)
        try:
            error = refusal_of(test)
        except AssertionError as wrong:
            yield f"{test.name}: {' '.join(str(wrong).split())}"
            continue
        if (expected.error not in error) if expected else error:
            yield f"{test.name}: {error or 'not refused'}"


def table() -> str:
    """Return the operators in Markdown, with the tests that pass and what is refused."""
    lines = [
        "| operator | how it is read | tests | refused |",
        "| --- | --- | --: | --- |",
    ]
    for operator in sorted(OPERATORS):
        tests = node_tests().get(operator, [])
        refused = Counter(each.reason for each in map(refusal_for, tests) if each is not None)
        reasons = [f"{reason} ({count})" for reason, count in sorted(refused.items())]
        passed = f"{len(tests) - refused.total()} of {len(tests)}"
        limits = "; ".join([*reasons, *filter(None, [LIMITS.get(operator, "")])])
        lines.append(f"| `{operator}` | {_purpose(operator)} | {passed} | {limits} |")
    names = ", ".join(f"`{name}`" for name in sorted(FOLDED - OPERATORS.keys()))
    return f"{_PREFACE}{chr(10).join(lines)}\n\n{_ON_CONSTANTS}\n\n{names}.\n"


def _purpose(operator: str) -> str:
    """Return what an operator becomes, which is the first line of its handler's documentation."""
    line = (OPERATORS[operator].__doc__ or "").partition("\n")[0].rstrip(".")
    return line[:1].lower() + line[1:]


_PREFACE: Final = """# ONNX operators

Written by `make onnx-operators`; not edited by hand. *Tests*: ONNX's own tests of the operator that pass as a
network, with its parameters stored and a free batch. *Refused*: what an error names instead, with the number
of ONNX's tests of it. Operators may not combine the examples of a batch, as a sum over the first axis does.

"""

_ON_CONSTANTS: Final = """Nodes that depend only on constants and sizes are computed when a file is read.
They may also be the following operators, which pass all of ONNX's tests:"""


def main(arguments: Sequence[str]) -> int:
    """Check all operators, and write the table if that is wanted; return the exit status."""
    parser = ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table in Markdown")
    options = parser.parse_args(arguments)
    faults = [mistake for operator in sorted(OPERATORS) for mistake in mistakes(operator)]
    print(*faults, sep="\n", file=sys.stderr)
    if options.write and not faults:
        options.write.write_text(table())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
