#include "tessera/data/batch_iterator.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>

#include "tessera/base/thread.h"
#include "tessera/data/recipe.h"
#include "tessera/timeline/timeline_recorder.h"

namespace tessera::data {
namespace {

// Rows [begin, end) of what is split between ranks.
struct Part {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

Part part_of(int64_t num_rows, const IterateOptions& options) {
  if (options.num_parts > 1) {
    const int64_t small = num_rows / options.num_parts;
    const int64_t larger = num_rows % options.num_parts;
    const int64_t begin = options.part * small + std::min(options.part, larger);
    return {begin, begin + small + (options.part < larger ? 1 : 0)};
  }
  const int64_t begin = std::min(options.row_begin, num_rows);
  const int64_t end = options.row_end < 0 ? num_rows : std::min(options.row_end, num_rows);
  return {begin, std::max(begin, end)};
}

bool takes_part(const IterateOptions& options) {
  return options.num_parts > 1 || options.row_begin > 0 || options.row_end >= 0;
}

// Rows that a worker takes at a time: enough to make the lock's cost vanish, few enough that two workers share a batch.
constexpr int64_t kRowsPerTask = 8;

// One batch, being made or ready.
struct Slot {
  RowRange samples;
  Part part;  // of the samples, or of dim 0 where nothing is batched
  std::vector<Tensor> memory;
  std::vector<TensorView> columns;
  int64_t tasks_left = 0;
  bool ready = false;
  std::exception_ptr error;
  int64_t error_row = 0;
  std::string state_after;  // of the source, when the batch is made
};

// What one thread needs to make samples.
struct Worker {
  std::vector<Tensor> samples;  // as the source gives them
  std::vector<Tensor> values;   // whole samples of which only some rows are delivered
  std::vector<Chain::Workspace> workspaces;
  std::vector<TensorView> reads;
  std::optional<timeline::TimedWork> work;  // what its thread is timed by
};

void validate(const Recipe& recipe, const IterateOptions& options) {
  if (recipe.size() == 0) {
    throw InvalidArgument("batches: an epoch of \"{}\" has no batch: {} samples, batches of {}{}", recipe.text,
                          recipe.num_samples(), recipe.batch_size,
                          recipe.drop_remainder ? ", the remainder is dropped" : "");
  }
  if (options.num_workers < 0 || options.num_workers > 1024) {
    throw InvalidArgument("batches: num_workers must be in [0, 1024], got {}", options.num_workers);
  }
  if (options.prefetch < 1) throw InvalidArgument("batches: prefetch must be positive, got {}", options.prefetch);
  if (options.num_epochs < -1) {
    throw InvalidArgument("batches: num_epochs must be -1 (no end) or more, got {}", options.num_epochs);
  }
  const Position& start = options.start;
  if (start.epoch < 0 || start.batch < 0 || start.batch > recipe.size()) {
    throw InvalidArgument("batches: start {} lies outside an epoch of {} batches", start.to_string(), recipe.size());
  }
  int64_t first_sample = 0;
  if (__builtin_mul_overflow(start.batch, std::max<int64_t>(recipe.batch_size, 1), &first_sample) ||
      first_sample > std::numeric_limits<int64_t>::max() / 2) {
    throw InvalidArgument("batches: start {} lies behind more samples than an int64 counts: {} a batch",
                          start.to_string(), recipe.batch_size);
  }
  if (options.num_parts < 1 || options.part < 0 || options.part >= options.num_parts) {
    throw InvalidArgument("batches: part must be in [0, num_parts), got part {} of {}", options.part,
                          options.num_parts);
  }
  const bool rows_given = options.row_begin != 0 || options.row_end != -1;
  if (rows_given && options.num_parts > 1) {
    throw InvalidArgument("batches: give either row_begin and row_end, or part and num_parts");
  }
  if (options.row_begin < 0 || options.row_end < -1 || (options.row_end >= 0 && options.row_end < options.row_begin) ||
      (recipe.batch_size > 0 && std::max(options.row_begin, options.row_end) > recipe.batch_size)) {
    throw InvalidArgument("batches: rows [{}, {}) are no range of a batch of {}", options.row_begin, options.row_end,
                          recipe.batch_size);
  }
  for (const Column& column : recipe.source->columns()) require_one_size("batches", column);
  if (takes_part(options) && recipe.batch_size == 0) {
    for (size_t i = 0; i < recipe.chains.size(); ++i) {
      if (recipe.column_type(i).shape.ndim() == 0) {
        throw InvalidArgument("batches: column \"{}\" is a scalar and has no rows to take a part of; batch first",
                              recipe.source->columns()[i].name);
      }
    }
  }
}

}  // namespace

struct BatchIterator::Impl {
  Impl(std::shared_ptr<const Recipe> recipe_in, const IterateOptions& options_in)
      : recipe(std::move(recipe_in)), options(options_in) {
    validate(*recipe, options);
    size = recipe->size();
    start = options.start;
    if (start.batch == size) start = {start.epoch + 1, 0};
    if (options.num_epochs >= 0 && size != kEndless) {
      const int64_t epochs = options.num_epochs - (start.epoch - options.start.epoch);
      if (__builtin_mul_overflow(epochs, size, &end)) {
        throw InvalidArgument("batches: {} epochs of {} batches are more than an int64 counts; -1 epochs have no end",
                              options.num_epochs, size);
      }
      end = std::max<int64_t>(0, end - start.batch);
    } else if (options.num_epochs == 0) {
      end = 0;
    }
    if (auto* state = recipe->source->own_state(); options.keeps_state && state != nullptr && state->is_told()) {
      state_of_source = state;
      options.num_workers = std::min(options.num_workers, 1);
    }
    const int num_slots = options.num_workers == 0 ? 1 : options.prefetch + 1;
    slots.resize(static_cast<size_t>(num_slots));
    for (Slot& slot : slots) allocate(slot);
    workers.resize(static_cast<size_t>(std::max(options.num_workers, 1)));
    for (size_t i = 0; i < workers.size(); ++i) {
      prepare(workers[i]);
      workers[i].work.emplace(options.recorder, fmt::format("data worker {}", i + 1),
                              timeline::SpanName{.kind = timeline::SpanKind::kWorker, .text = "rows of a batch"});
    }
    try {
      for (int i = 0; i < options.num_workers; ++i) {
        threads.start("the workers that prepare batches", [this, i] { work(workers[static_cast<size_t>(i)]); });
      }
    } catch (...) {
      stop_workers();
      throw;
    }
  }

