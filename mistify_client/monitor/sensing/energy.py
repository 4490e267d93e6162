"""The energy of options: by equation 1 of CrowdHMTware, fitted to a meter if the device has one."""

from collections.abc import Mapping, Sequence
from typing import Final

from mistify.costs.energy import Energy, EnergyOrigin
from mistify_client.monitor.sensing.bottleneck import Timing
from mistify_client.runtime.options import Option

#: The weight of the latest measurement in the factor between measured and published energies.
_LEARNED: Final = 0.2


class EnergyModel:
    """Estimator of the energy of each option.

    Equation 1 gives ratios between options. A meter gives the energy of the option that runs: the watts of
    the device times the processor time of an inference. The mean factor between the two applies to all
    options. Without multiply-adds and weights of every option, their latencies serve as ratios.

    Attributes:
        measured: Energy of the running option; None without a meter, or before the first measurement.
    """

    def __init__(self) -> None:
        self.measured: Energy | None = None
        self._factor: float | None = None

    def observe(self, option: Option, options: Sequence[Option], timing: Timing, watts: float | None) -> None:
        """Include the measurement of an interval.

        Args:
            option: The option that ran.
            options: All options, whose energies are compared.
            timing: The times of one inference.
            watts: Mean power during the interval; None without a meter.
        """
        if watts is None or not watts * timing.computing_ms > 0:
            self.measured = None
            return
        self.measured = Energy(watts * timing.computing_ms, EnergyOrigin.MEASURED)
        factor = self.measured.mj / _ratios([option], by_latency=not _published(options))[0]
        before = factor if self._factor is None else self._factor
        self._factor = before + _LEARNED * (factor - before)

    def energies(self, options: Sequence[Option]) -> Mapping[str, Energy]:
        """Return option id -> energy of one inference; empty if nothing is known."""
        published = _published(options)
        if self._factor is None:
            return {option.id: option.costs.energy for option in options if published and option.costs.energy}
        ratios = _ratios(options, by_latency=not published)
        return {
            option.id: Energy(self._factor * ratio, EnergyOrigin.FITTED)
            for option, ratio in zip(options, ratios, strict=True)
        }


def _published(options: Sequence[Option]) -> bool:
    """Return True if equation 1 applies to every option."""
    return all(option.costs.energy is not None for option in options)


def _ratios(options: Sequence[Option], *, by_latency: bool) -> list[float]:
    return [
        option.costs.latency_ms if by_latency or option.costs.energy is None else option.costs.energy.mj
        for option in options
    ]
