"""Tasks with changed recipes."""

from typing import Any, TypeVar

from mistify_server.tasks.recipe import Recipe

T = TypeVar("T", bound=Any)


def by_recipe(task: T, **changes: Any) -> T:
    """Return a task with other values for some fields of its recipe."""
    recipe: Recipe = task.recipe
    return task.model_copy(update={"recipe": recipe.model_copy(update=changes)})
