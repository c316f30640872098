// conv2d and its two gradients by oneDNN's convolutions. Images are taken as they lie in memory (channels-last is what
// oneDNN likes best); weights are reordered at every call into the blocked form that the chosen implementation wants.
// That costs little beside large images and as much as the products themselves on images of a few pixels: there the
// matrix products of conv_matmul.cc are the better candidates.
#include <set>

#include "tessera/kernels/cpu/images/convolution_operands.h"
#include "tessera/kernels/cpu/matmul/onednn.h"
#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels::cpu {
namespace {

using dnnl::memory;

TensorView channels_last(const Shape& shape, DType dtype) {
  return {nullptr, dtype, shape, channels_last_strides(shape)};
}

// The weight's dims as oneDNN counts them: with groups, [g, co/g, ci/g, kh, kw].
memory::dims weight_dims(const Shape& shape, int64_t groups) {
  if (groups == 1) return onednn_dims(shape);
  return {groups, shape[0] / groups, shape[1], shape[2], shape[3]};
}
memory::dims weight_strides(const TensorView& view, int64_t groups) {
  if (groups == 1) return onednn_dims(view.strides);
  return {view.shape[0] / groups * view.strides[0], view.strides[0], view.strides[1], view.strides[2], view.strides[3]};
}

// What oneDNN can do; `desc` is empty when that is nothing.
struct Description {
  dnnl::primitive_desc desc;
  // Of the forward pass, for which a backward pass asks; must live while desc.next_impl() is called.
  dnnl::primitive_desc forward;
};

// oneDNN 3.2's code for strided 1x1 kernels uses memory that is not its own where channels do not fill its vectors of 8
// (AVX2) or 16 numbers (AVX-512): the gradient of a weight with 3 channels comes out wrong, now and then or always.
bool writes_beyond_its_memory(const dnnl::primitive_desc& desc, const Geometry& g, const TensorView& source,
                              const TensorView& destination) {
  const bool is_strided = g.strides[0] > 1 || g.strides[1] > 1;
  const auto has_whole = [&](int64_t vector) {
    return source.shape[1] % vector == 0 && destination.shape[1] % vector == 0;
  };
  const std::string_view name = desc.impl_info_str();
  return is_strided &&
         ((name == "jit_1x1:avx2" && !has_whole(8)) || (name.starts_with("jit_1x1:avx512") && !has_whole(16)));
}

Description first_desc(Pass pass, const Geometry& g, const TensorView& source, const Shape& weight_shape,
                       DType weight_dtype, const TensorView& destination) {
  const dnnl::engine& engine = onednn_engine();
  const dnnl::primitive_attr attributes = onednn_attributes();
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const memory::dims dilation = {g.dilation[0] - 1, g.dilation[1] - 1};
  const auto weight_desc = [&](DType dtype) {
    return memory::desc(weight_dims(weight_shape, g.groups), onednn_dtype(dtype).value(), memory::format_tag::any);
  };
  const memory::desc weight = weight_desc(weight_dtype);
  const memory::desc src = onednn_desc(source);
  const memory::desc dst = onednn_desc(destination);
  // Backward passes ask for the forward one, which has no operand that is wider than the others, as a gradient may be.
  TensorView forward_source = source;
  if (pass == Pass::kGradInput) forward_source.dtype = destination.dtype;
  dnnl::convolution_forward::primitive_desc forward(
      engine, dnnl::prop_kind::forward_training, algorithm, onednn_desc(forward_source),
      pass == Pass::kGradWeight ? weight_desc(source.dtype) : weight, dst, g.strides, dilation, g.padding_before,
      g.padding_after, attributes, /*allow_empty=*/true);
  if (pass == Pass::kForward || !forward) return {forward};
  if (pass == Pass::kGradInput) {
    return {dnnl::convolution_backward_data::primitive_desc(engine, algorithm, src, weight, dst, g.strides, dilation,
                                                            g.padding_before, g.padding_after, forward, attributes,
                                                            /*allow_empty=*/true),
            forward};
  }
  return {dnnl::convolution_backward_weights::primitive_desc(engine, algorithm, src, weight, dst, g.strides, dilation,
                                                             g.padding_before, g.padding_after, forward, attributes,
                                                             /*allow_empty=*/true),
          forward};
}

// The first implementation that can be trusted.
Description make_desc(Pass pass, const Geometry& g, const TensorView& source, const Shape& weight_shape,
                      DType weight_dtype, const TensorView& destination) {
  Description made = first_desc(pass, g, source, weight_shape, weight_dtype, destination);
  while (made.desc && writes_beyond_its_memory(made.desc, g, source, destination)) {
    if (!made.desc.next_impl()) return {};
  }
  return made;
}

// How the three operands are laid before oneDNN.
struct Arrangement {
  dnnl::primitive_desc desc;
  TensorView source, destination;
  DType weight_dtype = DType::kF32;
};

std::optional<Arrangement> arrange(Pass pass, const Geometry& g, const TensorView& source, const TensorView& weight,
                                   const TensorView& destination) {
  std::vector<Arrangement> candidates;
  const auto consider = [&](const TensorView& src, DType weight_dtype, const TensorView& dst) {
    if (!candidates.empty() && !is_reference(candidates.back().desc)) return;
    auto desc = make_desc(pass, g, src, weight.shape, weight_dtype, dst).desc;
    if (desc) candidates.push_back({std::move(desc), src, dst, weight_dtype});
  };
  consider(source, weight.dtype, destination);
  consider(channels_last(source.shape, source.dtype), weight.dtype,
           channels_last(destination.shape, destination.dtype));
  consider(channels_last(source.shape, DType::kF32), DType::kF32, channels_last(destination.shape, DType::kF32));
  // The first that is not oneDNN's generic code came last; where all are, the last is f32 in the layout it likes.
  if (candidates.empty()) return std::nullopt;
  return candidates.back();
}

struct Convolution {
  Roles roles;
  int num_threads = 1;
  StagedOperand source, weight, destination;
  std::optional<Primitive> primitive, reorder;
  size_t source_argument = 0, weight_argument = 0, destination_argument = 0;
  size_t reorder_from = 0, reorder_to = 0;
  int64_t blocked_weight = 0;  // its place in scratch, where it is reordered

