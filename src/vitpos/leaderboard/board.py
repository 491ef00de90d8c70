"""The leaderboard as data: entries in order of rank, with intervals, groups that do not differ, and recommendations."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.leaderboard.entry import ENTRY_FOLDER, Entry, join_seeds, load_entry
from vitpos.leaderboard.protocol import Measure, Protocol
from vitpos.leaderboard.ranking import Ranking, rank
from vitpos.metrics.statistics import ci_half_width, paired_difference


@dataclass(frozen=True)
class ColumnMean:
    """An entry's mean in one column over its seeds, with half the width of its 95 % interval (infinite for one seed)."""

    mean: float
    half_width: float
    seeds: int


@dataclass(frozen=True)
class Recommendation:
    """The encodings that do not differ significantly from the best one in a leaderboard column, best first.

    Args:
        column: Key of the column.
        best: The best encoding, and those that do not differ significantly from it.
        fastest: Those of ``best`` whose training step is not significantly slower than that of the fastest of them; empty
            if step times are not ranked.
        any_significant: Whether any two encodings differ significantly in the column.
    """

    column: str
    best: tuple[str, ...]
    fastest: tuple[str, ...]
    any_significant: bool

    def text(self, quote: str = "") -> str:
        """Returns the recommendation as a sentence, with the names of encodings between ``quote``."""
        if not self.any_significant:
            return "no difference between encodings was found."
        best, *others = (f"{quote}{name}{quote}" for name in self.best)
        found = f"best {best}" + (f"; not distinguished from it: {', '.join(others)}" if others else "") + "."
        if others and self.fastest and len(self.fastest) < len(self.best) and self.column != "time":
            found += f" Fastest of these in training: {', '.join(f'{quote}{name}{quote}' for name in self.fastest)}."
        return found


