#include "tessera/kernels/cpu/matmul/onednn.h"

#include <omp.h>

#include <atomic>

#include "tessera/base/core_share.h"
#include "tessera/base/limits.h"
#include "tessera/base/logging.h"
#include "tessera/base/processes/no_memory.h"
#include "tessera/base/strings.h"
#include "tessera/kernels/cpu/rows/tile_program.h"

namespace tessera::kernels::cpu {

namespace {

// Once for each dtype: a network has many such kernels.
void say_widened(DType from) {
  static std::atomic<bool> said[2];
  if (from != DType::kBF16 && from != DType::kF16) return;
  if (said[from == DType::kBF16 ? 0 : 1].exchange(true)) return;
  log_warning("this CPU lacks some kernels for {}: they compute in f32 and round, which costs time", from);
}

// What oneDNN wants for itself, as for the code that it makes, it tells nobody.
dnnl::primitive make_primitive(const dnnl::primitive_desc_base& desc) {
  try {
    return dnnl::primitive(desc.get());
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_out_of_memory) throw;
    throw NoMemory(fmt::format("oneDNN has no memory to make {} of", desc.impl_info_str()));
  }
}

}  // namespace

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

OpenMpThreads::OpenMpThreads(int num_threads) : before_(omp_get_max_threads()) {
  if (num_threads > 1) require_threads_of_this_process();
  omp_set_num_threads(concurrent_threads(num_threads));
}
OpenMpThreads::~OpenMpThreads() { omp_set_num_threads(before_); }

std::optional<dnnl::memory::data_type> onednn_dtype(DType dtype) {
  switch (dtype) {
    case DType::kF32: return dnnl::memory::data_type::f32;
    case DType::kBF16: return dnnl::memory::data_type::bf16;
    case DType::kF16: return dnnl::memory::data_type::f16;
    default: return std::nullopt;
  }
}

dnnl::memory::dims onednn_dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

dnnl::memory::desc onednn_desc(const TensorView& view) {
  return {onednn_dims(view.shape), onednn_dtype(view.dtype).value(), onednn_dims(view.strides)};
}

StagedOperand::StagedOperand(const TensorView& view, const TensorView& staged, bool is_output, int num_threads,
                             ScratchPlan& scratch)
    : staged_(staged), offset_(scratch.add(staged.size_bytes())) {
  if (view.dtype != staged.dtype) say_widened(view.dtype);
  KernelRequest request{.op = "cast", .inputs = {view}, .outputs = {staged}, .num_threads = num_threads};
  if (is_output) std::swap(request.inputs, request.outputs);
  TileProgram program{.num_inputs = 1};
  program.results = {0};
  copy_ = prepare_tile_program(request, std::move(program), "cpu.copy").value();
  copy_offset_ = scratch.add(copy_.scratch_bytes);
}

void* StagedOperand::address(const TensorView& view, const KernelArgs& args) const {
  return staged_ ? args.scratch.data() + offset_ : view.data;
}

void StagedOperand::copy(const TensorView& view, const KernelArgs& args, bool in) const {
  if (!staged_) return;
  TensorView staged = *staged_;
  staged.data = args.scratch.data() + offset_;
  const std::span<const TensorView> outside(&view, 1);
  const std::span<const TensorView> inside(&staged, 1);
  copy_.run({in ? outside : inside, in ? inside : outside, args.attributes,
             args.scratch.subspan(static_cast<size_t>(copy_offset_), static_cast<size_t>(copy_.scratch_bytes)),
             args.parallel_for});
}

bool is_reference(const dnnl::primitive_desc_base& desc) {
  return std::string_view(desc.impl_info_str()).find("ref") != std::string_view::npos;
}

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Primitive::Primitive(const dnnl::primitive_desc_base& desc, ScratchPlan& scratch)
    : primitive_(make_primitive(desc)), stream_(onednn_engine()) {
  const dnnl::memory::desc scratchpad = desc.scratchpad_desc();
  scratchpad_offset_ = scratch.add(static_cast<int64_t>(scratchpad.get_size()));
  add(DNNL_ARG_SCRATCHPAD, scratchpad);
}

size_t Primitive::add(int argument, const dnnl::memory::desc& desc) {
  arguments_.emplace_back(argument, dnnl::memory(desc, onednn_engine(), nullptr));
  raw_.push_back({argument, arguments_.back().second.get()});
  return arguments_.size() - 1;
}

void Primitive::run(std::span<std::byte> scratch) {
  bind(0, scratch.data() + scratchpad_offset_);
  // The C interface: the C++ one builds a vector of the arguments at every call.
  const auto status =
      dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(raw_.size()), raw_.data());
  if (status == dnnl_out_of_memory) {
    throw NoMemory(fmt::format("oneDNN has no memory to compute in, beside the {} of the step's that it was given",
                               format_bytes(std::ssize(scratch))));
  }
  dnnl::error::wrap_c_api(status, "could not execute a primitive");
}

}  // namespace tessera::kernels::cpu
