"""All kinds of faults in docstring entries are found at their lines, and nothing else."""

from pathlib import Path

import pytest

from docs_site.docstrings import Entry, entries, faults_in

MODULE = '''"""A module.

Attributes:
    LIMIT: Bytes.
"""


class Network:
    """A network.

    Attributes:
        goal: The goal, with
            its limits.
        shape: Of the input.
    """

    async def run(self, inputs, threads):
        """Run the network: what it computes.

        Args:
            inputs: [examples, features].

            threads: at most 8.

        Not an entry: of the description.

        Returns:
            What it computes,
            by output.

        Raises:
            ValueError: There is no input
        """
        """Args:
            other: no docstring
        """
'''


def test_entries_of_all_docstrings_are_read_with_their_lines() -> None:
    assert sorted(entries(MODULE), key=lambda entry: entry.line) == [
        Entry(4, "Attributes", "LIMIT", "Bytes."),
        Entry(12, "Attributes", "goal", "The goal, with its limits."),
        Entry(14, "Attributes", "shape", "Of the input."),
        Entry(21, "Args", "inputs", "[examples, features]."),
        Entry(23, "Args", "threads", "at most 8."),
        Entry(28, "Returns", "", "What it computes, by output."),
        Entry(32, "Raises", "ValueError", "There is no input"),
    ]


def test_each_fault_names_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(MODULE)
    found = sorted(fault.split(":", 2)[1:] for fault in faults_in([file]))
    assert [(int(line), text.split(":")[0].strip()) for line, text in found] == [
        (14, 'shape begins with "Of"'),
        (23, "threads begins with a lower-case letter"),
        (28, 'Returns begins with "What"'),
        (32, "ValueError does not end with a full stop"),
    ]


@pytest.mark.parametrize("text", ["Of the goal.", "What it costs.", "As before.", "Has no end.", "Likewise."])
def test_entries_that_continue_the_name_are_refused_except_for_errors(text: str) -> None:
    assert len(list(Entry(1, "Args", "name", text).faults())) == 1
    assert not list(Entry(1, "Raises", "ValueError", text).faults())


@pytest.mark.parametrize("text", ["As for `load`.", "CONFLICT, twice; as for `load`.", "As for a call."])
def test_errors_that_refer_to_another_call_are_refused(text: str) -> None:
    assert len(list(Entry(1, "Raises", "MistifyError", text).faults())) == 1
    assert not list(Entry(1, "Raises", "MistifyError", "INVALID_MODEL, it is used as for training.").faults())


def test_an_entry_that_repeats_its_name_is_refused() -> None:
    assert len(list(Entry(1, "Args", "model_file", "The file of the model.").faults())) == 1
    assert not list(Entry(1, "Args", "model_file", "The file of the tuned model.").faults())


@pytest.mark.parametrize("text", ["`float16`.", "[examples, 2].", "0 to 1.", "Office hours.", "-1 for none."])
def test_good_entries_have_no_faults(text: str) -> None:
    assert not list(Entry(1, "Args", "name", text).faults())
