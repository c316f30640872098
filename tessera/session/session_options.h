// How a session computes.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/compiler/partition/partition_options.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/verify/verification.h"
#include "tessera/session/kernel_choice.h"

namespace tessera::kernels {
struct Backend;
}

namespace tessera::session {

struct SessionOptions {
  // Only plain loops: slow, the same on every machine.
  bool reference_kernels = false;
  // On what all is computed: it outlives the session. Null: the CPU. One with a device has no meaning together with
  // reference_kernels, and libraries measure their kernels themselves there, whatever kernel_choice says.
  const kernels::Backend* backend = nullptr;
  // The same by name: "cpu", "cuda:1" for a GPU of NVIDIA by its number, or "cuda" for the one with the number of this
  // rank among its host's ranks. Empty: `backend` says it. Several ranks use one GPU only where its number names it. A
  // session throws IoError where there is no such device, InvalidArgument for another text, and for "cuda" on all ranks
  // of a host that has fewer GPUs than ranks.
  std::string device = {};
  // Whether the host computes what the device has no kernel for, with copies there and back in every step, which a
  // warning says once for each operator and its types; so does TESSERA_CPU_FALLBACK=1. Else compiling refuses it.
  bool cpu_fallback = false;
  // A step that is run again, by as many ranks and threads under the same plan on the same machine, gives the same
  // bits. The CPU's kernels and collectives do so always. On a GPU that `device` names, libraries take the first way
  // that they propose, not the fastest by measuring. A session throws InvalidArgument where kernel_choice is kMeasured.
  bool deterministic = false;
  // Every value in NaN-filled memory of its own, nothing fused: to find errors of planning and kernels.
  bool debug = false;
  compiler::Fusions fusions = {};
  // 0: the context's.
  int num_threads = 0;
  // kMeasured: results depend on the table of measured kernels, which rank 0's gives all ranks. The choice has no
  // meaning with reference kernels and in `debug`.
  KernelChoice kernel_choice = KernelChoice::kFixed;
  // The directory, made when there is something to write, in which measured kernels are remembered for later sessions;
  // empty: they are not. cluster::cache_directory_from_environment() names the usual one.
  std::string kernel_cache = {};
  // How collectives are fused, gathered ahead and redistributed.
  compiler::PartitionOptions partition = {};
  // Whether computing goes on while collectives are under way: off to measure what that gains.
  bool overlap = true;
  // Address space that is reserved; memory is taken as it is used. Less is reserved where the system limits it: half of
  // what `ulimit -v` leaves, shared among the ranks of this host, at least 64 MiB. Throws IoError where not even that
  // can be had, InvalidArgument where a step needs more.
  int64_t arena_capacity_bytes = int64_t{1} << 36;
  // The most that the arena of a rank may take: parameters, states and what a step needs. What would not fit is
  // recomputed; compiling throws InvalidArgument where that is not enough. 0: no limit. A session that debugs has no
  // limit, because it gives every value its own memory.
  int64_t memory_limit_bytes = 0;
  // The most memory that rows take which this rank keeps for others, beyond which they lie in a file: a model says so
  // on servers (ModelOptions::server_memory_limit_bytes). 0: no limit, and no file.
  int64_t values_limit_bytes = 0;
  // The directory of that file; empty: the system's for temporary files.
  std::string spill_directory = {};
  // What is made sure of before anything runs; `debug` verifies the local graphs of all ranks.
  compiler::Verification verification = compiler::Verification::kPlan;
};

}  // namespace tessera::session
