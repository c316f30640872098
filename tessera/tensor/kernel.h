// Kernel: how one operator is computed on one device. Every kernel has one signature and is registered under its
// operator's name, so that no operator needs binding code.
//
// Some operators can be computed in several ways, of which the machine and the shapes say which is fastest: a registry
// lists these candidates, whoever prepares the schedule measures and names one.
//
// A KernelRegistry maps an operator's name to a factory. The factory is asked once per node, when the schedule is made,
// with the exact shapes and strides; it may look at them, build what it needs (a oneDNN primitive, say) and say how
// much scratch memory it wants, or decline. run() is then called every step and must not allocate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/base/parallel_for.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

class Queue;

// What a kernel computes on, for one call. An input and an output may be the same memory only where the kernel's
// PreparedKernel::in_place says so. `scratch` is aligned to 64 bytes; its content is undefined. A kernel of a device
// gives its work to `queue` and returns; one of the host, where `queue` may be null, has computed when it returns.
struct KernelArgs {
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  const Attributes& attributes;
  std::span<std::byte> scratch;
  const ParallelFor& parallel_for;
  Queue* queue = nullptr;
  // Called by a kernel of the host that works long, on the thread that runs it, whenever it has come further; null:
  // nobody wants to know.
  const std::function<void()>* after_piece = nullptr;

  // Does what `parallel_for` does, in pieces of at most `piece`, and calls `after_piece` after each.
  void for_pieces(int64_t n, int64_t piece, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) const {
    for (int64_t first = 0; first < n; first += piece) {
      parallel_for(std::min(piece, n - first), grain,
                   [&](int64_t begin, int64_t end) { body(first + begin, first + end); });
      if (after_piece != nullptr) (*after_piece)();
    }
  }
};

// What a factory knows: everything but the addresses (the views' data is null).
struct KernelRequest {
  std::string op;
  std::vector<TensorView> inputs;
  std::vector<TensorView> outputs;
  Attributes attributes;
  int num_threads = 1;
};

struct PreparedKernel {
  std::string name;  // for schedules and profiles: "reference.matmul", "onednn.matmul"
  std::function<void(const KernelArgs&)> run;
  int64_t scratch_bytes = 0;
  // Pairs (input, output) that may share one piece of memory: each output element is written after the last read of
  // the input element at the same place.
  std::vector<std::pair<int, int>> in_place = {};
};

// nullopt: this factory does not take the request (dtype, strides, shape), the next one is asked.
using KernelFactory = std::function<std::optional<PreparedKernel>(const KernelRequest&)>;

// One more way to compute a request, beside the first that takes it.
struct KernelCandidate {
  std::string name;  // the prepared kernel's; no two candidates of a request share it
  // nullopt: it turns out not to take the request.
  std::function<std::optional<PreparedKernel>()> prepare;
};
// Cheap: prepares nothing. The request must outlive the candidates.
using CandidateLister = std::function<std::vector<KernelCandidate>(const KernelRequest&)>;

class KernelRegistry {
 public:
  // Factories of an operator are asked in the order of registration.
  void add(const std::string& op, KernelFactory factory);
  // Registers a plain function that takes every request and needs no scratch; run is called as `name`.`op`.
  void add_function(const std::string& op, const std::string& name, void (*run)(const KernelArgs&),
                    std::vector<std::pair<int, int>> in_place = {});
  // The first kernel that takes the request, or nullopt.
  std::optional<PreparedKernel> find(const KernelRequest& request) const;
  // The listers of an operator are asked in the order of registration.
  void add_candidates(const std::string& op, CandidateLister lister);
  // All that the listers know for the request; what find(request) prepares is not among them.
  std::vector<KernelCandidate> candidates(const KernelRequest& request) const;
  // The kernel of that name, where it is the first that takes the request or a candidate; else that first one, or
  // nullopt.
  std::optional<PreparedKernel> find(const KernelRequest& request, const std::string& name) const;
  std::vector<std::string> ops() const;

 private:
  std::map<std::string, std::vector<CandidateLister>> listers_;
  std::map<std::string, std::vector<KernelFactory>> factories_;
};

}  // namespace tessera
