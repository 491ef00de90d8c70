"""What the README says is so: its commands, its example, its numbers."""

import csv
import itertools
import json
import re
import shlex
import statistics
from pathlib import Path

import pytest
import torch

from vitpos.data.dataset import load
from vitpos.lab.experiment import Experiment
from vitpos.metrics.image_similarity import psnr

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_it_begins_with_the_two_commands():
    first = re.search(r"```\n(.*?)```", README, re.DOTALL)[1]
    assert first.splitlines() == [
        "pip install -c constraints.txt -e . && vitpos run mnist-jigsaw --out runs/mnist-jigsaw",
        "pip install -c constraints.txt -e '.[dev]' && pytest",
    ]


def test_its_python_runs():
    for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(code, "README.md", "exec"), {})


def test_its_smallest_experiment_reads():
    text = re.search(r"```toml\n(.*?)```", README, re.DOTALL)[1]
    assert len(Experiment.make({"name": "readme", "asked": "", "text": text, "settings": [], "seeds": None}).cells) == 8


def _figures(name: str = "mnist-jigsaw") -> dict[tuple[str, ...], list[float]]:
    found: dict[tuple[str, ...], list[float]] = {}
    with (ROOT / "results" / f"{name}.csv").open() as file:
        for row in (row for row in csv.DictReader(file) if not row["x"]):  # points of curves are not quoted
            key = (row["data"], row["model"], row["encoding"], row["evaluation"], row["metric"])
            found.setdefault(key, []).append(100 * float(row["value"]))
    return found


def _swept(name: str, *columns: str) -> dict[tuple[str, ...], float]:
    """The figures of a stored run of one seed by some columns, encoding, evaluation and metric."""
    with (ROOT / "results" / f"{name}.csv").open() as file:
        return {
            tuple(row[key] for key in (*columns, "encoding", "evaluation", "metric")): 100 * float(row["value"])
            for row in csv.DictReader(file)
            if not row["x"]
        }


def _shown(heading: str) -> list[list[str]]:
    """The rows of the README's table that begins with these headings."""
    table = re.search(rf"\| {re.escape(heading)}.*?\n\n", README, re.DOTALL)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]


FOLLOW, STAY = (f"jigsaw(grid=(7, 7), positions='{positions}')" for positions in ("follow", "stay"))
FIXED, EACH = "mnist + permute_patches(grid=(7, 7))", "mnist + permute_patches(grid=(7, 7), per='image')"
MOVED = "translation(by=(0, 1))"
ROWS = {
    ("cnn", "none"): "CNN",
    ("minimal", "none"): "attention, no positions",
    ("minimal", "learned"): "attention, learned positions",
}


def _row(model: tuple[str, str], columns: list[tuple[str, str, str]]) -> list[str]:
    figures = _figures()
    values = [figures[data, *model, evaluation, metric] for data, evaluation, metric in columns]
    return [f"{statistics.fmean(v):.2f} ± {statistics.stdev(v):.2f}" for v in values]


TABLES = {
    "trained on normal digits": [("mnist", e, "accuracy") for e in ("accuracy", FOLLOW, STAY)],
    "digit pairs": [
        *[("mnist", f"pairs(classes={pair})", "two_logits") for pair in ("(1, 8)", "(6, 9)")],
        *[(f"mnist + classes(keep={pair})", "accuracy", "accuracy") for pair in ("(1, 8)", "(6, 9)")],
    ],
    "trained and tested on rearranged digits": [(data, "accuracy", "accuracy") for data in (FIXED, EACH)],
}


