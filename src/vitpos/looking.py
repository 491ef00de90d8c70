"""What ``vitpos inspect`` and ``vitpos compare`` do: look at each, write it, show all side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from vitpos.errors import UserError
from vitpos.inspection.inspect import inspect_each, ours, subjects, unfinished
from vitpos.interop.grids import Grid
from vitpos.progress import show_columns, watching
from vitpos.report.inspection_page import slug, write_all, write_inspection, write_page
from vitpos.report.inspection_table import side_by_side


def look(
    sources: Sequence[tuple[Path, Grid | None]],
    out: Path,
    name: str,
    *,
    images: int,
    files: Sequence[Path],
    slow: bool,
    single: bool = False,
) -> None:
    """Looks at all models of some sources, each with the grid it was given; ``single``: at one of each, no more.

    Numbers, figures and the page ``name`` are written to a folder, and what was seen is printed.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; give a folder")
    every = []
    known = [source for source, grid in sources if grid and ours(source)]
    if known and (len(known) == len(sources) or len({grid for _, grid in sources}) > 1):
        raise UserError(f"--grid is for checkpoints that cannot say theirs, and {known[0]} can; leave it out")
    for source, grid in sources:
        found = subjects(source, grid)
        if single and len(found) > 1:
            raise UserError(f"{source} holds {len(found)} models; {name} one of them, as {source / 'cells'}/…")
        every += found
    seen = []
    with watching(len(every)) as now:
        for number, one in enumerate(inspect_each(every, now, images=images, files=files, slow=slow)):
            seen.append((one, write_inspection(out / slug(number, one) if len(every) > 1 else out, one)))
    looked = [one for one, _ in seen]
    page = write_page(out / f"{name}.html", seen)
    if len(looked) > 1:
        write_all(out / f"{name}.json", looked)
    show_columns([one.subject.name for one in looked], [(key, values) for key, _, values in side_by_side(looked)])
    for source, _ in sources:
        if left := unfinished(source):
            print(f"note: {left} of {source} are not trained yet and not shown", file=sys.stderr)
    print(f"numbers: {out / name}.json\npage:    {page}", file=sys.stderr)


def read_grid(text: str) -> Grid:
    """Rows and columns as people type them: 14x14."""
    rows, _, columns = text.lower().replace("×", "x").partition("x")
    if not (rows.isascii() and rows.isdecimal() and columns.isascii() and columns.isdecimal()):
        raise UserError(f"--grid {text!r} is no grid; write rows and columns, as 14x14")
    return int(rows), int(columns)
