#include "tessera/train/saving/training_progress.h"

#include "tessera/base/error.h"

namespace tessera::train {

TrainingProgress TrainingProgress::of(const checkpoint::CheckpointInfo& info) {
  return {.step = info.step,
          .epoch = info.epoch,
          .step_in_epoch = info.step_in_epoch,
          .position = info.data_position.empty() ? data::Position{} : data::parse_position(info.data_position),
          .rows_per_batch = info.rows_per_batch};
}

void TrainingProgress::write_to(checkpoint::CheckpointInfo& info) const {
  info.step = step;
  info.epoch = epoch;
  info.step_in_epoch = step_in_epoch;
  info.data_position = position.to_string();
  info.rows_per_batch = rows_per_batch;
}

void TrainingProgress::count_in(const EpochOfData& data, int64_t batches_per_step, int64_t accumulated) {
  const int64_t rows = data.rows_per_batch;
  int64_t batches = position.batch;
  const bool is_recounted = batches > 0 && rows_per_batch > 0 && rows_per_batch != rows;
  if (is_recounted && data.is_repeated) {
    throw InvalidArgument(
        "train: the checkpoint was saved after {} batches of {} rows (of all ranks) of an epoch, here a batch has "
        "{}; an epoch of a data set with repeat() can only go on with the batches that it began with: give them {} "
        "rows",
        batches, rows_per_batch, rows, rows_per_batch);
  }
  int64_t rows_read = 0;
  if (__builtin_mul_overflow(batches, is_recounted ? rows_per_batch : rows, &rows_read)) {
    throw InvalidArgument(
        "train: the checkpoint says that it was saved after {} batches of {} rows of an epoch, which are more rows "
        "than "
        "an int64 counts; it is damaged",
        batches, is_recounted ? rows_per_batch : rows);
  }
  const bool has_ended = batches > 0 && rows_read / rows >= data.num_batches;
  if (has_ended) {
    batches = 0;
  } else if (is_recounted) {
    if (rows_read % rows != 0) {
      throw InvalidArgument(
          "train: the checkpoint was saved after {} rows of an epoch ({} batches of {} rows of all ranks), which are "
          "no whole number of batches of {} rows; go on with a batch size that divides {}",
          rows_read, batches, rows_per_batch, rows, rows_read);
    }
    batches = rows_read / rows;
  }
  if (accumulated > 0 && batches % batches_per_step != accumulated) {
    throw InvalidArgument("train: {} batches of train_step are accumulated; finish the step of {} first", accumulated,
                          batches_per_step);
  }
  if (batches % batches_per_step != accumulated) {
    throw InvalidArgument(
        "train: the checkpoint was saved after {} batches of {} rows (of all ranks) of an epoch, which are no whole "
        "number of steps of {} batches; go on with a gradient_accumulation_steps that divides {}",
        batches, rows, batches_per_step, batches);
  }
  position = {position.epoch + (has_ended ? 1 : 0), batches};
  rows_per_batch = rows;
}

void TrainingProgress::advance(int64_t new_epoch, int64_t new_step_in_epoch) {
  epoch = new_epoch;
  step_in_epoch = new_step_in_epoch;
}

void TrainingProgress::end() {
  epoch = 0;
  step_in_epoch = 0;
  if (position.batch > 0) position = {position.epoch + 1, 0};
}

}  // namespace tessera::train
