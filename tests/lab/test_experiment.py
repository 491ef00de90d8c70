from dataclasses import replace
from typing import ClassVar

import pytest

from vitpos.errors import InputError
from vitpos.lab.dry_run import dry_run
from vitpos.lab.events import Event, Observer
from vitpos.lab.experiment import Experiment, shipped
from vitpos.lab.stand_ins import stand_ins

TEXT = """
question = "Which?"
data = "mnist + subset(limit=64)"
model = "minimal(dim=8)"
encoding = ["none", "learned"]
evaluations = ["accuracy"]
seeds = [0, 1]
[train]
epochs = 1
lr = [0.01, 0.001]
"""


def make(text=TEXT, settings=(), seeds=None):
    return Experiment.from_definition(
        {"name": "test", "name_given": "test.toml", "text": text, "settings": list(settings), "seeds": seeds}
    )


def test_lists_become_a_grid_of_cells():
    experiment = make()
    assert len(experiment.cells) == 8 and len({cell.folder_name for cell in experiment.cells}) == 8
    assert experiment.columns == ("train.lr",)
    assert [(c.encoding, c.train.lr, c.seed) for c in experiment.cells[:3]] == [
        ("none", 0.01, 0),
        ("none", 0.01, 1),
        ("none", 0.001, 0),
    ]


def test_a_block_overrides_what_is_shared_and_a_setting_overrides_both():
    text = TEXT + '[[cells]]\nencoding = "none"\ntrain.lr = 0.5\n[[cells]]\nmodel = "cnn"\nencoding = "none"\n'
    first = make(text).cells[0]
    assert first.train.lr == 0.5 and first.train.epochs == 1
    changed = make(text, ["train.lr=0.25", "model=minimal(dim=16)", "train.epochs=3"]).cells
    assert {(c.train.lr, c.train.epochs, c.model) for c in changed} == {(0.25, 3, "minimal(dim=16)")}
    assert len(changed) == 2, "cells that became the same are run once"


def test_two_trainings_of_one_model_are_two_groups():
    text = TEXT.replace("lr = [0.01, 0.001]", "") + "[[cells]]\ntrain.batch_size = 32\n[[cells]]\ntrain.lr = 0.5\n"
    experiment = make(text, ["encoding=none"], seeds=[0, 1])
    assert experiment.columns == ("train.batch_size", "train.lr")
    assert len({cell.group for cell in experiment.cells}) == 2 and len(experiment.cells) == 4


def test_a_cell_given_twice_is_run_once_with_all_evaluations():
    text = TEXT + '[[cells]]\nevaluations = ["cost"]\n[[cells]]\nevaluations = ["token_diversity", "cost"]\n'
    cells = make(text).cells
    assert len(cells) == 8 and all(cell.evaluations == ("cost", "token_diversity") for cell in cells)


def test_the_default_evaluation_is_accuracy():
    assert make(TEXT.replace('evaluations = ["accuracy"]', "")).cells[0].evaluations == ("accuracy",)


def test_every_cell_is_in_some_table_whatever_is_set():
    for settings in ([], ["data=mnist + subset(limit=300)"], ["model=minimal(patch=14)", "evaluations=accuracy"]):
        experiment = Experiment.load("mnist-jigsaw", settings)
        for cell in experiment.cells:
            assert any(table.shows(cell) and table.columns for table in experiment.tables)


def pairs(name, *settings):
    return {(cell.model, cell.encoding) for cell in Experiment.load(name, settings).cells}


def test_an_encoding_that_is_set_is_not_forced_on_a_model_without_tokens():
    assert pairs("mnist-jigsaw", "encoding=rope") == {("cnn", "none"), ("minimal", "rope")}


