// Averages: what an optimizer keeps of the parameters' values (nn/tuning/exponential_moving_average.h), in the places
// of the parameters for as long as somebody looks at them there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/parameter.h"
#include "tessera/train/core/model_core.h"

namespace tessera::train {

// Where the averages of a model are: the name of the state by that of the parameter, in the order of the parameters.
// None before the first update. Throws InvalidArgument, beginning with `who`, where the optimizer keeps none.
// Collective.
std::vector<std::pair<std::string, std::string>> averages_of(ModelCore& core, const std::string& who);

class Averages {
 public:
  explicit Averages(ModelCore& core) : core_(core) {}

  bool are_in_place() const { return are_in_place_; }
  // Throws InvalidArgument, "train: ...", where they are in the places of the parameters.
  void require_not_in_place(const std::string& who) const;
  // Writes them over this rank's pieces of the parameters, of which it makes copies, rounded where those are of a half
  // type. Nothing else is changed. Throws as averages_of(), and where they are there already. Collective.
  void put_in_place();
  // Puts the copies back: the parameters have the bits that they had.
  void restore();

 private:
  ModelCore& core_;
  bool are_in_place_ = false;
  std::vector<std::pair<std::string, Tensor>> copies_;  // this rank's pieces of the parameters, by name
};

}  // namespace tessera::train
