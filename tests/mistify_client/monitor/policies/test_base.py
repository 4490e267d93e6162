"""Contract tests for every registered policy, and properties of the default policy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistify.errors import ErrorCode, MistifyError
from mistify.package.option_kinds import OptionKind
from mistify.plugins import plug_ins
from mistify_client.assembly.engine import Engine
from mistify_client.monitor.policies.base import ENTRY_POINTS, Situation, make_policy
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.options import Option, OptionCosts, OptionScore
from tests.support.plug_ins import installed

POLICIES = list(plug_ins(ENTRY_POINTS))

figures = st.floats(0.01, 1000)
readings = st.builds(
    SensorReading, cpu_available=st.none() | st.floats(0, 1), battery=st.none() | st.floats(0, 1)
)
costs = st.builds(OptionCosts, latency_ms=figures, memory_bytes=st.none() | st.floats(1, 1e6))
targets = st.builds(Targets, latency=st.none() | figures, memory=st.none() | st.floats(1, 1e6))


def branch(number, costs, accuracy):
    kind = OptionKind.BRANCH
    return Option(kind, f"branch-{number}", Engine(), costs, OptionScore(accuracy))


@st.composite
def courses(draw):
    """Draw options and a sequence of conditions, which `follow` turns into situations."""
    drawn = draw(st.lists(st.tuples(costs, st.floats(0, 1)), min_size=1, max_size=5))
    moments = st.tuples(st.floats(0.05, 3), figures, st.booleans(), readings, targets)
    options = tuple(branch(number, *each) for number, each in enumerate(drawn))
    return options, draw(st.lists(moments, min_size=1, max_size=40))


def follow(policy, options, moments):
    """Yield each situation with its decision; the chosen option runs in the next situation."""
    now, since, option, measured_at = 0.0, float("-inf"), options[0].id, SensorReading()
    for step, ratio, idle, reading, wanted in moments:
        now += step
        measured_at = measured_at if idle else reading
        situation = Situation(now, option, since, options, ratio, idle, reading, measured_at, wanted)
        decision = policy.decide(situation)
        yield situation, decision
        if decision.option != option:
            option, since = decision.option, now


@pytest.mark.parametrize("name", POLICIES)
@given(course=courses())
def test_every_policy_chooses_an_existing_option_and_gives_a_reason(name, course):
    for situation, decision in follow(make_policy({"name": name}), *course):
        assert decision.option in [option.id for option in situation.options]
        assert decision.reason


@pytest.mark.parametrize("name", POLICIES)
@given(course=courses())
def test_every_policy_is_deterministic(name, course):
    first, second = (
        [decision for _, decision in follow(make_policy({"name": name}), *course)] for _ in range(2)
    )
    assert first == second


@settings(max_examples=150)
@given(course=courses(), dwell=st.sampled_from(["500ms", "2s", "10s"]))
def test_only_exceeded_targets_cause_two_switches_within_the_dwell(course, dwell):
    policy = make_policy({"dwell": dwell})
    seconds = {"500ms": 0.5, "2s": 2.0, "10s": 10.0}[dwell]
    last = float("-inf")
    for situation, decision in follow(policy, *course):
        if decision.option != situation.option:
            assert situation.now - last >= seconds or over_a_target(situation)
            last = situation.now


@pytest.mark.parametrize("name", ["predictive", "contextual"])
@given(course=courses())
def test_a_decision_that_fits_meets_the_targets(name, course):
    for situation, decision in follow(make_policy({"name": name}), *course):
        (chosen,) = [option for option in situation.options if option.id == decision.option]
        if decision.fits and situation.targets.latency is not None:
            assert chosen.costs.latency_ms * situation.ratio <= situation.targets.latency
        if not decision.fits:
            assert all(over_a_target(situation, option) for option in situation.options)


def over_a_target(situation, option=None):
    """Return True if the policy predicts that an option, by default the current one, exceeds a target."""
    costs = (situation.chosen if option is None else option).costs
    then, now = situation.measured_at.cpu_available, situation.reading.cpu_available
    lost = 1.0 if then is None or now is None else max(1.0, then / max(now, 0.05))
    wanted = situation.targets
    slow = wanted.latency is not None and costs.latency_ms * situation.ratio * lost > wanted.latency
    large = (
        wanted.memory is not None and costs.memory_bytes is not None and costs.memory_bytes > wanted.memory
    )
    return slow or large


def test_the_faster_of_equally_accurate_options_is_chosen():
    alike = (branch(0, OptionCosts(10.0), 0.8), branch(1, OptionCosts(4.0), 0.8))
    moments = [(1.0, 1.0, False, SensorReading(), Targets(latency="20ms"))] * 3
    decided = [decision.option for _, decision in follow(make_policy({}), alike, moments)]
    assert decided == ["branch-0", "branch-1", "branch-1"]


SUBNETS = [
    Option(
        OptionKind.SUBNET,
        f"subnet-{number}",
        Engine(),
        OptionCosts(latency_ms),
        OptionScore(accuracy),
        ("a",),
    )
    for number, (latency_ms, accuracy) in enumerate([(2.0, 0.7), (4.0, 0.9), (8.0, 0.89), (16.0, 0.8)])
]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"latency": "20ms"}, 3),
        ({"latency": "10ms"}, 2),
        ({"latency": "20ms", "accuracy": 0.85}, 2),
        ({"latency": "20ms", "accuracy": 0.9}, 1),
        ({"latency": "20ms", "accuracy": 0.95}, 3),
    ],
)
def test_the_last_subnet_of_the_pool_that_meets_the_targets_is_chosen(wanted, expected):
    """The pool is ordered by accuracy and loss combined, which is more informative than accuracy."""
    moments = [(1.0, 1.0, False, SensorReading(), Targets(**wanted))] * 3
    decided = [decision.option for _, decision in follow(make_policy({}), tuple(SUBNETS), moments)]
    assert decided[-1] == f"subnet-{expected}"


def test_settings_are_checked_by_the_policy():
    with pytest.raises(MistifyError) as caught:
        make_policy({"name": "predictive", "hysteresis": 2, "dwel": "1s", "dwell": 5})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    problems = {problem.place: problem for problem in caught.value.problems}
    assert problems["policy.hysteresis"].expected == "a share from 0 to 1"
    assert problems["policy.dwel"].fix == 'did you mean "dwell"?'
    assert problems["policy.dwell"].fix == "write its unit"


def test_an_unknown_policy_is_refused_with_a_suggestion():
    with pytest.raises(MistifyError, match=r"policy\.name") as caught:
        make_policy({"name": "predictiv"})
    assert caught.value.problems[0].fix == 'did you mean "predictive"?'


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("import none_such", "ModuleNotFoundError"),
        ("policy = 5", "is 5, no mistify_client.monitor.policies.base.Policy"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_refused(tmp_path, monkeypatch, module, message):
    name = f"theirs_{len(module)}"
    monkeypatch.syspath_prepend(installed(tmp_path, name, module, {"theirs": f"{name}:policy"}, ENTRY_POINTS))
    with pytest.raises(MistifyError, match=message) as caught:
        make_policy({"name": "theirs"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    (problem,) = caught.value.problems
    assert (problem.place, problem.value) == ("policy.name", '"theirs"')
    assert f"{name}:policy" in problem.fix


#: Policies for earlier interfaces (without options, or without option ids), and objects that are no policies.
OF_BEFORE = """
from mistify.parsing.validation import Settings
from mistify_client.monitor.policies.base import Decision, Policy

