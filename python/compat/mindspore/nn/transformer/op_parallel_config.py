"""How a Transformer is spread over ranks."""
import tessera

from mindspore import context
from mindspore._missing import missing


def _positive(who, name, value):
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"For '{who}', the '{name}' must be int, but got {type(value).__name__}.")
    if value < 1:
        raise ValueError(f"For '{who}', the '{name}' must be greater than 0, but got {value}.")
    return value


def _bool(who, name, value):
    if not isinstance(value, bool):
        raise TypeError(f"For '{who}', the '{name}' must be bool, but got {type(value).__name__}.")
    return value


class OpParallelConfig:
    """Rows of the batch into data_parallel parts, heads and inner features into model_parallel parts."""

    def __init__(self, data_parallel=1, model_parallel=1):
        self.data_parallel, self.model_parallel = data_parallel, model_parallel

    @property
    def data_parallel(self):
        return self._data_parallel

    @data_parallel.setter
    def data_parallel(self, value):
        self._data_parallel = _positive(type(self).__name__, "data_parallel", value)

    @property
    def model_parallel(self):
        return self._model_parallel

    @model_parallel.setter
    def model_parallel(self, value):
        self._model_parallel = _positive(type(self).__name__, "model_parallel", value)

    def native(self):
        """tessera's."""
        return tessera.nn.TransformerOpParallelConfig(self.data_parallel, self.model_parallel, getattr(self, "vocab_emb_dp", True))


class EmbeddingOpParallelConfig(OpParallelConfig):
    """The same for an embedding; vocab_emb_dp: its table is whole on each rank, else its rows are split."""

    def __init__(self, data_parallel=1, model_parallel=1, vocab_emb_dp=True):
        super().__init__(data_parallel, model_parallel)
        self.vocab_emb_dp = vocab_emb_dp

    @property
    def vocab_emb_dp(self):
        return self._vocab_emb_dp

    @vocab_emb_dp.setter
    def vocab_emb_dp(self, value):
        self._vocab_emb_dp = _bool(type(self).__name__, "vocab_emb_dp", value)

    @property
    def dp_mp_config(self):
        return OpParallelConfig(self.data_parallel, self.model_parallel)


class TransformerRecomputeConfig:
    """Whether the layers are recomputed, and what with them: see Cell.recompute."""

    def __init__(self, recompute=False, parallel_optimizer_comm_recompute=False, mp_comm_recompute=True, recompute_slice_activation=False):
        who = "TransformerRecomputeConfig"
        self.recompute = _bool(who, "recompute", recompute)
        self.parallel_optimizer_comm_recompute = _bool(who, "parallel_optimizer_comm_recompute", parallel_optimizer_comm_recompute)
        self.mp_comm_recompute = _bool(who, "mp_comm_recompute", mp_comm_recompute)
        self.recompute_slice_activation = _bool(who, "recompute_slice_activation", recompute_slice_activation)


class TransformerOpParallelConfig(EmbeddingOpParallelConfig):
    """How a Transformer is spread over ranks.

    An optimizer_shard that is given sets enable_parallel_optimizer of the context, a pipeline_stage that is given its
    pipeline_stages; what is left out changes nothing there."""

    def __init__(self, data_parallel=1, model_parallel=1, expert_parallel=1, pipeline_stage=None, micro_batch_num=1, recompute=None,
                 optimizer_shard=None, gradient_aggregation_group=4, vocab_emb_dp=True):
        super().__init__(data_parallel, model_parallel, vocab_emb_dp)
        who = "TransformerOpParallelConfig"
        if _positive(who, "expert_parallel", expert_parallel) > 1:
            raise NotImplementedError(f"For '{who}', expert_parallel={expert_parallel} is not available: there are no experts")
        self.expert_parallel = expert_parallel
        self.recompute = TransformerRecomputeConfig() if recompute is None else recompute
        self.micro_batch_num = _positive(who, "micro_batch_num", micro_batch_num)
        self.gradient_aggregation_group = _positive(who, "gradient_aggregation_group", gradient_aggregation_group)
        self._pipeline_stage, self._optimizer_shard = 1, False
        if pipeline_stage is not None:
            self.pipeline_stage = pipeline_stage
        if optimizer_shard is not None:
            self.optimizer_shard = optimizer_shard

    @property
    def recompute(self):
        return self._recompute

    @recompute.setter
    def recompute(self, value):
        if not isinstance(value, (TransformerRecomputeConfig, bool)):
            raise TypeError(f"For 'TransformerOpParallelConfig', the 'recompute' must be a TransformerRecomputeConfig, but got {type(value).__name__}.")
        self._recompute = TransformerRecomputeConfig(value) if isinstance(value, bool) else value

    @property
    def optimizer_shard(self):
        return self._optimizer_shard

    @optimizer_shard.setter
    def optimizer_shard(self, value):
        self._optimizer_shard = _bool("TransformerOpParallelConfig", "optimizer_shard", value)
        context.set_auto_parallel_context(enable_parallel_optimizer=value)

    @property
    def pipeline_stage(self):
        return self._pipeline_stage

    @pipeline_stage.setter
    def pipeline_stage(self, value):
        self._pipeline_stage = _positive("TransformerOpParallelConfig", "pipeline_stage", value)
        context.set_auto_parallel_context(pipeline_stages=value)

    @property
    def embedding_dp_mp_config(self):
        return EmbeddingOpParallelConfig(self.data_parallel, self.model_parallel, self.vocab_emb_dp)

    @property
    def moe_parallel_config(self):
        return OpParallelConfig(self.data_parallel, self.model_parallel)


default_transformer_config = TransformerOpParallelConfig()
default_transformer_recompute_config = TransformerRecomputeConfig()
default_dpmp_config = OpParallelConfig()
default_embedding_parallel_config = EmbeddingOpParallelConfig()

__getattr__ = missing(__name__)
del missing
