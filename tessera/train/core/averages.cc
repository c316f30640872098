#include "tessera/train/core/averages.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

// Whether each rank has the same piece of both.
bool are_split_alike(const session::Session& session, const std::string& a, const std::string& b) {
  const auto of_a = session.layouts(a);
  const auto of_b = session.layouts(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
}

}  // namespace

std::vector<std::pair<std::string, std::string>> averages_of(ModelCore& core, const std::string& who) {
  const nn::Optimizer* optimizer = core.cells.optimizer;
  const auto counter = optimizer != nullptr ? optimizer->average_counter() : std::string();
  session::Session& session = core.session();
  if (counter.empty() || !session.holds(counter)) {
    throw InvalidArgument(
        "{}: the optimizer keeps no averages of the parameters; give the model "
        "nn.ExponentialMovingAverage(optimizer), also for a checkpoint that has averages",
        who);
  }
  std::vector<std::pair<std::string, std::string>> names;
  if (session.value(counter).to_doubles()[0] == 0) return names;
  for (const nn::Parameter* parameter : core.cells.trainable_parameters()) {
    const auto average = optimizer->average_of(*parameter);
    if (session.holds(average)) names.emplace_back(parameter->full_name(), average);
  }
  return names;
}

void Averages::require_not_in_place(const std::string& who) const {
  if (!are_in_place_) return;
  throw InvalidArgument(
      "{}: the averages are in the places of the parameters, which would be taken for them; end their scope before",
      who);
}

void Averages::put_in_place() {
  require_not_in_place("averages");
  session::Session& session = core_.session();
  const auto names = averages_of(core_, "averages");
  copies_.clear();
  are_in_place_ = true;
  try {
    for (const auto& [name, average] : names) {
      const DType dtype = session.global_type(name).dtype;
      const bool is_local = are_split_alike(session, name, average);
      const Tensor whole = is_local ? Tensor() : session.value(average);
      copies_.emplace_back(name, session.values().read(name));
      if (is_local) {
        session.values().write(name, session.values().read(average).cast(dtype).view());
      } else {
        session.set_value(name, whole.cast(dtype));
      }
    }
  } catch (...) {
    restore();
    throw;
  }
}

void Averages::restore() {
  for (const auto& [name, piece] : copies_) core_.session().values().write(name, piece.view());
  copies_.clear();
  are_in_place_ = false;
}

}  // namespace tessera::train