@pytest.mark.parametrize("title", TABLES)
def test_its_figures_are_those_of_the_stored_runs(title):
    table = re.search(rf"\| {re.escape(title)} \|.*?\n\n", README, re.DOTALL)[0]
    for model, name in ROWS.items():
        if title == "digit pairs" and model[0] == "cnn":
            continue
        (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
        shown = [re.sub(r" \(.*?\)", "", cell.strip()) for cell in line.strip("|").split("|")[1:]]
        assert shown == _row(model, TABLES[title])


def test_its_table_of_encodings_is_that_of_the_stored_run():
    figures = {key[2:]: values for key, values in _figures("encodings-mnist").items()}
    resized = [f"resolution(size=({side}, {side}))" for side in (20, 40)]
    beyond = "resolution(size=(40, 40), coordinates='beyond')"
    shuffled = "jigsaw(positions='stay', per='image')"
    columns = [
        (e, "agreement" if e == shuffled else "accuracy") for e in ("accuracy", shuffled, *resized, beyond, MOVED)
    ]
    rows = _shown("encoding | as trained")
    assert len(rows) > 10
    for name, *shown in rows:
        values = [figures[name.strip("`"), *column] for column in columns]
        assert shown == [f"{statistics.fmean(v):.1f} ± {statistics.stdev(v):.1f}" for v in values]


def test_its_table_of_ratios_is_that_of_the_stored_run():
    figures = {key[2:]: values for key, values in _figures("mjp-ratio").items()}
    told, untold = "shuffle(ratio=0.15, positions='told')", "shuffle(ratio=0.15)"
    columns = [
        ("accuracy", "accuracy"),
        *((spec, metric) for spec in (told, untold) for metric in ("consistency", "difference")),
        ("shuffle(ratio=0.5, positions='told')", "accuracy"),
    ]
    rows = _shown("ratio in training")
    assert len(rows) == 8
    for ratio, *shown in rows:
        for text, (evaluation, metric) in zip(shown, columns, strict=True):
            values = figures.get((f"learned + mjp(mask_ratio={ratio})", evaluation, metric))
            scale = 100 if metric == "difference" else 1
            spread = values and f"{statistics.fmean(values) / scale:.1f} ± {statistics.stdev(values) / scale:.1f}"
            assert text == (spread or "–")


PUZZLE = "shuffle(ratio=0.15{})"
TOLD = ", positions='told'"


def test_its_table_of_variants_is_that_of_the_stored_run_and_keeps_the_order_of_the_paper():
    figures = _swept("mjp-variants", "train.augment")
    columns = [
        ("accuracy", "accuracy"),
        *((PUZZLE.format(way), metric) for way in ("", TOLD) for metric in ("consistency", "difference")),
        ("shuffle(ratio=1.0, pixels=True)", "accuracy"),
    ]
    rows = _shown("| variant")
    assert len(rows) == 12
    for _, name, *shown in rows:
        encoding, augment = [*re.findall("`(.*?)`", name), ""][:2]
        for text, (evaluation, metric) in zip(shown, columns, strict=True):
            value = figures.get((augment, encoding, evaluation, metric))
            assert text == ("–" if value is None else f"{value / (100 if metric == 'difference' else 1):.1f}")
    plain, none, shuffled = (
        figures["", encoding, PUZZLE.format(""), "consistency"]
        for encoding in ("learned", "none", "learned + mjp(unknown=False, localization=None)")
    )
    told = figures["", "learned + mjp(localization=None)", PUZZLE.format(TOLD), "consistency"]
    assert none == 100 and told > shuffled > plain


def test_its_table_of_families_is_that_of_the_stored_run_and_says_what_the_paper_says():
    figures = _swept("mjp-backbones", "model", "train.augment")
    grid = ", grid=(14, 14)"
    told = PUZZLE.format(grid + TOLD)
    columns = [
        ("accuracy", "accuracy"),
        *((spec, metric) for spec in (PUZZLE.format(grid), told) for metric in ("consistency", "difference")),
    ]
    found = {(model.split("(")[0], *rest): value for (model, *rest), value in figures.items()}
    rows = _shown("family")
    assert len(rows) == 10
    for family, name, *shown in rows:
        encoding, augment = [*re.findall("`(.*?)`", name), ""][:2]
        for text, (evaluation, metric) in zip(shown, columns, strict=True):
            value = found.get((family.strip("`"), augment, encoding, evaluation, metric))
            assert text == ("–" if value is None else f"{value / (100 if metric == 'difference' else 1):.1f}")
    small = "learned + mjp(mask_ratio=0.03)"
    for without, with_it, asked in (
        (("vit", "", "learned"), ("vit", "", small), told),
        (("swin", "", "learned"), ("swin", "", small), told),
        (("resnet", "", "none"), ("resnet", "jigsaw(mask_ratio=0.03)", "none"), PUZZLE.format(grid)),
    ):
        assert found[*with_it, asked, "consistency"] > found[*without, PUZZLE.format(grid), "consistency"]
        assert found[*with_it, "accuracy", "accuracy"] > found[*without, "accuracy", "accuracy"] - 1


def test_its_scorecard_is_that_of_the_stored_run():
    figures = {key[2:]: value for key, (value,) in _figures("scorecard-mini").items()}
    sizes = "resolutions(factors=(0.5, 1.0, 2.0), {}limit=500)"
    columns = [
        ("accuracy", "accuracy"),
        ("shuffle(ratio=0.15)", "consistent_and_right"),
        (MOVED, "accuracy"),
        *((sizes.format(way), "area") for way in ("", "coordinates='beyond', ", "protocol='pad', ")),
        ("corruption(parameters='cifar', limit=100)", "error"),
        ("dense", "miou"),
    ]
    rows = _shown("encoding | accuracy | 15 %")
    assert len(rows) == 8
    for name, *shown in rows:
        assert shown == [f"{figures[name.strip('`'), *column]:.1f}" for column in columns]


def _private(name: str, *columns: str) -> dict[tuple[str, ...], float]:
    """Decibels and shares of a stored run of an attack, as they are."""
    return {key: value / 100 for key, value in _swept(name, *columns).items()}


def test_its_table_of_the_puzzle_under_attack_is_that_of_the_stored_run():
    figures = _private("privacy-closed-form", "model", "train.epochs")
    asked = ["", "setting='b'", "setting='b', attacker='mask'", "setting='b', attacker='residual'"]
    asked += ["setting='b', told=False", "setting='b', ratio=0.9, attacker='residual'"]
    asked += ["setting='c', attacker='residual'", "setting='c', ratio=0.9, attacker='residual'"]
    small = "vit(patch=4, dim=192, depth=2, heads=3)", "1"
    for encoding, *shown in _shown("trained as | a"):
        for number, options in zip(shown, asked, strict=True):
            evaluation = f"projection({options})".replace("()", "")
            assert float(number) == pytest.approx(figures[*small, encoding.strip("`"), evaluation, "psnr"], abs=0.0501)
    grey = figures[*small, "learned", "projection", "psnr_grey"]
    text = README.replace("\n", " ")
    assert f"(a flat grey picture has {grey:.1f}): a, the picture" in text
    through = "vit(patch=4, dim=192, depth=2, heads=3, april_block=True)", "1", "learned + mjp"
    found = [f"{figures[*through, spec, 'psnr']:.1f}" for spec in ("april", "april(setting='b', told=False)")]
    found += [f"{figures[*through, f'april({options})', 'psnr']:.1f}" for options in asked[1:3]]
    assert "({}, and {} *not hidden*; {} hidden, {} with the mask known)".format(*found) in text
    longer = _private("privacy-defenses")
    found = [
        f"{longer['learned + mjp', f'projection(images=64{options})', 'psnr']:.1f}"
        for options in ("", ", setting='b', told=False")
    ]
    assert "longer training on digits ({} and {} dB)".format(*found) in text


def test_what_it_says_of_a_hundred_pictures_and_of_photographs_is_that_of_the_stored_run():
    figures = _private("privacy-closed-form", "model", "train.epochs")
    hundred = "vit(patch=4, dim=384, depth=4, heads=6)", "vit(patch=4, dim=384, depth=4, heads=6, april_block=True)"
    large = hundred[0].replace("patch=4", "patch=16").replace("depth=4", "depth=12")
    single = ", precision='float32'"

    def worst(model: str, evaluation: str, epochs: str = "0") -> str:
        return f"{figures[model, epochs, 'learned', evaluation, 'psnr_worst']:.1f}"

    first, second = (
        [worst(hundred[0], f"projection(images=100{way})", epochs) for way in ("", single)] for epochs in "01"
    )
    text = README.replace("\n", " ")
    assert f"{first[0]} dB in float64 and {first[1]} in float32 ({second[0]} and {second[1]} after an epoch)" in text
    assert f"through the first attention {worst(hundred[1], 'april(images=100)')}" in text
    sizes = worst(large, "projection"), worst(large, "projection(precision='float32')")
    assert f"the worst of six photographs has {sizes[0]} and {sizes[1]}" in text
    assert f"of a patch, {worst(large.replace(')', ', april_block=True)'), 'april')} (`vitpos" in text
    assert float(first[0]) >= 200 and float(first[1]) >= 60 and float(sizes[0]) >= 200 and float(sizes[1]) >= 60
    assert float(worst(hundred[1], "april(images=100)")) >= 120


def test_what_it_says_of_networks_from_places_to_vectors_is_that_of_the_stored_run():
    figures = _private("privacy-closed-form", "model", "train.epochs")
    small = "vit(patch=4, dim=192, depth=2, heads=3)", "0"
    found = [
        f"{figures[*small, encoding, 'projection', 'psnr']:.1f}"
        for encoding in ("fourier", "fourier(hidden_dim=128)", "coordinate_mlp", "coordinate_mlp(activation='relu')")
    ]
    apart = f"{figures[*small, 'fourier', 'projection', 'equations']:.0f}"
    text = README.replace("\n", " ")
    assert f"`fourier` tells {apart} apart ({found[0]} dB), with 128 units all ({found[1]});" in text
    assert f"few functions of a place ({found[2]}), and with ReLU units well ({found[3]};" in text


def test_its_table_of_defences_is_that_of_the_stored_run():
    figures = _private("privacy-defenses", "train.defense")
    descent = "steps=500, tv=0.1, start='projection'"
    rows = _shown("what is shared | accuracy")
    for what, accuracy, *found, alike in rows:
        encoding, *defense = re.findall("`(.*?)`", what)
        ratio = "ratio=0.9, " if ".9 hidden" in what else ""
        hidden = f"setting='c', {ratio}attacker='residual', " if "hidden" in what else ""
        key = (defense[0] if defense else "", encoding)
        assert float(accuracy) == pytest.approx(100 * figures[*key, "accuracy", "accuracy"], abs=0.0501)
        equations = f"projection(images=64, {hidden}".removesuffix(", ") + ")"
        down = f"matching(images=8, {hidden}{descent})"
        asked = (equations, "psnr"), (equations, "psnr_best"), (down, "psnr")
        for number, question in zip(found, asked, strict=True):
            stored = figures.get((*key, *question))
            assert stored is None if number == "–" else float(number) == pytest.approx(stored, abs=0.0501)
        assert float(alike) == pytest.approx(figures[*key, down, "ssim"], abs=0.00501)
    assert len(rows) == len({key[:2] for key in figures})
    specs = "projection(images=64)", f"matching(images=8, {descent})"
    grey = [figures["", "learned", spec, "psnr_grey"] for spec in specs]
    digits = load("mnist")
    pictures = digits.test.head(64).images[:] / 255
    best = psnr(torch.full_like(pictures, digits.mean[0]), pictures).max().item()
    text = README.replace("\n", " ")
    assert f"(a flat grey picture has {grey[0]:.1f}, {best:.1f} and {grey[1]:.1f}; one seed;" in text


def test_its_table_of_leaks_is_that_of_the_stored_run():
    figures = _private("privacy-matching")
    asked = ["projection", "projection(attacker='residual')", "matching", "matching(alpha=0.0)"]
    rows = _shown("encoding | PSNR by equations")
    for encoding, *shown in rows:
        for number, evaluation in zip(shown, asked, strict=True):
            stored = figures.get((encoding.strip("`"), evaluation, "psnr"))
            assert stored is None if number == "–" else float(number) == pytest.approx(stored, abs=0.0501)
    assert {encoding.strip("`") for encoding, *_ in rows} == {key[0] for key in figures}
    grey = figures["learned", "projection", "psnr_grey"]
    assert f"(a flat grey picture has {grey:.1f}): by equations" in README.replace("\n", " ")


def _inspection(name: str) -> dict[str, dict]:
    """The stored inspection of the models of a run, by encoding (the first of each)."""
    found: dict[str, dict] = {}
    for one in json.loads((ROOT / "results" / f"inspection-{name}.json").read_text()):
        found.setdefault(one["name"].split(" · ")[0], one)
    return found


def test_its_table_of_position_by_layer_is_that_of_the_stored_inspection():
    seen = _inspection("scorecard-mini")
    rows = _shown("encoding | place from tokens")
    for encoding, probes, shares in rows:
        numbers = seen[encoding.strip("`")]["model"]
        for shown, key in ((probes, "probe_r2"), (shares, "position_share")):
            assert [float(number) for number in shown.split(",")] == pytest.approx(numbers[key], abs=0.00501)
    assert len(rows) == len(seen) and max(map(abs, seen["none"]["model"]["probe_r2"])) < 0.01
    spread = max(max(one["model"]["probe_standard_error"]) for one in seen.values())
    assert f"standard errors over the images tested up to {spread:.3f}" in README
    by_layer = [statistics.fmean(heads) for heads in seen["sape2"]["model"]["bias_content_correlation"]["mean"]]
    assert ", ".join(f"−{-value:.2f}" for value in by_layer) in README.replace("\n", " ")


def test_its_verdicts_on_tables_are_those_of_the_stored_inspection():
    seen = _inspection("mjp-variants")
    words = {"yes": "yes", "center-weighted": "yes", "no structure": "no"}
    for encoding, *verdicts, error in _shown("table of | neighbours alike"):
        table = seen[encoding.strip("`")]["table"]
        for shown, name in zip(
            verdicts, ("neighbors", "same_row", "same_column", "border", "corners", "norm"), strict=True
        ):
            word, effect, p = re.fullmatch(r"(\w+) \(([\d.-]+), ([\d.]+)\)", shown).groups()
            finding = table["structure"][name]
            assert word == words[finding["verdict"]], (encoding, name)
            assert [float(effect), float(p)] == pytest.approx([finding["effect"], finding["p"]], abs=0.00501)
        assert float(error) == pytest.approx(table["regression"]["table"]["methods"]["ridge"]["grid_mae"], abs=0.00501)
        noise = table["regression"]["noise"]["methods"]["ridge"]["grid_mae"]
        assert f"(white noise of the same shape: {noise:.2f})" in README


def test_the_stored_runs_keep_what_was_promised():
    figures = {key: statistics.fmean(values) for key, values in _figures().items()}
    one = _figures()
    none, learned, cnn = ("minimal", "none"), ("minimal", "learned"), ("cnn", "none")
    for model in (none, learned):
        assert one["mnist", *model, "accuracy", "accuracy"] == one["mnist", *model, FOLLOW, "accuracy"]
    assert figures["mnist", *learned, "accuracy", "accuracy"] >= 92
    assert 40 <= figures["mnist", *none, "accuracy", "accuracy"] <= 60
    assert figures["mnist", *cnn, "accuracy", "accuracy"] >= 98 and figures["mnist", *cnn, FOLLOW, "accuracy"] < 20
    assert figures[FIXED, *cnn, "accuracy", "accuracy"] > 97
    six_nine = [figures["mnist", *m, "pairs(classes=(6, 9))", "two_logits"] for m in (none, learned)]
    assert six_nine[1] >= 98 and six_nine[1] - six_nine[0] >= 15
    one_eight = [figures["mnist", *m, "pairs(classes=(1, 8))", "two_logits"] for m in (none, learned)]
    assert abs(one_eight[0] - one_eight[1]) <= 3
    pair = [figures["mnist + classes(keep=(6, 9))", *m, "accuracy", "accuracy"] for m in (none, learned)]
    assert pair[1] >= 98 and pair[1] - pair[0] >= 8


def test_adding_something_takes_under_ten_lines_and_one_entry():
    from tests.conftest import EXAMPLES

    assert set(EXAMPLES) == {"encoding", "evaluation", "data"}
    assert all(len(lines) < 10 for lines in EXAMPLES.values())


def test_its_commands_are_understood():
    """Each vitpos command of the README reads: its options exist and its experiment can be made."""
    commands = re.findall(r"^vitpos run .*$", README, re.MULTILINE)
    assert commands
    for command in commands:
        words = shlex.split(command)
        settings = [after for word, after in itertools.pairwise(words) if word == "--set"]
        assert Experiment.read(words[2], settings).cells