  ~Impl() { stop_workers(); }
  void stop_workers() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work_possible.notify_all();
    threads.join();
  }

  // --- what is delivered where

  Position position_of(int64_t sequence) const {
    if (size == kEndless) return {start.epoch, start.batch + sequence};
    const int64_t batches = start.batch + sequence;
    return {start.epoch + batches / size, batches % size};
  }
  EpochIndex place_of(int64_t sequence) const {
    const Position position = position_of(sequence);
    return {position.epoch, position.batch};
  }
  // This rank's rows of a batch; meaningless where nothing is batched.
  Part part_of_batch(const RowRange& samples) const { return part_of(samples.count, options); }

  // The type of a column in a batch with these samples.
  Type batch_type(size_t column, const RowRange& samples) const {
    Type type = recipe->column_type(column);
    if (recipe->batch_size == 0) {
      if (takes_part(options)) type.shape[0] = part_of(type.shape[0], options).size();
      return type;
    }
    Shape shape{part_of_batch(samples).size()};
    for (const int64_t dim : type.shape) shape.push_back(dim);
    return {type.dtype, shape};
  }
  TensorView batch_view(const Slot& slot, size_t column, const RowRange& samples) const {
    const Type type = batch_type(column, samples);
    const bool channels_last = options.channels_last && type.shape.ndim() == 4;
    return {slot.memory[column].view().data, type.dtype, type.shape,
            channels_last ? channels_last_strides(type.shape) : dense_strides(type.shape)};
  }

