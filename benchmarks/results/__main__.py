"""`python -m benchmarks.results` generates all published results from the records; it measures nothing."""

from benchmarks.harness.records import read_records
from benchmarks.results.page import RESULTS, page
from benchmarks.results.picture import PICTURE, picture
from benchmarks.results.readme import README, with_table


def main() -> None:
    """Write RESULTS.md, the README's table and its picture."""
    records = read_records()
    RESULTS.write_text(page(records))
    README.write_text(with_table(README.read_text(), records))
    PICTURE.write_text(picture(records))


if __name__ == "__main__":
    main()
