"""Rules with two conditions that count only together: a gain relative to a loss, a task and its control."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from vitpos.claims.outcomes import Answer, Outcome, Series, differences, interval_text, seeds_text, sign
from vitpos.metrics.statistics import ci_half_width


def regained(
    before: Series, lost: Series, after: Series, *, fraction: float, least_loss: float, unit: str = ""
) -> Outcome:
    """At least ``fraction`` of the loss ``before`` − ``lost`` is gained back in ``after``.

    Holds if the 95 % interval of (after − lost) − fraction · (before − lost) lies above 0, does not hold if below. Nothing
    can be decided, and the answer is inconclusive, unless the 95 % interval of the loss lies above ``least_loss``.

    Args:
        before, lost, after: Seed → value, in the order of time.
        fraction: The fraction, such as 0.9.
        least_loss: A loss that is too small to judge by.
        unit: Unit of the values, for the text.
    """
    loss, gain = differences(before, lost), differences(after, lost)
    excess = [one - fraction * other for one, other in zip(gain, loss, strict=True)]
    mean, half = statistics.fmean(excess), ci_half_width(excess)
    answer = sign(mean, half)
    loss_mean, loss_half = statistics.fmean(loss), ci_half_width(loss)
    if loss_mean - loss_half <= least_loss:
        answer = "inconclusive"
    found = (
        f"loss {interval_text(loss_mean, loss_half, unit)}, gained back {statistics.fmean(gain):.4g} {unit}".rstrip()
    )
    beyond = f"{interval_text(mean, half, unit, sign=True)} beyond {fraction:g} of the loss, {seeds_text(loss)}"
    return Outcome(answer, f"{found}, {beyond}; required: above 0, with a loss above {least_loss:g}")


def only_in_task(
    task: Series, control: Series, solved: Sequence[Series], *, by: float, within: float, least: float, unit: str = ""
) -> Outcome:
    """A model is behind another by more than ``by`` in a task, and by less than ``within`` in the control of the task.

    Holds if the 95 % interval of the difference in the task excludes 0, its mean exceeds ``by``, and the 90 % interval of
    the difference in the control lies below ``within``. Does not hold if the difference in the task is smaller (its
    90 % interval within ±``by``, or its 95 % interval below 0), or that in the control is larger (95 % interval
    above 0, mean above ``within``). Nothing can be decided, and the answer is inconclusive, unless the other model
    solves both: the means of ``solved`` are at least ``least``.

    Args:
        task: Seed → value of the other model minus that of the model, in the task.
        control: The same in the control.
        solved: The values of the other model in the task and in the control.
        by: Margin of the task.
        within: Margin of the control.
        least: The value from which a task counts as solved.
        unit: Unit of the values, for the text.
    """
    (lag, lag_half, lag_narrow), (gap, gap_half, gap_narrow) = (
        (statistics.fmean(one), ci_half_width(one), ci_half_width(one, 0.9))
        for one in (list(task.values()), list(control.values()))
    )
    reached = [statistics.fmean(one.values()) for one in solved]
    if min(reached) < least:
        answer: Answer = "inconclusive"
    elif lag > max(lag_half, by) and gap + gap_narrow < within:
        answer = "holds"
    elif abs(lag) + lag_narrow < by or lag + lag_half < 0 or gap > max(gap_half, within):
        answer = "does not hold"
    else:
        answer = "inconclusive"
    found = f"behind by {interval_text(lag, lag_half, unit)} in the task"
    beside = f"by {interval_text(gap, gap_half, unit)} in the control"
    reference = f"the other model has {' and '.join(f'{one:.4g}' for one in reached)}"
    return Outcome(
        answer,
        f"{found} and {beside}; {reference}, {seeds_text(task)}; "
        f"required: more than {by:g}, and at most {within:g}, with at least {least:g} of the other model",
    )
