#include "tessera/checkpoint/lock/share_outcome.h"

#include <exception>

#include "tessera/base/error.h"

namespace tessera::checkpoint {

std::vector<std::string> share_outcome(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part) {
  constexpr char kFailed = '!';
  std::exception_ptr own;
  std::string outcome;
  try {
    outcome = "=" + part();
  } catch (const std::exception& error) {
    own = std::current_exception();
    outcome = kFailed + std::string(error.what());
  }
  auto outcomes = barrier.exchange(outcome);
  if (own) std::rethrow_exception(own);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].front() == kFailed) {
      barrier.throw_failure_of(static_cast<int>(rank),
                               fmt::format("rank {}: {}: {}", rank, what_fails, outcomes[rank].substr(1)));
    }
    outcomes[rank].erase(0, 1);
  }
  return outcomes;
}

std::vector<std::string> run_together(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part) {
  return share_outcome(barrier, what_fails, [&] {
    std::string result;
    barrier.run_long([&] { result = part(); });
    return result;
  });
}

}  // namespace tessera::checkpoint
