// BatchIterator delivers the batches of a Dataset in order, epoch after epoch. Worker threads make them ahead into
// memory that is allocated once; what they throw is thrown to the caller at the batch that it happened in. What is
// delivered depends on the data set and the position only, never on the workers.
// Used from one thread at a time. Destroying it stops the workers after the samples that they are at.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/data/dataset.h"

namespace tessera::data {

struct BatchView {
  Position position;
  int64_t num_rows = 0;  // the rows of this rank
  // One view per column, dim 0 is num_rows (samples without it where nothing is batched).
  std::span<const TensorView> columns;
};

class BatchIterator {
 public:
  BatchIterator(std::shared_ptr<const Recipe> recipe, const IterateOptions& options);
  BatchIterator(BatchIterator&&) noexcept;
  BatchIterator& operator=(BatchIterator&&) noexcept;
  ~BatchIterator();

  // The next batch in the iterator's own memory, valid until the next call; nullptr after the last. No memory is
  // allocated. After an exception every further call throws it again and the position stays before that batch.
  const BatchView* next_view();
  // The next batch as dense tensors of its own; nullopt after the last.
  std::optional<std::vector<Tensor>> next();
  // Writes the next batch into `outputs`, one view per column of the right dtype and shape (next_types()), any strides;
  // false after the last. Throws InvalidArgument naming the column when they do not fit; the batch is then still the
  // next.
  bool next_into(std::span<const TensorView> outputs);

  // The types of the next batch's columns: fewer rows in a last, shorter batch. Empty after the last.
  std::vector<Type> next_types() const;
  // Rows of the next global batch, of which this rank gets its part: the batch size but in a last, shorter batch. 0
  // after the last.
  int64_t next_global_rows() const;
  // Where the next batch is: IterateOptions::start takes it to go on from here. {epoch + 1, 0} at an epoch's end.
  Position position() const;
  // The state of the source (source.h) with which it is read on from position(); "" before the first batch, and where
  // IterateOptions::keeps_state is not set or the source tells none.
  const std::string& source_state() const;
  // How often a batch was not ready when it was asked for. Growing step by step, it means that training is not kept fed
  // and wants more workers.
  int64_t num_waits() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::data
