#include "tessera/cluster/ranks/rank_context.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/ranks/rank_words.h"
#include "tessera/cluster/recovery/recovery.h"
#include "tessera/comm/group_calls.h"

namespace tessera::cluster {
namespace {

void check_ranks(const std::string& name, const std::vector<int>& ranks, int world_size) {
  if (ranks.empty()) throw InvalidArgument("group \"{}\" needs at least one rank", name);
  std::vector<bool> seen(static_cast<size_t>(world_size));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world_size) {
      throw InvalidArgument("group \"{}\": rank {} does not exist; the world has ranks 0 to {}", name, rank,
                            world_size - 1);
    }
    if (seen[static_cast<size_t>(rank)]) throw InvalidArgument("group \"{}\" names rank {} twice", name, rank);
    seen[static_cast<size_t>(rank)] = true;
  }
}

}  // namespace

int num_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int usable_threads(int wanted) {
  if (wanted <= 0) return 0;
  const int usable = count_startable_threads(wanted);
  if (usable < wanted) {
    log_warning("the system has room for {} more threads, not for {}: computing with fewer; {}", usable, wanted,
                limits_text());
  }
  return usable;
}

LocalMembership::LocalMembership(std::shared_ptr<comm::JobState> job, int rank) : job_(std::move(job)), rank_(rank) {
  job_->set_thread(rank_, gettid());
}

RankContext::RankContext(const RankPlace& place, std::unique_ptr<comm::Transport> transport,
                         std::unique_ptr<Membership> membership)
    : place_(place),
      recorder_({.rank = place.rank, .size = place.size, .job = place.job_id}),
      membership_(std::move(membership)),
      progress_(membership_->progress()),
      transport_(std::move(transport)) {
  std::vector<int> all(static_cast<size_t>(place_.size));
  std::iota(all.begin(), all.end(), 0);
  try {
    RankContext::create_group(kWorldGroup, all);
  } catch (const std::exception& e) {
    // What another one's end has ended is no failure of this rank where it begins anew.
    Recovery* recovery = membership_->recovery();
    const bool is_of_others = recovery != nullptr && (recovery->has_failed() || is_of_other_rank(e));
    if (!is_of_others) membership_->announce_failure(origin_of(std::current_exception(), place_.rank), e.what());
    throw;
  }
}

comm::Communicator* RankContext::create_group(const std::string& name, const std::vector<int>& ranks) {
  if (name.empty()) throw InvalidArgument("a group needs a name");
  if (groups_.contains(name)) throw InvalidArgument("group \"{}\" exists already; destroy it first", name);
  check_ranks(name, ranks, place_.size);
  // Counted by non-members too, so that all ranks number the groups alike.
  const int number = num_created_++;
  const auto found = std::find(ranks.begin(), ranks.end(), place_.rank);
  std::unique_ptr<comm::Communicator>& group = groups_[name];
  if (found == ranks.end()) return nullptr;
  const comm::GroupInfo info{
      .name = name, .number = number, .rank = static_cast<int>(found - ranks.begin()), .ranks = ranks};
  try {
    group = ranks.size() > 1 ? transport_->create_communicator(info) : comm::make_single_communicator(info);
  } catch (...) {
    groups_.erase(name);
    throw;
  }
  return group.get();
}

void RankContext::destroy_group(const std::string& name) {
  if (name == kWorldGroup) throw InvalidArgument("group \"{}\" lasts as long as the job", name);
  if (groups_.erase(name) == 0) group(name);
}

comm::Communicator& RankContext::group(const std::string& name) {
  const auto found = groups_.find(name);
  if (found == groups_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, unused] : groups_) names.push_back(known);
    throw InvalidArgument("no group \"{}\"; the groups are {}", name, fmt::join(names, ", "));
  }
  if (found->second == nullptr) {
    throw InvalidArgument("rank {} is not in group \"{}\" and may not use it", place_.rank, name);
  }
  return *found->second;
}

bool RankContext::has_group(const std::string& name) const {
  const auto found = groups_.find(name);
  return found != groups_.end() && found->second != nullptr;
}

std::string RankContext::new_group_name(const std::string& wanted) {
  int& number = num_names_[wanted];
  std::string name;
  do {
    ++number;
    name = number == 1 ? wanted : fmt::format("{} #{}", wanted, number);
  } while (groups_.contains(name));
  return name;
}

const comm::GroupSpeed& RankContext::speed() {
  if (!speed_) speed_ = place_.size > 1 ? comm::measure_speed(world()) : comm::GroupSpeed{};
  return *speed_;
}

std::shared_ptr<void> RankContext::reserve_shared_memory(size_t size_bytes) {
  return transport_ ? transport_->allocate(size_bytes) : nullptr;
}

}  // namespace tessera::cluster
