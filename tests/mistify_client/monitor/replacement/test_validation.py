"""Downloaded packages are compared with the one in use before they replace it."""

import numpy as np

from mistify_client.monitor.replacement.candidate import Trial
from mistify_client.monitor.replacement.goals import Shortfall
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.versions import current


def test_an_invalid_network_changes_nothing(site, service, package, tmp_path):
    (tmp_path / "text").write_bytes(b"no network" * 100)
    service.fake.network = tmp_path / "text"
    site.ask()
    assert "cannot be used" in site.until("rejected")["reason"]
    assert current(package) == package


def test_a_package_that_is_no_faster_changes_nothing(site, package):
    site.ask(run_trial=lambda *_: Trial(1.0, 1.0, None))
    assert "not faster" in site.until("rejected")["reason"]
    assert current(package) == package


def test_a_package_with_different_outputs_changes_nothing(site, package, tmp_path):
    site.ask(run_trial=lambda *_: Trial(0.1, 1.0, agreement=0.5))
    assert "agree on 50% of the examples, which is below 70%" in site.until("rejected")["reason"]
    assert current(package) == package


def test_outputs_are_compared_on_examples(site, package, tmp_path, expected):
    np.savez(tmp_path / "examples.npz", image=expected["image"])
    site.ask(examples=tmp_path / "examples.npz")
    assert "agree on 100%" in site.until("installing")["reason"]


def test_a_package_may_be_slower_if_accuracy_was_too_low(site):
    accurate = Shortfall(Targets(latency="1s", accuracy="99%"), ratio=1.0, fastest_ms=0.2)
    site.ask(accurate, run_trial=lambda *_: Trial(2.0, 1.0, None))
    site.until("probation")


def test_a_failing_trial_does_not_end_the_daemon(site):
    def broken(*_):
        raise RuntimeError("tensor arena exhausted")

    site.ask(run_trial=broken)
    assert site.until("rejected")["reason"] == "RuntimeError: tensor arena exhausted"
    assert not site.state.candidate.exists()
