// LearningRateReader: the learning rate of a model's latest step, as the optimizer's states say it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/session/session.h"

namespace tessera::train {

class LearningRateReader {
 public:
  // Looks for the state that has it, which none of the parameters is. Where groups of parameters have rates of their
  // own it is that of the others.
  LearningRateReader(const session::Session& session, const std::vector<std::string>& parameters);
  // Absent where operators make the rate of each step, and where this rank has no states. Copies nothing where the host
  // reaches the states.
  std::optional<double> read(const session::Session& session) const;

 private:
  std::string rate_;   // the states' names; "" where there is none
  std::string steps_;  // counts the steps
};

}  // namespace tessera::train