class Board:
    """A leaderboard: the entries (one per encoding) of a protocol (a fixed experiment), ranked by its first column.

    Entries have no rank (see `reason_without_rank`) if they are quick, i.e. from shortened runs, if the sources of their
    method leave its definition open, or if fewer than two of their seeds count. Seeds that the protocol does not name count
    only in entries that have all seeds of the protocol, so that nobody can choose lucky ones.
    """

    def __init__(self, protocol: Protocol, entries: Sequence[Entry]):
        self.protocol = protocol
        self.rankings: dict[str, Ranking] = {}
        ranked = {e.encoding: self._counted_seeds(e) for e in entries if not e.quick and not _unsettled(e)}
        for key, column in protocol.columns.items():
            values = {
                e.encoding: {seed: e.numbers[key][seed] for seed in ranked[e.encoding]}
                for e in entries
                if key in e.numbers and e.encoding in ranked and not e.quick
            }
            ranking = rank(values, higher_is_better=column.better != "lower")
            if ranking:
                self.rankings[key] = ranking
        self.main = next(iter(protocol.columns))
        order = list(self.rankings[self.main].means) if self.main in self.rankings else []
        self.ranks = {encoding: number for number, encoding in enumerate(order, 1)}
        mean = {id(e): statistics.fmean(e.numbers[self.main].values()) for e in entries}
        self.entries = sorted(
            entries, key=lambda e: (self.rank(e) is None, self.rank(e) or 0, e.quick, -mean[id(e)], e.encoding)
        )

    @classmethod
    def load(cls, sources: Iterable[Path], protocol: Protocol) -> Board:
        """Reads and checks leaderboard entries from JSON files, or folders of them, and returns their Board.

        Raises an InputError for the first entry that is not valid. Files of one encoding with different seeds become one
        entry.
        """
        joined: dict[tuple[str, bool], Entry] = {}
        files: dict[tuple[str, bool], Path] = {}
        for file in (file for source in sources for file in _files(source)):
            entry = load_entry(file)
            if entry.protocol != protocol.name:
                raise InputError(f"{file} is an entry of protocol {entry.protocol!r}; give --protocol {entry.protocol}")
            key = (entry.encoding, entry.quick)
            try:
                joined[key] = join_seeds(joined[key], entry) if key in joined else entry
            except InputError as error:
                raise InputError(f"{files[key]} and {file}: {error}") from None
            files[key] = file
        trained_on = {entry.data: file for entry, file in zip(joined.values(), files.values(), strict=True)}
        if len(trained_on) > 1:
            (one, first), (other, second), *_ = trained_on.items()
            raise InputError(f"{first} is of {one}, {second} of {other}; give entries of one data set")
        return cls(protocol, list(joined.values()))

    def rank(self, entry: Entry) -> int | None:
        """Returns the rank of an entry by the first column of the leaderboard, from 1; None if it is not ranked."""
        return None if entry.quick else self.ranks.get(entry.encoding)

    def reason_without_rank(self, entry: Entry) -> str:
        """Returns why an entry has no rank, as the end of the sentence "Not ranked: …"; empty if it has one."""
        if self.rank(entry):
            return ""
        if entry.quick:
            return "a quick run, with less training"
        if reason := _unsettled(entry):
            return reason
        counted = len(self._counted_seeds(entry))
        if counted < 2:
            needed = ", ".join(map(str, self.protocol.seeds))
            return f"it has {counted or 'none'} of the seeds {needed} of the protocol, and needs two"
        return "no other entry has two seeds that it has too"

    def _counted_seeds(self, entry: Entry) -> list[int]:
        """Returns the seeds of an entry that count for its rank: those of the protocol, or all if it has all of these."""
        of_protocol = [seed for seed in entry.seeds if seed in self.protocol.seeds]
        return entry.seeds if len(of_protocol) == len(self.protocol.seeds) else of_protocol

    def number(self, entry: Entry, key: str) -> ColumnMean | None:
        """Returns the mean and 95 % interval of an entry in column ``key``, such as ``accuracy``; None if it has no value.

        If the entry is ranked in that column, the mean is adjusted for missing seeds, and the interval uses the variance
        that is estimated from all entries.
        """
        values = list(entry.numbers.get(key, {}).values())
        if not values:
            return None
        ranking = self.rankings.get(key)
        if ranking and entry.encoding in ranking.means and not entry.quick:
            return ColumnMean(ranking.means[entry.encoding], ranking.half_width(entry.encoding), len(values))
        return ColumnMean(statistics.fmean(values), ci_half_width(values), len(values))

    def group(self, entry: Entry) -> str:
        """Returns the group letters of an entry, such as ``ab``; empty if it is not ranked.

        Two entries that share a letter do not differ significantly in the first column of the leaderboard.
        """
        ranking = self.rankings.get(self.main)
        return ranking.groups.get(entry.encoding, "") if ranking and not entry.quick else ""

    def differences(self, entry: Entry) -> dict[str, tuple[float, float]]:
        """Returns other encoding → (difference, half the width of its 95 % interval).

        The difference is this entry minus the other one, in the first column of the leaderboard. The others are the
        baseline encodings of the leaderboard and its best entry. Of two entries that are not both ranked it is the mean
        difference over the seeds that both have, with an infinite half width for one seed. The dictionary is empty for
        quick entries.
        """
        full = {e.encoding: e for e in self.entries if not e.quick}
        if entry.quick or not full:
            return {}
        ranking = self.rankings.get(self.main)
        found = {}
        for name in dict.fromkeys((*self.protocol.baselines, next(iter(full)))):
            if name == entry.encoding or name not in full:
                continue
            if ranking and {name, entry.encoding} <= ranking.means.keys():
                found[name] = ranking.difference(entry.encoding, name)
            elif paired := paired_difference(entry.numbers[self.main], full[name].numbers[self.main]):
                found[name] = paired.mean, paired.half_width
        return found

    @cached_property
    def recommendations(self) -> list[Recommendation]:
        """One Recommendation per column in which higher or lower is better: the encodings that do not differ from the best.

        Optional columns are left out, because having no number there may be the best result: an attack that cannot be
        applied to an encoding reconstructs nothing.
        """
        times = self.rankings.get("time")
        found = []
        for key, ranking in self.rankings.items():
            column = self.protocol.columns[key]
            if column.optional or not column.better:
                continue
            best = tuple(ranking.best)
            fastest = times.not_different_from_first(best) if times else ()
            found.append(Recommendation(key, best, fastest, bool(ranking.significant_pairs)))
        return found

    def compared_text(self, quote: str = "") -> str:
        """Returns which encodings the recommendations compare, and which others look better; empty if all are compared.

        Others are entries that are not ranked, with a higher value in the first column (or a lower one, if that is better)
        than the first of the ranking. ``quote`` encloses the names of encodings.
        """
        if not self.ranks or len(self.ranks) == len(self.entries):
            return ""
        sign = -1 if self.protocol.columns[self.main].better == "lower" else 1
        mean = {e.encoding: sign * statistics.fmean(e.numbers[self.main].values()) for e in self.entries if not e.quick}
        first = sign * next(iter(self.rankings[self.main].means.values()))
        ahead = [name for name in sorted(mean, key=lambda n: -mean[n]) if name not in self.ranks and mean[name] > first]
        text = f"Only the {len(self.ranks)} encodings with a rank are compared here."
        if not ahead:
            return text
        others = ", ".join(f"{quote}{name}{quote}" for name in ahead)
        column = self.protocol.columns[self.main].title
        return f"{text} In {column}, {len(ahead)} without a rank are ahead of them so far: {others}."

    @property
    def instructions(self) -> dict[str, int]:
        """Dictionary vector instructions of a processor, such as ``AVX512`` → number of entries computed with them."""
        found = Counter(name for e in self.entries for name in e.machine.get("instructions", "unknown").split(", "))
        return dict(sorted(found.items()))

    @property
    def missing_seeds(self) -> dict[str, list[int]]:
        """Dictionary encoding → seeds that its leaderboard entry lacks, of those that the protocol (fixed experiment) has.

        Complete entries and entries of shortened runs are left out.
        """
        lacking = {
            e.encoding: [s for s in self.protocol.seeds if s not in e.seeds] for e in self.entries if not e.quick
        }
        return {encoding: seeds for encoding, seeds in lacking.items() if seeds}

    @property
    def encodings_without_entry(self) -> list[str]:
        """Names of the encodings of the package that occur in no entry, alone or in a sum."""
        measured = {name for entry in self.entries if not entry.quick for name in entry.code}
        return [name for name in ENCODINGS.builtin if name not in measured]

    def rows(self) -> list[dict[str, Any]]:
        """Returns one dictionary per entry: encoding, rank, group, number of seeds …, and mean and half width per column.

        The half width is half the width of the 95 % interval of the mean. A value that is missing is an empty string.
        """
        found = []
        for entry in self.entries:
            row: dict[str, Any] = {
                "encoding": entry.encoding,
                "family": entry.family,
                "rank": self.rank(entry) or "",
                "group": self.group(entry),
                "seeds": len(entry.seeds),
                "quick": entry.quick,
                "commit": entry.commit,
            }
            for key in self.protocol.columns:
                number = self.number(entry, key)
                row[key] = "" if number is None else number.mean
                row[f"{key}_half_width"] = "" if number is None or number.seeds < 2 else number.half_width
            found.append(row)
        return found


