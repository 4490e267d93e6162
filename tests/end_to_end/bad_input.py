"""Wrong configs, models and data, each with the problem that has to be reported."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ExpectedProblem:
    """An expected problem: its place, and parts of the value, the expectation and the fix."""

    place: str
    value: str
    expected: str
    fix: str

    def matches(self, line: str) -> bool:
        value, expected = line.find(f"{self.place}: got "), line.find("; expected ")
        return (
            0 <= value < expected
            and self.value in line[value:expected]
            and self.expected in line[expected:]
            and self.fix in line[expected:]
        )


def config(**changes: Any) -> dict[str, Any]:
    """Return a valid config with changed (nested) values; None removes a key."""
    right = {
        "id": "half",
        "model": "tiny.keras",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "algorithm": {"name": "morphnet", "config": {"source_steps": 0}},
        "adaptation_goal": {"FLOP": "0.5x"},
    }
    return merged(right, changes)


def merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    new = {**old}
    for key, value in changes.items():
        new[key] = merged(new.get(key, {}), value) if isinstance(value, dict) else value
    return {key: value for key, value in new.items() if value is not None}


def data(part: str, name: str) -> dict[str, Any]:
    return config(dataset={part: name})


#: Maps a name to a config and its expected problem.
CONFIGS: dict[str, tuple[dict[str, Any], ExpectedProblem]] = {
    "unknown key": (
        config(adaptation_gaol={"FLOP": 1}),
        ExpectedProblem(
            "[0].adaptation_gaol", "adaptation_gaol", "adaptation_goal", 'did you mean "adaptation_goal"?'
        ),
    ),
    "wrong unit": (
        config(adaptation_goal={"FLOP": "30ms"}),
        ExpectedProblem("[0].adaptation_goal.FLOP", '"30ms"', "a number such as", "the unit 'ms' is unknown"),
    ),
    "no dataset": (
        config(dataset=None),
        ExpectedProblem("[0].dataset", "nothing", 'an object with "train" and "test"', "for example"),
    ),
    "unknown algorithm": (
        config(algorithm={"name": "morfnet"}),
        ExpectedProblem(
            "[0].algorithm.name",
            '"morfnet"',
            "one of adaptivenet, auto, chamnet, crowdhmt, morphnet",
            'did you mean "morphnet"?',
        ),
    ),
    "wrong setting": (
        config(algorithm={"name": "morphnet", "config": {"cuts": "many"}}),
        ExpectedProblem("[0].algorithm.config.cuts", '"many"', "integer", ""),
    ),
    "setting out of range": (
        config(algorithm={"name": "morphnet", "config": {"threshold": 2}}),
        ExpectedProblem("[0].algorithm.config.threshold", "2", "less than 1", ""),
    ),
    "unknown setting": (
        config(algorithm={"name": "morphnet", "config": {"thresold": 0.1}}),
        ExpectedProblem(
            "[0].algorithm.config.thresold", "thresold", "threshold", 'did you mean "threshold"?'
        ),
    ),
    "setting of one algorithm": (
        config(algorithm={"name": "auto", "config": {"threshold": 0.1}}),
        ExpectedProblem(
            "[0].algorithm.config.threshold",
            "threshold",
            'with "auto", only settings of all algorithms; it belongs to morphnet',
            '"name": "morphnet"',
        ),
    ),
    "unreachable": (
        config(adaptation_goal={"FLOP": "0.0001x"}),
        ExpectedProblem("[0].adaptation_goal.FLOP", "0.0001x", "at least", "the nearest feasible limit"),
    ),
}


MODELS: dict[str, ExpectedProblem] = {
    "tinny.keras": ExpectedProblem(
        "[0].model", '"tinny.keras"', "digits-resnet", 'did you mean "tiny.keras"?'
    ),
    "noise.keras": ExpectedProblem("[0].model", "", "a Keras model", "save it with model.save(FILE)"),
    "noise.h5": ExpectedProblem("[0].model", "", "a Keras model", "save it with model.save(FILE)"),
    "table.h5": ExpectedProblem("[0].model", "", "a Keras model", "save it with model.save(FILE)"),
    "notes.txt": ExpectedProblem(
        "[0].model", "a file named notes.txt", ".keras, .h5", "save it with model.save(FILE)"
    ),
    "unknown.keras": ExpectedProblem(
        "[0].model", "layer 'product' is a", "supported layers", "CONTRIBUTING.md"
    ),
    "lambda.keras": ExpectedProblem("[0].model", "ambda", "without Python code", "save"),
    "subclass.keras": ExpectedProblem("[0].model", "layer 'own' is a Doubled", "without Python code", "save"),
    "lambda.h5": ExpectedProblem("[0].model", "layer 'hidden' is a Lambda", "without Python code", "rewrite"),
    "free.keras": ExpectedProblem("[0].model", "None", "supported layers", ""),
}


#: Maps a file name to parts of its expected problem; "{base}" stands for the directory of the site.
DATA: dict[str, tuple[str, str, str]] = {
    "trian.npz": ('"trian.npz"', "a file or directory below a data root", 'did you mean "train.npz"?'),
    "single.npy": ("single array", "an .npz file", "np.savez"),
    "noise.npz": ("cannot be read", "an .npz file", "np.savez"),
    "cut.npz": ("cannot be read", "an .npz file", "np.savez"),
    "objects.npz": ("x.npy contains Python objects", "an .npz file", "np.savez"),
    "no-y.npz": ("no array ", "(or x and y)", "name the data"),
    "large.npz": ("(40, 16, 8, 1)", "[examples, 8, 8, 1]", "reshape"),
    "range.npz": ("y[5] = 3", "classes 0 to 2", "relabel"),
    "nan.npz": ("NaN or infinity in x[7]", "finite", "drop or repair"),
    "float-y.npz": ("y of shape (40,) and type float64", "integer classes", "cast"),
    "short-y.npz": ("(30,)", "the same number of rows in each", "check"),
    "empty.npz": ("(0,)", "the same number of rows in each", "check"),
    "number.npz": ("x of shape ()", "the same number of rows in each", "check"),
    "words.npz": ("x of type <U", "integers or floats", "cast"),
    "link.npz": ('"link.npz"', "a file or directory below a data root", "move it there"),
    "../outside.npz": ('"../outside.npz"', "a file or directory below a data root", "move it there"),
    "{base}/outside.npz": ("outside.npz", "a file or directory below a data root", "move it there"),
    "/etc/passwd": ('"/etc/passwd"', "a file or directory below a data root", "move it there"),
    "builtin:cifar": ('"builtin:cifar"', "builtin:digits-", "write that"),
}
