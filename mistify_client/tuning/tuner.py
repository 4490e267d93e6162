"""The loop of paper 5.1: tuning alone, then with peers, until nothing is gained."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import ProgressUpdate
from mistify.wording import counted
from mistify_client.examples import Examples
from mistify_client.porting.progress import Display
from mistify_client.tuning.examples import Split, split
from mistify_client.tuning.peers.exchange import Exchange
from mistify_client.tuning.peers.teachers import Teachers
from mistify_client.tuning.progress import ProgressFile, Stage, TuningProgress
from mistify_client.tuning.rehearsal import Rehearsal
from mistify_client.tuning.trainer import PackageTrainer
from mistify_client.tuning.training_loop import Score, Teacher, TrainingSettings, TrainingState, fit, score_of

#: Share of the examples that is held out for early stopping.
VALIDATION: Final = 0.2

#: Maximum number of rounds with peers.
ROUNDS: Final = 4


class Tuner:
    """The tuner of a network, which saves its progress after every pass through the data.

    Args:
        trainer: Trains the network, starting from its current weights.
        file: Saves the progress.
        rehearsal: Rehearsal of the network's earlier predictions; None for none.
        exchange: The exchange with peers; None to tune alone.
        display: Shows progress.

    Attributes:
        notes: Messages for the user, one line each.
    """

    def __init__(
        self,
        trainer: PackageTrainer,
        data: Split,
        settings: TrainingSettings,
        file: ProgressFile,
        *,
        rehearsal: Rehearsal | None,
        exchange: Exchange | None,
        display: Display,
    ) -> None:
        self._trainer = trainer
        self._data = data
        self._settings = settings
        self._rehearsal = rehearsal
        self._file = file
        self._exchange = exchange
        self._display = display
        self.notes: list[str] = []

    def run(self, teachers: Teachers, noisy: Callable[[], Examples] | None) -> TuningProgress:
        """Tune until only the installation remains.

        Args:
            teachers: Chooses the peers that teach.
            noisy: Returns the data on which a private device trains its published model; None for a device
                that publishes its own model.

        Returns:
            The progress at `Stage.INSTALL`, with the best weights.

        Raises:
            MistifyError: INVALID_PUBLICATION, the group requires other hints; NOT_FOUND, there is no such
                group; other errors of the server, such as UNAUTHENTICATED, but not UNAVAILABLE, with which
                the tuner continues alone; CORRUPT_PACKAGE, the stored predictions of a peer are damaged.
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
                    progress = self._train_on_noisy(progress, noisy)
                case Stage.EXCHANGE if exchange is not None:
                    progress = self._exchange_models(progress, exchange, teachers, private=noisy is not None)
                case Stage.TAUGHT if teachers.has(progress.teachers):
                    progress = self._train_with_peers(progress, teachers)
                case _:
                    progress = progress.at(Stage.INSTALL)
            self._file.save(progress)
        return progress

    def _join(self, exchange: Exchange) -> None:
        """Join the group first, so that a rejection is reported before hours of training."""
        try:
            exchange.join()
        except MistifyError as error:
            if error.code is not ErrorCode.UNAVAILABLE:
                raise
            self._note(f"the server cannot be reached; trying again after tuning alone: {error}")

    def _begin(self) -> TuningProgress:
        """Return the saved progress of an interrupted tuning, or the initial progress."""
        if (saved := self._file.load()) is not None:
            self._display.show_line(f"resuming: {saved.stage.value}")
            return saved
        began = score_of(self._trainer, self._data.held_out)
        state = TrainingState.initial(began, self._trainer.weights(), began, len(self._data.validation))
        return TuningProgress(Stage.LOCAL, began, state)

    def _fit(self, progress: TuningProgress, teacher: Teacher | None = None) -> TuningProgress:
        settings = self._settings if teacher is None else self._settings.with_peers()

        def after_pass(state: TrainingState, score: Score) -> None:
            self._file.save(replace(progress, state=state))
            self._show(progress, state, score, settings)

        if self._rehearsal is not None:
            teacher, settings = self._rehearsal.combined_with(teacher, settings)
        state = fit(
            self._trainer, self._data, settings, progress.state, after_pass=after_pass, teacher=teacher
        )
        return replace(progress, state=state)

    def _train_on_noisy(self, progress: TuningProgress, noisy: Callable[[], Examples]) -> TuningProgress:
        """Train the model to publish on noisy data only, from weights that never saw the true data."""
        try:
            examples = noisy()
        except MistifyError as error:
            return self._without_peers(progress, error)
        data = split(examples, VALIDATION, self._trainer.training.batch_size)
        self._trainer.restore(self._trainer.ported)
        began = score_of(self._trainer, data.held_out)
        state = progress.noisy or TrainingState.initial(
            began, self._trainer.ported, began, len(data.validation)
        )

        settings = replace(self._settings, augmentation=None)  # it suits the true images

        def after_pass(state: TrainingState, score: Score) -> None:
            self._file.save(replace(progress, noisy=state))
            self._show(progress, state, score, settings)

        state = fit(self._trainer, data, settings, state, after_pass=after_pass)
        return progress.at(Stage.EXCHANGE, noisy=state)

    def _exchange_models(
        self, progress: TuningProgress, exchange: Exchange, teachers: Teachers, *, private: bool
    ) -> TuningProgress:
        """Publish a model, and start a round with the trusted peers, or end the tuning if there are none."""
        state = progress.noisy if private else progress.state
        self._trainer.restore(progress.state.best_weights)
        try:
            if state is not None:
                exchange.publish(state.best_weights, state.best)
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
        self._display.show_line(
            f"round {progress.round + 1}: learning from {counted(len(gathered.teachers), 'peer')}"
        )
        return progress.at(
            Stage.TAUGHT,
            round=progress.round + 1,
            before=progress.state.best,
            state=replace(progress.state, weights=progress.state.best_weights, idle=0, slowed=0, passes=0),
            teachers=gathered.teachers,
        )

    def _train_with_peers(self, progress: TuningProgress, teachers: Teachers) -> TuningProgress:
        """Train with peers as the teacher; another round follows if this one gained something."""
        progress = self._fit(progress, teachers.ensemble(progress.teachers))
        before, after = progress.before, progress.state.best
        gained = before is None or after.accuracy > before.accuracy or after.loss < before.loss
        return progress.at(Stage.EXCHANGE if gained else Stage.INSTALL)

    def _without_peers(self, progress: TuningProgress, error: MistifyError) -> TuningProgress:
        """End the tuning without peers; earlier gains are kept."""
        self._note(f"continuing without peers: {error}")
        return progress.at(Stage.INSTALL)

    def _note(self, line: str) -> None:
        self.notes.append(line)
        self._display.show_line(line)

    def _show(
        self, progress: TuningProgress, state: TrainingState, score: Score, settings: TrainingSettings
    ) -> None:
        stage = f"round {progress.round}" if progress.stage is Stage.TAUGHT else progress.stage.value
        accuracy = score.accuracy if self._trainer.training.has_accuracy else None
        update = ProgressUpdate(stage, state.passes, settings.most_passes, accuracy=accuracy)
        self._display.update("tuning", update, None)
        if self._exchange is not None:
            self._exchange.renew_lease()