  void allocate(Slot& slot) const {
    const RowRange full{.count = recipe->batch_size};
    for (size_t i = 0; i < recipe->chains.size(); ++i) {
      slot.memory.emplace_back(batch_type(i, full));
      slot.columns.push_back(batch_view(slot, i, full));
    }
  }
  void prepare(Worker& worker) const {
    for (size_t i = 0; i < recipe->chains.size(); ++i) {
      worker.samples.emplace_back(recipe->source->columns()[i].type);
      worker.values.emplace_back(recipe->batch_size == 0 ? recipe->column_type(i) : Type{DType::kU8, {0}});
      worker.workspaces.push_back(recipe->chains[i]->make_workspace());
      worker.reads.push_back(worker.samples[i].view());
    }
  }

  // --- making

  void open_slot(Slot& slot, int64_t sequence) const {
    slot.samples = recipe->rows(place_of(sequence));
    slot.part = recipe->batch_size == 0 ? Part{0, 1} : part_of_batch(slot.samples);
    for (size_t i = 0; i < slot.columns.size(); ++i) slot.columns[i] = batch_view(slot, i, slot.samples);
    slot.tasks_left = (slot.part.size() + kRowsPerTask - 1) / kRowsPerTask;
    slot.error = nullptr;
    slot.ready = false;
  }

  // Writes one sample into `outputs` (one view per column).
  void make_sample(Worker& worker, const SampleRef& sample, std::span<const TensorView> outputs) const {
    const auto& chains = recipe->chains;
    for (size_t i = 0; i < chains.size(); ++i) {
      const bool direct = chains[i]->empty() && outputs[i].is_dense();
      worker.reads[i] = direct ? outputs[i] : worker.samples[i].view();
    }
    recipe->source->read(sample, worker.reads);
    const SampleKey key{recipe->order->options().seed, sample.epoch, sample.position};
    for (size_t i = 0; i < chains.size(); ++i) {
      if (worker.reads[i].data == outputs[i].data) continue;
      if (chains[i]->empty()) {
        copy_elements(worker.reads[i], outputs[i]);
      } else {
        chains[i]->run(worker.reads[i], outputs[i], key, worker.workspaces[i]);
      }
    }
  }

  // Makes rows [begin, end) of the slot's part.
  void make_rows(Worker& worker, const Slot& slot, int64_t begin, int64_t end_row) const {
    std::array<TensorView, kMaxColumns> outputs;
    const size_t num_columns = recipe->chains.size();
    const std::span<const TensorView> views(outputs.data(), num_columns);
    if (recipe->batch_size == 0) {
      const SampleRef sample = recipe->sample({slot.samples.epoch, slot.samples.first});
      if (!takes_part(options)) {
        make_sample(worker, sample, slot.columns);
        return;
      }
      for (size_t i = 0; i < num_columns; ++i) outputs[i] = worker.values[i].view();
      make_sample(worker, sample, views);
      for (size_t i = 0; i < num_columns; ++i) {
        TensorView rows = outputs[i];
        const Part part = part_of(rows.shape[0], options);
        rows.data = static_cast<std::byte*>(rows.data) +
                    part.begin * rows.strides[0] * static_cast<int64_t>(size_bytes(rows.dtype));
        rows.shape[0] = part.size();
        copy_elements(rows, slot.columns[i]);
      }
      return;
    }
    for (size_t i = 0; i < num_columns; ++i) {
      const TensorView& column = slot.columns[i];
      const auto* shape = column.shape.begin();
      const auto* strides = column.strides.begin();
      outputs[i] = {nullptr, column.dtype, Shape(std::span(shape + 1, column.shape.end())),
                    Strides(std::span(strides + 1, column.strides.end()))};
    }
    for (int64_t row = begin; row < end_row; ++row) {
      for (size_t i = 0; i < num_columns; ++i) {
        const TensorView& column = slot.columns[i];
        outputs[i].data = static_cast<std::byte*>(column.data) +
                          row * column.strides[0] * static_cast<int64_t>(size_bytes(column.dtype));
      }
      const int64_t index = slot.samples.first + slot.part.begin + row;
      make_sample(worker, recipe->sample({slot.samples.epoch, index}), views);
    }
  }

