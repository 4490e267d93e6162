"""Sources of models and data."""

from pydantic import Field

from mistify.config.data.dataset import DataSettings, trains_on_pseudo_labels
from mistify.config.data.metric import Metric
from mistify_server.tasks.base import Message


class ModelSource(Message):
    """Source of a model: one of `path`, `builtin` and `application`, and its options.

    Attributes:
        path: A file or directory.
        builtin: Name of a built-in model.
        application: Name of an architecture of `keras.applications`.
        classes: Number of classes, where the model's file does not have it.
        input: Height and width of the images that an architecture of `keras.applications` takes.
        weights: A file with the weights of such an architecture.
        sequence: Number of tokens of the texts that a preset of keras_hub takes.
    """

    path: str | None = None
    builtin: str | None = None
    application: str | None = None
    classes: int | None = None
    input: int | None = None
    weights: str | None = None
    sequence: int | None = None


class DataSource(Message):
    """Training and test data: files, directories, or `builtin:digits-train`; and how they are used.

    Where there are no labels, the source's answers replace them: for inputs to be generated, as
    `generated:COUNT` says, or for the user's own. The JSON of labelled data does not mention this.

    Attributes:
        train: Training data; None where the unlabelled inputs stand for them.
        test: Test data; None where a part of the unlabelled inputs stands for them.
        unlabelled: Inputs without labels, in place of training data or beside them.
        answered: Part ("train", "test") -> file with its inputs and the source's answers, once there is one.
        settings: Settings of the data, which also name the validation data: a share of the training data, or
            a path.
        labelled: Whether the targets of the test data are true rather than the source's answers.
    """

    train: str | None = None
    test: str | None = None
    unlabelled: str | None = Field(default=None, exclude_if=lambda name: name is None)
    answered: dict[str, str] = Field(default_factory=dict, exclude_if=lambda files: not files)
    settings: DataSettings = DataSettings()
    labelled: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all data."""
        validation = self.settings.validation
        own = validation if isinstance(validation, str) else None
        named = (self.train, own, self.test, self.unlabelled, *self.answered.values())
        return tuple(name for name in named if name is not None)

    @property
    def trains_on_pseudo_labels(self) -> bool:
        """True if the targets of the training data are the source's answers."""
        return trains_on_pseudo_labels(self.train)

    @property
    def teaches_source(self) -> bool:
        """True if the source can be tuned on the data, and not just on its own answers, or on some tasks'."""
        return not self.trains_on_pseudo_labels and self.settings.tasks is None

    @property
    def has_validation_labels(self) -> bool:
        """True if the targets of the validation data are true, and not the source's answers."""
        return isinstance(self.settings.validation, str) or not self.trains_on_pseudo_labels

    @property
    def schema_source(self) -> str | None:
        """The data with labels whose classes, columns and kinds of targets all others share, if any have."""
        if not self.trains_on_pseudo_labels:
            return self.train
        return self.test if self.labelled else None

    @property
    def metric(self) -> Metric:
        """The metric of the test data; accuracy until an inspection has chosen one that suits them."""
        return self.settings.metric or Metric.ACCURACY

    @property
    def validation_metric(self) -> Metric:
        """The same figure of the validation data: agreement where their targets are the source's answers."""
        return self.metric if self.has_validation_labels else self.metric.without_labels
