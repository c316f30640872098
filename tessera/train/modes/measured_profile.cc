#include "tessera/train/modes/measured_profile.h"

#include <array>

#include "tessera/session/machine_speed.h"

namespace tessera::train {
namespace {

bool convolves(const ir::Graph& graph) {
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (compiler::is_convolution(graph.node(n).op)) return true;
  }
  return false;
}

}  // namespace

compiler::MachineProfile measure_briefly(cluster::Context& context, const ir::Graph& graph) {
  const auto link = session::link_of(context.speed(), context.size());
  compiler::MachineProfile profile{
      .name = "measured when training began", .ranks_per_host = context.size(), .intra_host = link, .inter_host = link};
  session::RunTimer timer(context);
  profile.flops_per_second[DType::kF32] = session::measure_matmul(timer, DType::kF32, 384).per_second();
  profile.vector_flops_per_second[DType::kF32] = session::measure_functions(timer, DType::kF32).per_second();
  constexpr int64_t kMemory = 64 << 20;
  constexpr std::array<int64_t, 2> kCaches = {8 << 20, 1 << 20};
  constexpr std::array<int64_t, 3> kPieces = {4, 32, 256};
  profile.memory_bytes_per_second = session::measure_memory(timer, kMemory).per_second();
  profile.cached_bytes_per_second = session::measure_caches(timer, profile.memory_bytes_per_second, kCaches);
  profile.copied_bytes_per_second = session::measure_copies(timer, kPieces);
  profile.kernel_overhead_seconds = 1 / session::measure_kernels(timer, 200).per_second();
  if (convolves(graph)) {
    profile.convolution_flops_per_second[DType::kF32] =
        session::measure_convolution(timer, DType::kF32, 4).per_second();
    profile.rearranged_bytes_per_second = session::measure_rearranging(timer).per_second();
    profile.convolution_shares = session::measure_convolution_shares(
        timer, profile.convolution_flops_per_second[DType::kF32], profile.kernel_overhead_seconds,
        {.in_channels = {3, 16, 64}, .out_channels = {16, 64}, .pixels = {64, 1024}});
  }
  profile.communication_load = session::measure_communication_load(timer);
  profile.disturbed_share = timer.disturbed_share();
  return profile;
}

}  // namespace tessera::train
