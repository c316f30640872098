// DeviceProgram: a kernel as text, written for one request: all shapes, strides and settings stand in it as numbers. It
// has one phase or more; a phase begins when the one before has ended in all its blocks.
//
// A phase's text is the body of a function of these names:
//   in0, in1, ...    const T*, where T is the dtype's name (f32, bf16, i64, ...), or absent
//   out0, out1, ...  T*
//   scratch          unsigned char*, aligned to 64 bytes
// which begins with what device_code/ declares. It may overwrite inputs that lie where outputs do, as in_place says.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/kernels/cuda/core/gpu.h"
#include "tessera/tensor/kernel.h"

namespace tessera::cuda {

struct ProgramPhase {
  std::string body;
  int64_t blocks = 1;
  int threads = 256;  // of a block; a multiple of 32, at most 1024
};

struct DeviceProgram {
  std::string name;       // "cuda.add", for schedules and profiles
  std::string functions;  // what the bodies call: text of device functions, types and constants
  std::vector<ProgramPhase> phases;
  int64_t scratch_bytes = 0;
  std::vector<std::pair<int, int>> in_place = {};
};

// nullopt: this one does not take the request.
using ProgramWriter = std::optional<DeviceProgram> (*)(const KernelRequest& request, const Gpu& gpu);

// The whole text, as it is compiled.
std::string text_of(const DeviceProgram& program, const KernelRequest& request);
// Compiles it.
PreparedKernel prepare(Gpu& gpu, const DeviceProgram& program, const KernelRequest& request);
// Registers a writer: kernels of `op` are made of what it writes.
void add_writer(KernelRegistry& registry, Gpu& gpu, const std::string& op, ProgramWriter write);

}  // namespace tessera::cuda
