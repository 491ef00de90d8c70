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


def repeats(again: Entry, published: list[Entry]) -> list[list]:
    """Returns a row for each number that an entry shares with a published one: the same encoding, seed and column."""
    rows = []
    for other in published:
        if (other.protocol, other.encoding) != (again.protocol, again.encoding):
            continue
        with_what = [entry.machine.get("instructions", "") for entry in (other, again)]
        for column in (key for key in again.numbers if key not in MEASURED):
            values, before = again.numbers[column], other.numbers.get(column, {})
            for seed in sorted(values.keys() & before.keys()):
                rows.append([again.protocol, again.encoding, seed, column, *with_what, before[seed], values[seed]])
    return rows


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
        gaps = {row[3]: row[-1] - row[-2] for row in rows}
        first = rows[0]
        verdict = ", ".join(f"{key} {gap:+.4f}" for key, gap in gaps.items() if gap) or "identical"
        print(f"{first[1]}, seed {first[2]}, {first[4]} published, {first[5]} repeated: {verdict}")
    if options.out:
        print(write_csv(options.out, list(FIELDS), table))


if __name__ == "__main__":
    main()
