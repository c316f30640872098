"""Names of the API that this package refuses, and what to use instead: {module: {remedy: names}}."""
from mindspore import _places as places

_BARRIER = "import tessera and call tessera.cluster.barrier(), or barrier(group), which waits until every rank is there"
_LANDSCAPE = "change the parameters by set_data() in a loop of your own, ask Model.eval for the loss at each place, and draw the losses by matplotlib"
_REQUEST_EXIT = ("SIGTERM ends a training that has a ModelCheckpoint behind the step that it is in, which is saved (docs/environment.md); for another sign derive from "
                 "mindspore.Callback and call run_context.request_stop()")
_SUMMARY = ("what a network computes beside its loss reaches a Callback where a step that is a cell gives it, Model(TrainOneStepCell(...)): cb_params.net_outputs in "
            "on_train_step_end, for SummaryRecord.add_value('scalar', 'image' or 'histogram', name, value); docs/watching.md says what else is written")
_TIMELINE = "tessera run --trace FILE records a timeline of the steps of all ranks: docs/timeline.md"
_UTILIZATION = ("tessera run --trace FILE records a timeline, and tessera report shows the GFLOP/s of each class of operators beside the machine's limit: "
                "docs/reports.md")
REFUSED = {
    "mindspore.common.api": {
        "Model.build(dataset) compiles a training step and Model.infer_predict_layout(*inputs) a network; the network then has its parameter_layout_dict, and "
        "set_auto_parallel_context(strategy_ckpt_save_file=...) writes the strategies":
            "_CellGraphExecutor _cell_graph_executor",
    },
    "mindspore": {
        "Model.train and nn.TrainOneStepCell train; dataset_sink_mode is accepted by Model.train":
            "data_sink",
        "Primitive.shard and shard() say how an operator, a cell or a function is split":
            "set_op_strategy_config",
        "all memory is the host's: context.set_context(max_device_memory=...) limits it, docs/memory.md says what takes it":
            "MemPool PluggableAllocator UntypedStorage empty_cache get_device_limit max_memory_allocated max_memory_reserved "
            "memory_allocated memory_replay memory_reserved memory_stats memory_summary ms_memory_recycle "
            "reset_max_memory_allocated reset_max_memory_reserved reset_peak_memory_stats set_device_limit swap_tensors",
        "all ranks have the values of rank 0 when training begins":
            "parameter_broadcast sync_pipeline_shared_parameters",
        "a size is a number: a network is compiled for each shape that its inputs have, as they come, and set_inputs() needs no sizes":
            "Symbol",
        "call recompute() of a cell":
            "recompute",
        "change the network's Python code, or replace its cells by setattr":
            "Node ScopedValue SymbolTree clear_op_infer clear_op_wrapper register_custom_backend register_custom_pass "
            "register_op_infer register_op_wrapper",
        "complex numbers are not available: keep the real and the imaginary part in two tensors, or transform with numpy.fft "
        "before the network":
            "cdouble cfloat complex128 complex64",
        "compute what the hook would see in construct(), and return it":
            "register_saved_tensors_hooks saved_tensors_hooks",
        "derive from mindspore.Callback: its methods see cb_params, and run_context.request_stop() ends the training":
            "TrainFaultTolerance",
        _REQUEST_EXIT:
            "OnRequestExit",
        _LANDSCAPE:
            "SummaryLandscape",
        _UTILIZATION:
            "FlopsUtilizationCollector flops_collection",
        "gradients are made where training, ops.grad or ops.GradOperation asks for them":
            "_Function _no_grad _pynative_executor",
        "it is not needed: see docs/compatibility.md":
            "_TensorMeta long use_mem_pool",
        "it sets nothing here: a network is compiled for each shape of its inputs":
            "COMPATIBLE DeviceCtx LAX STRICT enable_dynamic frombuffer _LogActionOnce parse_vlog_level "
            "set_cpu_affinity vlog_print",
        "make the network and its optimizer in Python":
            "ConvertModelUtils ConvertNetUtils",
        "save_checkpoint writes the parameters, and load_checkpoint reads them into a network that a script makes":
            "export_split_mindir load load_mindir mindio_preload save_mindir",
        "save_checkpoint(enc_key=...) encrypts what it writes":
            "load_obf_params_into_net obfuscate_ckpt",
        "set_seed and get_seed hold the seed":
            "Generator default_generator get_rng_state seed set_rng_state",
        "sparse tensors are not available: use a dense tensor and a mask, or ops.gather and ops.tensor_scatter_add with indices":
            "COOTensor CSRTensor RowTensor RowTensorInner SparseTensor",
        "there are no streams: operators run in the order of the graph, communication beside them":
            "CtxBase Event Stream StreamCtx StreamLimitCtx communication_stream current_stream default_stream dispatch_threads_num "
            "get_stream_limit launch_blocking reset_stream_limit set_cur_stream set_kernel_launch_capture set_kernel_launch_group "
            "set_stream_limit",
        "use save_checkpoint and load_checkpoint, load_distributed_checkpoint and transform_checkpoints":
            "FileSystem async_ckpt_thread_status ckpt_to_safetensors convert_checkpoint_by_rank convert_checkpoints "
            "get_ckpt_path_with_strategy load_checkpoint_async load_segmented_checkpoints safetensors_to_ckpt "
            "set_mindio_server_info unified_safetensors",
        "use the dtypes of mindspore.dtype":
            "CustomPassType Int NodeType QuantDtype TensorType Type ValueType dtype_to_pytype float8_e4m3fn float8_e5m2 "
            "get_py_obj_dtype hifloat8 list_ qint4x2 all_types rank_list_for_convert string tensor_type tuple_ type_none",
        "write what a Callback sees, for example cb_params.net_outputs in on_train_step_end":
            "set_dump",
        _TIMELINE:
            "Profiler",
    },
    "mindspore.nn": {
        "Model.train feeds the network":
            "GetNextSingleOp",
        "compose it of ops' functions in a cell derived from nn.LossBase":
            "FocalLoss L1LossExt MultiClassDiceLoss MultiLabelSoftMarginLoss MultiMarginLoss MultilabelMarginLoss "
            "SampledSoftmaxLoss TripletMarginWithDistanceLoss",
        "compose it of ops' functions in a cell's construct()":
            "RNNCellBase BiDense Conv2dThor DenseThor EmbeddingLookupThor EmbeddingThor LPPool1d LPPool2d LRN TimeDistributed",
        "compute it with SciPy on asnumpy(), outside of the network":
            "DiGamma IGamma LBeta LGamma",
        "make the network in Python and load its parameters with load_checkpoint":
            "GraphCell",
        "matrix decompositions are not available: compute them with numpy.linalg on asnumpy(), outside of the network":
            "MatDet MatInverse MatrixDiag MatrixDiagPart MatrixSetDiag",
        "nn.PipelineCell and nn.MicroBatchInterleaved take a batch in pieces; ranks reduce gradients by nn.DistributedGradReducer":
            "AllreduceGraph _MicroBatch",
        "override construct(): it sees what the cell holds":
            "register_cell_buffer_registration_hook",
        "prepare images in the data set: dataset.vision, or a function given to map()":
            "CentralCrop ImageGradients MSSSIM PSNR SSIM",
        "sparse tensors are not available: use a dense tensor and a mask, or ops.gather and ops.tensor_scatter_add with indices":
            "SparseTensorDenseMatmul SparseToDense",
        "use nn.Adam, nn.AdamWeightDecay, nn.Lamb, nn.Adagrad, nn.RMSProp or nn.Momentum":
            "AdaFactor AdaSumByDeltaWeightWrapCell AdaSumByGradWrapCell AdamOffload LARS OptTFTWrapper "
            "ProximalAdagrad ThorAscend ThorGpu thor",
        "use nn.Dense":
            "Linear",
        "use nn.Dropout":
            "Dropout2dExt DropoutExt RReLU",
        "use nn.Embedding":
            "EmbeddingExt MultiFieldEmbeddingLookup",
        "use nn.SequentialCell of the layer, its normalization and its activation":
            "Conv2dBnAct DenseBnAct",
        "use ops.grad, ops.value_and_grad or ops.GradOperation(sens_param=True), which give the product of a vector with the "
        "Jacobian":
            "ForwardValueAndGrad Jvp Vjp",
        "use ops.max_pool2d for the values; places of windows are not available":
            "FractionalMaxPool2d",
        "use ops.repeat_interleave or ops.tensor_scatter_elements with places of your own":
            "MaxUnpool1d MaxUnpool2d",
        "use the layer without Ext in its name":
            "AvgPool1dExt AvgPool2dExt LayerNormExt LogSoftmaxExt MaxPool2dExt PReLUExt",
        "volumes are not available: use the operator of two dims on slices of one dim":
            "AdaptiveAvgPool3d AdaptiveMaxPool3d AvgPool3dExt FractionalMaxPool3d MaxUnpool3d",
    },
    "mindspore.mint.distributed": {_BARRIER: "barrier"},
    "mindspore.mint.distributed.distributed": {_BARRIER: "barrier"},
    "mindspore.ops": {
        "Python's if and for are traced in construct(): see docs/python.md":
            "ForiLoop GeSwitch Merge Scan WhileLoop cond geswitch merge recompute_block switch switch_layer",
        "use ops.ctc_loss or nn.CTCLoss; decode with NumPy on asnumpy(), outside of the network":
            "CTCGreedyDecoder CTCLoss CTCLossV2 EditDistance ctc_greedy_decoder",
        "bits of integers are not available: use ops.floor_divide and ops.floor_mod by powers of 2":
            "BitwiseAnd BitwiseOr BitwiseXor CompareAndBitpack Invert LeftShift PopulationCount RightShift bitwise_and "
            "bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor invert population_count",
        _BARRIER:
            "Barrier barrier",
        "collectives are ops.AllReduce, ops.AllGather, ops.ReduceScatter, ops.Broadcast, ops.AlltoAll, ops.NeighborExchange, "
        "ops.Send and ops.Receive; groups are made by communication.create_group":
            "AllGatherV AlltoAllV AlltoAllVC BatchISendIRecv CollectiveGather NeighborExchangeV2 P2POp Pull Push Reduce "
            "Reshard TCPStore all_gather all_gather_into_tensor all_gather_into_tensor_uneven all_gather_matmul all_gather_object "
            "all_reduce all_to_all all_to_all_single all_to_all_v_c batch_isend_irecv broadcast broadcast_object_list "
            "destroy_process_group distribute gather_into_tensor gather_object get_backend get_global_rank get_group_rank "
            "get_process_group_ranks get_rank get_world_size init_process_group irecv is_available is_initialized isend new_group "
            "recv recv_object_list reduce send send_object_list set_comm_ops_inplace",
        "complex numbers are not available: keep the real and the imaginary part in two tensors, or transform with numpy.fft "
        "before the network":
            "Angle Complex ComplexAbs Conj ConjugateTranspose FFTWithSize Imag Polar Real STFT angle conj fft fft2 fftfreq fftn "
            "fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn imag irfft irfft2 irfftn polar real rfft "
            "rfft2 rfftfreq rfftn stft view_as_real",
        "compose it of the functions that mindspore.ops has (docs/compatibility.md), or compute it with NumPy outside of the "
        "network":
            "AddV2 AllFinite ArgminV2 AvgPoolV1 CTCLossV2Grad ConcatOffsetV1 Conv3DBackpropInput FusedBatchNorm FusedBatchNormEx "
            "InstanceNorm InstanceNormV2 MaxPoolV1 PSROIPooling RangeV2 ReLUV3 SparseSoftmaxCrossEntropyWithLogitsV2 TransShape "
            "Uniform Unsqueeze WKV AdaptiveMaxPool2D Addcdiv Addcmul BatchToSpace BatchToSpaceND BatchToSpaceNDV2 Cdist Col2Im "
            "ComputeAccidentalHits CumulativeLogsumexp Dense DepthwiseConv2dNative Dilation2D EqualCount EuclideanNorm Fmax Fmin "
            "Gcd Im2Col IndexFill InvertPermutation LRN Lcm ListDiff LogSpace MatrixBandPart MatrixDiagPartV3 MatrixDiagV3 "
            "MatrixSetDiagV3 MultiMarginLoss MultilabelMarginLoss NextAfter PadV3 Padding Pdist Renorm ReverseSequence "
            "SpaceToBatch SpaceToBatchND SplitV TrilIndices TripletMarginLoss TriuIndices UnravelIndex Xdivy avg_pool1d batch_dot "
            "batch_to_space_nd bidense block_diag cartesian_prod cdist choice_with_mask col2im combinations cov diag_embed fmax "
            "fmin fold gcd index_fill lcm ldexp logcumsumexp lp_pool1d lp_pool2d lrn matrix_band_part matrix_diag "
            "matrix_diag_part matrix_set_diag mirror_pad multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss "
            "nextafter padding pdist renorm reverse_sequence space_to_batch_nd trapz "
            "xdivy",
        "compute it with SciPy on asnumpy(), outside of the network":
            "BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 "
            "Betainc Digamma Erfinv Gamma Igamma Igammac Lgamma Mvlgamma Polygamma RandomGamma Zeta bessel_i0 bessel_i0e bessel_i1 "
            "bessel_i1e bessel_j0 bessel_j1 bessel_k0 bessel_k0e bessel_k1 bessel_k1e bessel_y0 bessel_y1 digamma erfinv gamma i0 "
            "igamma igammac lgamma mvlgamma polygamma random_gamma zeta",
        "use ops.uniform, ops.normal, ops.randint, ops.bernoulli or nn.Dropout, or draw with NumPy and give the numbers as an input":
            "Bernoulli Cauchy Dropout2D Dropout3D DropoutDoMask DropoutGenMask LogNormalReverse LogUniformCandidateSampler "
            "MapUniform Multinomial MultinomialWithReplacement NonDeterministicInts ParameterizedTruncatedNormal Poisson "
            "RandomCategorical RandomChoiceWithMask RandomPoisson RandomShuffle Randperm RandpermV2 StandardLaplace "
            "TruncatedNormal UniformCandidateSampler bernoulli_ext laplace log_uniform_candidate_sampler multinomial_with_replacement "
            "poisson random_categorical random_poisson rrelu standard_laplace uniform_candidate_sampler",
        "it is a kernel of one device: use ops.matmul, ops.softmax and nn.transformer.MultiHeadAttention":
            "DeformableOffsets FlashAttentionScore GroupTopk NoRepeatNGram PagedAttention PagedAttentionMask ReshapeAndCache "
            "add_layer_norm add_rms_norm deformable_conv2d flash_attention_score fused_infer_attention_score "
            "incre_flash_attention lightning_indexer moe_distribute_combine moe_distribute_dispatch moe_init_routing_v2 "
            "moe_token_permute moe_token_unpermute multi_scale_deformable_attn_function nsa_compress nsa_compress_attention "
            "nsa_select_attention prompt_flash_attention ring_attention_update rotary_position_embedding sparse_flash_attention "
            "speed_fusion_attention swiglu",
        "it is a part of the reference's compiler: Python's own operators, tuples, lists, dicts and loops do this in "
        "construct()":
            "Assert Load PyInterpret DataFormatDimMap DataFormatVecPermute DataType DtypeToEnum DynamicShape Eps GetNext "
            "IdentityN LerpScalar LogSoftmaxExt MapCacheIdx ParallelConcat Partial Reusing ScalarCast SelectView SliceGetItem "
            "TensorToTuple TransposeExtView TransposeView UpdateState adaptive_avg_pool2d_ext arg_dtype_cast arg_handler "
            "array_reduce array_to_scalar augassign_add augassign_div augassign_floordiv augassign_mod augassign_mul "
            "augassign_sub baddbmm_ext bool_and bool_eq bool_not bool_or broadcast_gradient_args "
            "cpp_create_prim_instance_helper dict_getitem dict_setitem diff_ext dyn_shape einsum_ext embed env_get environ_add "
            "environ_create environ_get environ_set eps float_power_ext floordiv floormod "
            "hastype hyper_add identity in_dict is_dynamic_sequence_element_unknown is_not is_sequence_shape_unknown "
            "is_sequence_value_unknown is_tensor_bool_cond isconstant isnan_ext iter_converter list_equal list_getitem list_len "
            "list_setitem make_dict make_list make_map_parameter make_range make_slice make_tuple mixed_precision_cast ms_hasnext "
            "ms_next mse_loss_ext not_in_dict pows prim_arg_register "
            "reduced_shape ref_to_embed scalar_add scalar_cast scalar_div scalar_eq scalar_floordiv scalar_ge scalar_gt scalar_le "
            "scalar_log scalar_lt scalar_max scalar_min scalar_mod scalar_mul scalar_ne scalar_pow scalar_sub scalar_uadd "
            "scalar_usub shape_mul string_concat string_eq tail tensor_exp tensor_expm1 tensor_floordiv tensor_mod "
            "tensor_muls tensor_operator_registry tensor_range tensor_slice tuple_div tuple_equal tuple_getitem tuple_len "
            "tuple_reversed tuple_setitem typeof zip_operation",
        "make it with NumPy (numpy.hanning, numpy.hamming, numpy.blackman, numpy.bartlett, numpy.kaiser) and give the tensor":
            "BartlettWindow BlackmanWindow HammingWindow bartlett_window blackman_window hamming_window hann_window kaiser_window",
        "matrix decompositions are not available: compute them with numpy.linalg on asnumpy(), outside of the network":
            "Eigh Lu SelfAdjointEig TridiagonalSolve Cholesky CholeskyInverse CholeskySolve Eig Geqrf LogMatrixDeterminant Lstsq "
            "LuSolve LuUnpack MatrixDeterminant MatrixExp MatrixInverse MatrixLogarithm MatrixPower MatrixSolve MatrixSolveLs "
            "MatrixTriangularSolve NuclearNorm Orgqr Ormqr Qr Svd TridiagonalMatMul cholesky cholesky_inverse cholesky_solve det "
            "eig eigvals geqrf inverse log_matrix_determinant logdet lstsq lu_solve lu_unpack matrix_determinant "
            "matrix_exp matrix_norm matrix_power matrix_solve orgqr ormqr pinv qr slogdet svd",
        "operators of one's own are functions of mindspore.ops, or are written in C++ (docs/architecture.md)":
            "AiCPURegOp AkgAscendRegOp AkgGpuRegOp CpuRegOp Custom CustomOpBuilder CustomRegOp HookBackward InsertGradientOf Morph "
            "PrimitiveWithCheck PrimitiveWithInfer PyExecute PyFunc TBERegOp custom_info_register get_vm_impl_fn kernel ms_kernel "
            "op_info_register",
        "overflow shows in the gradients: TrainOneStepWithLossScaleCell, ops.IsFinite":
            "CheckNumerics NPUAllocFloatStatus NPUClearFloatStatus NPUClearFloatStatusV2 NPUGetFloatStatus "
            "NPUGetFloatStatusV2",
        "prepare images in the data set: dataset.vision, or a function given to map()":
            "AdjustContrastv2 CropAndResizeGradBoxes CropAndResizeGradImage ResizeV2 AdjustHue AdjustSaturation AffineGrid "
            "BoundingBoxDecode BoundingBoxEncode CheckValid CombinedNonMaxSuppression CropAndResize ExtractGlimpse "
            "ExtractImagePatches ExtractVolumePatches GridSampler2D GridSampler3D HSVToRGB IOU NMSWithMask NonMaxSuppressionV3 "
            "NonMaxSuppressionWithOverlaps RGBToHSV ROIAlign ResizeArea SampleDistortedBoundingBoxV2 ScaleAndTranslate "
            "SubAndFilter UpsampleNearest3D UpsampleTrilinear3D affine_grid bounding_box_decode bounding_box_encode check_valid "
            "crop_and_resize grid_sample iou rotated_iou",
        "sparse tensors are not available: use a dense tensor and a mask, or ops.gather and ops.tensor_scatter_add with indices":
            "Coalesce FusedSparseAdam FusedSparseFtrl FusedSparseLazyAdam FusedSparseProximalAdagrad RaggedRange "
            "SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradV2 SparseApplyFtrl SparseApplyFtrlV2 "
            "SparseApplyProximalAdagrad SparseApplyRMSProp SparseSlice SparseTensorDenseAdd "
            "SparseTensorDenseMatmul SparseToDense coalesce coo2csr coo_abs coo_acos coo_acosh coo_add coo_asin coo_asinh "
            "coo_atan coo_atanh coo_ceil coo_concat coo_cos coo_cosh coo_exp coo_expm1 coo_floor coo_inv coo_isfinite coo_isinf "
            "coo_isnan coo_log coo_log1p coo_neg coo_relu coo_relu6 coo_round coo_sigmoid coo_sin coo_sinh coo_softsign coo_sqrt "
            "coo_square coo_tan coo_tanh coo_tensor_get_dense_shape coo_tensor_get_indices coo_tensor_get_values csr2coo csr_abs "
            "csr_acos csr_acosh csr_add csr_asin csr_asinh csr_atan csr_atanh csr_ceil csr_cos csr_cosh csr_div csr_exp csr_expm1 "
            "csr_floor csr_gather csr_inv csr_isfinite csr_isinf csr_isnan csr_log csr_log1p csr_mm csr_mul csr_mv csr_neg "
            "csr_reduce_sum csr_relu csr_relu6 csr_round csr_sigmoid csr_sin csr_sinh csr_softmax csr_softsign csr_sqrt "
            "csr_square csr_tan csr_tanh csr_tensor_get_dense_shape csr_tensor_get_indices csr_tensor_get_indptr "
            "csr_tensor_get_values csr_to_coo csr_to_dense dense_to_sparse_coo dense_to_sparse_csr make_coo_tensor "
            "make_csr_tensor make_row_tensor make_row_tensor_inner make_sparse_tensor row_tensor_add row_tensor_get_dense_shape "
            "row_tensor_get_indices row_tensor_get_values sparse_segment_mean CSRSparseMatrixToDense "
            "CSRSparseMatrixToSparseTensor DenseToCSRSparseMatrix DenseToDenseSetOperation DenseToSparseSetOperation "
            "RaggedTensorToSparse RaggedTensorToTensor SetSize SparseAdd SparseAddmm SparseApplyAdagradDA "
            "SparseApplyCenteredRMSProp SparseApplyMomentum SparseApplyProximalGradientDescent SparseConcat "
            "SparseCountSparseOutput SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRows "
            "SparseMatrixAdd SparseMatrixMatMul SparseMatrixNNZ SparseMatrixOrderingAMD SparseMatrixSoftmax "
            "SparseMatrixSparseMatMul SparseMatrixTranspose SparseReorder SparseReshape SparseSegmentMean "
            "SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNWithNumSegments SparseSegmentSum "
            "SparseSegmentSumWithNumSegments SparseSoftmax SparseSparseMaximum SparseSparseMinimum SparseSplit "
            "SparseTensorToCSRSparseMatrix SparseToDenseV2 Sspaddmm",
        "strategies of shard() say where values lie; all memory is the host's":
            "MoveTo move_to",
        "tensors do not change in place: use the function without the trailing _ or ops.tensor_scatter_update, and ops.assign "
        "for parameters":
            "CopyWithSlice FillDiagonal IndexPut InplaceAdd InplaceIndexAdd InplaceSub InplaceUpdate InplaceUpdateV2 bernoulli_ "
            "clamp_ erfinv_ exponential_ inplace_add inplace_index_add inplace_sigmoid inplace_sub inplace_update is_ normal_ "
            "print_ put_ random_ reshape_ shape_ stop_gradient_ tanh_ uniform_ zero_",
        "the optimizers of mindspore.nn update parameters: nn.Adam, nn.Momentum, nn.Adagrad, nn.RMSProp, nn.FTRL":
            "Adam AdamNoUpdateParam AdamWeightDecay ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 "
            "ApplyAdamWithAmsgrad ApplyAdamWithAmsgradV2 ApplyAddSign ApplyCenteredRMSProp ApplyFtrl ApplyGradientDescent "
            "ApplyKerasMomentum ApplyPowerSign ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp "
            "ApplyRotaryPosEmb FusedAdaFactor FusedAdaFactorWithGlobalNorm FusedCastAdamWeightDecay FusedWeightScaleApplyMomentum "
            "LARSUpdate SGD",
        "use ops.grad, ops.value_and_grad or ops.GradOperation(sens_param=True), which give the product of a vector with the "
        "Jacobian":
            "J derivative jet linearize",
        "use ops.max_pool2d for the values; places of windows are not available":
            "FractionalAvgPool FractionalMaxPool FractionalMaxPoolWithFixedKsize MaxPoolWithArgmax MaxPoolWithArgmaxV2 "
            "fractional_max_pool2d",
        "use ops.Conv2DTranspose":
            "conv_transpose2d",
        "use ops.repeat_interleave or ops.tensor_scatter_elements with places of your own":
            "MaxUnpool2D max_unpool1d max_unpool2d",
        "use ops.tensor_scatter_add, ops.tensor_scatter_update, ops.tensor_scatter_elements and ops.unsorted_segment_sum":
            "CollectiveScatter MaskedScatter ReduceScatterV ScatterAdd ScatterAddWithAxis ScatterDiv ScatterMax ScatterMin "
            "ScatterMul ScatterNdAdd ScatterNdDiv ScatterNdMax ScatterNdMin ScatterNdMul ScatterNdSub ScatterNdUpdate "
            "ScatterNonAliasingAdd ScatterSub ScatterUpdate SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum "
            "TensorScatterDiv TensorScatterMax TensorScatterMin TensorScatterMul UnsortedSegmentMax UnsortedSegmentMin "
            "UnsortedSegmentProd diagonal_scatter matmul_reduce_scatter reduce_scatter reduce_scatter_tensor "
            "reduce_scatter_tensor_uneven scatter_add scatter_div scatter_max scatter_min scatter_mul scatter_nd_add scatter_nd_div "
            "scatter_nd_max scatter_nd_min scatter_nd_mul scatter_nd_sub scatter_nd_update scatter_object_list scatter_tensor "
            "scatter_update select_scatter slice_scatter tensor_scatter_div tensor_scatter_max tensor_scatter_min "
            "tensor_scatter_mul unsorted_segment_max unsorted_segment_min unsorted_segment_prod",
        "use ops.topk or ops.sort":
            "Bincount Bucketize Cummax Cummin Histogram HistogramFixedWidth InTopK LowerBound Median NthElement Quantile "
            "SearchSorted UniqueConsecutive UniqueWithPad UpperBound bucketize cummax cummin histc intopk nanmedian nanquantile "
            "quantile unique_consecutive unique_with_pad",
        "volumes are not available: use the operator of two dims on slices of one dim":
            "AdaptiveAvgPool3D AdaptiveMaxPool3D AvgPool3D Conv3D Conv3DTranspose FractionalMaxPool3DWithFixedKsize MaxPool3D "
            "MaxPool3DWithArgmax MaxUnpool3D adaptive_avg_pool3d adaptive_max_pool3d conv3d_transpose "
            "fractional_max_pool3d max_unpool3d",
        "write the recurrence in construct() with nn.Dense, ops.sigmoid and ops.tanh: a loop over the steps becomes part of the"
        " graph":
            "BasicLSTMCell DynamicGRUV2 DynamicRNN LSTM RNNTLoss",
        "write what a Callback sees, for example cb_params.net_outputs in on_train_step_end":
            "DumpGradient Print TensorDump tensordump",
        _SUMMARY:
            "HistogramSummary ImageSummary ScalarSummary TensorSummary",
    },
    "mindspore.train": {
        "Model.train and nn.TrainOneStepCell train; dataset_sink_mode is accepted by Model.train":
            "data_sink",
        "derive from mindspore.Callback: its methods see cb_params, and run_context.request_stop() ends the training":
            "AdaptTrainOptimizer AllReduceNet CallbackManager CheckpointManager DatasetGraph InternalCallbackParam Landscape "
            "LineageMetadata Points TrainFaultTolerance ValueReduce _handle_loss",
        _REQUEST_EXIT:
            "OnRequestExit",
        "derive from mindspore.train.Metric: clear, update and eval see the rows of all ranks":
            "EvaluationBase",
        "make the network and its optimizer in Python":
            "ConvertModelUtils ConvertNetUtils",
        "save_checkpoint writes the parameters, and load_checkpoint reads them into a network that a script makes":
            "export_split_mindir load",
        "use save_checkpoint and load_checkpoint, load_distributed_checkpoint and transform_checkpoints":
            "ParamDictFuture _exec_save _get_merged_param_data _parse_ckpt_proto tensor_to_ms_type tensor_to_np_type "
            "async_ckpt_thread_status ckpt_to_safetensors get_ckpt_path_with_strategy load_checkpoint_async safetensors_to_ckpt",
        "use amp.build_train_network, FixedLossScaleManager, DynamicLossScaleManager and Cell.to_float":
            "AmpDecorator AMP_AUTO_BLACK_LIST AMP_AUTO_WHITE_LIST AMP_BLACK_LIST AMP_PRIM_ARG_TABLE AMP_WHITE_LIST",
        _LANDSCAPE:
            "SummaryLandscape",
        _UTILIZATION:
            "FlopsUtilizationCollector",
    },
    "mindspore.parallel": {
        "parameter_layout_dict of the network says how each parameter lies, once a Model of it was built or has trained, and "
        "AutoParallel.save_param_strategy_file(path) writes that":
            "clear_strategy_metadata enable_save_strategy_online get_current_strategy_metadata get_strategy_metadata",
        "set_auto_parallel_context(parallel_mode=\"data_parallel\") is what a Model, nn.TrainOneStepCell or nn.DistributedGradReducer heed":
            "DistributedDataParallel",
        "Primitive.shard and shard() say how an operator, a cell or a function is split":
            "set_op_strategy_config",
        "all ranks have the values of rank 0 when training begins":
            "parameter_broadcast sync_pipeline_shared_parameters",
        "use save_checkpoint and load_checkpoint, load_distributed_checkpoint and transform_checkpoints":
            "convert_checkpoint_by_rank convert_checkpoints load_segmented_checkpoints transform_safetensors_by_rank "
            "transform_safetensors_by_stage unified_safetensors",
        "use the dtypes of mindspore.dtype":
            "rank_list_for_convert",
    },
    "mindspore.communication": {
        "communication.create_group takes the ranks, and get_world_rank_from_group_rank tells them":
            "get_comm_name get_process_group_ranks",
    },
    "mindspore.dataset.config": {
        "a sample that cannot be read is an error, and batches are made in the order of their samples":
            "ErrorSamplesMode get_debug_mode get_error_samples_mode get_iterator_mode load set_debug_mode set_error_samples_mode "
            "set_iterator_mode",
        "transforms of map() run where the data set is read":
            "get_auto_offload set_auto_offload",
    },
    "mindspore.dataset": {
        "a source is any object with __getitem__ and __len__, or a function that gives an iterator":
            "MappableDataset SamplerFn SourceDataset VisionBaseDataset",
        "a Dataset is a value: map, shuffle, batch and repeat give new ones":
            "DatasetCache compare deserialize serialize show sync_wait_for_dataset",
        "callbacks of Model.train see every step":
            "DSCallback WaitedDSCallback",
        "GeneratorDataset(rows, column_names=[...], column_types=[...]) says what columns there are, rows being a function that reads the file and gives row by row":
            "Schema",
        "files of TFRecord and MindRecord are not read: give GeneratorDataset a function that reads the file, by a library of its own, row by row, or write the rows once "
        "by numpy.savez and give the arrays to NumpySlicesDataset; docs/compatibility.md names the Datasets that are there":
            "MindDataset OBSMindDataset TFRecordDataset",
        "read the files in Python and give them to GeneratorDataset or NumpySlicesDataset":
            "AmazonReviewDataset CLUEDataset CMUArcticDataset Caltech101Dataset Caltech256Dataset "
            "CelebADataset Cifar100Dataset CityscapesDataset CoNLL2000Dataset CocoDataset DIV2KDataset EMnistDataset "
            "EnWik9Dataset FakeImageDataset FlickrDataset Flowers102Dataset Food101Dataset GTZANDataset IMDBDataset "
            "IWSLT2016Dataset IWSLT2017Dataset KITTIDataset LFWDataset LJSpeechDataset LSUNDataset "
            "LibriTTSDataset ManifestDataset OmniglotDataset PaddedDataset "
            "PhotoTourDataset Places365Dataset QMnistDataset RandomDataset RenderedSST2Dataset SBDataset "
            "SBUDataset SQuADDataset SST2Dataset STL10Dataset SUN397Dataset SVHNDataset SemeionDataset SogouNewsDataset "
            "SpeechCommandsDataset TedliumDataset UDPOSDataset USPSDataset VOCDataset "
            "WIDERFaceDataset YahooAnswersDataset YelpReviewDataset YesNoDataset",
    },
    "mindspore.mindrecord": {
        "MindRecord files are not written: write the rows by numpy.savez and give the arrays to NumpySlicesDataset, or give GeneratorDataset a function that reads "
        "what they are made of":
            "FileWriter Cifar100ToMR Cifar10ToMR CsvToMR ImageNetToMR MnistToMR TFRecordToMR",
        "MindRecord files are not read: write their rows once by numpy.savez, where MindSpore is, and give the arrays to NumpySlicesDataset, or give GeneratorDataset a "
        "function that reads what they were made of":
            "FileReader MindPage",
    },
    "mindspore.numpy": {
        "bits of integers are not available: use ops.floor_divide and ops.floor_mod by powers of 2":
            "bitwise_and bitwise_not bitwise_or bitwise_xor invert",
        "call NumPy's function on asnumpy() and make a Tensor of the result, or compose it of mindspore.numpy's functions":
            "apply_along_axis apply_over_axes argwhere array_equal array_equiv array_str bincount broadcast_arrays cbrt choose "
            "convolve corrcoef correlate cov diag_indices digitize divmod dsplit ediff1d gcd geomspace gradient histogram "
            "histogram2d histogram_bin_edges histogramdd hsplit in1d indices interp intersect1d isin ix_ lcm logspace mgrid "
            "multi_dot nancumsum nanmax nanmin nanstd nanvar norm ogrid piecewise polyadd polyder polyint polymul polysub polyval "
            "promote_types ravel_multi_index result_type rollaxis searchsorted select setdiff1d sometrue trapz tril_indices "
            "tril_indices_from triu_indices triu_indices_from unravel_index unwrap vander vsplit",
        "complex numbers are not available: keep the real and the imaginary part in two tensors, or transform with numpy.fft "
        "before the network":
            "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2 "
            "rfftfreq rfftn",
        "make it with NumPy (numpy.hanning, numpy.hamming, numpy.blackman, numpy.bartlett, numpy.kaiser) and give the tensor":
            "bartlett blackman hamming hanning",
        "numpy.mgrid, numpy.ogrid and numpy.unique give arrays to make tensors of":
            "MGridClass NdGrid OGridClass UniqueNet",
    },
    "mindspore.common.initializer": {
        "give a Tensor of your own numbers":
            "Sparse",
    },
    "mindspore.boost": {
        "TrainOneStepCell trains, and a gradient's steps are written in a cell derived from it":
            "AdaSum AutoBoost BoostTrainOneStepCell BoostTrainOneStepWithLossScaleCell DimReduce FreezeOpt GradientFreeze GroupLossScaleManager "
            "LessBN OptimizerProcess ParameterProcess freeze_cell gradient_accumulation_op gradient_clear_op",
    },
    "mindspore.nn.optim": {
        "use nn.Adam, nn.AdamWeightDecay, nn.Lamb, nn.Adagrad, nn.RMSProp or nn.Momentum":
            "AdaFactor AdaSumByDeltaWeightWrapCell AdaSumByGradWrapCell AdamOffload LARS OptTFTWrapper "
            "ProximalAdagrad thor",
    },
    "mindspore.dataset.transforms": {
        "give map() a function of NumPy arrays":
            "CompoundOperation PyTensorOperation TensorOperation Plugin RandomApply RandomChoice RandomOrder",
    },
    "mindspore.dataset.text": {
        "tokenize by a function of Python's in map(), text.PythonTokenizer takes one; a library of its own, such as sentencepiece or jieba, fits there":
            "JiebaMode JiebaTokenizer SPieceTokenizerLoadType SPieceTokenizerOutType SentencePieceModel SentencePieceTokenizer SentencePieceVocab "
            "UnicodeScriptTokenizer FilterWikipediaXML",
        "look up numbers by text.Lookup, and vectors in the network: nn.Embedding(embedding_table=...) takes them":
            "CharNGram FastText GloVe ToVectors Vectors",
        "give map() a function of NumPy arrays":
            "TextTensorOperation",
    },
    "mindspore.dataset.vision": {
        "give map() a function of NumPy arrays":
            "DecodeParams ImageTensorOperation VideoFrameDvpp VideoTensorOperation AdjustGamma AdjustSharpness Affine AutoAugment "
            "AutoAugmentPolicy AutoContrast Border BoundingBoxAugment ConvertColor ConvertMode CutMixBatch CutOut "
            "DecodeVideo Equalize Erase FiveCrop GaussianBlur Grayscale HsvToRgb ImageBatchFormat ImageReadMode "
            "LinearTransformation MixUp MixUpBatch NormalizePad PadToSize Perspective Posterize RandAugment RandomAdjustSharpness "
            "RandomAffine RandomAutoContrast RandomColor RandomCropWithBBox RandomEqualize "
            "RandomErasing RandomGrayscale RandomHorizontalFlipWithBBox RandomInvert RandomLighting RandomPerspective "
            "RandomPosterize RandomResize RandomResizeWithBBox RandomResizedCropWithBBox "
            "RandomSelectSubpolicy RandomSharpness RandomSolarize RandomVerticalFlipWithBBox ResizeWithBBox "
            "ResizedCrop RgbToHsv Solarize TenCrop ToNumpy ToPIL TrivialAugmentWide UniformAugment VideoDecoder",
    },
}

