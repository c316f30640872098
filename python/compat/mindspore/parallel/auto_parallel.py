"""AutoParallel: a network, a training step or a function that says by itself how it is spread over the ranks, in place of the context."""
import os

import tessera
from tessera._branches import traced

from mindspore import context
from mindspore._join import join_job
from mindspore._missing import missing
from mindspore._parallel_options import agree_on_values
from mindspore.common.api import _Function
from mindspore.nn.cell import Cell

_MODES = {
    "semi_auto": {"parallel_mode": context.ParallelMode.SEMI_AUTO_PARALLEL},
    "sharding_propagation": {"parallel_mode": context.ParallelMode.AUTO_PARALLEL, "search_mode": "sharding_propagation"},
    "recursive_programming": {"parallel_mode": context.ParallelMode.AUTO_PARALLEL, "search_mode": "recursive_programming"},
}
_SCHEDULERS = ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")
_NORMS = "a Callback sees the parameters of each step, and ops.norm computes their norms; leave the call out"


def _refuse(method, instead):
    raise NotImplementedError(f"For 'AutoParallel.{method}', norms of gradients on each device are not available: {instead}.")


def _path(method, path):
    if not isinstance(path, str):
        raise TypeError(f"For 'AutoParallel.{method}', the argument 'file_path' must be str, but got the type {type(path).__name__}.")
    return path


def _is_sharded(cell):
    """Whether Cell.shard() was told something of a cell here or below: what has no strategy then follows its neighbours."""
    return "_around_construct" in cell.__dict__ or any(_is_sharded(child) for _, child in cell.children())


