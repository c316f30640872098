#include "tessera/session/agree/agree_on_kernels.h"

#include <algorithm>

#include "tessera/session/agree/gather_texts.h"

namespace tessera::session {
namespace {

// Rank 0 shows after so long that it is alive; the others wait for it no longer than for any peer.
constexpr int64_t kTurnNs = 2'000'000'000;
constexpr const char* kWho = "agreeing on kernels";

// Requests and answers travel as tables of no machine in particular: what rank 0 says holds for all.
executor::KernelTable travelling() { return executor::KernelTable("any"); }

}  // namespace

bool agree_on_kernels(cluster::Context& context, const executor::KernelSelection& kernels,
                      executor::KernelTable& table) {
  auto noted = travelling();
  for (auto& request : kernels.take_noted()) noted.add({.request = std::move(request)});
  const auto mine = noted.measurements().empty() ? "" : noted.to_json();
  const auto of_ranks = gather_texts(context.world(), mine, kWho);
  if (std::all_of(of_ranks.begin(), of_ranks.end(), [](const auto& text) { return text.empty(); })) return false;

  auto wanted = travelling();
  for (const auto& text : of_ranks) {
    if (!text.empty()) wanted.merge_json(text);
  }
  auto answers = travelling();
  auto next = wanted.measurements().begin();
  for (std::string answer; answer.empty();) {
    if (context.rank() == 0) {
      const int64_t begin = context.clock().monotonic_ns();
      for (; next != wanted.measurements().end() && context.clock().monotonic_ns() - begin < kTurnNs; ++next) {
        const auto& request = next->second.request;
        if (table.find(request) == nullptr) kernels.measure(request);
        answers.add(*table.find(request));
      }
      if (next == wanted.measurements().end()) answer = answers.to_json();
    }
    answer = gather_texts(context.world(), answer, kWho)[0];
    if (!answer.empty()) answers.merge_json(answer);
  }
  for (const auto& [key, measurement] : answers.measurements()) table.add(measurement);
  return true;
}

}  // namespace tessera::session
