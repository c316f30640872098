#include "tessera/train/core/learning_rate_reader.h"

#include <algorithm>
#include <string_view>

namespace tessera::train {
namespace {

constexpr std::string_view kRateState = "learning_rate";
constexpr std::string_view kStepState = "global_step";

// One element of a value, where this rank has it.
std::optional<double> element_of(const session::Values& values, const std::string& name, int64_t index) {
  const int64_t size = values.type(name).shape.num_elements();
  if (size == 0) return std::nullopt;
  const auto read = [&](const TensorView& view) -> std::optional<double> {
    const int64_t at = std::clamp<int64_t>(index, 0, size - 1);
    switch (view.dtype) {
      case DType::kF32: return view.as<float>()[at];
      case DType::kF64: return view.as<double>()[at];
      case DType::kI32: return view.as<int32_t>()[at];
      default: return std::nullopt;
    }
  };
  if (const auto view = values.in_place(name)) return read(*view);
  return read(values.read(name).view());
}

}  // namespace

LearningRateReader::LearningRateReader(const session::Session& session, const std::vector<std::string>& parameters) {
  for (const std::string& name : session.names()) {
    if (!name.ends_with(kRateState) || std::ranges::find(parameters, name) != parameters.end()) continue;
    const std::string prefix = name.substr(0, name.size() - kRateState.size());
    if (!session.holds(prefix + std::string(kStepState))) continue;
    rate_ = name;
    steps_ = prefix + std::string(kStepState);
    return;
  }
}

std::optional<double> LearningRateReader::read(const session::Session& session) const {
  if (rate_.empty()) return std::nullopt;
  const session::Values& values = session.values();
  const auto steps = element_of(values, steps_, 0);
  if (!steps) return std::nullopt;
  // It has been counted up since the rate was read.
  return element_of(values, rate_, static_cast<int64_t>(*steps) - 1);
}

}  // namespace tessera::train