class AutoParallel(Cell):
    """A cell or function that is spread over the ranks as its methods say, whatever set_auto_parallel_context() says.

    network: the outermost cell or function: what a Model is given with a loss and an optimizer, or a training step, or a function that asks for
    gradients, as ops.value_and_grad() makes one. parallel_mode: "semi_auto", operators are split as they say and others by the batch;
    "sharding_propagation", operators that say nothing follow their neighbours; "recursive_programming", a search decides. A Model heeds what was
    told before it is made. Parameters are called as without it. Raises TypeError for a network that is neither, ValueError for another mode."""

    _is_always_traced = True

    def __init__(self, network, parallel_mode="semi_auto"):
        super().__init__(auto_prefix=False)
        if not isinstance(network, tessera.nn.Cell) and not callable(network):
            raise TypeError(f"For 'AutoParallel', the argument 'network' must be a Cell or a function, but got {type(network).__name__}.")
        if parallel_mode not in _MODES:
            raise ValueError(f"the argument 'parallel_mode' must be one of {list(_MODES)}, but got the value : {parallel_mode} .")
        self.network = network
        own = self.__dict__
        own["_settings"] = {**_MODES[parallel_mode], "enable_alltoall": True}
        own["_has_model"] = own["_has_agreed"] = False
        own["_traced"] = network if isinstance(network, tessera.nn.Cell) else traced(network)
        own["_whole"] = _Function(lambda *inputs, **kwargs: Cell._call(self, *inputs, **kwargs))

    def _tell(self, method, **settings):
        if self._has_model:
            context.warn_once(f"For 'AutoParallel.{method}', a Model was made of this network before: it goes on as it is; call {method} before Model()")
        self._settings.update(settings)
        tessera.nn.retrace()

    def settings(self):
        """What set_auto_parallel_context() would be given: {key: value}."""
        is_sharded = isinstance(self.network, tessera.nn.Cell) and _is_sharded(self.network)
        return self._settings | ({"sharding_propagation": True} if is_sharded else {})

    def of_model(self):
        """The network and the settings, for a Model."""
        if not isinstance(self.network, tessera.nn.Cell):
            raise TypeError(f"For 'Model', the argument 'network' must be Cell, but got an AutoParallel of a {type(self.network).__name__}: call it for each batch.")
        self.__dict__["_has_model"] = True
        return self.network, self.settings()

    @property
    def parameter_layout_dict(self):
        """That of the network."""
        return getattr(self.network, "parameter_layout_dict", {})

    def infer_param_pipeline_stage(self):
        """That of the network, by the stages that pipeline() says."""
        with context.spread_as(self.settings()):
            return self.network.infer_param_pipeline_stage()

    def _call(self, *inputs, **kwargs):
        if tessera.nn.is_tracing():
            return super()._call(*inputs, **kwargs)
        with context.spread_as(self.settings()):
            self._agree()
            return self._whole(*inputs, **kwargs)

    def _agree(self):
        if self._has_agreed or not isinstance(self.network, tessera.nn.Cell):
            return
        self.__dict__["_has_agreed"] = True
        join_job()
        if tessera.cluster.size() > 1:
            agree_on_values(self._settings["parallel_mode"], self.network)

    def construct(self, *inputs, **kwargs):
        """What the network computes."""
        return self._traced(*inputs, **kwargs)

    def dataset_strategy(self, config):
        """How the inputs lie: "data_parallel", each rank gives its rows; "full_batch", all give the whole batch; or a tuple with a tuple of counts or a
        Layout for each, all give the whole batch. Raises TypeError for another type, ValueError for another word."""
        if config is None:
            raise ValueError("dataset_strategy is none in config!")
        context.check_dataset_strategy(config, "AutoParallel.dataset_strategy", "config")
        self._tell("dataset_strategy", dataset_strategy=config, full_batch=config == "full_batch")

    def hsdp(self, shard_size=-1, threshold=64, optimizer_level="level1"):
        """Replicas share parameters and states, each holds and updates a part: groups of shard_size of them, -1: all; of parameters of at least
        threshold KiB. optimizer_level changes no result: gradients are shared, too, as by "level2". Raises ValueError for other values."""
        if isinstance(shard_size, bool) or not isinstance(shard_size, int) or shard_size <= 0 and shard_size != -1:
            raise ValueError(f"shard_size must be a positive integer or -1, but got {shard_size}.")
        if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 0:
            raise ValueError(f"threshold must be a positive integer or 0, but got {threshold}.")
        if optimizer_level not in ("level1", "level2", "level3"):
            raise ValueError(f"Optimizer level should in ['level1', 'level2', 'level3'], but got {optimizer_level}")
        config = {"parallel_optimizer_threshold": threshold, "optimizer_level": optimizer_level}
        if shard_size != -1:
            config["optimizer_weight_shard_size"] = shard_size
        self._tell("hsdp", enable_parallel_optimizer=True, parallel_optimizer_config=config)

    def pipeline(self, stages=1, output_broadcast=False, interleave=False, scheduler="1f1b"):
        """The ranks form so many stages, of a Model of a Pipeline. interleave: a rank has several pieces of the network. scheduler: "1f1b", "gpipe" or
        "zero_bubble_v". Raises TypeError for another type, ValueError for a number that is not positive and a scheduler that there is not,
        NotImplementedError for output_broadcast=True and other schedulers."""
        for name, value, kind in (("stages", stages, int), ("output_broadcast", output_broadcast, bool), ("interleave", interleave, bool),
                                  ("scheduler", scheduler, str)):
            if not isinstance(value, kind) or kind is int and isinstance(value, bool):
                raise TypeError(f"For 'AutoParallel.pipeline', the argument '{name}' must be {kind.__name__} type, but got the type : {type(value)}.")
        if stages <= 0:
            raise ValueError(f"For 'AutoParallel.pipeline', the argument 'stages' must be larger than zero, but got value: {stages}.")
        if scheduler not in _SCHEDULERS:
            raise ValueError(f"For 'AutoParallel.pipeline', the argument 'scheduler' must be one of {list(_SCHEDULERS)}, but got the value : {scheduler}.")
        if output_broadcast:
            raise NotImplementedError("For 'AutoParallel.pipeline', output_broadcast=True is not available: Model.predict gives each rank the result that it "
                                      "computes, and tessera.ops.broadcast sends it to the others.")
        if scheduler.startswith("seq"):
            raise NotImplementedError(f"For 'AutoParallel.pipeline', scheduler=\"{scheduler}\" is not available: \"1f1b\", \"gpipe\" and \"zero_bubble_v\" are, "
                                      "and give the same numbers.")
        self._tell("pipeline", pipeline_stages=stages)
        if stages > 1:
            self._settings["pipeline_config"] = {"pipeline_interleave": interleave, "pipeline_scheduler": scheduler}

    def get_pipeline_stages(self):
        """The number of stages."""
        return self._settings.get("pipeline_stages", 1)

    def comm_fusion(self, config):
        """Has no effect, which a warning says when training begins: what travels together follows from the measured links. Raises TypeError unless config
        is a dict or None, and KeyError, TypeError or ValueError for what it may not hold."""
        if config is not None:
            context.check_comm_fusion(config)
        self._tell("comm_fusion", comm_fusion=config)

    def load_param_strategy_file(self, file_path):
        """Operators and parameters are split as save_param_strategy_file() of another run wrote. Raises TypeError unless file_path is a str."""
        self._tell("load_param_strategy_file", strategy_ckpt_load_file=_path("load_param_strategy_file", file_path))

    def save_param_strategy_file(self, file_path):
        """Writes there how operators and parameters are split, once that is known. Raises TypeError unless file_path is a str."""
        self._tell("save_param_strategy_file", strategy_ckpt_save_file=_path("save_param_strategy_file", file_path))

    def disable_strategy_file_only_for_trainable_params(self):
        """What is done in any case: the file has parameters that training leaves alone, too."""

    def save_operator_strategy_file(self, file_path):
        """Refused. Raises TypeError unless file_path is a str, KeyError unless it is an absolute path of a .json, else NotImplementedError."""
        self._refuse_operator_file("save", file_path)

    def load_operator_strategy_file(self, file_path):
        """Refused. Raises TypeError unless file_path is a str, KeyError unless it is an absolute path of a .json, else NotImplementedError."""
        self._refuse_operator_file("load", file_path)

    @staticmethod
    def _refuse_operator_file(verb, path):
        if not os.path.isabs(_path(f"{verb}_operator_strategy_file", path)):
            raise KeyError("the argument 'file_path' must be an absolute path.")
        if os.path.splitext(path)[1] != ".json":
            raise KeyError("File type must be .json")
        raise NotImplementedError(f"For 'AutoParallel.{verb}_operator_strategy_file', operators' strategies as JSON are not available: "
                                  f"{verb}_param_strategy_file(file_path) {verb}s the strategies of operators, too.")

    def set_group_ckpt_save_file(self, file_path):
        """Writes there which ranks have what this rank has, once that is known. Raises TypeError unless file_path is a str."""
        self._tell("set_group_ckpt_save_file", group_ckpt_save_file=_path("set_group_ckpt_save_file", file_path))

    def enable_fp32_communication(self):
        """What is done in any case: a sum of which each rank has a part is float32 until it is whole."""

    def disable_gradient_fp32_sync(self):
        """Has no effect, which a warning says when training begins: gradients are summed in float32."""
        self._tell("disable_gradient_fp32_sync", gradient_fp32_sync=False)

    def enable_gradients_mean(self):
        """gradients_mean=True of the context, with what that has of effect and warnings."""
        self._tell("enable_gradients_mean", gradients_mean=True)

    def disable_loss_repeated_mean(self):
        """loss_repeated_mean=False of the context, with what that has of effect and warnings."""
        self._tell("disable_loss_repeated_mean", loss_repeated_mean=False)

    def no_init_parameters_in_compile(self):
        """What is done in any case: a parameter gets its value where it is first used."""

    def print_local_norm(self):
        """Refused. Raises NotImplementedError."""
        _refuse("print_local_norm", _NORMS)

    def dump_local_norm(self, file_path):
        """Refused. Raises TypeError unless file_path is a str, else NotImplementedError."""
        _path("dump_local_norm", file_path)
        _refuse("dump_local_norm", _NORMS)

    def enable_device_local_norm(self):
        """Refused. Raises NotImplementedError."""
        _refuse("enable_device_local_norm", _NORMS)

    def transformer_opt(self, file_path):
        """Has no effect, which a warning says: the file, None for none, holds settings of the reference's compiler, which change no result. Raises
        ValueError where there is no such file."""
        if file_path is None or file_path == "":
            return
        if not os.path.exists(_path("transformer_opt", file_path)):
            raise ValueError(f"For 'AutoParallel.transformer_opt', the path to parallel_speed_up_json: {file_path} does not exist.")
        context.warn_once("AutoParallel.transformer_opt has no effect: it holds settings of the reference's compiler, and ranks communicate while they compute")


__getattr__ = missing(__name__)
del missing
