"""The entries of the monitor's log on its decisions, and on what they could not consider."""

import time

from mistify.fleet import LONGEST_REASON, LastSwitch
from mistify.package.option_kinds import local_id
from mistify.wording import listed
from mistify_client.monitor.foreground import IntervalOutcome
from mistify_client.monitor.policies.base import Situation
from mistify_client.monitor.sensing.bottleneck import Cause
from mistify_client.monitor.state.journal import Journal


class DecisionLog:
    """Logs decisions when something has changed, and problems once until they change.

    Args:
        journal: The log for changes and problems.

    Attributes:
        last_switch: The last switch to another option; None before the first one.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.last_switch: LastSwitch | None = None
        self._fits: bool | None = None
        self._cause: Cause | None = None

    def observe(self, outcome: IntervalOutcome) -> None:
        """Log what has changed with a decision."""
        self._note_decision(outcome)
        self._note_cause(outcome)
        self._note_not_followed(outcome)
        self._note_other_metric(outcome)
        self._note_unknown_energy(outcome.situation)

    def _note_decision(self, outcome: IntervalOutcome) -> None:
        """Log a decision, unless nothing has changed."""
        decision, situation = outcome.decision, outcome.situation
        figures = {"option": decision.option, "ratio": round(situation.ratio, 4), "fits": decision.fits}
        if outcome.switched:
            self._journal.note("switch", decision.reason, previous=situation.option, **figures)
            self.last_switch = LastSwitch(
                round(time.time() * 1000), situation.option, decision.reason[:LONGEST_REASON]
            )
        elif self._fits != decision.fits:
            self._journal.note("stay", decision.reason, **figures)
        self._fits = decision.fits

    def _note_cause(self, outcome: IntervalOutcome) -> None:
        """Log where time is lost outside the network, once until the cause changes."""
        threads, diagnosis = outcome.threads, outcome.diagnosis
        others = ", ".join(map(str, outcome.other_threads))
        reason = (
            f"an app runs with {others} thread{'' if others == '1' else 's'}, and its inferences do not "
            f"count: the package was measured with {threads}; call load() without threads"
        )
        self._journal.problem("threads", reason if others else None)
        if diagnosis is None:
            self._cause = None
        elif diagnosis.cause not in (self._cause, Cause.NETWORK):
            self._cause = diagnosis.cause
            self._journal.note(
                "cause", diagnosis.reason, cause=diagnosis.cause.value, smaller_helps=diagnosis.smaller_helps
            )

    def _note_not_followed(self, outcome: IntervalOutcome) -> None:
        """Log once, until it changes, that an app cannot load the chosen option."""
        others, chosen = ", ".join(outcome.not_followed), local_id(outcome.situation.option)
        reason = f"an app still runs {others}, because it cannot load {chosen}: its log says why"
        self._journal.problem("options", reason if others else None)

    def _note_other_metric(self, outcome: IntervalOutcome) -> None:
        """Log once, until it changes, that the accuracy target does not apply to subnets."""
        reason = (
            f"the accuracy target is ignored: it is in {outcome.manifest.metric}, but subnets are scored "
            f"by {outcome.other_metric} on this device"
        )
        self._journal.problem("accuracy", None if outcome.other_metric is None else reason)

    def _note_unknown_energy(self, situation: Situation) -> None:
        """Log once, until it changes, that the energy target does not apply to some options."""
        known, target = situation.conditions.energies, situation.targets.energy
        unknown = [option.id for option in situation.options if option.id not in known]
        reason = f"the energy target does not apply to {listed(unknown or ['none'])}: the energy is unknown"
        self._journal.problem("energy", reason if unknown and target is not None else None)
