// The optimizers' operators, one parameter a kernel; grouped_updates.cc has many, row_updates.cc some of one's rows.
#include "tessera/kernels/cuda/optimizers/grouped_updates.h"
#include "tessera/kernels/cuda/optimizers/row_updates.h"

#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/optimizers/update_program.h"

namespace tessera::cuda {
namespace {

std::optional<DeviceProgram> write_update(const KernelRequest& request, const Gpu& gpu) {
  const DType computed = request.inputs[0].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto program = update_program(request.op, request.attributes, computed);
  if (!program) return std::nullopt;
  DeviceProgram made = write_element_program(request, gpu, *program, "cuda." + request.op);
  made.in_place = {};
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    if (request.inputs[i].strides == request.outputs[i].strides) {
      made.in_place.emplace_back(static_cast<int>(i), static_cast<int>(i));
    }
  }
  return made;
}

}  // namespace

void add_optimizers(KernelRegistry& registry, Gpu& gpu) {
  for (const char* op : {"momentum", "sgd", "adam", "adam_weight_decay", "adamw", "adagrad", "ftrl"}) {
    add_writer(registry, gpu, op, write_update);
  }
  add_writer(registry, gpu, "update_rows", write_update_rows);
  registry.add("update_group", [&gpu](const KernelRequest& request) { return prepare_update_group(gpu, request); });
}

}  // namespace tessera::cuda
