#include "tessera/cluster/ranks/context.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/comm/transport.h"

namespace tessera::cluster {

int Context::world_rank_of(const std::string& group_name, int group_rank) {
  const comm::Communicator& members = group(group_name);
  if (group_rank < 0 || group_rank >= members.size()) {
    throw InvalidArgument("group \"{}\" has ranks 0 to {}, not {}", group_name, members.size() - 1, group_rank);
  }
  return members.ranks()[static_cast<size_t>(group_rank)];
}

int Context::group_rank_of(const std::string& group_name, int world_rank) {
  const std::vector<int>& ranks = group(group_name).ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), world_rank);
  if (found == ranks.end()) {
    throw InvalidArgument("rank {} of the world is not in group \"{}\", whose ranks are {}", world_rank, group_name,
                          fmt::join(ranks, ", "));
  }
  return static_cast<int>(found - ranks.begin());
}

std::shared_ptr<void> Context::allocate_communication_memory(size_t size_bytes) {
  std::shared_ptr<void> memory = reserve_shared_memory(size_bytes);
  return memory != nullptr ? memory : comm::allocate_pages(size_bytes);
}

std::unique_ptr<Context> single_context(int num_compute_threads) {
  make_room_on_stacks();
  return std::make_unique<RankContext>(
      RankPlace{.num_compute_threads =
                    1 + usable_threads((num_compute_threads > 0 ? num_compute_threads : num_cores()) - 1)},
      nullptr, std::make_unique<LocalMembership>(std::make_shared<comm::JobState>(1), 0));
}

}  // namespace tessera::cluster
