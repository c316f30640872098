// TrainingIdentity: by what a training is known again: its id, its optimizer, and what its network computes.
#pragma once

#include <optional>
#include <string>

#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/ir/graph.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/saving/network_identity.h"

namespace tessera::train {

class TrainingIdentity {
 public:
  explicit TrainingIdentity(ModelCore& core) : core_(core) {}

  // A random one, or that of the checkpoint that was loaded to go on from. Collective.
  const std::string& id();
  // The id where it is known; else "".
  const std::string& known_id() const { return id_; }
  // Goes on as the training of that id, unless it is "".
  void go_on_as(const std::string& id) { id_ = id; }
  // "" where the model has no optimizer.
  std::string optimizer() const;
  // What the network computes; known once the training step is traced.
  const NetworkIdentity& network() const { return network_; }
  // Takes that of a step that was traced. Throws InvalidArgument where a checkpoint that was loaded before is of
  // another network.
  void note_network(const ir::Graph& train_step);
  // The network has changed: the next step that is traced is of another one.
  void forget_network() { network_ = {}; }
  // Throws InvalidArgument saying what differs when a checkpoint's optimizer or network is another one. A network that
  // is not known yet is compared when it is.
  void require_same(const std::string& path, const checkpoint::CheckpointInfo& info) const;
  // Goes on as the training of a checkpoint.
  void take(const std::string& path, const checkpoint::CheckpointInfo& info, bool accept_other_jobs);

 private:
  void require_same_network(const std::string& path, const NetworkIdentity& there) const;

  ModelCore& core_;
  std::string id_;  // "" before it is asked for
  NetworkIdentity network_;
  std::optional<NetworkIdentity> network_to_compare_;  // of the checkpoint that was loaded before it was known
  std::string loaded_path_;
};

}  // namespace tessera::train
