"""The loop of paper 5.1: alone, then with peers, until nothing is gained."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import ProgressUpdate
from mistify_client.porting.progress import Display
from mistify_client.tuning.examples import Examples, Split, split
from mistify_client.tuning.fitting import Course, Pace, Score, Teacher, fit, score_of
from mistify_client.tuning.peers.exchange import Exchange
from mistify_client.tuning.peers.teachers import Teachers
from mistify_client.tuning.progress import ProgressFile, Stage, TuningProgress
from mistify_client.tuning.trainer import Trainer

#: Share of the examples that is set apart, to tell when to stop.
VALIDATION: Final = 0.2

#: The most rounds with peers.
ROUNDS: Final = 4


class Tuner:
    """Tunes a network, and keeps its progress after every pass through the data.

    Args:
        trainer: of the network, with the weights to start from.
        data: of the device.
        pace: of the training.
        file: keeps the progress.
        exchange: with peers; None for none.
        display: where progress is shown.

    Attributes:
        notes: What the user should know, line by line.
    """

    def __init__(
        self,
        trainer: Trainer,
        data: Split,
        pace: Pace,
        file: ProgressFile,
        *,
        exchange: Exchange | None,
        display: Display,
    ) -> None:
        self._trainer = trainer
        self._data = data
        self._pace = pace
        self._file = file
        self._exchange = exchange
        self._display = display
        self.notes: list[str] = []

    def run(self, teachers: Teachers, noisy: Callable[[], Examples] | None) -> TuningProgress:
        """Tune until only the installation is left.

        Args:
            teachers: make peers a teacher.
            noisy: gives the data from which a private device makes what it publishes.

        Raises:
            MistifyError: as `Exchange.join`, but for a server that is away.
        """
        exchange = self._exchange
        if exchange is not None:
            self._join(exchange)
        progress = self._begin()
        while progress.stage is not Stage.INSTALL:
            match progress.stage:
                case Stage.LOCAL:
                    after = Stage.INSTALL if exchange is None else Stage.NOISY if noisy else Stage.EXCHANGE
                    progress = self._fit(progress).at(after)
                case Stage.NOISY if noisy is not None:
                    progress = self._noisy(progress, noisy)
                case Stage.EXCHANGE if exchange is not None:
                    progress = self._meet(progress, exchange, teachers, private=noisy is not None)
                case Stage.TAUGHT if teachers.has(progress.teachers):
                    progress = self._taught(progress, teachers)
                case _:
                    progress = progress.at(Stage.INSTALL)
            self._file.save(progress)
        return progress

    def _join(self, exchange: Exchange) -> None:
        """What the group refuses is told before hours are spent on training."""
        try:
            exchange.join()
        except MistifyError as error:
            if error.code is not ErrorCode.UNAVAILABLE:
                raise
            self._note(f"the server is away, which is tried again after tuning alone: {error}")

    def _begin(self) -> TuningProgress:
        """Where the tuning stands: at its beginning, or where it was broken off."""
        if (kept := self._file.load()) is not None:
            self._display.say(f"goes on: {kept.stage.value}")
            return kept
        began = score_of(self._trainer, self._data.held_out)
        course = Course.begun(began, self._trainer.weights(), began, len(self._data.validation))
        return TuningProgress(Stage.LOCAL, began, course)

    def _fit(self, progress: TuningProgress, teacher: Teacher | None = None) -> TuningProgress:
        def after_pass(course: Course, score: Score) -> None:
            self._file.save(replace(progress, course=course))
            self._show(progress, course, score)

        course = fit(
            self._trainer, self._data, self._pace, progress.course, after_pass=after_pass, teacher=teacher
        )
        return replace(progress, course=course)

    def _noisy(self, progress: TuningProgress, noisy: Callable[[], Examples]) -> TuningProgress:
        """Train what is published on noisy data alone, from weights that do not know the true ones either."""
        try:
            examples = noisy()
        except MistifyError as error:
            return self._without_peers(progress, error)
        data = split(examples, VALIDATION, self._trainer.training.batch_size)
        self._trainer.restore(self._trainer.ported)
        began = score_of(self._trainer, data.held_out)
        course = progress.noisy or Course.begun(began, self._trainer.ported, began, len(data.validation))

        def after_pass(course: Course, score: Score) -> None:
            self._file.save(replace(progress, noisy=course))
            self._show(progress, course, score)

        course = fit(self._trainer, data, self._pace, course, after_pass=after_pass)
        return progress.at(Stage.EXCHANGE, noisy=course)

    def _meet(
        self, progress: TuningProgress, exchange: Exchange, teachers: Teachers, *, private: bool
    ) -> TuningProgress:
        """Publish, and begin a round with those peers that can be trusted; without any the tuning ends."""
        course = progress.noisy if private else progress.course
        self._trainer.restore(progress.course.best_weights)
        try:
            if course is not None:
                exchange.publish(course.best_weights, course.best)
            if progress.round == ROUNDS:
                return progress.at(Stage.INSTALL)
            gathered = teachers.gather(exchange.peers())
        except MistifyError as error:
            return self._without_peers(progress, error)
        for note in gathered.notes:
            self._note(note)
        if not gathered.teachers:
            self._note("there are no peers to learn from yet")
        if set(gathered.teachers) <= set(progress.teachers):
            return progress.at(Stage.INSTALL)
        self._display.say(f"round {progress.round + 1}: learns from {len(gathered.teachers)} peers")
        return progress.at(
            Stage.TAUGHT,
            round=progress.round + 1,
            before=progress.course.best,
            course=replace(progress.course, weights=progress.course.best_weights, idle=0, slowed=0, passes=0),
            teachers=gathered.teachers,
        )

    def _taught(self, progress: TuningProgress, teachers: Teachers) -> TuningProgress:
        """Another round, if this one has gained something."""
        progress = self._fit(progress, teachers.ensemble(progress.teachers))
        gained = progress.course.best != progress.before
        return progress.at(Stage.EXCHANGE if gained else Stage.INSTALL)

    def _without_peers(self, progress: TuningProgress, error: MistifyError) -> TuningProgress:
        """Peers cannot be had (any more): what was gained so far stays."""
        self._note(f"goes on without peers: {error}")
        return progress.at(Stage.INSTALL)

    def _note(self, line: str) -> None:
        self.notes.append(line)
        self._display.say(line)

    def _show(self, progress: TuningProgress, course: Course, score: Score) -> None:
        stage = f"round {progress.round}" if progress.stage is Stage.TAUGHT else progress.stage.value
        accuracy = score.accuracy if self._trainer.training.has_answers else None
        update = ProgressUpdate(stage, course.passes, self._pace.most_passes, accuracy=accuracy)
        self._display.update("tuning", update, None)
        if self._exchange is not None:
            self._exchange.stay()
