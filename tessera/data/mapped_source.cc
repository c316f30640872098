#include "tessera/data/mapped_source.h"

#include <algorithm>

namespace tessera::data {
namespace {

void require_unique(const std::string& who, const std::vector<Column>& columns) {
  for (size_t i = 0; i < columns.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (columns[i].name == columns[j].name) {
        throw InvalidArgument("{}: there would be two columns \"{}\"", who, columns[i].name);
      }
    }
  }
}

}  // namespace

MappedSource::MappedSource(std::shared_ptr<const Recipe> base, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs, ColumnsFunction function)
    : base_(std::move(base)), function_(std::move(function)) {
  const std::string who = "map " + function_.name;
  for (const Column& column : base_->source->columns()) require_one_size(who, column);
  if (inputs.empty() || outputs.empty()) throw InvalidArgument("{}: needs input and output columns", who);
  std::vector<Type> types;
  for (const auto& name : inputs) {
    inputs_.push_back(base_column(who, name));
    types.push_back(base_->column_type(inputs_.back()));
  }
  made_ = function_.output_types(types);
  if (made_.size() != outputs.size()) {
    throw InvalidArgument("{}: makes {} columns, but {} are named: {}", who, made_.size(), outputs.size(),
                          fmt::join(outputs, ", "));
  }
  for (size_t i = 0; i < base_->chains.size(); ++i) {
    if (i == inputs_.front()) {
      for (size_t k = 0; k < outputs.size(); ++k) {
        columns_.push_back({outputs[k], made_[k]});
        origins_.push_back({true, k});
      }
    }
    if (std::find(inputs_.begin(), inputs_.end(), i) != inputs_.end()) continue;
    columns_.push_back({base_->source->columns()[i].name, base_->column_type(i)});
    origins_.push_back({false, i});
  }
  require_unique(who, columns_);
}

MappedSource::MappedSource(std::shared_ptr<const Recipe> base, const std::vector<std::string>& kept)
    : base_(std::move(base)) {
  if (kept.empty()) throw InvalidArgument("project: needs at least one column");
  for (const Column& column : base_->source->columns()) require_one_size("project", column);
  for (const auto& name : kept) {
    const size_t i = base_column("project", name);
    columns_.push_back({name, base_->column_type(i)});
    origins_.push_back({false, i});
  }
  require_unique("project", columns_);
}

size_t MappedSource::base_column(const std::string& who, const std::string& name) const {
  const auto& columns = base_->source->columns();
  std::vector<std::string> names;
  for (const Column& column : columns) names.push_back(column.name);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw InvalidArgument("{}: no column \"{}\"; the data set has {}", who, name, fmt::join(names, ", "));
  }
  return static_cast<size_t>(found - names.begin());
}

void MappedSource::read(const SampleRef& sample, std::span<const TensorView> outputs) const {
  const std::vector<Tensor> values = base_->make_sample(sample);
  if (!made_.empty()) {
    std::vector<TensorView> in;
    std::vector<TensorView> out(made_.size());
    for (const size_t i : inputs_) in.push_back(values[i].view());
    for (size_t i = 0; i < origins_.size(); ++i) {
      if (origins_[i].is_made) out[origins_[i].index] = outputs[i];
    }
    function_.apply(in, out);
  }
  for (size_t i = 0; i < origins_.size(); ++i) {
    if (!origins_[i].is_made) copy_elements(values[origins_[i].index].view(), outputs[i]);
  }
}

}  // namespace tessera::data
