// What a Dataset holds: the source, its order, the transforms of each column, and the stages that order rows before and
// after batching. Internal to data/.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/data/chain.h"
#include "tessera/data/index_stages.h"
#include "tessera/data/source.h"

namespace tessera::data {

// The rows [first, first + count) of one epoch before batching.
struct RowRange {
  int64_t epoch = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// A SourceOrder is the order of a source's samples and this shard's part of it.
class SourceOrder {
 public:
  // Throws InvalidArgument, naming `source`, for impossible options.
  SourceOrder(const std::string& source, int64_t num_source_samples, const SourceOptions& options);
  int64_t size() const { return size_; }
  SampleRef sample(EpochIndex place) const;
  // How many places of the order the shards have together, each counted once; and the sample at one of them.
  int64_t num_positions() const { return std::min(size_ * options_.num_shards, num_source_samples_); }
  SampleRef at(int64_t epoch, int64_t position) const;
  const SourceOptions& options() const { return options_; }

 private:
  int64_t num_source_samples_;
  SourceOptions options_;
  int64_t size_;
  uint64_t stream_ = hash_name("data.source_order");
  mutable OrderCache cache_;
};

struct Recipe {
  std::shared_ptr<const Source> source;
  std::shared_ptr<const SourceOrder> order;
  std::vector<std::vector<ChainLink>> links;         // the links of each column
  std::vector<std::shared_ptr<const Chain>> chains;  // compiled
  std::vector<std::shared_ptr<const IndexStage>> sample_stages;
  int64_t batch_size = 0;  // 0: not batched
  bool drop_remainder = false;
  std::vector<std::shared_ptr<const IndexStage>> batch_stages;
  int64_t repeat_count = 1;
  int64_t num_parts = 1;
  int num_maps = 0, num_shuffles = 0, num_mixes = 0;
  int64_t nominal_size = 0;  // rows, where an endless repeat counts once
  std::string text;
  std::string row_order;  // of it what decides the order of rows, but for the shard

  int64_t num_samples() const { return sample_stages.empty() ? order->size() : sample_stages.back()->size(); }
  // How many batches there are before batch_stages, or samples where nothing is batched.
  int64_t num_batched_rows() const;
  int64_t size() const { return batch_stages.empty() ? num_batched_rows() : batch_stages.back()->size(); }
  // The samples of row `place` of the data set.
  RowRange rows(EpochIndex place) const;
  SampleRef sample(EpochIndex place) const;
  // The sample's columns, transformed.
  std::vector<Tensor> make_sample(const SampleRef& sample) const;
  Type column_type(size_t column) const { return chains[column]->output_type(); }
};

}  // namespace tessera::data
