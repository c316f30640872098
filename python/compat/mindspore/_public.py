"""What `from mindspore.nn import *` gives, of each public module."""
import sys
import types

MODULES = ("mindspore", "mindspore.amp", "mindspore.common", "mindspore.common.dtype", "mindspore.common.initializer", "mindspore.communication",
           "mindspore.communication.management", "mindspore.dataset", "mindspore.dataset.text", "mindspore.dataset.transforms", "mindspore.dataset.transforms.c_transforms",
           "mindspore.dataset.vision", "mindspore.dataset.vision.c_transforms", "mindspore.nn", "mindspore.nn.layer", "mindspore.nn.loss",
           "mindspore.nn.metrics", "mindspore.nn.optim",
           "mindspore.nn.transformer", "mindspore.nn.wrap", "mindspore.numpy", "mindspore.ops", "mindspore.ops.composite",
           "mindspore.ops.functional", "mindspore.ops.operations", "mindspore.parallel", "mindspore.train", "mindspore.train.callback",
           "mindspore.train.serialization", "mindspore.utils", "mindspore.utils.dlpack")

# What the reference's modules give beyond what the ones here define: what stands elsewhere, and what is refused, which says so where it is used.
ELSEWHERE = {
    "mindspore.boost": """
        AdaSum AutoBoost BoostTrainOneStepCell BoostTrainOneStepWithLossScaleCell DimReduce FreezeOpt GradientAccumulation GradientFreeze
        GroupLossScaleManager LessBN OptimizerProcess ParameterProcess freeze_cell""",
    "mindspore.common": """
        COOTensor CSRTensor DeviceCtx Generator Int QuantDtype RowTensor SparseTensor Symbol TensorType Type UntypedStorage cdouble cfloat
        complex128 complex64 default_generator dtype_to_nptype dtype_to_pytype enable_dynamic float8_e4m3fn float8_e5m2 flops_collection from_numpy
        get_py_obj_dtype get_rng_state hifloat8 initial_seed is_tensor jit_class lazy_inline list_ load_mindir long manual_seed mindio_preload
        ms_memory_recycle mutable no_inline pytype_to_dtype qint4x2 register_saved_tensors_hooks save_mindir saved_tensors_hooks set_dump
        set_mindio_server_info set_recursion_limit set_rng_state string swap_tensors tensor tensor_type tuple_ type_none""",
    "mindspore.common.dtype": """
        Int QuantDtype TensorType Type cdouble cfloat complex128 complex64 dtype_to_pytype float8_e4m3fn float8_e5m2 get_py_obj_dtype hifloat8 list_
        long qint4x2 string tensor_type tuple_ type_none""",
    "mindspore.context": """
        COMPATIBLE GRAPH_MODE LAX PYNATIVE_MODE ParallelMode STRICT get_auto_parallel_context get_context get_ps_context reset_auto_parallel_context
        set_auto_parallel_context set_context set_ps_context""",
    "mindspore.log": "get_level get_log_config",
    "mindspore.nn.layer": """
        AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool1dExt
        AvgPool2dExt AvgPool3d AvgPool3dExt BatchNorm1d BatchNorm3d BiDense CELU CellDict CellList CentralCrop ChannelShuffle ConstantPad1d
        ConstantPad2d ConstantPad3d Conv1d Conv1dTranspose Conv2dBnAct Conv2dThor Conv2dTranspose Conv3d Conv3dTranspose CosineSimilarity DenseBnAct
        DenseThor DiGamma Dropout1d Dropout2d Dropout2dExt Dropout3d DropoutExt EmbeddingExt EmbeddingLookupThor EmbeddingThor FastGelu
        FractionalMaxPool2d FractionalMaxPool3d GLU GRU GRUCell GroupNorm HShrink Hardtanh IGamma ImageGradients InstanceNorm1d InstanceNorm2d
        InstanceNorm3d L1Regularizer LBeta LGamma LPPool1d LPPool2d LRN LSTM LSTMCell LayerNormExt Linear LogSoftmaxExt MSSSIM MatDet MatInverse
        MatMul MatrixDiag MatrixDiagPart MatrixSetDiag MaxPool1d MaxPool2dExt MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Moments
        MultiFieldEmbeddingLookup MultiheadAttention Norm OneHot PReLU PReLUExt PSNR Pad PixelShuffle PixelUnshuffle RNN RNNCell RReLU Range
        ReduceLogSumExp ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d Roll SSIM SeLU
        SequentialCell SoftShrink Softmax2d Softmin SyncBatchNorm Tanhshrink Threshold TimeDistributed Transformer TransformerDecoder
        TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer Tril Triu Unflatten Unfold Upsample ZeroPad2d""",
    "mindspore.nn.loss": """
        CTCLoss CosineEmbeddingLoss CrossEntropyLoss DiceLoss FocalLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1LossExt
        MarginRankingLoss MultiClassDiceLoss MultiLabelSoftMarginLoss MultiMarginLoss MultilabelMarginLoss NLLLoss PoissonNLLLoss SampledSoftmaxLoss
        SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss""",
    "mindspore.nn.metrics": """
        BleuScore ConfusionMatrix ConfusionMatrixMetric CosineSimilarity Dice F1 Fbeta HausdorffDistance MeanSurfaceDistance OcclusionSensitivity
        Perplexity Precision ROC Recall RootMeanSquareDistance auc get_metric_fn get_metrics names""",
    "mindspore.nn.optim": """
        ASGD AdaFactor AdaMax AdaSumByDeltaWeightWrapCell AdaSumByGradWrapCell Adadelta Adagrad AdamOffload FTRL LARS OptTFTWrapper ProximalAdagrad
        RMSProp Rprop thor""",
    "mindspore.runtime": """
        Event MemPool PluggableAllocator Stream StreamCtx StreamLimitCtx communication_stream current_stream default_stream dispatch_threads_num
        empty_cache get_device_limit get_stream_limit launch_blocking max_memory_allocated max_memory_reserved memory_allocated memory_replay
        memory_reserved memory_stats memory_summary reset_max_memory_allocated reset_max_memory_reserved reset_peak_memory_stats reset_stream_limit
        set_cpu_affinity set_cur_stream set_device_limit set_kernel_launch_capture set_kernel_launch_group set_memory set_stream_limit synchronize
        use_mem_pool""",
    "mindspore.train.callback": """
        BackupAndRestore EarlyStopping FlopsUtilizationCollector History LambdaCallback LearningRateScheduler OnRequestExit ReduceLROnPlateau
        SummaryCollector SummaryLandscape TrainFaultTolerance""",
}

# What modules of the package share, and constants that a script may call its own variables by.
_OWN = {"PendingTensor", "to_native", "e", "inf", "nan", "pi"}


# Modules of which nothing else is public.
_ONLY_ELSEWHERE = ("mindspore.boost", "mindspore.context", "mindspore.log", "mindspore.runtime")


def _elsewhere(name):
    """What a module gives that it does not define: of mindspore.ops, too, classes and functions are public in modules of their own."""
    if name not in ("mindspore.ops.operations", "mindspore.ops.functional"):
        return ELSEWHERE.get(name, "").split()
    return [own for own, item in vars(sys.modules["mindspore.ops"]).items() if not own.startswith("_") and own not in _OWN and callable(item)
            and isinstance(item, type) == (name == "mindspore.ops.operations")]


def publish():
    """Gives each module its `__all__`: what it has, but for modules and what begins with an underscore, and what it gives of others."""
    for name in MODULES:
        module = sys.modules[name]
        module.__all__ = sorted({own for own, item in vars(module).items()
                                 if not own.startswith("_") and own not in _OWN and not isinstance(item, types.ModuleType)} | set(_elsewhere(name)))
    for name in _ONLY_ELSEWHERE:
        sys.modules[name].__all__ = ELSEWHERE[name].split()
