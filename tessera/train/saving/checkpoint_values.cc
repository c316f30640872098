#include "tessera/train/saving/checkpoint_values.h"

#include <algorithm>
#include <string_view>

#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/layers/dropout.h"

namespace tessera::train {

std::set<std::string> statistics_of(const std::vector<nn::Parameter*>& parameters) {
  std::set<std::string> names;
  for (const nn::Parameter* parameter : parameters) {
    if (parameter->is_statistic) names.insert(parameter->full_name());
  }
  return names;
}

bool is_regrouped(const checkpoint::StoredEntry& entry, const Type& type) {
  return !entry.is_text && entry.shape != type.shape && entry.shape.ndim() > 0 && entry.shape.ndim() <= 2 &&
         type.shape.ndim() > 0 && entry.shape.back() == type.shape.back();
}

Tensor regroup(const Tensor& stored, const Type& wanted) {
  const bool had_groups = stored.ndim() == wanted.shape.ndim() && wanted.shape.ndim() == 2;
  const int64_t channels = stored.shape().back();
  const int64_t rows = stored.num_elements() / std::max<int64_t>(channels, 1);
  const auto values = stored.to_doubles();
  std::vector<double> mean(static_cast<size_t>(channels));
  for (size_t i = 0; i < values.size(); ++i) mean[i % mean.size()] += values[i] / static_cast<double>(rows);
  std::vector<double> result;
  const int64_t wanted_rows = had_groups || wanted.shape.ndim() == 2 ? wanted.shape[0] : 1;
  for (int64_t r = 0; r < wanted_rows; ++r) result.insert(result.end(), mean.begin(), mean.end());
  return Tensor::of(wanted.shape, std::span<const double>(result)).cast(wanted.dtype);
}

namespace {
constexpr std::string_view kOfRanks = ".of_ranks";
}  // namespace

std::string name_of_rows(const std::string& statistic) { return statistic + std::string(kOfRanks); }

std::string statistic_of_rows(const std::string& name) {
  return name.ends_with(kOfRanks) ? name.substr(0, name.size() - kOfRanks.size()) : "";
}

bool is_learning_rate(const std::string& name) {
  return name == "learning_rate" || name.starts_with("learning_rate_group_");
}

bool keeps_own_rate(const std::string& name, const checkpoint::StoredEntry* stored, const Type* own) {
  if (!is_learning_rate(name)) return false;
  const auto is_fixed = [](const Shape& shape) { return shape.ndim() == 0; };
  const bool both_fixed = stored != nullptr && own != nullptr && is_fixed(stored->shape) && is_fixed(own->shape);
  return !both_fixed;
}

bool may_be_missing(const std::string& name) { return name == nn::kRandomStep || nn::is_accumulation_state(name); }

}  // namespace tessera::train
