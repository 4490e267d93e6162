"""Sources of models and data."""

from mistify.config.dataset import DataSettings, generated_count
from mistify.config.metric import Metric
from mistify_server.tasks.base import Message


class ModelSource(Message):
    """Source of a model: one of `path`, `builtin` and `application`, and its options.

    Attributes:
        path: A file or directory.
        builtin: The name of a built-in model.
        application: The name of an architecture of `keras.applications`.
        classes: The number of classes, where the model's file does not have it.
        input: Height and width of the images that an architecture of `keras.applications` takes.
        weights: A file with the weights of such an architecture.
        sequence: Tokens of the texts that a preset of keras_hub takes.
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

    Attributes:
        train: Training data.
        test: Test data.
        settings: They also say what the validation data are: a share of the training data, or a path.
        labelled: Whether the targets of the test data are true, and not the source's answers.
    """

    train: str
    test: str
    settings: DataSettings = DataSettings()
    labelled: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all data."""
        validation = self.settings.validation
        return (self.train, *((validation,) if isinstance(validation, str) else ()), self.test)

    @property
    def generates_validation(self) -> bool:
        """True if the validation data are a share of training data that are to be generated."""
        return bool(generated_count(self.train)) and not isinstance(self.settings.validation, str)

    @property
    def metric(self) -> Metric:
        """The metric; accuracy until an inspection has chosen one that suits the data."""
        return self.settings.metric or Metric.ACCURACY
