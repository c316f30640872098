// LearningRateReader: the learning rate of a model's latest step, as the optimizer's states say it.
#pragma once

#include <optional>
#include <string>

#include "tessera/train/model.h"

namespace tessera::train {

class LearningRateReader {
 public:
  // Looks for the state that has it. Where groups of parameters have rates of their own it is that of the others.
  explicit LearningRateReader(const Model& model);
  // Absent where operators make the rate of each step, and where this rank has no states. Copies nothing where the host
  // reaches the states.
  std::optional<double> read(const Model& model) const;

 private:
  std::string rate_;   // the states' names; "" where there is none
  std::string steps_;  // counts the steps
};

}  // namespace tessera::train