class Fastest(Policy):
    params_class = Settings
    def __init__(self, params):
        self._params = params
    def decide(self, situation):
        {decides}
"""


@pytest.mark.parametrize(
    ("decides", "message"),
    [
        ("return Decision(len(situation.branches) - 1, True, 'why')", "no attribute 'branches'"),
        ("return Decision(branch=0, fits=True, reason='why')", "unexpected keyword argument 'branch'"),
        ("return Decision(situation.option, situation.options[0].latency_ms < 5, 'why')", "'latency_ms'"),
        ("return Decision(len(situation.options) - 1, True, 'why')", "the option 1 of branch-0 and branch-1"),
        ("return Decision('largest', True, 'why')", "the option 'largest' of branch-0 and branch-1"),
        ("return 1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_policy_for_an_earlier_interface_is_refused(tmp_path, monkeypatch, decides, message):
    name = f"before_{len(decides)}"
    module = OF_BEFORE.format(decides=decides)
    site = installed(tmp_path, name, module, {"fastest": f"{name}:Fastest"}, ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    with pytest.raises(MistifyError, match=message) as caught:
        make_policy({"name": "fastest"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    (problem,) = caught.value.problems
    assert (problem.place, problem.value) == ("policy.name", '"fastest"')
    assert problem.fix.startswith(f"fix {name}:Fastest: ")
