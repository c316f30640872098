// PreparedSource: a source one of whose columns is made, by transforms, of a column whose samples differ in size. The
// last of them may make all samples of one size. Internal to data/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/data/chain.h"
#include "tessera/data/source.h"

namespace tessera::data {

class PreparedSource : public Source {
 public:
  // The column must be of any size. Throws InvalidArgument where a transform does not take what it meets.
  PreparedSource(std::shared_ptr<const Source> base, size_t column, std::vector<ChainLink> links, uint64_t seed);

  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return base_->size(); }
  std::string to_string() const override { return base_->to_string(); }
  SourceState* own_state() const override { return base_->own_state(); }
  uint64_t content_hash() const override { return base_->content_hash(); }
  std::string sample_name(const SampleRef& sample) const override { return base_->sample_name(sample); }
  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override;
  Tensor read_any_size(const SampleRef& sample, size_t column) const override;

 private:
  // What the transforms but the last make of the sample, given to `last` with that one's draws; what they throw names
  // the sample.
  void run(const SampleRef& sample, const std::function<void(const Tensor& value, const Draws& draws)>& last) const;
  Draws draws_of(const SampleRef& sample, const ChainLink& link) const;

  std::shared_ptr<const Source> base_;
  size_t column_;
  std::vector<ChainLink> links_;
  uint64_t seed_;
  std::vector<Column> columns_;
};

}  // namespace tessera::data