def test_an_encoding_that_is_set_is_trained_once_where_a_block_pairs_a_model_with_one_encoding():
    text = (
        'data = "mnist"\nmodel = "vit"\n[[cells]]\nencoding = ["none", "learned"]\n'
        '[[cells]]\nmodel = "vit(qk_norm=\'cosine\')"\nencoding = "cpb"\n'
    )

    def cells(*settings):
        return {(cell.model, cell.encoding) for cell in make(text, settings).cells}

    assert cells() == {("vit", "none"), ("vit", "learned"), ("vit(qk_norm='cosine')", "cpb")}
    assert cells("encoding=rope") == {("vit", "rope")}
    assert cells("encoding=rope", "model=minimal") == {("minimal", "rope")}


def test_an_experiment_of_pairs_only_takes_the_encoding_that_is_set_in_each():
    text = (
        'data = "mnist"\n[[cells]]\nmodel = "vit"\nencoding = "none"\n[[cells]]\nmodel = "swin"\nencoding = "learned"\n'
    )
    assert {(c.model, c.encoding) for c in make(text, ["encoding=rope"]).cells} == {("vit", "rope"), ("swin", "rope")}


def test_seeds_given_apart_replace_those_of_the_file():
    assert {cell.seed for cell in make(seeds=[5, 7]).cells} == {5, 7}


def test_a_key_depends_on_what_changes_the_weights_and_on_nothing_else():
    key = make().cells[0].folder_name
    assert make(settings=["evaluations=confusion"]).cells[0].folder_name == key
    assert make(settings=["train.batch_size=64"]).cells[0].folder_name != key
    assert make(settings=["train.augment=jigsaw"]).cells[0].folder_name != key
    assert make(settings=["train.lr_start=1e-6"]).cells[0].folder_name != key
    assert make(settings=["train.lr_start=0.0"]).cells[0].folder_name == key
    assert make(TEXT.replace("0.01,", "1e-2,")).cells[0].folder_name == key


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.epoch=1"], "--set 'train.epoch': there is no such key; did you mean 'train.epochs'?"),
        (["train.epochs"], "has no value"),
        (["train.epochs=many"], "train.epochs takes int, not 'many'"),
        (["train.epochs=1.5"], "train.epochs takes int, not 1.5"),
        (["train.lr=-1"], "train.lr is -1"),
        (["encoding=learnt"], "no encoding 'learnt'; did you mean 'learned'?"),
        (["encoding=3"], "encoding takes text such as"),
        (["evaluations=accuray"], "no evaluation 'accuray'; did you mean 'accuracy'?"),
        (["encoding=[]"], "encoding is an empty list"),
        (["seeds=[]"], "seeds takes whole numbers"),
        (["seeds=3"], "seeds takes a list such as [0, 1, 2], not 3"),
        (["encoding=[none, learned]"], "put its items in quotes"),
        (["encoding=none", "encoding=learned"], "given twice"),
        (["evaluations=accuracy + cost"], "give one evaluation at a time"),
        (["model=minimal + cnn"], "give one model at a time"),
        (["seeds=[-1]"], "seeds takes whole numbers from 0 to 2³¹ − 1, not -1"),
    ],
)
def test_a_wrong_setting_names_itself_and_the_remedy(settings, message):
    with pytest.raises(InputError) as error:
        make(settings=settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = ", "is not valid TOML"),
        ('encodig = "none"', "there is no key 'encodig'; did you mean 'encoding'?"),
        ('data = "mnist"', "no model is given"),
        (TEXT + "[[cells]]\ntrain.rate = 1\n", "cells 1: there is no key 'train.rate'"),
        (TEXT + '[[tables]]\ntitel = "x"\n', "there is no key 'titel'; did you mean 'title'?"),
        (TEXT + '[[tables]]\nnote = "x"\n', "title is missing"),
        (TEXT + '[[published]]\ndata = "mnist"\n', "model is missing"),
        ("tables = 3\n" + TEXT, "write [[tables]] above each one"),
        (TEXT + '[tables]\ntitle = "x"\n', "write [[tables]] above each one"),
        (TEXT + "[published]\nvalue = 3\n", "write [[published]] above each one"),
        ('cells = "x"\n' + TEXT, "write [[cells]] above each one"),
        ("notes = 3\n" + TEXT, "notes takes tuple[str, ...], not 3"),
        ('notes = "abc"\n' + TEXT, "notes takes tuple[str, ...], not 'abc'"),
        (TEXT + "[[tables]]\ntitle = 3\n", "title takes str, not 3"),
        (TEXT + '[[tables]]\ntitle = "x"\ncolumns = 3\n', "columns is not a list of tables"),
        (
            TEXT + '[[tables]]\ntitle = "x"\ncolumns = [{label="a", evaluation="accuracy", percent="no"}]',
            "percent takes bool",
        ),
        (
            TEXT + '[[tables]]\ntitle = "x"\ncolumns = [{label="a", evaluation="cost"}]',
            "none of its cells has the evaluation cost",
        ),
    ],
)
def test_a_wrong_file_says_where_and_what(text, message):
    with pytest.raises(InputError) as error:
        make(text)
    assert message in str(error.value)


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_experiment_reads_and_every_reference_has_its_cell(name):
    experiment = Experiment.load(name)
    cells = {(c.data, c.model, c.encoding): c for c in experiment.cells}
    for reference in experiment.published:
        assert reference.evaluation in cells[reference.data, reference.model, reference.encoding].evaluations
    for table in experiment.tables:
        shown = [cell for cell in experiment.cells if table.shows(cell)]
        for column in table.columns:
            assert any(column.evaluation in cell.evaluations for cell in shown), (table.title, column.label)


