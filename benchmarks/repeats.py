"""Compares published leaderboard entries with the same encodings and seeds trained again, perhaps on another processor.

    vitpos score rope --seeds 0 --out runs/rope                              # with the instructions of this processor
    ATEN_CPU_CAPABILITY=avx2 vitpos score rope --seeds 0 --out runs/rope-avx2
    python benchmarks/repeats.py runs/rope runs/rope-avx2 [--out results/vitpos-1-repeats.csv]

Prints, for each run, the difference of every number from that of the published entry, and whether all are identical. Times
and memory are left out: they are measured, not computed. Numbers are fractions, from 0 to 1, except counts.
"""

import argparse
import sys
from pathlib import Path

from vitpos.files import write_csv
from vitpos.leaderboard.entry import ENTRY_FOLDER, Entry, load_entry

MEASURED = ("time", "memory")
FIELDS = ("protocol", "encoding", "seed", "column", "published_with", "repeated_with", "published", "repeated")


def repeats(rerun: Entry, published: list[Entry]) -> list[list]:
    """Returns a row for each number that an entry shares with a published one: the same encoding, seed and column."""
    rows = []
    for other in published:
        if (other.protocol, other.encoding) != (rerun.protocol, rerun.encoding):
            continue
        instructions = [entry.machine.get("instructions", "") for entry in (other, rerun)]
        for column in (key for key in rerun.numbers if key not in MEASURED):
            values, before = rerun.numbers[column], other.numbers.get(column, {})
            for seed in sorted(values.keys() & before.keys()):
                rows.append([rerun.protocol, rerun.encoding, seed, column, *instructions, before[seed], values[seed]])
    return rows


def group_by_training(rows: list[list]) -> dict[tuple, list[tuple]]:
    """Returns (encoding, seed, instructions of both) → (column, published, repeated) of each number."""
    found: dict[tuple, list[tuple]] = {}
    for _, encoding, seed, column, *instructions, before, after in rows:
        found.setdefault((encoding, seed, *instructions), []).append((column, before, after))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs of vitpos score")
    parser.add_argument("--entries", type=Path, default=Path("results/leaderboard/vitpos-1"), help="published entries")
    parser.add_argument("--out", type=Path, help="CSV file for all numbers")
    options = parser.parse_args()
    published = [load_entry(path) for path in sorted(options.entries.glob("*.json"))]
    table = []
    for run in options.runs:
        (path,) = sorted((run / ENTRY_FOLDER).glob("*.json"))
        rows = repeats(load_entry(path), published)
        if not rows:
            sys.exit(f"{run}: no published entry in {options.entries} has its encoding and seeds")
        table += rows
        for (encoding, seed, published_with, repeated_with), numbers in group_by_training(rows).items():
            gaps = {column: after - before for column, before, after in numbers if after != before}
            text = ", ".join(f"{column} {gap:+.4f}" for column, gap in gaps.items()) or "identical"
            print(f"{encoding}, seed {seed}, {published_with} published, {repeated_with} repeated: {text}")
    if options.out:
        print(write_csv(options.out, list(FIELDS), table))


if __name__ == "__main__":
    main()