  Slot& slot_of(int64_t sequence) { return slots[static_cast<size_t>(sequence) % slots.size()]; }

  void work(Worker& worker) {
    std::unique_lock lock(mutex);
    while (true) {
      // The slot of batch `freed - 1` and before may be overwritten.
      work_possible.wait(
          lock, [&] { return stop || (next_made < end && next_made - freed < static_cast<int64_t>(slots.size())); });
      if (stop) return;
      Slot& slot = slot_of(next_made);
      const int64_t sequence = next_made;
      const int64_t begin = next_row;
      try {
        if (begin == 0) open_slot(slot, next_made);
        if (slot.tasks_left == 0) note_state(slot, sequence);
      } catch (...) {
        slot.tasks_left = 0;
        slot.error = std::current_exception();
      }
      if (slot.tasks_left == 0) {  // no rows for this rank, or no slot
        ++next_made;
        slot.ready = true;
        batch_ready.notify_one();
        continue;
      }
      const int64_t end_row = std::min(begin + kRowsPerTask, slot.part.size());
      next_row = end_row;
      if (end_row == slot.part.size()) {
        ++next_made;
        next_row = 0;
      }
      lock.unlock();
      std::exception_ptr error;
      try {
        worker.work->run([&] { make_rows(worker, slot, begin, end_row); });
        if (end_row == slot.part.size()) note_state(slot, sequence);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      // Of several failures in one batch the first row's is told, whoever was faster.
      if (error && (!slot.error || begin < slot.error_row)) {
        slot.error = error;
        slot.error_row = begin;
      }
      if (--slot.tasks_left == 0) {
        slot.ready = true;
        batch_ready.notify_one();
      }
    }
  }

  // Once all rows of a batch are made, by the one thread that makes them.
  void note_state(Slot& slot, int64_t sequence) const {
    if (state_of_source != nullptr) slot.state_after = state_of_source->get(position_of(sequence + 1).epoch);
  }

  // --- delivering

  // The next batch once it is made, still to be delivered; nullptr after the last.
  Slot* front() {
    if (delivered == end) return nullptr;
    if (options.num_workers == 0) {
      Slot& slot = slots[0];
      if (made_inline != delivered) {
        made_inline = delivered;
        try {
          open_slot(slot, delivered);
          make_rows(workers[0], slot, 0, slot.part.size());
          note_state(slot, delivered);
        } catch (...) {
          slot.error = std::current_exception();
        }
      }
      if (slot.error) std::rethrow_exception(slot.error);
      return &slot;
    }
    std::unique_lock lock(mutex);
    if (freed != delivered) {  // the batch that the caller looked at is given back
      slot_of(freed).ready = false;
      freed = delivered;
      work_possible.notify_all();
    }
    Slot& slot = slot_of(delivered);
    if (!slot.ready) ++num_waits;
    batch_ready.wait(lock, [&] { return slot.ready; });
    if (slot.error) std::rethrow_exception(slot.error);
    return &slot;
  }

  static constexpr size_t kMaxColumns = 32;

  std::shared_ptr<const Recipe> recipe;
  IterateOptions options;
  int64_t size = 0;  // batches of an epoch
  Position start;
  int64_t end = kEndless;  // batches to deliver
  std::vector<Worker> workers;
  SourceState* state_of_source = nullptr;  // where it is kept
  BatchView view;                          // lent to the caller
  std::string state;                       // behind what is delivered
  int64_t delivered = 0;
  int64_t made_inline = -1;
  int64_t num_waits = 0;

  std::mutex mutex;
  std::condition_variable work_possible, batch_ready;
  // Under the mutex; a slot's content belongs to the workers from opening until ready, then to the caller until freed.
  std::vector<Slot> slots;
  int64_t next_made = 0;  // the batch whose row next_row is given out next
  int64_t next_row = 0;
  int64_t freed = 0;  // batches that the caller is done with
  bool stop = false;

  ThreadGroup threads;  // last: they use everything above
};

BatchIterator::BatchIterator(std::shared_ptr<const Recipe> recipe, const IterateOptions& options) {
  if (recipe->chains.size() > Impl::kMaxColumns) {
    throw InvalidArgument("batches: at most {} columns are supported, the data set has {}", Impl::kMaxColumns,
                          recipe->chains.size());
  }
  impl_ = std::make_unique<Impl>(std::move(recipe), options);
}
BatchIterator::BatchIterator(BatchIterator&&) noexcept = default;
BatchIterator& BatchIterator::operator=(BatchIterator&&) noexcept = default;
BatchIterator::~BatchIterator() = default;

const BatchView* BatchIterator::next_view() {
  const Slot* slot = impl_->front();
  if (slot == nullptr) return nullptr;
  const int64_t rows = impl_->recipe->batch_size == 0 ? 1 : slot->part.size();
  impl_->view = {impl_->position_of(impl_->delivered), rows, slot->columns};
  impl_->state = slot->state_after;
  ++impl_->delivered;
  return &impl_->view;
}

std::optional<std::vector<Tensor>> BatchIterator::next() {
  const BatchView* batch = next_view();
  if (batch == nullptr) return std::nullopt;
  std::vector<Tensor> tensors;
  for (const TensorView& column : batch->columns) tensors.push_back(Tensor::copy_of(column));
  return tensors;
}

bool BatchIterator::next_into(std::span<const TensorView> outputs) {
  const Slot* slot = impl_->front();
  if (slot == nullptr) return false;
  if (outputs.size() != slot->columns.size()) {
    throw InvalidArgument("next_into: the data set has {} columns, {} outputs were given", slot->columns.size(),
                          outputs.size());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].type() != slot->columns[i].type()) {
      throw InvalidArgument("next_into: column \"{}\" of batch {} is {}, the output given is {}",
                            impl_->recipe->source->columns()[i].name, impl_->position_of(impl_->delivered).to_string(),
                            slot->columns[i].type(), outputs[i].type());
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorView& from = slot->columns[i];
    if (from.strides == outputs[i].strides && from.num_elements() > 0) {
      // Equal strides, one without gaps: the bytes are equal, whatever the order of dims.
      std::memcpy(outputs[i].data, from.data, static_cast<size_t>(from.size_bytes()));
    } else {
      copy_elements(from, outputs[i]);
    }
  }
  impl_->state = slot->state_after;
  ++impl_->delivered;
  return true;
}

std::vector<Type> BatchIterator::next_types() const {
  std::vector<Type> types;
  if (impl_->delivered == impl_->end) return types;
  const RowRange samples = impl_->recipe->rows(impl_->place_of(impl_->delivered));
  for (size_t i = 0; i < impl_->recipe->chains.size(); ++i) types.push_back(impl_->batch_type(i, samples));
  return types;
}

int64_t BatchIterator::next_global_rows() const {
  if (impl_->delivered == impl_->end) return 0;
  return impl_->recipe->rows(impl_->place_of(impl_->delivered)).count;
}

Position BatchIterator::position() const { return impl_->position_of(impl_->delivered); }
const std::string& BatchIterator::source_state() const { return impl_->state; }
int64_t BatchIterator::num_waits() const { return impl_->num_waits; }

}  // namespace tessera::data
