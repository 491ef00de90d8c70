"""The page of a run."""

from pathlib import Path


def write_report(folders, out):
    return out
