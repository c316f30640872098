"""Metrics, by the names that tessera knows them under."""


class _Metric:
    native = ""


class Accuracy(_Metric):
    """The part of rows whose largest logit is the label's."""
    native = "accuracy"

    def __init__(self, eval_type="classification"):
        if eval_type != "classification":
            raise NotImplementedError(f"For 'Accuracy', the eval_type {eval_type} is not available; classification is")


class Loss(_Metric):
    """The mean loss."""
    native = "loss"


class Top1CategoricalAccuracy(_Metric):
    """The part of rows whose label is the largest logit."""
    native = "top_1_accuracy"


class Top5CategoricalAccuracy(_Metric):
    """The part of rows whose label is among the five largest logits."""
    native = "top_5_accuracy"