def _covering(experiment):
    """Few cells that, between them, have every column of every table, and nothing else."""
    wanted = {}
    for table in experiment.tables:
        for column in table.columns:
            able = [cell for cell in experiment.cells if table.shows(cell) and column.evaluation in cell.evaluations]
            cell = next((cell for cell in able if cell in wanted), able[0])
            wanted.setdefault(cell, []).append(column.evaluation)
    return [replace(cell, evaluations=tuple(dict.fromkeys(specs))) for cell, specs in wanted.items()]


APART = {"mjp-imagenet", "learned-transfer"}  # they have test files of their own
LARGE = {"mjp-cost", "privacy-closed-form", "privacy-table5"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in sorted(set(shipped()) - APART)],
)
def test_every_column_of_a_shipped_experiment_is_given_by_its_evaluation(name, monkeypatch, tmp_path):
    """Data that are downloaded are replaced by noise of their shape; everything else is as in the experiment."""
    monkeypatch.setenv("VITPOS_CACHE", str(tmp_path))
    experiment = Experiment.load(name)
    dry_run(_covering(experiment), experiment.tables, stand_ins=stand_ins(experiment.cells))


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="no experiment 'mnist-jigsw'; did you mean 'mnist-jigsaw'"):
        Experiment.load("mnist-jigsw")


def test_a_column_of_a_layer_that_a_shallower_model_lacks_is_no_mistake():
    text = """
    data = "mnist + subset(limit=64)"
    model = "vit(depth=1, dim=8, heads=1)"
    encoding = "none"
    evaluations = ["translation"]
    [[tables]]
    title = "Layers"
    columns = [{ label = "after three", evaluation = "translation", metric = "NAME", x = 3 }]
    """
    experiment = make(text.replace("NAME", "token_error"))
    dry_run(experiment.cells, experiment.tables)
    with pytest.raises(InputError, match="no curve 'token_eror'; did you mean 'token_error'"):
        experiment = make(text.replace("NAME", "token_eror"))
        dry_run(experiment.cells, experiment.tables)


def test_data_that_cannot_be_had_are_an_error_before_the_dry_run():
    text = TEXT.replace('"mnist + subset(limit=64)"', '["mnist + subset(limit=64)", "image_folder(path=\'nowhere\')"]')

    class Recorder(Observer):
        events: ClassVar[list[Event]] = []

        def on_event(self, event):
            self.events.append(event)

    with pytest.raises(InputError, match="nowhere"):
        dry_run(make(text).cells, observer=Recorder())
    assert not Recorder.events
