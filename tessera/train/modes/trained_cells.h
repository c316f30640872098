// What a model trains: a network, its loss and its optimizer.
#pragma once

#include <vector>

#include "tessera/nn/cell.h"
#include "tessera/nn/optimizers/optimizer.h"

namespace tessera::train {

struct TrainedCells {
  nn::Cell& network;
  nn::Cell* loss = nullptr;            // may be null
  nn::Optimizer* optimizer = nullptr;  // null for a model that only predicts

  // Those of the network come first, then those of the loss.
  std::vector<nn::Parameter*> parameters() const {
    return joined(network.parameters(), loss == nullptr ? std::vector<nn::Parameter*>() : loss->parameters());
  }
  std::vector<nn::Parameter*> trainable_parameters() const {
    return joined(network.trainable_parameters(),
                  loss == nullptr ? std::vector<nn::Parameter*>() : loss->trainable_parameters());
  }

 private:
  static std::vector<nn::Parameter*> joined(std::vector<nn::Parameter*> all, const std::vector<nn::Parameter*>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

}  // namespace tessera::train
