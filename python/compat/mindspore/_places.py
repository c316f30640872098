"""Places: paths of modules inside of the reference's packages, from which scripts import what stands elsewhere here."""
# {modules whose names they have: paths}. A module that is here has the names of others beside its own.
PLACES = {
    "mindspore": """
        mindspore.common mindspore.common._grad_function mindspore.common.dtype mindspore.common.initializer mindspore.context
        mindspore.device_manager mindspore.hal mindspore.hal.contiguous_tensors_handle mindspore.hal.device mindspore.hal.event
        mindspore.hal.memory mindspore.hal.stream mindspore.log mindspore.rewrite mindspore.rewrite.api mindspore.run_check
        mindspore.runtime.device mindspore.runtime.event mindspore.runtime.executor mindspore.runtime.stream mindspore.runtime.thread_bind_core mindspore.safeguard mindspore.tools""",
    "mindspore.common.scripts mindspore": """
        mindspore.common.api mindspore.common.dump mindspore.common.dynamic_shape mindspore.common.dynamic_shape.auto_dynamic_shape
        mindspore.common.dynamic_shape.enable_dynamic mindspore.common.file_system mindspore.common.generator mindspore.common.jit_config
        mindspore.common.lazy_inline mindspore.common.mutable mindspore.common.no_inline mindspore.common.recompute
        mindspore.common.sparse_tensor mindspore.common.symbol mindspore.common.tensor mindspore.graph mindspore.graph.api
        mindspore.graph.jit_config mindspore.graph.lazy_inline mindspore.graph.mutable mindspore.graph.no_inline mindspore.nn.generator
        mindspore.runtime mindspore.runtime.memory""",
    "mindspore.boost": "mindspore.boost mindspore.boost.grad_accumulation",
    "mindspore.common.initializer": "mindspore.common.np_dtype",
    "mindspore.communication.management": "mindspore.communication._comm_helper",
    "mindspore.dataset": """
        mindspore.dataset.callback mindspore.dataset.callback.ds_callback mindspore.dataset.engine mindspore.dataset.engine.cache_client
        mindspore.dataset.engine.datasets mindspore.dataset.engine.datasets_audio mindspore.dataset.engine.datasets_standard_format
        mindspore.dataset.engine.datasets_text mindspore.dataset.engine.datasets_user_defined mindspore.dataset.engine.datasets_vision
        mindspore.dataset.engine.iterators mindspore.dataset.engine.samplers mindspore.dataset.engine.serializer_deserializer
        mindspore.dataset.samplers""",
    "mindspore.dataset.config": "mindspore.dataset.config mindspore.dataset.core mindspore.dataset.core.config",
    "mindspore.dataset.text": "mindspore.dataset.text.transforms mindspore.dataset.text.utils",
    "mindspore.dataset.transforms": """
        mindspore.dataset.transforms.c_transforms mindspore.dataset.transforms.py_transforms mindspore.dataset.transforms.transforms""",
    "mindspore.dataset.vision": """
        mindspore.dataset.transforms.vision mindspore.dataset.transforms.vision.c_transforms
        mindspore.dataset.transforms.vision.py_transforms mindspore.dataset.transforms.vision.utils mindspore.dataset.vision.c_transforms
        mindspore.dataset.vision.py_transforms mindspore.dataset.vision.transforms mindspore.dataset.vision.utils""",
    "mindspore.nn": """
        mindspore.nn.cell mindspore.nn.dynamic_lr mindspore.nn.grad mindspore.nn.grad.cell_grad mindspore.nn.layer
        mindspore.nn.layer.activation mindspore.nn.layer.basic mindspore.nn.layer.channel_shuffle mindspore.nn.layer.combined
        mindspore.nn.layer.container mindspore.nn.layer.conv mindspore.nn.layer.dense mindspore.nn.layer.embedding
        mindspore.nn.layer.flash_attention mindspore.nn.layer.image mindspore.nn.layer.lstm mindspore.nn.layer.math
        mindspore.nn.layer.normalization mindspore.nn.layer.padding mindspore.nn.layer.pooling mindspore.nn.layer.quant
        mindspore.nn.layer.rnn_cells mindspore.nn.layer.rnns mindspore.nn.layer.thor_layer mindspore.nn.layer.timedistributed
        mindspore.nn.layer.transformer mindspore.nn.learning_rate_schedule mindspore.nn.loss mindspore.nn.metrics
        mindspore.nn.optim mindspore.nn.optim.ada_grad mindspore.nn.optim.adadelta mindspore.nn.optim.adafactor mindspore.nn.optim.adam
        mindspore.nn.optim.adamax mindspore.nn.optim.adasum mindspore.nn.optim.asgd mindspore.nn.optim.ftrl mindspore.nn.optim.lamb
        mindspore.nn.optim.lars mindspore.nn.optim.lazyadam mindspore.nn.optim.momentum mindspore.nn.optim.optimizer
        mindspore.nn.optim.proximal_ada_grad mindspore.nn.optim.rmsprop mindspore.nn.optim.rprop mindspore.nn.optim.sgd
        mindspore.nn.optim.tft_wrapper mindspore.nn.optim.thor mindspore.nn.sparse mindspore.nn.sparse.sparse mindspore.nn.utils
        mindspore.nn.wrap mindspore.nn.wrap.cell_wrapper mindspore.nn.wrap.grad_reducer mindspore.nn.wrap.loss_scale""",
    "mindspore.nn.loss mindspore.nn": "mindspore.nn.loss.loss",
    "mindspore.numpy": """
        mindspore.numpy.array_creations mindspore.numpy.array_ops mindspore.numpy.dtypes mindspore.numpy.fft mindspore.numpy.logic_ops
        mindspore.numpy.math_ops mindspore.numpy.utils mindspore.numpy.utils_const""",
    "mindspore.ops.primitive mindspore.ops": """
        mindspore.communication.comm_func mindspore.ops._grad_experimental mindspore.ops._grad_experimental.grad_base
        mindspore.ops._grad_experimental.grad_comm_ops mindspore.ops._primitive_cache mindspore.ops._utils mindspore.ops._utils.utils
        mindspore.ops.auto_generate mindspore.ops.auto_generate.gen_extend_func mindspore.ops.auto_generate.gen_ops_def
        mindspore.ops.auto_generate.gen_ops_prim mindspore.ops.auto_generate.pyboost_inner_prim mindspore.ops.communication
        mindspore.ops.composite mindspore.ops.composite.base mindspore.ops.composite.clip_ops mindspore.ops.composite.math_ops
        mindspore.ops.composite.multitype_ops mindspore.ops.composite.random_ops mindspore.ops.function mindspore.ops.function.array_func
        mindspore.ops.function.clip_func mindspore.ops.function.debug_func mindspore.ops.function.fft_func mindspore.ops.function.grad
        mindspore.ops.function.grad.grad_func mindspore.ops.function.image_func mindspore.ops.function.linalg_func
        mindspore.ops.function.math_func mindspore.ops.function.nn_func mindspore.ops.function.other_func
        mindspore.ops.function.parameter_func mindspore.ops.function.random_func mindspore.ops.function.reshard_func
        mindspore.ops.function.sparse_func mindspore.ops.function.sparse_unary_func mindspore.ops.function.spectral_func
        mindspore.ops.function.vmap_func mindspore.ops.functional mindspore.ops.op_info_register mindspore.ops.operations
        mindspore.ops.operations._grad_ops mindspore.ops.operations._infer_ops mindspore.ops.operations._inner_ops
        mindspore.ops.operations._quant_ops mindspore.ops.operations._rl_inner_ops mindspore.ops.operations._sequence_ops mindspore.ops.operations._thor_ops
        mindspore.ops.operations.array_ops mindspore.ops.operations.comm_ops mindspore.ops.operations.control_ops
        mindspore.ops.operations.custom_ops mindspore.ops.operations.debug_ops mindspore.ops.operations.image_ops
        mindspore.ops.operations.inner_ops mindspore.ops.operations.linalg_ops mindspore.ops.operations.manually_defined
        mindspore.ops.operations.math_ops mindspore.ops.operations.nn_ops mindspore.ops.operations.other_ops
        mindspore.ops.operations.random_ops mindspore.ops.operations.reshard_ops mindspore.ops.operations.sparse_ops
        mindspore.ops.operations.spectral_ops mindspore.ops.primitive mindspore.ops.signature mindspore.ops.vm_impl_registry""",
    "mindspore.parallel": """
        mindspore.parallel._auto_parallel_context mindspore.parallel._cost_model_context mindspore.parallel._parallel_serialization
        mindspore.parallel._ps_context mindspore.parallel._tensor mindspore.parallel.algo_parameter_config mindspore.parallel.auto_parallel
        mindspore.parallel.checkpoint_convert mindspore.parallel.checkpoint_transform mindspore.parallel.distributed
        mindspore.parallel.function mindspore.parallel.parameter_broadcast mindspore.parallel.shard mindspore.parallel.strategy
        mindspore.parallel.transform_safetensors""",
    "mindspore.nn.utils": "mindspore.nn.utils.init",
    "mindspore.parallel.nn mindspore.nn": """
        mindspore.parallel.nn mindspore.parallel.nn.parallel_cell_wrapper mindspore.parallel.nn.parallel_grad_reducer""",
    "mindspore.nn.transformer": "mindspore.parallel._transformer.moe mindspore.parallel.nn.transformer",
    "mindspore.train": """
        mindspore.amp mindspore.train._utils mindspore.train.amp mindspore.train.callback mindspore.train.data_sink
        mindspore.train.dataset_helper mindspore.train.loss_scale_manager mindspore.train.metrics mindspore.train.metrics.accuracy
        mindspore.train.metrics.auc mindspore.train.metrics.bleu_score mindspore.train.metrics.confusion_matrix
        mindspore.train.metrics.cosine_similarity mindspore.train.metrics.dice mindspore.train.metrics.error mindspore.train.metrics.fbeta
        mindspore.train.metrics.hausdorff_distance mindspore.train.metrics.loss mindspore.train.metrics.mean_surface_distance
        mindspore.train.metrics.metric mindspore.train.metrics.occlusion_sensitivity mindspore.train.metrics.perplexity
        mindspore.train.metrics.precision mindspore.train.metrics.recall mindspore.train.metrics.roc
        mindspore.train.metrics.root_mean_square_surface_distance mindspore.train.metrics.topk mindspore.train.model
        mindspore.train.node_strategy_pb2 mindspore.train.serialization mindspore.train.summary mindspore.train.summary.summary_record
        mindspore.train.train_thor mindspore.train.train_thor.convert_utils""",
    "mindspore.train.callback mindspore.train": """
        mindspore.train.callback._backup_and_restore mindspore.train.callback._callback mindspore.train.callback._checkpoint
        mindspore.train.callback._dataset_graph mindspore.train.callback._early_stop mindspore.train.callback._flops_collector
        mindspore.train.callback._history mindspore.train.callback._lambda_callback mindspore.train.callback._landscape
        mindspore.train.callback._loss_monitor mindspore.train.callback._lr_scheduler_callback mindspore.train.callback._on_request_exit
        mindspore.train.callback._reduce_lr_on_plateau mindspore.train.callback._summary_collector mindspore.train.callback._time_monitor
        mindspore.train.callback._train_fault_tolerance""",
}

# Places that mindspore.ops and mindspore.ops.functional have by their own names, too.
ALSO_OF_OPS = """
    mindspore.ops.auto_generate mindspore.ops.auto_generate.gen_extend_func mindspore.ops.auto_generate.gen_ops_def
    mindspore.ops.auto_generate.gen_ops_prim mindspore.ops.auto_generate.pyboost_inner_prim mindspore.ops.operations.array_ops
    mindspore.ops.operations.linalg_ops mindspore.ops.operations.other_ops"""


def whole(path):
    """The modules whose names the place has, the last of them the one that refuses for all."""
    return HOMES.get(path, ())


HOMES = {path: tuple(homes.split()) for homes, paths in PLACES.items() for path in paths.split()}
