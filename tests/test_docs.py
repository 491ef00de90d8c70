"""The documentation is true: numbers equal those of the stored runs, examples run, commands and links exist."""

import csv
import itertools
import json
import re
import shlex
import statistics
from pathlib import Path

import pytest
import torch
import typer

from tests.references import peer
from vitpos.claims.ledger import find_claims
from vitpos.claims.stored_runs import load_runs
from vitpos.claims.verdicts import judge
from vitpos.cli.main import app
from vitpos.data.dataset import load
from vitpos.encodings import ENCODINGS
from vitpos.lab.experiment import Experiment, shipped
from vitpos.leaderboard.board import Board
from vitpos.leaderboard.entry import Entry
from vitpos.leaderboard.protocol import Protocol
from vitpos.metrics.image_similarity import psnr
from vitpos.testing import check_encoding

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md", *ROOT.glob("docs/*.md"))
}
README, RESULTS, CLAIMS = PAGES["README.md"], PAGES["docs/results.md"], PAGES["docs/claims.md"]
NONE = "–"  # a cell without a number

# Specs in results/*.csv
FOLLOW, STAY = (f"jigsaw(grid=(7, 7), positions='{positions}')" for positions in ("follow", "stay"))
FIXED, PER_IMAGE = "mnist + permute_patches(grid=(7, 7))", "mnist + permute_patches(grid=(7, 7), per='image')"
BLIND, AWARE = "shuffle(mask_ratio=0.15)", "shuffle(mask_ratio=0.15, hide_masked=True)"
BLIND_14, AWARE_14 = (
    "shuffle(mask_ratio=0.15, grid=(14, 14))",
    "shuffle(mask_ratio=0.15, grid=(14, 14), hide_masked=True)",
)
AWARE_HALF = "shuffle(mask_ratio=0.5, hide_masked=True)"
ALL_SHUFFLED = "shuffle(mask_ratio=1.0, shuffle_pixels=True)"
DISTANCE, CONSISTENCY = "feature_distance_sq", "consistency"
HIDDEN = {  # options of attacks, by the words of the tables
    "plain": "",
    "shuffled": "scenario='find_shuffled'",
    "original": "scenario='find_original'",
    "not hidden": "hide_masked=False",
    "0.27 hidden": "",
    "0.9 hidden": "mask_ratio=0.9",
    "naive": "",
    "mask known": "attacker='knows_mask'",
    "null space": "attacker='null_space'",
}
GRAY, LOWEST, HIGHEST, DETERMINED = "psnr_mean_image", "psnr_min", "psnr_max", "rank_positions"
SMALL = "vit(patch=4, dim=192, depth=2, heads=3)"
WIDE, LARGE = "vit(patch=4, dim=384, depth=4, heads=6)", "vit(patch=16, dim=384, depth=12, heads=6)"


# Reading pages


def tables(page: str) -> list[list[dict[str, str]]]:
    """Returns the Markdown tables of a page, each as a list of rows: column label → cell."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        header, _, *lines = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in block.strip().splitlines()
        ]
        found.append([dict(zip(header, line, strict=True)) for line in lines])
    return found


def table(page: str, *labels: str) -> list[dict[str, str]]:
    """Returns the rows of the one table whose first columns have these labels."""
    (rows,) = [rows for rows in tables(page) if tuple(rows[0])[: len(labels)] == labels]
    return rows


def named(cell: str) -> list[str]:
    """Returns the specs between backticks in a cell."""
    return re.findall("`(.*?)`", cell)


def numbers(text: str) -> list[str]:
    """Returns the numbers in a text as they are written."""
    return re.findall(r"-?\d+(?:\.\d+)?(?:e\d+)?", text.replace("−", "-"))


DECIMAL = r"\d+\.\d+(?:e-\d+)?"


def is_rounded(text: str, value: float) -> bool:
    """Returns whether a number as it is written is a value, or its size, rounded to the digits that it has."""
    mantissa, _, exponent = text.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(text) - abs(value)) <= 0.501 * unit


def check(cell: str, *values: float | None) -> None:
    """Compares the numbers of a cell with values, each to half a unit of its last digit."""
    if values == (None,):
        assert cell == NONE
        return
    shown = numbers(cell)
    assert len(shown) == len(values), (cell, values)
    for text, value in zip(shown, values, strict=True):
        assert is_rounded(text.lstrip("-"), value) and (float(text) < 0) <= (value < 0), (cell, values)


def spread(values: list[float], scale: float = 1.0) -> tuple[float, float]:
    return statistics.fmean(values) * scale, statistics.stdev(values) * scale


# Reading stored runs


def stored(name: str, *columns: str) -> dict[tuple[str, ...], list[float]]:
    """Returns the numbers of a stored run, one per seed, by some columns, encoding, evaluation and metric."""
    found: dict[tuple[str, ...], list[float]] = {}
    with (ROOT / "results" / f"{name}.csv").open() as file:
        for row in (row for row in csv.DictReader(file) if not row["x"]):  # points of curves are not quoted
            key = tuple(row[column] for column in (*columns, "encoding", "evaluation", "metric"))
            found.setdefault(key, []).append(float(row["value"]))
    return found


def one_seed(name: str, *columns: str) -> dict[tuple[str, ...], float]:
    return {key: value for key, (value,) in stored(name, *columns).items()}


def percent(value: float | None, metric: str) -> float | None:
    return value if value is None or metric == DISTANCE else 100 * value


def attack(name: str, label: str, **options: object) -> str:
    """Returns the spec of an attack on what a column label such as ``shuffled, 0.27 hidden, naive`` describes."""
    parts = [f"{key}={value!r}" for key, value in options.items()] + [HIDDEN[word] for word in label.split(", ")]
    return f"{name}({', '.join(part for part in parts if part)})".replace("()", "")


# Numbers

MODELS = {
    "CNN": ("cnn", "none"),
    "attention, no positions": ("minimal", "none"),
    "attention, learned positions": ("minimal", "learned"),
}
JIGSAW = {
    "original": ("mnist", "accuracy", "accuracy"),
    "permuted, positions follow": ("mnist", FOLLOW, "accuracy"),
    "permuted, positions stay": ("mnist", STAY, "accuracy"),
    "1 & 8, two logits": ("mnist", "two_class(classes=(1, 8))", "accuracy_pair"),
    "6 & 9, two logits": ("mnist", "two_class(classes=(6, 9))", "accuracy_pair"),
    "1 & 8, trained on the pair": ("mnist + classes(keep=(1, 8))", "accuracy", "accuracy"),
    "6 & 9, trained on the pair": ("mnist + classes(keep=(6, 9))", "accuracy", "accuracy"),
    "one fixed permutation": (FIXED, "accuracy", "accuracy"),
    "one permutation per image": (PER_IMAGE, "accuracy", "accuracy"),
}


@pytest.mark.parametrize(
    ("page", "title", "count"),
    [
        ("README.md", "trained on original images", 3),
        ("docs/results.md", "trained on original images", 3),
        ("docs/results.md", "digit pairs", 2),
        ("docs/results.md", "trained and tested on permuted patches", 3),
    ],
)
def test_accuracies_with_and_without_positions_are_stored_and_references_are_those_of_the_experiment(
    page, title, count
):
    figures = stored("mnist-jigsaw", "data", "model")
    published = {
        (r.data, r.model, r.encoding, r.evaluation, r.metric): 100 * r.value
        for r in Experiment.load("mnist-jigsaw").published
    }
    rows = table(PAGES[page], title)
    assert len(rows) == count
    for name, *cells in (list(row.items()) for row in rows):
        model, encoding = MODELS[name[1]]
        for label, cell in cells:
            data, *rest = JIGSAW[label]
            key = (data, model, encoding, *rest)
            extra = [published[key]] if key in published else []
            check(cell, *spread(figures[key], 100), *extra)


def test_accuracies_by_learning_rate_are_those_in_the_notes_of_the_experiment():
    (row,) = table(RESULTS, "learning rate")
    (note,) = [note for note in Experiment.load("mnist-jigsaw").notes if "0.001 79.4 %" in note]
    assert [f"{rate} {row[rate]}" for rate in list(row)[1:]] == re.findall(r"(0\.\d+ \d+\.\d) %", note)


def _entries(protocol: str) -> tuple[Board, dict[str, Entry]]:
    """Returns the published leaderboard of a protocol, and its entries by encoding."""
    board = Board.load([ROOT / "results" / "leaderboard" / protocol], Protocol.load(protocol))
    return board, {entry.encoding: entry for entry in board.entries}


def check_entries(rows: list[dict[str, str]], protocol: str, columns: dict[str, str]) -> None:
    """Compares cells with a leaderboard: the mean, and half the width of its interval if there are two seeds or more."""
    board, entries = _entries(protocol)
    for row in rows:
        entry = entries[named(row["encoding"])[0]]
        for label, key in columns.items():
            number = board.number(entry, key)
            check(row[label], 100 * number.mean, *([100 * number.half_width] if number.seeds > 1 else []))
        if "seeds" in row:
            assert row["seeds"] == str(len(entry.seeds))


def test_table_of_encodings_is_that_of_the_leaderboard():
    columns = {
        "accuracy": "accuracy",
        "shuffled": "shuffled",
        "two crops": "crops",
        "sizes, interpolated": "sizes",
        "sizes, extrapolated": "sizes_extrapolated",
        "corrupted": "corruption",
    }
    rows = table(RESULTS, "encoding", "seeds", *columns)
    assert len(rows) >= 20
    check_entries(rows, "vitpos-1", columns)
    order = [numbers(row["accuracy"])[0] for row in rows]
    assert order == sorted(order, reverse=True)


def test_table_of_tasks_is_that_of_the_leaderboard():
    columns = {"dot": "dot", "order": "order", "other half": "other_side", "half of training": "same_side"}
    rows = table(RESULTS, "encoding", "seeds", *columns)
    assert len(rows) >= 10
    check_entries(rows, "vitpos-1-tasks", columns)


def test_table_of_repeated_trainings_is_stored():
    with (ROOT / "results" / "vitpos-1-repeats.csv").open() as file:
        found = list(csv.DictReader(file))
    rows = table(RESULTS, "encoding", "seed", "published with")
    assert len(rows) == len({(row["encoding"], row["seed"], row["repeated_with"]) for row in found})
    for row in rows:
        what = {"encoding": named(row["encoding"])[0], "seed": row["seed"], "repeated_with": row["repeated with"]}
        same = [one for one in found if what.items() <= one.items() and one["published_with"] == row["published with"]]
        (accuracy,) = [one for one in same if one["column"] == "accuracy"]
        check(row["accuracy, published"], 100 * float(accuracy["published"]))
        check(row["accuracy, repeated"], 100 * float(accuracy["repeated"]))
        identical = all(one["published"] == one["repeated"] for one in same)
        assert identical == (row["published with"] == row["repeated with"] == "AVX512")


def test_table_of_pooling_and_initialization_is_stored():
    figures = stored("pooling-and-init", "model")
    rows = table(RESULTS, "pooling, initialization")
    assert len(rows) == 6
    for row in rows:
        pool, init, *cosine = row.pop("pooling, initialization").split(", ")
        options = ["dim=64", "depth=3", "heads=4"] + ["pool='mean'"] * (pool == "mean")
        options += ["weight_init='xavier'"] * (init == "Xavier") + ["qk_norm='cosine'"] * bool(cosine)
        for label, cell in row.items():
            values = figures.get((f"vit({', '.join(options)})", named(label)[0], "accuracy", "accuracy"))
            check(cell, *(spread(values, 100) if values else (None,)))


def test_rows_of_the_public_table_are_those_of_its_note_and_of_the_leaderboard():
    rows = table(RESULTS, "encoding", "in the public table")
    check_entries(rows, "vitpos-1", {"here": "accuracy"})
    ranking = _entries("vitpos-1")[0].rankings["accuracy"]
    for row in rows:
        name, cell = named(row["encoding"])[0], row["here, difference from `learned`"]
        check(cell, *([100 * x for x in ranking.difference(name, "learned")] if name != "learned" else [None]))
        pair = frozenset((name, "learned"))
        assert (pair in ranking.significant_pairs) == (name == "none"), "as the text says"
    (note,) = [note for note in Experiment.load("cifar-epochs").notes if "public table" in note]
    published = dict(re.findall(r"(\w+) (\d\d\.\d\d)", note))
    assert [row["in the public table"] for row in rows] == sorted(published.values(), reverse=True)


def test_table_of_mask_ratios_is_stored():
    figures = stored("mjp-ratio")
    columns = {
        "accuracy": ("accuracy", "accuracy"),
        "consistency, mask-aware": (AWARE, CONSISTENCY),
        "feature distance, mask-aware": (AWARE, DISTANCE),
        "consistency, mask-blind": (BLIND, CONSISTENCY),
        "feature distance, mask-blind": (BLIND, DISTANCE),
        "accuracy, half shuffled, mask-aware": (AWARE_HALF, "accuracy"),
    }
    rows = table(RESULTS, "mask ratio in training")
    assert len(rows) == 8
    for row in rows:
        encoding = f"learned + mjp(mask_ratio={row.pop('mask ratio in training')})"
        assert list(row) == list(columns)
        for label, cell in row.items():
            values = figures.get((encoding, *columns[label]))
            check(cell, *(spread(values, 1 if columns[label][1] == DISTANCE else 100) if values else (None,)))


def _columns_of_mjp(blind: str, aware: str) -> dict[str, tuple[str, str]]:
    return {
        "accuracy": ("accuracy", "accuracy"),
        "consistency, mask-blind": (blind, CONSISTENCY),
        "feature distance, mask-blind": (blind, DISTANCE),
        "consistency, mask-aware": (aware, CONSISTENCY),
        "feature distance, mask-aware": (aware, DISTANCE),
    }


def test_table_of_mjp_variants_is_stored_and_keeps_the_order_of_the_paper():
    figures = one_seed("mjp-variants", "train.augment")
    columns = _columns_of_mjp(BLIND, AWARE) | {"accuracy, patches and pixels shuffled": (ALL_SHUFFLED, "accuracy")}
    rows = table(RESULTS, "row", "variant")
    assert len(rows) == 12 and "".join(row.pop("row") for row in rows) == "ABCDEFGHIJ"
    for row in rows:
        encoding, augment = [*named(row.pop("variant")), ""][:2]
        assert list(row) == list(columns)
        for label, cell in row.items():
            check(cell, percent(figures.get((augment, encoding, *columns[label])), columns[label][1]))
    plain, none, shuffled = (
        figures["", encoding, BLIND, CONSISTENCY]
        for encoding in ("learned", "none", "learned + mjp(unknown=False, localization=None)")
    )
    assert none == 1 and figures["", "learned + mjp(localization=None)", AWARE, CONSISTENCY] > shuffled > plain


def test_table_of_model_families_is_stored_and_agrees_with_the_paper():
    stored_by_model = one_seed("mjp-backbones", "model", "train.augment")
    figures = {(model.split("(")[0], *rest): value for (model, *rest), value in stored_by_model.items()}
    columns = _columns_of_mjp(BLIND_14, AWARE_14)
    rows = table(RESULTS, "model", "encoding")
    assert len(rows) == 10
    for row in rows:
        (family,), (encoding, augment) = named(row.pop("model")), [*named(row.pop("encoding")), ""][:2]
        assert list(row) == list(columns)
        for label, cell in row.items():
            check(cell, percent(figures.get((family, augment, encoding, *columns[label])), columns[label][1]))
    small = "learned + mjp(mask_ratio=0.03)"
    for without, with_mjp, evaluation in (
        (("vit", "", "learned"), ("vit", "", small), AWARE_14),
        (("swin", "", "learned"), ("swin", "", small), AWARE_14),
        (("resnet", "", "none"), ("resnet", "jigsaw(mask_ratio=0.03)", "none"), BLIND_14),
    ):
        assert figures[*with_mjp, evaluation, CONSISTENCY] > figures[*without, BLIND_14, CONSISTENCY]
        assert figures[*with_mjp, "accuracy", "accuracy"] > figures[*without, "accuracy", "accuracy"] - 0.01


def test_gray_baselines_are_stored():
    closed, matching = one_seed("privacy-closed-form", "model", "train.epochs"), one_seed("privacy-matching")
    defended = one_seed("privacy-defenses", "train.defense")
    digits = load("mnist")
    images = digits.test.head(64).images[:] / 255
    best = psnr(torch.full_like(images, digits.mean[0]), images).max().item()
    expected = {
        "8 CIFAR-10 images, mean": matching["learned", "closed_form", GRAY],
        "64 MNIST digits, mean": defended["", "learned", "closed_form(images=64)", GRAY],
        "64 MNIST digits, best": best,
        "8 MNIST digits, mean": defended["", "learned", _descent("plain"), GRAY],
    }
    shown = {
        row["baseline: a constant gray image"]: row["PSNR"] for row in table(RESULTS, "baseline: a constant gray image")
    }
    assert shown.keys() == expected.keys()
    for name, cell in shown.items():
        check(cell, expected[name])
    check(shown["8 CIFAR-10 images, mean"], closed[SMALL, "1", "learned", "closed_form", GRAY])


def test_precision_of_closed_forms_is_stored():
    figures = one_seed("privacy-closed-form", "model", "train.epochs")
    rows = table(RESULTS, "model", "attack", "float64")
    assert len(rows) == 5
    for row in rows:
        size, training = row["model"].split(", ")
        (name,) = named(row["attack"])
        model = (WIDE if size == "width 384" else LARGE).replace(")", ", april_block=True)" if name == "april" else ")")
        key = (model, "0" if training == "untrained" else "1", "learned")
        images = {"images": 100} if size == "width 384" else {}
        check(row["float64"], double := figures[*key, attack(name, "plain", **images), LOWEST])
        check(row["condition number"], figures[*key, attack(name, "plain", **images), "condition"])
        single = figures.get((*key, attack(name, "plain", **images, precision="float32"), LOWEST))
        check(row["float32"], single)
        if name == "closed_form":
            assert double >= 200 and single >= 60
    assert figures[WIDE.replace(")", ", april_block=True)"), "0", "learned", "april(images=100)", LOWEST] >= 120


def test_table_of_leaks_is_stored():
    figures = one_seed("privacy-matching")
    columns = {
        "closed form": "closed_form",
        "closed form, null space": attack("closed_form", "null space"),
        "gradient matching": "gradient_matching",
        "gradient matching without the encoding's gradient": "gradient_matching(encoding_weight=0.0)",
    }
    rows = table(RESULTS, "encoding", "closed form", "closed form, null space")
    encodings = [named(row.pop("encoding"))[0] for row in rows]
    assert set(encodings) == {key[0] for key in figures}
    for encoding, row in zip(encodings, rows, strict=True):
        assert list(row) == list(columns)
        for label, cell in row.items():
            check(cell, figures.get((encoding, columns[label], "psnr")))


def test_table_of_coordinate_networks_is_stored():
    figures = one_seed("privacy-closed-form", "model", "train.epochs")
    rows = table(RESULTS, "encoding", "closed form", "distinguished positions")
    assert len(rows) == 4
    for row in rows:
        key = (SMALL, "0", *named(row["encoding"]), "closed_form")
        check(row["closed form"], figures[*key, "psnr"])
        check(row["distinguished positions"], figures[*key, DETERMINED])


def test_tables_of_mjp_under_attack_are_stored():
    figures = one_seed("privacy-closed-form", "model", "train.epochs")
    rows = table(RESULTS, "trained encoding")
    assert len(rows) == 5 and len(rows[0]) == 10
    for row in rows:
        (encoding,) = named(row.pop("trained encoding"))
        for label, cell in row.items():
            check(cell, figures[SMALL, "1", encoding, attack("closed_form", label), "psnr"])
    digits, photographs = table(RESULTS, "`learned + mjp`", "plain")
    defended = one_seed("privacy-defenses", "train.defense")
    model = SMALL.replace(")", ", april_block=True)")
    for label in list(digits)[1:]:
        check(digits[label], defended.get(("", "learned + mjp", attack("closed_form", label, images=64), "psnr")))
        check(photographs[label], figures[model, "1", "learned + mjp", attack("april", label), "psnr"])


def _descent(label: str) -> str:
    return (
        attack("gradient_matching", label, images=8).removesuffix(")")
        + ", steps=500, tv_weight=0.1, init='closed_form')"
    )


def test_table_of_defenses_is_stored():
    figures = one_seed("privacy-defenses", "train.defense")
    rows = table(RESULTS, "shared by the client")
    assert len(rows) == len({key[:2] for key in figures})
    for row in rows:
        client = row["shared by the client"]
        encoding, defense = [*named(client), ""][:2]
        hides = re.search(r"hides ([\d.]+)", client)
        label = f"original, {hides[1]} hidden, null space" if hides else "plain"
        closed, matching = attack("closed_form", label, images=64), _descent(label)
        for column, evaluation, metric, scale in (
            ("accuracy", "accuracy", "accuracy", 100),
            ("closed form, mean PSNR", closed, "psnr", 1),
            ("closed form, highest PSNR", closed, HIGHEST, 1),
            ("gradient matching, mean PSNR", matching, "psnr", 1),
            ("gradient matching, mean SSIM", matching, "ssim", 1),
        ):
            value = figures.get((defense, encoding, evaluation, metric))
            check(row[column], None if value is None else scale * value)


def test_accuracies_of_healing_are_stored():
    found: dict[str, list[float]] = {}
    with (ROOT / "results" / "heal.csv").open() as file:
        for row in csv.DictReader(file):
            found.setdefault(row["metric"], []).append(float(row["value"]))
    labels = {"with learned positions": "original", "after the swap": "swapped", "healed for one epoch": "healed"}
    labels |= {"RoPE trained from scratch for one epoch": "scratch"}
    labels |= {"RoPE trained from scratch for 12 epochs": "scratch_full"}
    for row in table(PAGES["docs/convert.md"], "model", "accuracy"):
        check(row["accuracy"], *spread(found[labels.pop(row["model"])], 100))
    assert not labels and min(found["healed_over_original"]) >= 0.95
    text = " ".join(PAGES["docs/convert.md"].split())
    (epochs,) = set(found["scratch_epochs"])
    assert f"with every seed it needs {epochs:.0f} of its 12 epochs" in text
    assert "{:.0f}, {:.0f} and {:.0f} % came back".format(*(100 * value for value in found["recovered"])) in text


def test_the_times_of_attached_models_are_stored():
    with (ROOT / "results" / "attach.csv").open() as file:
        stored = {row["encoding"]: row for row in csv.DictReader(file)}
    for row in table(PAGES["docs/your-own-vit.md"], "attached", "in place of", "ratio"):
        numbers = stored.pop(row["attached"].strip("`"))
        ratio, low, high = (float(numbers[name]) for name in ("ratio", "low", "high"))
        assert row["ratio"] == f"{ratio:.3f} ({low:.3f} to {high:.3f})" and ratio <= 1.03
    assert not stored


def _inspection(name: str) -> dict[str, dict]:
    """Returns the stored inspection of the models of a run by encoding, the first of each."""
    found: dict[str, dict] = {}
    for one in json.loads((ROOT / "results" / f"inspection-{name}.json").read_text()):
        found.setdefault(one["name"].split(" · ")[0], one)
    return found


def test_position_by_layer_is_that_of_the_stored_inspection():
    inspected = {name: one["model"] for name, one in _inspection("position-alternatives").items()}
    rows = table(RESULTS, "encoding", "R² of position: input, then after each layer")
    assert len(rows) == len(inspected)
    for row in rows:
        encoding, probes, fractions = row.values()
        check(probes, *inspected[named(encoding)[0]]["probe_r2"])
        check(fractions, *inspected[named(encoding)[0]]["position_share"])
    assert max(map(abs, inspected["none"]["probe_r2"])) < 0.01
    (bound,) = re.findall(r"Standard\s+errors[^.]*?(\d\.\d+)", RESULTS)
    worst = max(max(one["probe_standard_error"]) for one in inspected.values())
    assert worst <= float(bound) < worst + 0.001
    (row,) = table(RESULTS, "correlation of bias and content similarity")
    by_layer = [statistics.fmean(heads) for heads in inspected["sape2"]["bias_content_correlation"]["mean"]]
    for layer, value in enumerate(by_layer, 1):
        check(row[f"layer {layer}"], value)


def test_verdicts_on_position_tables_are_those_of_the_stored_inspection():
    inspected = _inspection("mjp-variants")
    columns = {
        "neighbors similar": "neighbors",
        "rows": "same_row",
        "columns": "same_column",
        "border different": "border",
        "corners different": "corners",
        "longer in the center": "norm",
    }
    words = {"yes": "yes", "center-weighted": "yes", "no structure": "no"}
    (white,) = re.findall(r"White noise of the same\s+shape has (\d\.\d+)", RESULTS)
    rows = table(RESULTS, "position table of")
    assert len(rows) == 4
    for row in rows:
        found = inspected[named(row.pop("position table of"))[0]]["table"]
        error = row.pop("ridge regression, error")
        assert list(row) == list(columns)
        for label, cell in row.items():
            finding = found["structure"][columns[label]]
            assert cell.split()[0] == words[finding["verdict"]], (cell, finding)
            check(cell, finding["effect"], finding["p"])
        ridge, noise = (found["regression"][of]["methods"]["ridge"]["grid_mae"] for of in ("table", "noise"))
        check(error, ridge)
        check(white, noise)


SETTINGS = {"0.01", "0.03", "0.09", "0.15", "0.21", "0.27", "0.5", "0.9", "0.002", "0.02", "1.0"}  # ratios, levels
DIFFERENCES = {  # minuend and subtrahend in the tables
    "1.4": (95.0, 93.6),
    "0.80": (71.19, 70.39),
    "13.5": (95.0, 81.5),
    "0.6": (89.0, 88.4),
    "0.8": (85.6, 84.8),
    "2.1": (86.9, 84.8),
    "1.7": (81.5, 79.8),
    "3.9": (83.6, 79.7),
    "3.5": (84.4, 80.9),
    "3.2": (15.2, 12.0),
    "4.1": (15.8, 11.7),
    "4.5": (16.5, 12.0),
    "5.5": (17.2, 11.7),
    "5.0": (81.4, 76.4),
    "19.0": (81.4, 62.4),
}
QUOTED = {"0.014", "3.54"}  # bounds that are tested above


def test_every_decimal_number_in_the_text_of_the_results_is_in_a_table_or_a_difference_of_two():
    prose = re.sub(r"^\|.*$|```.*?```|`[^`]*`|\(\.\./.*?\)", "", RESULTS, flags=re.MULTILINE)
    cells = [float(n) for rows in tables(RESULTS) for row in rows for cell in row.values() for n in numbers(cell)]
    shown = set(re.findall(r"(?<![\d.])\d+\.\d+", prose))
    for text in shown - SETTINGS - QUOTED:
        if text in DIFFERENCES:
            minuend, subtrahend = DIFFERENCES[text]
            assert {minuend, subtrahend} <= set(cells) and float(text) == pytest.approx(minuend - subtrahend)
        else:
            assert float(text) in cells, text
    assert DIFFERENCES.keys() <= shown


def test_the_stored_runs_keep_what_the_experiment_expects():
    figures = {key: [100 * v for v in values] for key, values in stored("mnist-jigsaw", "data", "model").items()}
    mean = {key: statistics.fmean(values) for key, values in figures.items()}
    none, learned, cnn = ("minimal", "none"), ("minimal", "learned"), ("cnn", "none")
    for model in (none, learned):
        assert figures["mnist", *model, "accuracy", "accuracy"] == figures["mnist", *model, FOLLOW, "accuracy"]
    assert mean["mnist", *learned, "accuracy", "accuracy"] >= 92
    assert 40 <= mean["mnist", *none, "accuracy", "accuracy"] <= 60
    assert mean["mnist", *cnn, "accuracy", "accuracy"] >= 98 and mean["mnist", *cnn, FOLLOW, "accuracy"] < 20
    assert mean[FIXED, *cnn, "accuracy", "accuracy"] > 97
    six_nine = [mean["mnist", *m, "two_class(classes=(6, 9))", "accuracy_pair"] for m in (none, learned)]
    assert six_nine[1] >= 98 and six_nine[1] - six_nine[0] >= 15
    one_eight = [mean["mnist", *m, "two_class(classes=(1, 8))", "accuracy_pair"] for m in (none, learned)]
    assert abs(one_eight[0] - one_eight[1]) <= 3
    pair = [mean["mnist + classes(keep=(6, 9))", *m, "accuracy", "accuracy"] for m in (none, learned)]
    assert pair[1] >= 98 and pair[1] - pair[0] >= 8


def test_verdicts_and_numbers_in_the_page_of_claims_are_those_of_the_ledger():
    runs = load_runs([ROOT / "results" / "claims"])
    rows = [row for rows in tables(CLAIMS) for row in rows if "claim" in row and "verdict" in row]
    assert len(rows) >= 20
    for row in rows:
        ((text, identifier),) = re.findall(r"\[(.+)\]\(\.\./results/claims/README\.md#([\w-]+)\)", row["claim"])
        (claim,) = [claim for claim in find_claims() if claim.id.lower() == identifier]
        assert text == claim.id
        verdict = judge(claim, runs)
        assert row["verdict"] == verdict.status, text
        texts = [outcome.numbers for outcome in (verdict.outcomes or {}).values()]
        found = [float(n) for text in texts for n in re.findall(rf"{DECIMAL}|\d+", text)]
        for number in re.findall(DECIMAL, row["our result"]):
            assert any(is_rounded(number, value) for value in found), (text, number)
    ledger = (ROOT / "results" / "claims" / "README.md").read_text()
    known = [float(n) for n in re.findall(DECIMAL, ledger)]
    prose = re.sub(r"^\|.*$", "", CLAIMS, flags=re.MULTILINE)
    for number in re.findall(DECIMAL, prose):
        assert any(is_rounded(number, value) for value in known), number


def test_counts_of_verdicts_in_the_page_of_claims_are_those_of_the_ledger():
    ledger = (ROOT / "results" / "claims" / "README.md").read_text()
    assert table(CLAIMS, "document", "claims") == table(ledger, "document", "claims")


# Examples, commands, links


def _code(page: str, language: str = "") -> list[str]:
    """Returns the fenced code blocks of a page in a language; without one, those that name none."""
    blocks = re.findall(r"^```(.*?)\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE)
    return [code for name, code in blocks if name == language]


def test_the_readme_is_short_and_begins_with_installation_and_a_quick_run():
    assert len(README.splitlines()) <= 150
    assert [block.splitlines() for block in _code("README.md")[:2]] == [
        ["pip install -c constraints.txt -e '.[dev]'", "pytest"],
        ["vitpos run quick --out runs/quick"],
    ]
    (count,) = re.findall(r"any of (\d+) encodings", README)
    shipped_encodings = {n for n in ENCODINGS if ENCODINGS.load(n).__module__.startswith("vitpos.encodings.")}
    assert int(count) == len(shipped_encodings - {"none", "mjp"})


def test_the_tree_in_the_readme_names_every_package_and_only_files_that_exist():
    (tree,) = [block for block in _code("README.md") if block.startswith("src/vitpos/")]
    inside, _, outside = tree.partition("docs/")
    words = re.findall(r"(?<![\w/])[a-z_]+(?:/|\.py)(?![\w/])", inside.partition("\n")[2])
    package = ROOT / "src" / "vitpos"
    packages = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")} | {"experiments/"}
    assert packages <= set(words)
    for word in words:
        assert word in packages or list(package.rglob(word.removesuffix("/"))), word
    for word in re.findall(r"^(\w+)/", "docs/" + outside, re.MULTILINE):
        assert (ROOT / word).is_dir(), word


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_run(page, tmp_path, monkeypatch, forgetting):
    monkeypatch.chdir(tmp_path)
    for package in ("timm", "onnxruntime"):
        if f"import {package}" in PAGES[page]:
            peer(package)
    space: dict[str, object] = {}  # shared by the blocks of a page
    for code in _code(page, "python"):
        exec(compile(code, page, "exec"), space)


def test_the_encoding_of_the_readme_keeps_the_contract(tmp_path, forgetting):
    (code,) = [code for code in _code("README.md", "python") if code.startswith("# mine.py")]
    (tmp_path / "mine.py").write_text(code)
    check_encoding(f"{tmp_path / 'mine.py'}:Gaussian")


@pytest.mark.parametrize("page", PAGES)
def test_experiment_files_in_examples_can_be_read(page):
    for text in _code(page, "toml"):
        definition = {"name": "example", "name_given": "", "text": text, "settings": [], "seeds": None}
        assert Experiment.from_definition(definition).cells


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist_with_their_options_and_experiments(page, tmp_path, monkeypatch, forgetting):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(next(c for c in _code("README.md", "python") if c.startswith("# mine.py")))
    group = typer.main.get_command(app)
    lines = [line for block in _code(page) for line in block.splitlines() if line.startswith("vitpos ")]
    for line in lines:
        _, name, *words = shlex.split(line)
        command = group.commands[name]  # type: ignore[attr-defined]
        options = {option for p in command.params if p.param_type_name == "option" for option in p.opts}
        assert {word for word in words if word.startswith("--")} <= {*options, "--help"}, line
        if name == "run" and not words[0].endswith(".toml"):
            settings = [after for word, after in itertools.pairwise(words) if word == "--set"]
            assert Experiment.load(words[0], settings).cells, line
    for name in re.findall(r"`vitpos run ([\w-]+) ", PAGES[page]):
        assert name in {*shipped(), "NAME_OR_TOML"}, name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[page]):
        path, _, heading = target.partition("#")
        if path.startswith("http"):
            continue
        linked = (ROOT / page).parent / path if path else ROOT / page
        assert linked.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            anchors = re.findall(r'<a id="([\w-]+)">', linked.read_text())
            slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert heading in slugs + anchors, target


def test_the_examples_of_contributing_take_under_ten_lines():
    from tests.conftest import EXAMPLES

    assert set(EXAMPLES) == {"encoding", "evaluation", "data"}
    assert all(len(lines) < 10 for lines in EXAMPLES.values())
