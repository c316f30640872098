#include "tessera/train/saving/training_identity.h"

#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {
namespace {

[[noreturn]] void refuse_other_training(const std::string& path, const std::string& difference) {
  throw InvalidArgument(
      "{}: is of another training: {}; to go on with it nevertheless accept other jobs, to start a new training from "
      "its weights load the parameters only",
      path, difference);
}

}  // namespace

const std::string& TrainingIdentity::id() {
  if (!id_.empty()) return id_;
  id_ = random_id();
  if (core_.mode->is_shared()) id_ = RankBarrier(core_.context.world()).exchange(id_)[0];
  return id_;
}

std::string TrainingIdentity::optimizer() const {
  return core_.cells.optimizer != nullptr ? core_.cells.optimizer->name() : std::string();
}

void TrainingIdentity::note_network(const ir::Graph& train_step) {
  // Where each rank normalises its own rows, the graph depends on the number of ranks.
  if (core_.mode->batch_norm_groups() > 0) return;
  if (network_.hash.empty()) network_ = identity_of(train_step);
  if (network_to_compare_) require_same_network(loaded_path_, *network_to_compare_);
  network_to_compare_.reset();
}

void TrainingIdentity::require_same_network(const std::string& path, const NetworkIdentity& there) const {
  const auto making = [](const std::string& hash) { return hash.substr(0, hash.find('-')); };
  if (there.hash == network_.hash || there.hash.empty() || network_.hash.empty() ||
      making(there.hash) != making(network_.hash)) {
    return;
  }
  refuse_other_training(path, "its network computes something else, " + difference_of(there, network_));
}

void TrainingIdentity::require_same(const std::string& path, const checkpoint::CheckpointInfo& info) const {
  const auto own = optimizer();
  if (!own.empty() && !info.optimizer.empty() && own != info.optimizer) {
    refuse_other_training(path, fmt::format("its optimizer is {}, here it is {}", info.optimizer, own));
  }
  require_same_network(path, {info.network_hash, info.network_operators});
}

void TrainingIdentity::take(const std::string& path, const checkpoint::CheckpointInfo& info, bool accept_other_jobs) {
  id_ = info.training_id;
  network_to_compare_.reset();
  if (network_.hash.empty() && !accept_other_jobs) {
    network_to_compare_ = NetworkIdentity{info.network_hash, info.network_operators};
    loaded_path_ = path;
  }
}

}  // namespace tessera::train