  void run(const KernelArgs& args) {
    const OpenMpThreads threads(num_threads);
    const TensorView& src = roles.source.of(args);
    const TensorView& w = roles.weight.of(args);
    const TensorView& dst = roles.destination.of(args);
    if (!roles.source.is_output) source.copy_in(src, args);
    if (!roles.weight.is_output) weight.copy_in(w, args);
    if (!roles.destination.is_output) destination.copy_in(dst, args);

    void* plain = weight.address(w, args);
    void* blocked = reorder ? args.scratch.data() + blocked_weight : plain;
    primitive->bind(source_argument, source.address(src, args));
    primitive->bind(weight_argument, blocked);
    primitive->bind(destination_argument, destination.address(dst, args));
    if (reorder) {
      reorder->bind(reorder_from, roles.weight.is_output ? blocked : plain);
      reorder->bind(reorder_to, roles.weight.is_output ? plain : blocked);
    }
    if (reorder && !roles.weight.is_output) reorder->run(args.scratch);
    primitive->run(args.scratch);
    if (reorder && roles.weight.is_output) reorder->run(args.scratch);

    if (roles.source.is_output) source.copy_out(src, args);
    if (roles.weight.is_output) weight.copy_out(w, args);
    if (roles.destination.is_output) destination.copy_out(dst, args);
  }
};

// What a request says, in oneDNN's terms; nullopt where it takes none of it.
struct Problem {
  Roles roles;
  Geometry geometry;
  TensorView source, weight, destination;
};
std::optional<Problem> problem_of(Pass pass, const KernelRequest& request) {
  for (const auto& views : {request.inputs, request.outputs}) {
    for (const TensorView& view : views) {
      if (!onednn_dtype(view.dtype) || view.num_elements() == 0 || view.shape.ndim() != 4) return std::nullopt;
    }
  }
  const Roles roles = roles_of(pass);
  Problem problem{.roles = roles,
                  .geometry = geometry_of(request.attributes),
                  .source = canonical_image(roles.source.of(request)),
                  .weight = roles.weight.of(request),
                  .destination = canonical_image(roles.destination.of(request))};
  TensorView& weight = problem.weight;
  if (is_dense(weight.shape, weight.strides)) weight.strides = dense_strides(weight.shape);
  return problem;
}

std::optional<PreparedKernel> prepare_as(Pass pass, const KernelRequest& request, const Problem& problem,
                                         const Arrangement& arrangement, const std::string& name) {
  const OpenMpThreads threads(request.num_threads);
  const auto made = std::make_shared<Convolution>();
  made->roles = problem.roles;
  made->num_threads = request.num_threads;
  TensorView weight = problem.weight;

  ScratchPlan scratch;
  const auto stage = [&](const TensorView& view, const TensorView& wanted, const Role& role) {
    if (view.dtype == wanted.dtype && view.strides == wanted.strides) return StagedOperand();
    return StagedOperand(view, wanted, role.is_output, request.num_threads, scratch);
  };
  made->source = stage(problem.source, arrangement.source, made->roles.source);
  made->destination = stage(problem.destination, arrangement.destination, made->roles.destination);
  if (weight.dtype != arrangement.weight_dtype) {
    const TensorView wanted(nullptr, {arrangement.weight_dtype, weight.shape});
    made->weight = stage(weight, wanted, made->roles.weight);
    weight = wanted;
  }

  const dnnl::primitive_desc& desc = arrangement.desc;
  made->primitive.emplace(desc, scratch);
  Primitive& primitive = *made->primitive;
  const bool grad_input = pass == Pass::kGradInput;
  const bool grad_weight = pass == Pass::kGradWeight;
  const int weight_role = grad_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
  const memory::desc blocked = desc.query_md(dnnl::query::exec_arg_md, weight_role);
  made->source_argument = primitive.add(grad_input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, onednn_desc(arrangement.source));
  made->weight_argument = primitive.add(weight_role, blocked);
  made->destination_argument =
      primitive.add(pass == Pass::kForward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, onednn_desc(arrangement.destination));

  const memory::desc plain(weight_dims(weight.shape, problem.geometry.groups), onednn_dtype(weight.dtype).value(),
                           weight_strides(weight, problem.geometry.groups));
  if (blocked != plain) {
    const dnnl::engine& engine = onednn_engine();
    const memory::desc& from = grad_weight ? blocked : plain;
    const memory::desc& to = grad_weight ? plain : blocked;
    const dnnl::reorder::primitive_desc reorder(engine, from, engine, to, onednn_attributes(), /*allow_empty=*/true);
    if (!reorder) return std::nullopt;
    made->blocked_weight = scratch.add(static_cast<int64_t>(blocked.get_size()));
    made->reorder.emplace(reorder, scratch);
    made->reorder_from = made->reorder->add(DNNL_ARG_FROM, from);
    made->reorder_to = made->reorder->add(DNNL_ARG_TO, to);
  }
  return PreparedKernel{
      .name = name, .run = [made](const KernelArgs& args) { made->run(args); }, .scratch_bytes = scratch.bytes()};
}

std::optional<PreparedKernel> prepare(Pass pass, const KernelRequest& request) {
  const auto problem = problem_of(pass, request);
  if (!problem) return std::nullopt;
  const OpenMpThreads threads(request.num_threads);
  const auto arrangement = arrange(pass, problem->geometry, problem->source, problem->weight, problem->destination);
  if (!arrangement) return std::nullopt;
  return prepare_as(pass, request, *problem, *arrangement, "onednn." + request.op);
}

// oneDNN orders its implementations by a guess. Those behind the first that take the operands as they lie, but for the
// ones that are slower for certain: written for older instruction sets, or products of patches, which conv_matmul.cc
// does better.
bool may_be_faster(const std::string& implementation, const std::string& first) {
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  return has(implementation, "avx512") == has(first, "avx512") && !has(implementation, "gemm");
}

std::vector<KernelCandidate> further_implementations(Pass pass, const KernelRequest& request) {
  std::vector<KernelCandidate> found;
  const auto problem = problem_of(pass, request);
  if (!problem) return found;
  const OpenMpThreads threads(request.num_threads);
  const auto make_first = [pass, problem = *problem] {
    return make_desc(pass, problem.geometry, problem.source, problem.weight.shape, problem.weight.dtype,
                     problem.destination);
  };
  auto [desc, forward] = make_first();
  if (!desc || is_reference(desc)) return found;
  const std::string first = desc.impl_info_str();
  // Looked for by name: while primitives of a description are cached, oneDNN may pass by an implementation twice.
  std::set<std::string> seen = {first};
  while (desc.next_impl()) {
    const std::string implementation = desc.impl_info_str();
    if (is_reference(desc) || !may_be_faster(implementation, first) || !seen.insert(implementation).second) continue;
    if (writes_beyond_its_memory(desc, problem->geometry, problem->source, problem->destination)) continue;
    const std::string name = fmt::format("onednn.{}/{}", request.op, implementation);
    found.push_back({name, [=, &request, problem = *problem]() -> std::optional<PreparedKernel> {
                       const OpenMpThreads same_threads(request.num_threads);
                       auto [own, hint] = make_first();
                       while (implementation != own.impl_info_str()) {
                         if (!own.next_impl()) return std::nullopt;
                       }
                       return prepare_as(pass, request, problem,
                                         {own, problem.source, problem.destination, problem.weight.dtype}, name);
                     }});
  }
  return found;
}

}  // namespace

void add_convolution(KernelRegistry& registry) {
  for (const auto& [op, pass] : kConvolutionOps) {
    registry.add(op, [pass = pass](const KernelRequest& request) { return prepare(pass, request); });
    registry.add_candidates(
        op, [pass = pass](const KernelRequest& request) { return further_implementations(pass, request); });
  }
}

}  // namespace tessera::kernels::cpu
