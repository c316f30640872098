// From a data set to the inputs of a step: which rows of a batch this rank reads, and where they go.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/data/batch_iterator.h"
#include "tessera/data/dataset.h"
#include "tessera/session/session.h"
#include "tessera/timeline/timeline_recorder.h"
#include "tessera/train/batch_place.h"
#include "tessera/train/modes/mode.h"
#include "tessera/train/options/train_options.h"

namespace tessera::train {

// The inputs of a step, by column, for a batch of so many rows of all ranks. Throws InvalidArgument for a data set that
// is not batched.
InputSpecs input_specs(const data::Dataset& dataset, int64_t global_rows);

// What this rank reads of the data set's batches, for a step that is compiled for full ones. `recorder`, where its
// threads are timed, may be null, and else outlives the iterator.
data::BatchIterator batches_of(const data::Dataset& dataset, const Mode& mode, data::Position start, int64_t num_epochs,
                               const TrainOptions& options, const session::Executable& executable,
                               timeline::TimelineRecorder* recorder);

// The memory of whole batches, of which a rank takes its pieces.
class WholeBatches {
 public:
  // Where a batch with these columns goes. `has_own_rows`: the data set is one rank's part, which lies in memory as the
  // step reads it.
  BatchPlace place(session::Executable& executable, const InputSpecs& inputs, bool has_own_rows);

 private:
  // Rows that go to several places are written to memory of their own first.
  void add_own_rows(BatchPlace& place, const session::InputSpec& input, const std::vector<TensorView>& places);

  std::map<std::string, Tensor> memory_;  // by name and type of an input
};

}  // namespace tessera::train
