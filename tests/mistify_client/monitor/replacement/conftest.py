"""Background paths with real packages, and a porting service over real gRPC."""

import json
from functools import partial

import pytest

from mistify.package.manifest import Manifest
from mistify.package.verification import verify
from mistify_client.monitor.config import ReplacementConfig, goal_template
from mistify_client.monitor.replacement.background import BackgroundReplacement
from mistify_client.monitor.replacement.candidate import try_candidate
from mistify_client.monitor.replacement.goals import Shortfall
from mistify_client.monitor.replacement.ledger import Phase
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.state.targets import Targets
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.versions import current
from tests.mistify_client.monitor.adapting import PATIENCE, Entries
from tests.mistify_client.monitor.test_config import GOAL
from tests.support.tiny_packages import IMAGE, SCORES, make_package

SHORT = Shortfall(Targets(latency="1us"), ratio=2.0, fastest_ms=0.2)
WHOLE_WAY = ["submitting", "adapting", "downloading", "validating", "installing", "probation"]


@pytest.fixture
def package(tmp_path, data):
    return make_package(tmp_path / "package", data / "tiny.tflite", (IMAGE,), (SCORES,))


@pytest.fixture
def other(tmp_path, data):
    """Return a version that another process has installed."""
    return make_package(tmp_path / "other", data / "tiny.tflite", (IMAGE,), (SCORES,))


class Site:
    """A package and the background paths of successive daemons that monitor it."""

    def __init__(self, package, tmp_path, service, run_trial):
        self.package = package
        self.run_trial = run_trial
        self.state = MonitorState.of(package)
        self.state.directory.mkdir(parents=True)
        (tmp_path / "goal.json").write_text(json.dumps(GOAL))
        self.config = ReplacementConfig(
            server=service.address, goal=tmp_path / "goal.json", after="1s", probation="60s"
        )
        self.entries = Entries()
        self.background = None
        self.trust = None

    def daemon(self, run_trial=None, **changes):
        self.stop()
        self.background = BackgroundReplacement(
            self.package,
            self.state,
            self.config.model_copy(update=changes),
            goal_template(self.config),
            Journal(self.state.log, self.entries),
            trust=self.trust,
            retry=Backoff(first=0.01, longest=0.05),
            run_trial=run_trial or self.run_trial,
        )
        return self.background

    def ask(self, shortfall=SHORT, **settings):
        background = self.daemon(**settings)
        background.ask(shortfall, Manifest.load(current(self.package)))
        background.resume()
        return background

    def until(self, phase):
        return self.entries.until(phase=phase)

    def stop(self):
        if self.background is not None:
            self.background.stop()

    @property
    def goal(self):
        return verify(current(self.package)).goal


@pytest.fixture
def site(package, tmp_path, service, turns):
    site = Site(package, tmp_path, service, partial(try_candidate, clock=turns))
    yield site
    site.stop()


def on_probation(site, *, fastest_ms, before_ms, fits=False, meanwhile=lambda: None):
    """Install a package, measure it throughout its probation, and return the background path.

    `meanwhile` is called at the beginning of the probation.
    """
    background = site.daemon()
    background.fastest_ms = before_ms
    background.ask(SHORT, Manifest.load(site.package))
    background.resume()
    site.until("probation")
    background._thread.join(PATIENCE)  # or else, it may be about to end when its next work comes
    meanwhile()
    for second in range(70):
        background.fastest_ms = fastest_ms
        background.judge(1000.0 + second, fits)
    background.resume()
    return background


def on_probation_ends(site):
    site.background.fastest_ms = 0.001
    site.background.judge(1000.0, True)
    site.background.judge(1061.0, True)
    assert site.background.replacement.phase is Phase.KEPT