# Modules, and what to use instead of any of their names that has no remedy of its own.
REFUSED_MODULES = {
    "all memory is the host's, and all operators run on the CPU":
        "mindspore.device_context mindspore.device_context.ascend mindspore.device_context.ascend.device "
        "mindspore.device_context.ascend.op_debug mindspore.device_context.ascend.op_precision mindspore.device_context.ascend.op_tuning "
        "mindspore.device_context.cpu mindspore.device_context.cpu.op_tuning mindspore.device_context.gpu "
        "mindspore.device_context.gpu.op_precision mindspore.device_context.gpu.op_tuning mindspore.device_manager mindspore.hal "
        "mindspore.hal.contiguous_tensors_handle mindspore.hal.device mindspore.hal.memory "
        "mindspore.runtime.thread_bind_core",
    "save_checkpoint, load_checkpoint and load_param_into_net hold what a checkpoint's files are":
        "mindspore.train._utils mindspore.train.node_strategy_pb2",
    "change the network's Python code, or replace its cells by setattr":
        "mindspore.rewrite mindspore.rewrite.api mindspore.graph",
    "collectives are ops.AllReduce, ops.AllGather, ops.ReduceScatter, ops.Broadcast, ops.AlltoAll, ops.NeighborExchange, ops.Send and "
    "ops.Receive; groups are made by communication.create_group":
        "mindspore.communication._comm_helper mindspore.communication.comm_func mindspore.mint.distributed "
        "mindspore.mint.distributed.distributed mindspore.ops.communication",
    "compute it with SciPy on asnumpy(), outside of the network":
        "mindspore.nn.probability mindspore.nn.probability.bijector mindspore.nn.probability.bnn_layers "
        "mindspore.nn.probability.distribution mindspore.scipy mindspore.scipy.fft mindspore.scipy.linalg mindspore.scipy.ops "
        "mindspore.scipy.optimize",
    "data sets are read by Model.train, and graphs are made by Tessera: the reference's library of C++ is not there":
        "mindspore._c_dataengine mindspore._c_expression mindspore._c_expression.amp mindspore._c_expression.typing "
        "mindspore._c_mindrecord",
    "it is a part of the reference's compiler: Python's own operators, tuples, lists, dicts and loops do this in construct()":
        "mindspore._extends mindspore._extends.parse mindspore.common._stub_tensor mindspore.common.np_dtype "
        "mindspore.ops._grad_experimental mindspore.ops._grad_experimental.grad_base "
        "mindspore.ops._grad_experimental.grad_comm_ops mindspore.ops._utils mindspore.ops._utils.utils "
        "mindspore.ops.composite.multitype_ops mindspore.ops.operations._sequence_ops mindspore.ops.operations.manually_defined "
        "mindspore.ops.signature mindspore.ops.vm_impl_registry mindspore.ops.op_info_register",
    "use nn.LSTM, nn.GRU, nn.LSTMCell or nn.GRUCell":
        "mindspore.ops.operations._rl_inner_ops",
    "compose it of the functions that mindspore.ops has (docs/compatibility.md), or compute it with NumPy outside of the network":
        "mindspore.ops.auto_generate mindspore.ops.auto_generate.gen_extend_func mindspore.ops.auto_generate.gen_ops_def "
        "mindspore.ops.auto_generate.gen_ops_prim mindspore.ops.auto_generate.pyboost_inner_prim mindspore.ops.operations._grad_ops "
        "mindspore.ops.operations._infer_ops mindspore.ops.operations._inner_ops mindspore.ops.operations._quant_ops "
        "mindspore.ops.operations._thor_ops mindspore.ops.operations.inner_ops",
    "give map() a function of NumPy arrays":
        "mindspore.dataset.audio mindspore.dataset.audio.transforms mindspore.dataset.audio.utils "
        "mindspore.dataset.transforms.py_transforms_util "
        "mindspore.dataset.transforms.validators mindspore.dataset.vision.py_transforms_util mindspore.dataset.vision.validators",
    "read the files in Python and give them to GeneratorDataset or NumpySlicesDataset":
        "mindspore.dataset.core.validator_helpers mindspore.dataset.engine mindspore.dataset.engine.cache_client "
        "mindspore.dataset.engine.datasets mindspore.dataset.engine.iterators mindspore.dataset.engine.samplers "
        "mindspore.dataset.engine.validators mindspore.dataset.samplers mindspore.mindrecord",
    "set_auto_parallel_context and get_auto_parallel_context hold what says how a network is split; shard() holds strategies":
        "mindspore.parallel._auto_parallel_context mindspore.parallel._utils mindspore.parallel._cell_wrapper "
        "mindspore.parallel._cost_model_context mindspore.parallel._parallel_serialization mindspore.parallel._ps_context "
        "mindspore.parallel._tensor mindspore.parallel.distributed mindspore.parallel.function "
        "mindspore.parallel.shard mindspore.parallel.strategy",
    "TrainOneStepCell trains, and a gradient's steps are written in a cell derived from it":
        "mindspore.boost.adasum mindspore.boost.base mindspore.boost.boost mindspore.boost.boost_cell_wrapper "
        "mindspore.boost.dim_reduce mindspore.boost.grad_freeze "
        "mindspore.boost.group_loss_scale_manager mindspore.boost.less_batch_normalization",
    "use mindspore.ops and mindspore.nn":
        "mindspore.mint mindspore.mint.linalg mindspore.mint.nn mindspore.mint.nn.functional mindspore.mint.nn.layer "
        "mindspore.mint.special",
    "use nn.Adam, nn.AdamWeightDecay, nn.Lamb, nn.Adagrad, nn.RMSProp or nn.Momentum":
        "mindspore.experimental mindspore.experimental.optim mindspore.experimental.optim.lr_scheduler mindspore.mint.optim",
    _TIMELINE:
        "mindspore.profiler mindspore.profiler.common mindspore.profiler.common.constant mindspore.profiler.experimental_config "
        "mindspore.profiler.profiler mindspore.profiler.profiling mindspore.profiler.schedule",
    "weights are not quantized: train in float16 with amp_level, or quantize a checkpoint's arrays in NumPy":
        "mindspore.compression mindspore.compression.common mindspore.compression.export mindspore.compression.quant "
        "mindspore.nn.layer.quant mindspore.train.quant",
    "write what a Callback sees, for example cb_params.net_outputs in on_train_step_end":
        "mindspore.train.summary mindspore.train.summary.summary_record mindspore.utils mindspore.utils.stress_detect mindspore.tools",
}

_REMEDIES = {(module, name): remedy for module, rows in REFUSED.items() for remedy, names in rows.items() for name in names.split()}
_OF_MODULES = {module: remedy for remedy, modules in REFUSED_MODULES.items() for module in modules.split()}
MODULES = tuple(_OF_MODULES)


def home(module, name):
    """The module whose name it is: that whose names this one has, where that one is said to have it."""
    known = [whole for whole in (module, *places.whole(module)) if (whole, name) in _REMEDIES]
    return known[0] if known else module


def has_remedy(module, name):
    """Whether that very name of the module's is refused."""
    return (module, name) in _REMEDIES


def remedy(module, name):
    """What to use instead of the module's name; "" where nothing is known of it."""
    return _REMEDIES.get((home(module, name), name)) or _OF_MODULES.get(module, "")
