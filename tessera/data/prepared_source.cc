#include "tessera/data/prepared_source.h"

#include "tessera/base/error.h"

namespace tessera::data {

PreparedSource::PreparedSource(std::shared_ptr<const Source> base, size_t column, std::vector<ChainLink> links,
                               uint64_t seed)
    : base_(std::move(base)), column_(column), links_(std::move(links)), seed_(seed), columns_(base_->columns()) {
  check(has_any_size(columns_[column].type) && !links_.empty(), "a column to prepare is of any size");
  for (const ChainLink& link : links_) columns_[column].type = link.transform.output_type(columns_[column].type);
}

Draws PreparedSource::draws_of(const SampleRef& sample, const ChainLink& link) const {
  return {{seed_, link.stream, static_cast<uint64_t>(sample.epoch)}, static_cast<uint64_t>(sample.position)};
}

void PreparedSource::run(const SampleRef& sample,
                         const std::function<void(const Tensor& value, const Draws& draws)>& last) const {
  Tensor value = base_->read_any_size(sample, column_);
  try {
    for (size_t i = 0; i + 1 < links_.size(); ++i) value = links_[i].transform(value, draws_of(sample, links_[i]));
    last(value, draws_of(sample, links_.back()));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("{}: {}", sample_name(sample), error.what());
  }
}

void PreparedSource::read(const SampleRef& sample, std::span<const TensorView> outputs) const {
  base_->read(sample, outputs);
  const Type& wanted = columns_[column_].type;
  if (has_any_size(wanted)) return;
  run(sample, [&](const Tensor& value, const Draws& draws) {
    const Transform& last = links_.back().transform;
    const Type made = last.output_type(value.type());
    if (!(made == wanted)) {
      throw InvalidArgument("{}: makes {} of {}, where other samples become {}", last.to_string(), made, value.type(),
                            wanted);
    }
    last.op().apply(value.view(), outputs[column_], draws);
  });
}

Tensor PreparedSource::read_any_size(const SampleRef& sample, size_t column) const {
  if (column != column_) return base_->read_any_size(sample, column);
  Tensor made;
  run(sample, [&](const Tensor& value, const Draws& draws) { made = links_.back().transform(value, draws); });
  return made;
}

}  // namespace tessera::data
