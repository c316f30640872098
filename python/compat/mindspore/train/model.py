"""Model: training, evaluation and prediction, spread over ranks as the context says."""
import functools
import json
import os
import weakref

import numpy as np
import tessera
from tessera._keywords import explained, unexpected

from mindspore import _check, context
from mindspore._join import join_by_role, warn_of_training_apart
from mindspore._missing import missing
from mindspore._parallel_options import agree_on_values, parallel_options, session_options
from mindspore.context import ParallelMode  # noqa: F401
from mindspore.dataset.datasets import RowsOfRanks, native_dataset, of_this_many_ranks, rows_of_ranks
from mindspore.nn.cell import Cell
from mindspore.nn.normalization import sees_all_rows
from mindspore.nn.wrap import WithLossCell
from mindspore.nn.wrap.micro_batches import PipelineCell
from mindspore.parallel.auto_parallel import AutoParallel
from mindspore.train.amp import auto_mixed_precision, check_boost_level, check_level
from mindspore.train.callback import (Adapter, Callback, CountsOn, LossMonitor, ModelCheckpoint, Whereabouts, _InternalCallbackParam,
                                      entered)
from mindspore.train.cell_training import StepModel
from mindspore.train.evaluation import EvaluatesEpochs, Evaluation, ForgetsResults, Losses, Metrics, NetworkEvaluation
from mindspore.train.layouts import layout_dict, whole_layouts
from mindspore.train.loss_scale_manager import LossScaleManager
from mindspore.train.metric_callbacks import History, LearningRateScheduler
from mindspore.train.model_step import ModelStep


# tessera's names of what a loss scale that changes keeps.
_SCALE_STATES = ("loss_scale", "loss_scale_clean_steps")


class _LossFunction(Cell):
    """A function of (logits, labels) as a cell."""

    def __init__(self, function):
        super().__init__(auto_prefix=False)
        self._function = function

    def construct(self, logits, labels):
        return self._function(logits, labels)


class _Called(Cell):
    """A cell that is called, so that its hooks are, too."""

    def __init__(self, cell):
        super().__init__(auto_prefix=False)
        self.cell = cell

    def construct(self, *inputs):
        return self.cell(*inputs)


def _with_hooks(cell):
    return _Called(cell) if isinstance(cell, Cell) and cell._has_hooks() else cell


class _TracedAsMade(tessera.Model):
    """tessera's, whose network is traced for the parallel mode `traced_for`, whatever the script sets after the model is made."""

    def train(self, *args, **kwargs):
        with context.traced_in(self.traced_for):
            return super().train(*args, **kwargs)

    def train_step(self, *args, **kwargs):
        with context.traced_in(self.traced_for):
            return super().train_step(*args, **kwargs)

    def eval(self, *args, **kwargs):
        with context.traced_in(self.traced_for):
            return super().eval(*args, **kwargs)

    def predict(self, *args, **kwargs):
        with context.traced_in(self.traced_for):
            return super().predict(*args, **kwargs)

    def build(self, *args, **kwargs):
        with context.traced_in(self.traced_for):
            return super().build(*args, **kwargs)

    def build_predict(self, *args, **kwargs):
        with context.traced_in(self.traced_for):
            return super().build_predict(*args, **kwargs)

    def graph_text(self, *args, **kwargs):
        with context.traced_in(self.traced_for):
            return super().graph_text(*args, **kwargs)


def _in_stages(network, options, trains):
    """The network that is traced: with pipeline stages that of a PipelineCell, whose micro_size becomes an option."""
    if "pipeline" not in options:
        return network
    stages = options["pipeline"]["stages"]
    if isinstance(network, PipelineCell):
        if network.micro_size < stages:
            raise RuntimeError(f"For 'PipelineCell', micro_size {network.micro_size} must not be less than the {stages} pipeline stages")
        options["pipeline"]["micro_batches"] = network.micro_size
        return network.network
    if trains:
        raise RuntimeError(f"pipeline_stages={stages} needs nn.PipelineCell(network, micro_size), of the network with its loss")
    return network


def _spread(method):
    """The method, which sees the parallel context as the Model's AutoParallel says it, where it has one."""
    method = explained(method)

    @functools.wraps(method)
    def run(self, *args, **kwargs):
        with context.spread_as(self._settings):
            return method(self, *args, **kwargs)

    return run


