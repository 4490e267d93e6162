"""Porting configs: the text of Figure 3, the path of every problem, collective batches, and budgets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.algorithm import AlgorithmConfig
from mistify.config.reading import collective_batches, goal_budget, goal_path, parse_batch, profiles_of
from mistify.costs.budget import hardware_of
from mistify.costs.catalogue import HOST, catalogue
from mistify.errors import MistifyError
from tests.mistify.config.entries import SOURCE, entry, parse, places, problems
from tests.support.paths import REPOSITORY

CONFIGS = REPOSITORY / "configs"


def test_figure_3_is_parsed():
    first, last = parse_batch((CONFIGS / "figure3.json").read_text())

    assert (first.id, first.model, first.dataset.train) == ("1", "Resnet", "/path/to/train")
    assert first.algorithm == AlgorithmConfig(
        name="morphnet", config={"threshold": 0.1, "init_reg_strength": 1e-9}
    )
    assert last.algorithm.name == "chamnet"
    assert last.algorithm.config == {"init_population": 10, "crossover_rate": 0.7, "mutation": 0.08}
    for config in (first, last):
        assert config.adaptation_goal.accuracy == {"": 0.8}
        assert goal_budget(config, {}) == {"latency_ms@host": 30.0, "flops": 5e9, "params": 20e6}


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("digits", ["flops"] * 4 + ["params", "memory_bytes", "latency_ms@host"]),
        ("resnet8_cifar10", ["flops"] * 4 + ["params", "memory_bytes"]),
    ],
)
def test_the_configs_of_the_repository_are_valid(name, axes):
    configs = parse_batch((CONFIGS / f"{name}.json").read_text())

    assert [axis for config in configs for axis in config.limits()] == axes
    assert len(collective_batches(configs)) == 1


def test_a_single_object_is_a_list_of_one():
    assert parse_batch(json.dumps(entry())) == parse(entry())


def test_settings_have_defaults():
    (config,) = parse(entry())

    assert config.algorithm == AlgorithmConfig(name="auto", config={})
    assert config.profile == HOST
    assert config.adaptation_goal.accuracy is None
    assert config.threads == 1


@pytest.mark.parametrize("name", ["auto", "MorphNet"])
def test_an_algorithm_may_be_given_by_its_name_only(name):
    (config,) = parse(entry(algorithm=name))

    assert config.algorithm == AlgorithmConfig(name=name.lower(), config={})


@given(
    st.dictionaries(
        st.sampled_from(["FLOP", "num_of_params"]), st.floats(1, 1e12) | st.just("0.25x"), min_size=1
    ),
    st.none() | st.floats(0.01, 1),
    st.none() | st.sampled_from(["T4", {"compute_power": 3.3, "memory_bandwidth": "7GB/s"}]),
)
def test_a_config_survives_serialization(goal, accuracy, hardware):
    configs = parse(entry(adaptation_goal={**goal, "accuracy": accuracy, "latency": 0.1}, hardware=hardware))
    written = json.dumps([config.model_dump(exclude_none=True) for config in configs])

    assert parse_batch(written) == configs


def test_relative_limits_are_resolved_against_the_source():
    goal = {"FLOP": "0.5x", "num_of_params": "60K", "memory": "0.6x", "size": "1MB", "latency": "0.25x"}
    (config,) = parse(entry(adaptation_goal=goal))

    assert goal_budget(config, SOURCE) == pytest.approx(
        {"flops": 6.25e6, "params": 60e3, "memory_bytes": 2.4e5, "size_bytes": 1e6, "latency_ms@host": 0.5}
    )
    with pytest.raises(KeyError, match="flops"):
        goal_budget(config, {})


def test_latency_is_limited_on_the_named_hardware():
    (config,) = parse(entry(adaptation_goal={"latency": "30ms"}, hardware="Jetson Nano"))

    assert goal_budget(config, SOURCE) == {"latency_ms@jetson-nano": 30.0}


@pytest.mark.parametrize(
    ("hardware", "precision", "axis"),
    [
        (None, "none", "latency_ms@host@4-threads"),
        (None, "int8-qat", "latency_ms@host@4-threads@int8"),
        ("jetson-nano", "int8", "latency_ms@jetson-nano@4-threads"),
        ("my-board", "none", "latency_ms@my-board@4-threads"),
        ("my-board", "int8", "latency_ms@my-board@4-threads@int8"),
    ],
)
def test_latency_is_limited_with_the_threads_of_the_goal(hardware, precision, axis):
    goal = {"latency": "0.5x", "FLOP": 100}
    (config,) = parse(entry(adaptation_goal=goal, threads=4, hardware=hardware, quantization=precision))

    assert list(config.limits()) == ["flops", axis]
    source = axis.removesuffix("@int8")
    assert goal_budget(config, {"flops": 1e6, source: 8.0, "latency_ms@host": 2.0}) == {
        "flops": 100,
        axis: 4.0,
    }


@pytest.mark.parametrize("threads", [0, -1, 1.5, "4", True, 1025, None])
def test_threads_are_a_number(threads):
    (problem,) = problems(entry(threads=threads))

    assert (problem.place, problem.value) == ("[0].threads", json.dumps(threads))
    assert problem.expected == "a number of threads from 1 to 1024"
    assert problem.fix == "for example 4"


def test_every_axis_has_a_path_in_the_config():
    assert goal_path("flops") == "adaptation_goal.FLOP"
    assert goal_path("memory_bytes") == "adaptation_goal.memory"
    assert goal_path("latency_ms@jetson-nano@4-threads") == "adaptation_goal.latency"


def test_each_profile_is_listed_once():
    configs = parse(entry(), entry(id="b", hardware="t4"), entry(id="c", hardware="host"))

    assert profiles_of(configs) == [HOST, catalogue()["t4"]]
    assert profiles_of(parse(entry(threads=4))) == [HOST.with_threads(4)]


def test_all_problems_of_a_file_are_reported_at_once():
    text = """[ // several things are wrong here
        {"id": "a/b", "model": 5, "dataset": {"train": "x"},
         "adaptation_goal": {"FLOPS": "5G", "latency": "30parsecs", "size": -1, "memory": NaN},
         "hardware": "jetson?"},
        {"id": "b", "id": "c", "model": "m", "dataset": [1], "adaptation_goal": {"accuracy": -80, "FLOP": 1}},
        3,
    ]"""
    with pytest.raises(MistifyError, match=r"fleet\.json: 12 problems, nothing was started") as caught:
        parse_batch(text, "fleet.json")

    assert sorted(problem.place for problem in caught.value.problems) == [
        "[0].adaptation_goal.FLOPS",
        "[0].adaptation_goal.latency",
        "[0].adaptation_goal.memory",
        "[0].adaptation_goal.size",
        "[0].dataset.test",
        "[0].hardware",
        "[0].id",
        "[0].model",
        "[1].adaptation_goal.accuracy",
        "[1].dataset",
        "[1].id",
        "[2]",
    ]


def test_a_problem_states_the_value_the_expected_one_and_a_fix():
    (problem,) = problems(entry(), entry(id="b", adaptation_goal={"FLOPS": "5G", "size": 1}))

    assert str(problem) == (
        '[1].adaptation_goal.FLOPS: got the key "FLOPS"; expected one of FLOP, accuracy, energy, latency, '
        'memory, num_of_params, size; did you mean "FLOP"?'
    )
    (problem,) = problems(entry(adaptation_goal={"latency": "30GB"}))
    assert (problem.place, problem.value) == ("[0].adaptation_goal.latency", '"30GB"')
    assert "a time" in problem.expected
    assert "'GB'" in problem.fix


def test_broken_json_names_line_and_column():
    with pytest.raises(MistifyError) as caught:
        parse_batch('[\n {"id": }\n]')

    assert [problem.place for problem in caught.value.problems] == ["line 2, column 9"]


@pytest.mark.parametrize("goal", [{}, {"accuracy": "0.8"}, {"accuracy": 0.8, "FLOP": None}])
def test_a_goal_limits_at_least_one_cost(goal):
    (problem,) = problems(entry(adaptation_goal=goal))

    assert problem.place == "[0].adaptation_goal"
    assert "FLOP, num_of_params, memory, size, latency, energy" in problem.expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in ("FLOP", "num_of_params", "memory", "size", "latency", "energy")
        for value in (0, "-1x", "5 apples")
    ]
    + [("accuracy", 0), ("accuracy", "0.5x"), ("FLOP", True), ("FLOP", {"a": 1})],
)
def test_impossible_goals_are_refused(key, value):
    assert places(entry(adaptation_goal={"size": 1, key: value})) == [f"[0].adaptation_goal.{key}"]


@pytest.mark.parametrize(
    "data", [{"metric": "balanced-accuracy"}, {"metrics": {"kind": "balanced-accuracy"}}]
)
def test_a_metric_close_to_what_was_written_is_suggested(data):
    (problem,) = problems(entry(dataset={"train": "a.npz", "test": "b.npz", **data}))

    assert problem.value == '"balanced-accuracy"'
    assert problem.fix == 'did you mean "balanced_accuracy"?'


@pytest.mark.parametrize(("key", "value"), [("FLOP", "0.5"), ("num_of_params", 0.5), ("memory", "0.5B")])
def test_less_than_one_piece_or_byte_is_taken_for_a_share(key, value):
    (problem,) = problems(entry(adaptation_goal={key: value}))

    assert (problem.place, problem.value) == (f"[0].adaptation_goal.{key}", json.dumps(value))
    assert problem.fix == 'for a share of the source, write "0.5x"'


@pytest.mark.parametrize("bad", ["", ".", "..", "...", "a/b", "a\\b", "a b", "ä", "a\n", "x" * 65, 1, None])
def test_ids_are_valid_directory_names(bad):
    assert places(entry(id=bad)) == ["[0].id"]
    assert parse(entry(id="v1.0_half-flop"))


def test_ids_differ_in_more_than_case():
    assert places(entry(id="a"), entry(id="b"), entry(id="A")) == ["[2].id"]


def test_hardware_outside_the_catalogue_is_a_measured_device():
    configs = parse(
        entry(adaptation_goal={"latency": "2ms"}, hardware="My Board"),
        entry(id="b", adaptation_goal={"latency": "2ms"}, hardware="my-board", quantization="int8-qat"),
    )
    assert [config.device for config in configs] == ["my-board", "my-board"]
    assert [config.profile for config in configs] == [None, None]
    assert [list(config.limits()) for config in configs] == [
        ["latency_ms@my-board"],
        ["latency_ms@my-board@int8"],
    ]
    assert [hardware_of(axis) for config in configs for axis in config.limits()] == ["my-board"] * 2
    assert goal_budget(configs[1], {}) == {"latency_ms@my-board@int8": 2.0}


def test_a_hardware_name_means_the_same_in_all_goals():
    own = {"name": "t4", "compute_power": 1, "memory_bandwidth": 1}

    assert parse(entry(hardware=own), entry(id="b", hardware=own))
    assert places(entry(hardware=own), entry(id="b", hardware="t4")) == ["[1].hardware"]
    assert parse(entry(hardware=own), entry(id="b", hardware=own, threads=4))
    assert places(entry(hardware=own), entry(id="b", hardware="t4", threads=4)) == ["[1].hardware"]


@pytest.mark.parametrize("text", ["[]", "", "3", "null", '"text"', "[[]]", "[" * 5000])
def test_invalid_batches_are_refused(text):
    with pytest.raises(MistifyError) as caught:
        parse_batch(text)
    assert len(caught.value.problems) == 1


def test_collective_batches_share_model_data_and_algorithm():
    configs = parse(
        entry(id="0"),
        entry(id="1", model="other"),
        entry(id="2", algorithm={"name": "Auto"}),
        entry(id="3", algorithm={"name": "morphnet", "config": {"threshold": 0.1, "steps": 2}}),
        entry(id="4", dataset={"train": "train.npz", "test": "other.npz"}),
        entry(id="5", algorithm={"name": "Morphnet", "config": {"steps": 2, "threshold": 0.1}}),
    )
    batches = collective_batches(configs)

    assert [batch.indices for batch in batches] == [(0, 2), (1,), (3, 5), (4,)]
    assert [config.id for config in batches[2].configs] == ["3", "5"]
    assert (batches[1].model, batches[2].algorithm.config) == ("other", {"threshold": 0.1, "steps": 2})
