"""`Conversion`: the state of `vitpos.convert` between its steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.interop.source_model import SourceModel
from vitpos.interop.step_reports import StepReport
from vitpos.lab.drift import drift, labels_if_known, predict


@dataclass
class Conversion:
    """The state of a conversion: the original, the model as it is now, and the reports so far.

    Args:
        original: The model that was given.
        current: The converted model.
        data: Images on which predictions are compared with those of the original; None for none.
        reports: One for each step.
    """

    original: SourceModel
    current: SourceModel
    data: Dataset | None
    reports: list[StepReport] = field(default_factory=list)
    _before: Tensor | None = None

    def drift(self, model: SourceModel) -> dict[str, float]:
        """Returns how much the predictions of a model differ from those of the original; {} without images."""
        if self.data is None:
            return {}
        if self._before is None:
            self._before = predict(self.original.model, self.data, self.original.spec.image_shape)
        classes = self.original.spec.num_classes
        labels = labels_if_known(classes, self.original.class_names, self.data)
        after = predict(model.model, self.data, model.spec.image_shape)
        return drift(self._before, after, labels, features=classes == 0)

    def advance(self, model: SourceModel, report: StepReport) -> None:
        """Replaces the current model and adds a report, with the numbers of `drift` if there are images."""
        self.current = model
        self.reports.append(replace(report, numbers={**report.numbers, **self.drift(model)}))