def format_measure(value: float, column: Measure) -> str:
    """Formats a value of a column as text: 0.9402 as ``94.02`` (fractions), ``1.25`` (ratios) or ``1,234`` (counts)."""
    if column.unit == "count":
        return f"{round(value):,}"  # never -0, as a fitted mean of zeros may be
    return f"{100 * value:.2f}" if column.percent else f"{value:.2f}"


def _unsettled(entry: Entry) -> str:
    """Returns what the sources leave open of an encoding of the package that an entry uses; empty if nothing."""
    used = [name for name in ENCODINGS.builtin if name in entry.code]
    open_points = (ENCODINGS.describe(name).attributes.get("unsettled", "") for name in used)
    return "; ".join(filter(None, open_points))


def _files(source: Path) -> list[Path]:
    """Returns the JSON files of leaderboard entries in ``source``: the file itself, or all JSON files of a folder.

    If the folder has a subfolder ``entry``, as the output of ``vitpos score`` has, its files are returned instead.
    """
    if source.is_dir():
        folder = source / ENTRY_FOLDER if (source / ENTRY_FOLDER).is_dir() else source
        found = sorted(folder.glob("*.json"))
        if not found:
            raise InputError(f"{source} has no entry (*.json); make one with 'vitpos score'")
        return found
    if not source.exists():
        raise InputError(f"{source} does not exist; give an entry or a folder of entries")
    return [source]
