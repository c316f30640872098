// TrainingProgress: how far a training has come, in its steps and in its data: what a checkpoint says of it.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/data/position.h"

namespace tessera::train {

// An epoch of the data that is trained on.
struct EpochOfData {
  int64_t num_batches = 0;
  int64_t rows_per_batch = 0;  // of all ranks
  bool is_repeated = false;    // it is several passes, between which a batch may have fewer rows
};

struct TrainingProgress {
  int64_t step = 0;            // since the beginning of training, skipped ones included
  int64_t epoch = 0;           // of the present call of train(), from 1; 0: between two calls
  int64_t step_in_epoch = 0;   // the last one that was done, from 1; 0: between two calls
  data::Position position;     // of the data; its epochs count on from call to call
  int64_t rows_per_batch = 0;  // of all ranks, that position counts in; 0: not known
  // Whether the data's source tells the state of random numbers that it draws by itself (data/source.h), that of this
  // rank at `position`, and whether another process has told it, so that the source is to be given it.
  bool tells_state = false;
  std::string data_state = {};
  bool is_state_due = false;

  static TrainingProgress of(const checkpoint::CheckpointInfo& info);
  void write_to(checkpoint::CheckpointInfo& info) const;

  // Of the present call of train(), whole ones. An epoch is done when its last batch is, whatever a batch is.
  int64_t epochs_done() const { return epoch > 0 && position.batch > 0 ? epoch - 1 : epoch; }
  // From here on the position counts batches of `data`, `batches_per_step` of which are a step. What was read may be as
  // much as an epoch of this data, or more, as where its batches are larger and a last short one is dropped: then that
  // epoch is done, and the progress is where the next one begins. Throws InvalidArgument saying what does not divide,
  // where what was read of the epoch does not end with `accumulated` batches of such a step, and for another number of
  // rows where the epoch is repeated passes.
  void count_in(const EpochOfData& data, int64_t batches_per_step, int64_t accumulated);
  // A step of train() is done.
  void advance(int64_t epoch, int64_t step_in_epoch);
  // train() has ended, maybe before its last epoch did: the next one begins an epoch of the data.
  void end();
};

}  // namespace tessera::train
