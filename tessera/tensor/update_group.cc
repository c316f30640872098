#include "tessera/tensor/update_group.h"

#include <algorithm>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/tensor/alignment.h"

namespace tessera {
namespace {

struct Member {
  PreparedKernel kernel;
  std::vector<TensorView> inputs, outputs;  // of the running call
};

struct Members {
  UpdateGroup group;
  std::vector<Member> members;
  std::vector<size_t> shares;  // thread i runs members [shares[i], shares[i + 1])
  int64_t scratch_bytes = 0;   // of one thread

  void run(const KernelArgs& args) {
    const auto num_shares = static_cast<int64_t>(shares.size()) - 1;
    args.parallel_for(num_shares, 1, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share) run_share(args, static_cast<size_t>(share));
    });
  }

  void run_share(const KernelArgs& args, size_t share) {
    const ParallelFor alone(1);
    const auto scratch = args.scratch.subspan(share * static_cast<size_t>(scratch_bytes));
    for (size_t m = shares[share]; m < shares[share + 1]; ++m) {
      Member& member = members[m];
      for (size_t i = 0; i < member.inputs.size(); ++i) member.inputs[i] = args.inputs[group.input(m, i)];
      for (size_t i = 0; i < member.outputs.size(); ++i) member.outputs[i] = args.outputs[group.output(m, i)];
      member.kernel.run({member.inputs, member.outputs, group.settings, scratch, alone});
    }
  }
};

// Consecutive members, the elements of each share about equal.
std::vector<size_t> divide(const KernelRequest& request, const UpdateGroup& group) {
  const auto elements = [&](size_t member) { return request.inputs[group.input(member, 0)].num_elements(); };
  int64_t total = 0;
  for (size_t m = 0; m < group.count; ++m) total += elements(m);
  std::vector<size_t> shares = {0};
  int64_t so_far = 0;
  for (size_t m = 0; m < group.count; ++m) {
    so_far += elements(m);
    const auto finished = static_cast<int64_t>(shares.size());
    if (finished < request.num_threads && so_far * request.num_threads >= finished * total && m + 1 < group.count) {
      shares.push_back(m + 1);
    }
  }
  shares.push_back(group.count);
  return shares;
}

}  // namespace

UpdateGroup::UpdateGroup(const Attributes& attributes, size_t num_inputs)
    : optimizer(attributes.get_string("optimizer")), settings(parse_attributes(attributes.get_string("settings"))) {
  const int64_t members = attributes.get_int("count");
  const int64_t scalars = attributes.get_int("scalars");
  const auto tensors = static_cast<int64_t>(num_inputs) - scalars;
  if (members < 1 || scalars < 0 || tensors < 2 * members || tensors % members != 0) {
    throw InvalidArgument("{} operands are not {} groups of a parameter, its states and its gradient, and {} scalars",
                          num_inputs, members, scalars);
  }
  count = static_cast<size_t>(members);
  num_tensors = static_cast<size_t>(tensors / members);
  num_scalars = static_cast<size_t>(scalars);
}

std::optional<PreparedKernel> prepare_update_group(const KernelRequest& request, const KernelRegistry& members) {
  const UpdateGroup group(request.attributes, request.inputs.size());
  const auto made = std::make_shared<Members>(Members{group, {}, divide(request, group)});
  std::string name;
  std::vector<std::pair<int, int>> in_place;
  for (size_t m = 0; m < group.count; ++m) {
    KernelRequest part{.op = group.optimizer, .attributes = group.settings, .num_threads = 1};
    for (size_t i = 0; i < group.num_tensors + group.num_scalars; ++i) {
      part.inputs.push_back(request.inputs[group.input(m, i)]);
    }
    for (size_t i = 0; i < group.num_results(); ++i) part.outputs.push_back(request.outputs[group.output(m, i)]);
    auto kernel = members.find(part);
    if (!kernel) return std::nullopt;
    for (const auto& [in, out] : kernel->in_place) {
      if (static_cast<size_t>(in) >= group.num_tensors) continue;
      in_place.emplace_back(static_cast<int>(group.input(m, static_cast<size_t>(in))),
                            static_cast<int>(group.output(m, static_cast<size_t>(out))));
    }
    name = kernel->name;
    made->scratch_bytes = std::max(made->scratch_bytes, aligned(kernel->scratch_bytes));
    made->members.push_back({std::move(*kernel), std::move(part.inputs), std::move(part.outputs)});
  }
  const int64_t scratch_bytes = made->scratch_bytes * (static_cast<int64_t>(made->shares.size()) - 1);
  return PreparedKernel{.name = name + ".group",
                        .run = [made](const KernelArgs& args) { made->run(args); },
                        .scratch_bytes = scratch_bytes,
                        .in_place = std::move(in_place)};
}

}  // namespace tessera