class Model:
    """A network with a loss and an optimizer. A network that is an AutoParallel says how it is spread over the ranks; else the parallel context does."""

    def __init__(self, network, loss_fn=None, optimizer=None, metrics=None, eval_network=None, eval_indexes=None, amp_level="O0",
                 boost_level="O0", **kwargs):
        if not isinstance(network, tessera.nn.Cell):
            raise TypeError(f"For 'Model', the argument 'network' must be Cell, but got {type(network).__name__}.")
        if eval_network is None and eval_indexes is not None:
            raise ValueError("For 'Model', the argument 'eval_indexes' says what the outputs of an 'eval_network' are, which is not given.")
        called, self._settings = network, None
        if isinstance(network, AutoParallel):
            network, self._settings = network.of_model()
        check_boost_level("Model", boost_level)
        if isinstance(network, PipelineCell) and loss_fn is not None:
            raise ValueError("For 'Model', the argument 'loss_fn' must be None beside nn.PipelineCell, which sums the losses of its pieces: use "
                             "nn.PipelineCell(nn.WithLossCell(network, loss_fn), micro_size)")
        check_level("Model", amp_level)
        if amp_level == "O1":  # of the network's layers, not of the step
            network, amp_level = auto_mixed_precision(network, amp_level), "O0"
        self._precision = {"amp_level": amp_level} | _precision_options(**kwargs)
        self._loss_scale_manager = kwargs.get("loss_scale_manager")
        self._network, self._optimizer = network, optimizer
        self._loss_fn = loss_fn if loss_fn is None or isinstance(loss_fn, tessera.nn.Cell) else _LossFunction(loss_fn)
        self._evaluation = None if eval_network is None else NetworkEvaluation(eval_network, eval_indexes)
        self._metrics = Metrics(metrics, all_own=eval_network is not None)
        with context.spread_as(self._settings):
            self._note_context(trains=optimizer is not None)
        self._native, self._native_is_frozen, self._native_lacks_factors = None, False, False
        self._session_options = {}  # that it was made with
        # The network may be a training step itself, which is called as it is.
        step = called if self._settings else network
        self._step_model = StepModel(step, network, self._is_shared()) if optimizer is None and self._loss_fn is None else None
        self._built_for = (None, None)  # data set and epochs of build()
        self._train_network = None  # weakly: it holds the model
        self._scale_states_to_take = {}  # once there is a model of tessera's

    def _note_context(self, trains):
        """What the parallel context says when the model is made."""
        network = self._network
        self._options = parallel_options()
        if network.__dict__.get("_is_broadcast") and "parameter_broadcast" in self._options:
            self._options["parameter_broadcast"] = True
        self._traced = _in_stages(network, self._options, trains)
        self._parallel_mode, self._rows = context.get_auto_parallel_context("parallel_mode"), rows_of_ranks()
        self._num_stages = self._options["pipeline"]["stages"] if "pipeline" in self._options else 1

    def _model(self, dataset=None):
        """tessera's model; dataset: that of a training."""
        if dataset is not None:
            self._check_something_is_trained()
            if self._native_is_frozen or self._native_lacks_factors:
                self._native = None
        if self._native is None:
            for cell in self._trained():
                if isinstance(cell, Cell):
                    cell.check_names_and_refresh_name()
            if self._parallel_mode == ParallelMode.AUTO_PARALLEL:
                agree_on_values(self._parallel_mode, self._network, self._loss_fn)
            # Without anything to train there is nothing to optimize, until a script sets requires_grad again and trains.
            self._native_is_frozen = self._optimizer is not None and not any(cell.trainable_parameters() for cell in self._trained())
            updates = self._optimizer is not None and not self._native_is_frozen
            # Which ranks have a parameter's gradient is known once a training step is compiled.
            self._native_lacks_factors = updates and dataset is None and context.is_literal_gradients_mean(self._parallel_mode)
            states = {"states": self._states_of_stages() or self._optimizer.state_parameters()} if updates else {}
            self._native = self._make(self._native_optimizer(dataset) if updates else None, self._options | states)
            if self._scale_states_to_take:
                self._set_scale_states(self._native)
        elif dataset is not None:
            self._warn_of_other_kernels()
        return self._native

    def _warn_of_other_kernels(self):
        options = session_options()
        if "device" in options and options.get("deterministic") != self._session_options.get("deterministic"):
            context.warn_once("set_deterministic() holds for a Model that has computed nothing before: this one goes on as it was made; make a new one")

    def _make(self, optimizer, options):
        self._session_options = session_options()
        with context.traced_in(self._parallel_mode):
            model = _TracedAsMade(_with_hooks(self._traced), _with_hooks(self._loss_fn), optimizer, metrics=self._metrics.native,
                                  **options, **self._precision, **self._session_options)
        model.traced_for = self._parallel_mode
        return model

    def _trained(self):
        """The cells whose parameters a step may change."""
        return [self._network] if self._loss_fn is None else [self._network, self._loss_fn]

    def _check_something_is_trained(self):
        if self._optimizer is None:
            return
        updated = {id(parameter) for parameter in self._optimizer.parameters}
        if not any(id(parameter) in updated for cell in self._trained() for parameter in cell.trainable_parameters()):
            raise ValueError("For 'Model', the optimizer updates none of the parameters of the network and its loss that have requires_grad: make it "
                             "of network.trainable_params()")

    def _native_optimizer(self, dataset):
        native = self._optimizer.native if self._is_of_own_stage() else self._optimizer.native_for(*self._trained())
        factors = self._gradient_factors(native, dataset)
        return tessera.nn.ScaledGradients(native, factors) if factors else native

    def _is_of_own_stage(self):
        """Whether each rank's optimizer has the parameters of its stage, as infer_param_pipeline_stage() gives them: together they are one of
        all. RuntimeError for one whose updates depend on which it has. Every rank calls it."""
        if "pipeline" not in self._options or not isinstance(self._network, Cell):
            return False
        is_own, is_whole = self._given_of_stages()
        # One stage may share parameters with all others and so have all of them.
        ranks = tessera.ops.all_gather(tessera.Tensor([[is_own, is_whole]], tessera.int64)).numpy()
        if ranks[:, 1].all() or not ranks[:, 0].all():
            return False
        if not self._optimizer.takes_any_parameters:
            raise RuntimeError(f"For 'Model', {type(self._optimizer).__name__} has the parameters of this rank's stage, in groups or for a construct() "
                               "of its own: give the optimizer network.trainable_params()")
        return True

    def _given_of_stages(self):
        """Whether the optimizer has the parameters of this rank's stage; whether it has all that are trained."""
        updated = {id(parameter) for parameter in self._optimizer.parameters}
        is_whole = all(id(parameter) in updated for cell in self._trained() for parameter in cell.trainable_parameters())
        try:
            is_own = updated == {id(parameter) for parameter in self._network.infer_param_pipeline_stage()}
        except RuntimeError:
            is_own = False
        return is_own, is_whole

    def _states_of_stages(self):
        """With pipeline stages the states of all of them, on every rank, whichever stage's parameters its optimizer was given; None where the
        optimizer's own are all."""
        if "pipeline" not in self._options or not isinstance(self._network, Cell) or not self._optimizer.takes_any_parameters:
            return None
        if not any(self._given_of_stages()):
            return None
        return self._optimizer.native.state_parameters([parameter for cell in self._trained() for parameter in cell.trainable_parameters()])

    def _gradient_factors(self, optimizer, dataset):
        """By parameter, what its gradient is multiplied by: the reference's behaviour where that is not ours."""
        manager = self._loss_scale_manager
        if manager is not None and not manager.get_drop_overflow_update():
            # Only the optimizer's loss_scale divides.
            return {parameter: manager.get_loss_scale() for cell in self._trained() for parameter in cell.trainable_parameters()}
        if not context.is_literal_gradients_mean(self._parallel_mode) or dataset is None:
            return {}
        probe = self._make(optimizer, self._options | {"parallel_optimizer": False})
        probe.build(dataset)
        size = 1 if context.get_auto_parallel_context("loss_repeated_mean") else tessera.cluster.size()
        mean = context.get_auto_parallel_context("gradients_mean")
        return {parameter: size / (probe.num_replicas(parameter.name) if mean else 1)
                for cell in self._trained() for parameter in cell.trainable_parameters()}

    @_spread
    def train(self, epoch, train_dataset, callbacks=None, dataset_sink_mode=False, sink_size=-1, initial_epoch=0):
        """Trains for `epoch` epochs, those before initial_epoch being done. dataset_sink_mode=True: callbacks run once per sink_size steps, -1:
        once an epoch."""
        self._train(epoch, train_dataset, callbacks, dataset_sink_mode, sink_size, initial_epoch)

    @_spread
    def fit(self, epoch, train_dataset, valid_dataset=None, valid_frequency=1, callbacks=None, dataset_sink_mode=False, valid_dataset_sink_mode=False,
            sink_size=-1, initial_epoch=0):
        """train(), with an evaluation on valid_dataset after every valid_frequency-th epoch, or after the epochs of a list. Callbacks see its
        results as cb_params.metrics and, with "eval_loss", the mean loss, as cb_params.eval_results."""
        if not isinstance(valid_dataset_sink_mode, bool):
            raise TypeError(f"For 'Model.fit', the argument 'valid_dataset_sink_mode' must be bool, but got {type(valid_dataset_sink_mode).__name__}.")
        if isinstance(valid_frequency, bool) or not isinstance(valid_frequency, (int, list)):
            raise TypeError(f"For 'Model.fit', the type of 'valid_frequency' must be a list or an integer, but got type {type(valid_frequency)}.")
        if valid_frequency == 0 or isinstance(valid_frequency, int) and valid_frequency < 0:
            raise ValueError(f"For 'Model.fit', the argument 'valid_frequency' must be positive, but got {valid_frequency}.")
        if valid_dataset is not None and not self._metrics:
            raise ValueError("For 'Model.fit', if valid_dataset is not None, the model argument 'metrics' can not be None or empty, you should set "
                             "the argument 'metrics' for model.")
        evaluations = None if valid_dataset is None else (valid_dataset, valid_frequency)
        self._train(epoch, train_dataset, callbacks, dataset_sink_mode, sink_size, initial_epoch, evaluations)

    def _evaluations(self, evaluations, callbacks, params):
        """tessera's callback that evaluates, and the one that forgets the results when all have seen them."""
        if evaluations is None:
            return [], []
        valid_dataset, frequency = evaluations
        dataset, num_workers = native_dataset(valid_dataset)
        dataset = of_this_many_ranks(dataset, self._rows)
        own = [callback for callback in callbacks
               if not isinstance(callback, (LossMonitor, ModelCheckpoint)) and type(callback) not in (History, LearningRateScheduler)]

        def evaluate():
            training = dict(params)
            losses = Losses()
            params.update(mode="eval", valid_dataset=valid_dataset, batch_num=dataset.get_dataset_size(), cur_step_num=0)
            if self._evaluation is not None:
                results, loss = self._evaluation.run(dataset, num_workers, self._metrics, own, params)
                params.update(training, metrics=results, eval_results=results | ({} if loss is None else {"eval_loss": loss}))
                return
            results = Evaluation(self._metrics, own, params, losses).run(
                lambda observers: self._model().eval(dataset, num_workers, [losses, *observers]))
            params.update(training, metrics=results, eval_results=results | {"eval_loss": losses.mean()})

        return [EvaluatesEpochs(frequency, evaluate)], [ForgetsResults(params)]

    def _train(self, epoch, train_dataset, callbacks, dataset_sink_mode, sink_size, initial_epoch, evaluations=None):
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise TypeError(f"For 'Model.train', the argument 'epoch' must be int, but got {type(epoch).__name__}.")
        if epoch < 1:
            raise ValueError(f"For 'Model.train', the argument 'epoch' must be greater than 0, but got {epoch}.")
        if not isinstance(dataset_sink_mode, bool):
            raise TypeError(f"For 'Model.train', the argument 'dataset_sink_mode' must be bool, but got {type(dataset_sink_mode).__name__}.")
        _check_sink_size("Model.train", sink_size)
        self._check_epoch(epoch, train_dataset)
        _check.integer("Model.train", "initial_epoch", initial_epoch, 0)
        if initial_epoch >= epoch:
            raise ValueError("For 'Model.train', the parameter 'epoch' must bigger than parameter 'initial_epoch', but got the parameter 'epoch' is "
                             f"{epoch}, 'initial_epoch' is {initial_epoch}.")
        join_by_role("Model.train")
        warn_of_training_apart("Model.train")
        dataset, num_workers = native_dataset(train_dataset, self._rows, self._num_stages)
        sinks = dataset_sink_mode and os.environ.get("GRAPH_OP_RUN") != "1"
        params = self._params(mode="train", train_dataset=train_dataset, dataset_sink_mode=sinks, list_callback=_as_list(callbacks))
        self._agree_on_mode()
        trainer = self._trainer(dataset)
        with entered(callbacks) as callbacks:
            callbacks = self._with_those_of_rank_0(callbacks)
            leave_breakpoints = [callback for callback in callbacks if isinstance(callback, ModelCheckpoint) and callback.saves_breakpoints]
            whereabouts = [Whereabouts(initial_epoch)] if leave_breakpoints else []
            try:
                first, last = self._evaluations(evaluations, callbacks, params)
                first = [*([CountsOn(initial_epoch)] if initial_epoch else []), *whereabouts, *first]
                made = self._made(callbacks, params, initial_epoch)
                with self._one_graph(self._step_model is None):
                    trainer.train(epoch - initial_epoch, dataset, [*first, *made, *last], sinks, sink_size if sinks else -1, num_workers)
            except Exception:
                for callback in leave_breakpoints if trainer.step > 0 else []:
                    callback.save_breakpoint(trainer, *whereabouts[0].at(trainer.step))
                raise
        if self._step_model is None:
            self._note_layouts()

    def _made(self, callbacks, params, initial_epoch):
        """tessera's callbacks of a script's."""
        made = []
        for callback in _as_list(callbacks):
            if not isinstance(callback, Callback):
                raise TypeError(f"For 'Model.train', the argument 'callbacks' must be Callback or list of Callback, but got {type(callback).__name__}.")
            if not isinstance(callback, ModelCheckpoint):
                made.append(Adapter(callback, params, initial_epoch))
            else:
                made.append(callback.native if self._step_model is None else callback.of_step(self._network, self._is_shared()))
        return made

    def _trainer(self, dataset):
        """What trains: tessera's model; where there are neither a loss nor an optimizer, what calls the network."""
        if self._step_model is None:
            return self._model(dataset)
        if self._loss_scale_manager is not None:
            raise ValueError("For 'Model', the argument 'optimizer' can not be None when set 'loss_scale_manager': a network that is a training step "
                             "itself has its own scale, as nn.TrainOneStepWithLossScaleCell has")
        if self._precision["amp_level"] != "O0":
            context.warn_once(f"For 'Model', amp_level={self._precision['amp_level']!r} has no effect on a network that is a training step itself: "
                              "build_train_network(network, optimizer, loss_fn, level=...) makes one that computes so")
        return self._step_model

    def _agree_on_mode(self):
        """RuntimeError on all ranks of a job with servers, which train together, where they have other parallel modes."""
        if not tessera.cluster.is_initialized() or tessera.cluster.num_servers() == 0:
            return
        own = self._parallel_mode if context.was_set("parallel_mode") else "no mode"
        modes = tessera.cluster.run_together("cannot compare parallel modes", lambda: own)
        if len(set(modes)) > 1:
            told = ", ".join(f"rank {rank} has {mode}" for rank, mode in enumerate(modes))
            raise RuntimeError(f"For 'Model.train', workers and servers need one parallel_mode, but {told}: call set_auto_parallel_context("
                               "parallel_mode=...) on all of them, without a condition on the role")

    def _is_shared(self):
        """Whether the ranks of the job train together."""
        return self._parallel_mode != ParallelMode.STAND_ALONE and tessera.cluster.size() > 1

    def _with_those_of_rank_0(self, callbacks):
        """The callbacks of this rank. Where rank 0 has ModelCheckpoints and this rank none, with such as take part in its saves, which the ranks make
        together, at the same places. RuntimeError on all ranks where they have other numbers of them."""
        if not self._is_shared():
            return callbacks
        own = [(place, callback) for place, callback in enumerate(callbacks) if isinstance(callback, ModelCheckpoint)]
        told = tessera.cluster.run_together("cannot compare callbacks", lambda: json.dumps([[place, callback.to_text()] for place, callback in own]))
        of_ranks = [json.loads(text) for text in told]
        of_rank_0, counts = of_ranks[0], [len(savers) for savers in of_ranks]
        if len(set(counts)) == 1:
            return callbacks
        if any(count not in (0, counts[0]) for count in counts):
            raise RuntimeError(f"For 'Model.train', the ranks must have as many ModelCheckpoint each, or none where rank 0 has some, but they have {counts}: "
                               "give it to all of them, or to rank 0; a parameter that all ranks have is written once")
        if any(text is None for _, text in of_rank_0):
            raise RuntimeError("For 'Model.train', a ModelCheckpoint of rank 0 has an enc_key, which other ranks are not told: give the callback to all "
                               f"ranks, which have {counts} of them")
        callbacks = list(callbacks)
        for place, text in of_rank_0 if not own else []:
            callbacks.insert(place, ModelCheckpoint.from_text(text))
        return callbacks

    def _params(self, **entries):
        number = 1 if self._parallel_mode == ParallelMode.STAND_ALONE else tessera.cluster.size()
        return _InternalCallbackParam(train_network=self.train_network, network=self._network, eval_network=self.eval_network,
                                      loss_fn=self._loss_fn, optimizer=self._optimizer, device_number=number,
                                      parallel_mode=self._parallel_mode, **entries)

    @_spread
    def eval(self, valid_dataset, callbacks=None, dataset_sink_mode=False):
        """The metrics over the data set, by name. Callbacks see every step, whatever dataset_sink_mode says."""
        _check.boolean("Model.eval", "dataset_sink_mode", dataset_sink_mode)
        if not self._metrics:
            raise ValueError("For Model.eval, the model argument 'metrics' can not be None or empty, you should set the "
                             "argument 'metrics' for model.")
        dataset, num_workers = native_dataset(valid_dataset)
        dataset = of_this_many_ranks(dataset, self._rows)
        params = self._params(mode="eval", valid_dataset=valid_dataset, batch_num=dataset.get_dataset_size(), cur_step_num=0,
                              cur_epoch_num=1, list_callback=_as_list(callbacks))
        if self._evaluation is not None:
            with entered(callbacks) as callbacks:
                return self._evaluation.run(dataset, num_workers, self._metrics, callbacks, params)[0]
        model = self._model()
        with entered(callbacks) as callbacks, self._one_graph():
            return Evaluation(self._metrics, callbacks, params).run(lambda observers: model.eval(dataset, num_workers, observers))

    @_spread
    def predict(self, *predict_data, backend=None, config=None):
        """The network's result. Where full_batch is off in semi-automatic and automatic parallel, each rank gives its rows and gets theirs; in data
        parallel, too, by its own moving statistics. backend and config are None."""
        for name, value in (("backend", backend), ("config", config)):
            _check.only("Model.predict", name, value, (None, ), "predictions are computed as trainings are; export() writes ONNX for other programs")
        for data in predict_data:
            if isinstance(data, (int, float)):
                raise TypeError("For 'Model.predict', the inputs must be tensors: predict(x), without a number of epochs")
        if not self._gives_own_rows():
            with self._one_graph():
                return self._model().predict(*predict_data)
        whole = [tessera.ops.all_gather(tessera.Tensor(data)) if data.ndim else data for data in predict_data]
        result = self._model().predict(*whole)
        size, rank = tessera.cluster.size(), tessera.cluster.rank()
        rows = result.shape[0] // size if result.ndim else 0
        return result[rank * rows:(rank + 1) * rows] if rows and result.shape[0] == whole[0].shape[0] else result

    def _one_graph(self, is_native=True):
        """In data parallel the graph of tessera's model is that of all ranks."""
        return sees_all_rows(is_native and self._parallel_mode == ParallelMode.DATA_PARALLEL)

    def _gives_own_rows(self):
        """Whether what a rank predicts from is its part of the batch."""
        return (self._parallel_mode in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL) and tessera.cluster.size() > 1
                and self._rows is RowsOfRanks.PARTS)

    @_spread
    def build(self, train_dataset=None, valid_dataset=None, sink_size=-1, epoch=1, sink_mode=True):
        """Compiles without running. In semi-automatic parallel the network's parameters then have the shapes of this rank's slices.
        epoch: what train() will be given for this data set; sink_size and sink_mode change nothing of what is compiled."""
        _check_sink_size("Model.build", sink_size)
        _check.boolean("Model.build", "sink_mode", sink_mode)
        if isinstance(train_dataset, int):
            context.warn_once("Model.build(epoch, dataset): the arguments stand in the wrong order; the data set comes first")
            train_dataset, valid_dataset, epoch = valid_dataset, None, train_dataset
        dataset = native_dataset(train_dataset, self._rows, self._num_stages)[0]
        with self._one_graph():
            self._model(dataset).build(dataset, None if valid_dataset is None else native_dataset(valid_dataset)[0])
        self._built_for = (train_dataset, epoch)
        self._note_layouts()

    def _check_epoch(self, epoch, dataset):
        built, built_epoch = self._built_for
        if dataset is built and epoch != built_epoch:
            raise ValueError("when use Model.build to initialize model, the value of parameter 'epoch' in Model.build should be equal to value "
                             f"in Model.train, but got the value of epoch in build {built_epoch} and the value of epoch in train {epoch}.")

    def _note_layouts(self):
        layouts = layout_dict(self._native.layouts)
        if not layouts and self._parallel_mode in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL):
            layouts = whole_layouts(self._network)
        for parameter in tessera.nn.Cell.parameters(self._network):
            parameter.sliced = parameter.name in layouts
        if isinstance(self._network, Cell):
            self._network.__dict__["_parameter_layouts"] = layouts
        return layouts

    def _check_layouts(self, what):
        if context.get_context("mode") != context.GRAPH_MODE:
            raise RuntimeError(f"Model.{what}: parameter layouts are those of a graph: set_context(mode=GRAPH_MODE)")
        if self._parallel_mode not in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL):
            raise RuntimeError(f"Model.{what} only supports semi auto parallel and auto parallel mode, but got {self._parallel_mode}.")

    @_spread
    def infer_train_layout(self, train_dataset, dataset_sink_mode=True, sink_size=-1):
        """Compiles the training step. Returns the network's parameter_layout_dict."""
        self._check_layouts("infer_train_layout")
        if not isinstance(dataset_sink_mode, bool):
            raise TypeError(f"For 'Model.infer_train_layout', the argument 'dataset_sink_mode' must be bool, but got {type(dataset_sink_mode).__name__}.")
        if not dataset_sink_mode:
            raise ValueError("For 'Model.infer_train_layout', the argument 'dataset_sink_mode' must be True.")
        _check_sink_size("Model.infer_train_layout", sink_size)
        dataset = native_dataset(train_dataset, self._rows, self._num_stages)[0]
        self._model(dataset).build(dataset)
        return self._note_layouts()

    @_spread
    def infer_predict_layout(self, *predict_data, skip_backend_compile=False):
        """Compiles the prediction for data like these, as predict() takes them: the network's parameters then have the shapes of this
        rank's slices. Returns its parameter_layout_dict. skip_backend_compile has no effect: what is compiled is what predict() runs."""
        _check.boolean("Model.infer_predict_layout", "skip_backend_compile", skip_backend_compile)
        self._check_layouts("infer_predict_layout")
        for data in predict_data:
            if not isinstance(data, tessera.Tensor):
                raise TypeError(f"For 'Model.infer_predict_layout', the inputs must be Tensor, but got {type(data).__name__}.")
        if self._gives_own_rows():
            predict_data = [tessera.Tensor(np.zeros((data.shape[0] * tessera.cluster.size(), *data.shape[1:]), np.float32)).astype(data.dtype)
                            if data.ndim else data for data in predict_data]
        self._model().build_predict(*predict_data)
        return self._note_layouts()

    def infer_preict_layout(self, *predict_data):
        """infer_predict_layout, as one of the tutorials writes it."""
        context.warn_once("Model.infer_preict_layout is taken for infer_predict_layout")
        return self.infer_predict_layout(*predict_data)

    @property
    def train_network(self):
        """What is trained, a cell: with an optimizer a training step, whose parameters are the network's and the optimizer's states; without one the
        network with its loss."""
        if self._optimizer is None and self._loss_fn is None:
            return self._network
        made = None if self._train_network is None else self._train_network()
        if made is None:
            made = (WithLossCell(self._network, self._loss_fn) if self._optimizer is None else
                    ModelStep(self, self._network, self._loss_fn, self._optimizer, self._parallel_mode, self._states_of_stages()))
            self._train_network = weakref.ref(made)
        return made

    @_spread
    def _train_once(self, inputs):
        """One step on a batch, of which ranks give what they read in train(). Returns the loss, float32 without dims."""
        who = "Model.train_network"
        join_by_role(who)
        warn_of_training_apart(who)
        self._agree_on_mode()
        self._check_something_is_trained()
        if self._native_is_frozen:
            self._native = None
        lacks_factors = self._native is None or self._native_lacks_factors
        if lacks_factors and context.is_literal_gradients_mean(self._parallel_mode):
            raise RuntimeError(f"For '{who}', TESSERA_LITERAL_GRADIENTS_MEAN=1 needs to know how parameters are split: call Model.build(dataset) before")
        batch, rows = self._batch_of_ranks([tessera.Tensor(data) for data in inputs])
        with self._one_graph():
            loss = self._model().train_step(*batch, global_rows=rows)
        self._note_layouts()
        return tessera.Tensor(np.float32(loss))

    def _batch_of_ranks(self, batch):
        """(what tessera's model takes of this rank; the rows of the whole batch, None where that is all of it)."""
        if self._gives_own_rows():
            return [tessera.ops.all_gather(data) if data.ndim else data for data in batch], None
        if self._parallel_mode != ParallelMode.DATA_PARALLEL or tessera.cluster.num_servers() > 0 or not batch or not batch[0].ndim:
            return batch, None
        rows, size, rank = batch[0].shape[0], tessera.cluster.size(), tessera.cluster.rank()
        if self._rows is RowsOfRanks.PARTS:
            return batch, rows * size
        own = slice(rows * rank // size, rows * (rank + 1) // size)
        return [data[own] if data.ndim else data for data in batch], rows

    def _scale_states(self):
        """{name: value} of what a loss scale that changes keeps, as far as it is known."""
        names = () if self._native is None else self._native.names()
        return self._scale_states_to_take | {name: self._native.value(name) for name in _SCALE_STATES if name in names}

    def _take_scale_states(self, found):
        """Of parameters by name."""
        self._scale_states_to_take |= {name: found[name].value() for name in _SCALE_STATES if isinstance(found.get(name), tessera.Parameter)}
        if self._native is not None:
            self._set_scale_states(self._native)

    def _set_scale_states(self, native):
        taken, self._scale_states_to_take = self._scale_states_to_take, {}
        for name, value in taken.items():
            if name in native.names():
                native.set_value(name, value)

    def _layouts_of_network(self):
        """The network's parameter_layout_dict."""
        return self._network.parameter_layout_dict if isinstance(self._network, Cell) else {}

    @property
    def eval_network(self):
        """The network that is evaluated."""
        return self._network if self._evaluation is None else self._evaluation.network

    @property
    def predict_network(self):
        """The network that predicts."""
        return self._network


def _precision_options(**kwargs):
    """tessera's options for Model's keyword arguments."""
    unknown = set(kwargs) - {"loss_scale_manager", "keep_batchnorm_fp32"}
    if unknown:
        raise ValueError(unexpected("For 'Model', the call", min(unknown), ["network", "loss_fn", "optimizer", "metrics", "eval_network", "eval_indexes",
                                                                            "amp_level", "boost_level", "loss_scale_manager", "keep_batchnorm_fp32"]))
    options = {}
    keep, manager = kwargs.get("keep_batchnorm_fp32"), kwargs.get("loss_scale_manager")
    if keep is not None:
        if not isinstance(keep, bool):
            raise TypeError(f"For 'Model', the argument 'keep_batchnorm_fp32' must be bool, but got {type(keep).__name__}.")
        options["keep_batchnorm_fp32"] = keep
    if manager is not None:
        if not isinstance(manager, LossScaleManager):
            raise TypeError(f"For 'Model', the argument 'loss_scale_manager' must be LossScaleManager, but got {type(manager).__name__}.")
        if not hasattr(manager, "native"):
            raise NotImplementedError("For 'Model', loss scale managers of one's own are not available: FixedLossScaleManager and "
                                      "DynamicLossScaleManager are")
        options["loss_scale"] = manager.native()
    return options


def _check_sink_size(who, sink_size):
    if isinstance(sink_size, bool) or not isinstance(sink_size, int) or sink_size < -1 or sink_size == 0:
        raise ValueError(f"For '{who}', The argument 'sink_size' must be equal to -1 or positive, but got {sink_size}.")


def _as_list(callbacks):
    return [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


__getattr__ = missing(__name__)
del missing
