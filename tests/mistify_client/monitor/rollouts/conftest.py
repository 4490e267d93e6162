"""Followers of roll-outs with real packages, and a porting service over real gRPC."""

import hashlib
from dataclasses import dataclass, field, replace

import pytest

from mistify.package.manifest import Manifest
from mistify.rollouts import Instruction, WantedPackage
from mistify_client.monitor.config import FleetConfig
from mistify_client.monitor.replacement.candidate import try_candidate
from mistify_client.monitor.rollouts.following import RolloutFollower
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.versions import current
from tests.mistify_client.conftest import package_files
from tests.mistify_client.monitor.adapting import PATIENCE, Entries, package_of
from tests.support.tiny_packages import IMAGE, SCORES, make_package


@pytest.fixture
def package(tmp_path, data):
    """Return the shipped package, for the goal `half` of the job `job-1`."""
    return make_package(tmp_path / "package", data / "tiny.tflite", (IMAGE,), (SCORES,))


@dataclass
class Outcome:
    """The parts of an `IntervalOutcome` that a follower reads."""

    manifest: object
    latency_ms: float | None = None
    outdated_at: float | None = None
    situation: object = field(init=False)
    timing: object = field(init=False)

    def __post_init__(self):
        self.situation = self
        self.timing = None if self.latency_ms is None else self
        self.idle = self.latency_ms is None


class Site:
    """A package, the followers of successive daemons, and the service that has the new packages."""

    def __init__(self, package, service, network):
        self.package, self.service, self.network = package, service, network
        self.state = MonitorState.of(package)
        self.entries = Entries()
        self.follower = None
        self.trust, self.key, self.run_trial = None, None, try_candidate

    def offer(self, goal="phone-2", rollout="r2", made=None, **changes):
        """Let the service have a package, and return the instruction to install it.

        Args:
            made: The files of the package; None for a package with the network that runs.
        """
        fake = self.service.fake
        fake.files = made or package_of(self.network, goal, fake.job.id, self.key)
        first, *_ = fake.job.goals
        others = (each for each in fake.job.goals if each.id != goal)
        fake.job = replace(
            fake.job, goals=(*others, replace(first, id=goal, files=package_files(fake.files)))
        )
        digest = hashlib.sha256(fake.files["manifest.json"]).hexdigest()
        wanted = {"rollout": rollout, "job_id": fake.job.id, "goal_id": goal, "digest": digest}
        return Instruction(WantedPackage(**(wanted | changes)))

    def daemon(self, **config):
        """Return a new follower, as after a restart of the monitor."""
        self.stop()
        server = FleetConfig.model_validate(
            {"server": self.service.address, "rollouts": {"package": "half", **config}}
        )
        self.follower = RolloutFollower(
            self.package,
            self.state,
            server,
            server.rollouts,
            Journal(self.state.log, self.entries),
            trust=self.trust,
            retry=Backoff(first=0.01, longest=0.05),
            run_trial=self.run_trial,
        )
        return self.follower

    def observe(self, latency_ms=None, outdated_at=None):
        self.follower.observe(Outcome(self.manifest, latency_ms, outdated_at))

    def until(self, phase):
        """Let the work go on until a phase is logged, and return its reason."""
        self.finish()
        self.observe()
        return self.entries.until(event="rollout", phase=phase)["reason"]

    def finish(self):
        """Wait for the thread."""
        if self.follower._thread is not None:
            self.follower._thread.join(PATIENCE)

    @property
    def phases(self):
        return [entry["phase"] for entry in self.entries.read if entry["event"] == "rollout"]

    @property
    def manifest(self):
        return Manifest.load(current(self.package))

    @property
    def goal(self):
        return self.manifest.goal

    def stop(self):
        if self.follower is not None:
            self.follower.stop()


@pytest.fixture
def site(package, service, data):
    site = Site(package, service, data / "tiny.tflite")
    yield site
    site.stop()
