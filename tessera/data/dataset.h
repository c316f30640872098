// Dataset: a description of where samples come from and what is done to them, as a value: cheap to copy, immutable,
// thread-safe; nothing is read until it is iterated.
//
//   auto train = cifar10(directory, {.usage = "train", .seed = 1})
//                    .map("image", {random_crop(32, {4, 4, 4, 4}), random_horizontal_flip(), resize(224),
//                                   rescale(1 / 255.0, 0), normalize(kMean, kStd), hwc2chw()})
//                    .map("label", {type_cast(DType::kI32)})
//                    .batch(32, {.drop_remainder = true});
//   BatchIterator batches = train.batches({.num_epochs = 10, .num_workers = 2});
//   while (const BatchView* batch = batches.next_view()) step(batch->columns);
//
// A data set describes the global batch; a rank that needs only some of its rows asks batches() for them. num_shards
// and shard_id of the source make a data set local instead.
//
// Every random choice is a function of (seed, epoch, place, who draws). The place of a transform's draws is the
// sample's place in the source's order over all shards, so a sample is augmented alike for any number of workers, ranks
// and shards, and wherever shuffle, take, repeat and map stand. Each repetition of repeat() is an epoch of its own.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/position.h"
#include "tessera/data/source.h"
#include "tessera/data/transforms.h"

namespace tessera::timeline {
class TimelineRecorder;
}

namespace tessera::data {

class BatchIterator;
struct MixOptions;
struct Recipe;

struct BatchOptions {
  bool drop_remainder = false;  // a last batch of fewer rows is left out
};

struct IterateOptions {
  Position start = {};
  // Epochs to deliver, the one of `start` included; -1: without end. The iterator goes from one to the next by itself.
  int64_t num_epochs = 1;
  // The rows [row_begin, row_end) of each global batch; row_end -1: to its end. A shorter last batch has fewer of them.
  int64_t row_begin = 0;
  int64_t row_end = -1;
  // Or: part `part` of `num_parts` balanced parts of each global batch, larger first (3 parts of 32: 11, 11, 10; of a
  // last batch of 5: 2, 2, 1), as the input of a data-parallel plan is split.
  int64_t part = 0;
  int64_t num_parts = 1;
  // Threads that make batches ahead; 0: the calling thread makes each when it is asked for.
  int num_workers = 1;
  // Batches that may wait ready, beside the one that the caller looks at.
  int prefetch = 4;
  // Batches of images [n, c, h, w] are NHWC in memory, their logical order stays NCHW.
  bool channels_last = false;
  // BatchIterator::source_state() tells the source's state; where it does, one worker reads at most.
  bool keeps_state = false;
  // Where the worker threads' times are recorded; it outlives the iterator. Null: nowhere.
  timeline::TimelineRecorder* recorder = nullptr;
};

// A function of several columns of one sample that makes others.
struct ColumnsFunction {
  std::string name;  // for messages
  // The types of what `apply` writes for inputs of these types.
  std::function<std::vector<Type>(const std::vector<Type>& inputs)> output_types;
  // Several threads call it at once. The views are dense and do not overlap.
  std::function<void(std::span<const TensorView> inputs, std::span<const TensorView> outputs)> apply;
};

class Dataset {
 public:
  // Throws InvalidArgument when the options do not fit the source.
  Dataset(std::shared_ptr<const Source> source, const SourceOptions& options);

  // Replaces `column` by what the transforms make of it. Must come before batch. Throws InvalidArgument naming the
  // column and the transform that does not take its type.
  Dataset map(const std::string& column, const std::vector<Transform>& transforms) const;
  // Replaces the columns `inputs` by the columns `outputs` that the function makes of them, in the place of the first.
  // Must come before batch. Throws InvalidArgument where columns do not exist or two would have one name.
  Dataset map(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
              const ColumnsFunction& function) const;
  // These columns, in this order. Must come before batch.
  Dataset project(const std::vector<std::string>& columns) const;
  // Mixup (Zhang et al., ICLR 2018): each row becomes w times itself plus (1 - w) times another row, in every column.
  // All but the last are f32 of any shape; the last is the label. Where that is a class number, an integer [] in
  // [0, num_classes), it becomes probabilities f32[num_classes], as nn::CrossEntropy takes them; with num_classes 0 it
  // is f32 of any shape and mixed like the others. w is drawn for each row from Beta(alpha, alpha), alpha above 0; the
  // other row from all that the data set has in the epoch, those of all shards, and it is transformed as for its own
  // place. Both draws are functions of seed, epoch and place, as those of transforms are; each row is made of two,
  // which takes twice the time, and of a stream reads a pass up to the drawn row. Must come before batch and repeat.
  // Throws InvalidArgument for columns, options and places that do not fit, and a batch does so for a label that is
  // outside of [0, num_classes), naming the sample.
  //     auto rows = cifar10(directory).map("image", {rescale(1 / 255.0, 0), hwc2chw()}).mixup(0.2, 10).batch(32);
  Dataset mixup(double alpha, int64_t num_classes = 0) const;
  // CutMix (Yun et al., ICCV 2019): a window of another row's image is put over each row's, and the label becomes the
  // mean that the two parts' areas say; else as mixup. There are two columns: an image [h,w,c] of any dtype, with
  // channels_first [c,h,w], and the label. The window has a part 1 - w of the area, around a place drawn uniformly;
  // what would stand over the edges is cut off.
  Dataset cutmix(double alpha, int64_t num_classes = 0, bool channels_first = false) const;
  // The same rows, taken as one rank's part of the rows of so many ranks (1: as all rows), however the source is
  // sharded.
  Dataset as_part_of(int64_t num_parts) const;
  // A new order in each epoch, as buffer_shuffle() says; of batches after batch.
  Dataset shuffle(int64_t buffer_size) const;
  // Rows of `batch_size` samples, one more dim in front. Once per data set.
  Dataset batch(int64_t batch_size, const BatchOptions& options = {}) const;
  // `count` epochs become one; -1: no end.
  Dataset repeat(int64_t count = -1) const;
  // The first `count` rows of each epoch; all when there are fewer.
  Dataset take(int64_t count) const;
  // All but the first `count` rows of each epoch.
  Dataset skip(int64_t count) const;

  // Rows (batches once batched) of an epoch; of one repetition where there is no end.
  int64_t get_dataset_size() const;
  bool is_endless() const;
  // More than 1 where the data set is one rank's part already: as the source or as_part_of() has it.
  int64_t num_shards() const;
  int64_t get_batch_size() const;    // 1 where nothing is batched
  int64_t get_repeat_count() const;  // the product of the repeats, -1 when one has no end, 1 without
  // Says how many rows the batch of an epoch has that has fewer than the others; 0 where all have as many.
  int64_t short_batch_rows() const;
  // The names and types of the columns: of a row, or once batched of a full batch.
  std::vector<Column> columns() const;
  std::vector<std::string> column_names() const;
  std::vector<DType> output_types() const;
  std::vector<Shape> output_shapes() const;
  // One line that says everything that decides what is delivered; equal texts deliver equal data from equal files. Kept
  // beside a Position, it tells whether the position still means the same.
  std::string to_string() const;

  // What of that text decides the order of the rows, but for the shard: equal where data sets are parts of one order.
  std::string order_text() const;
  // Of samples in memory, see Source::content_hash().
  uint64_t content_hash() const;
  // How the source's samples are ordered and cut into shards.
  const SourceOptions& source_options() const;
  // See Source::own_state().
  SourceState* source_state() const;

  // Throws InvalidArgument when the options do not fit or an epoch has no batch at all.
  BatchIterator batches(const IterateOptions& options = {}) const;

 private:
  explicit Dataset(std::shared_ptr<const Recipe> recipe) : recipe_(std::move(recipe)) {}
  Dataset mixed(MixOptions options) const;
  // The same order of the samples of another source.
  Dataset with_source(std::shared_ptr<const Source> source, const std::string& text) const;

  std::shared_ptr<const Recipe> recipe_;
};

// Samples from a function: read(index, outputs) writes sample `index` in [0, size) into one dense view per column, of
// exactly the columns' types. Several threads call it at once. What it throws is delivered with the batch. `state` is
// that of random numbers that it draws by itself.
Dataset generator(std::vector<Column> columns, int64_t size,
                  std::function<void(int64_t index, std::span<const TensorView> outputs)> read,
                  const SourceOptions& options = {}, std::shared_ptr<SourceState> state = nullptr);

// One pass over samples that can only be read in order: writes the next one and returns true, or returns false.
using Stream = std::function<bool(std::span<const TensorView> outputs)>;
// Samples from streams: open(epoch) starts a pass, of epoch 0 at once to count when `size` is not given. An epoch may
// be opened again, to read on after a resume: its pass depends on its number, not on how often open() was called. A
// pass may be longer than `size`, never shorter (InvalidArgument with the batch that lacks samples). Samples of the
// passes in use are kept in memory; one thread at a time reads. Resuming reads the pass again from its start. shuffle
// and num_shards of the options need random access and are refused; .shuffle(buffer_size) works. `state` is that of
// random numbers that open() and the passes draw by themselves.
Dataset stream(std::vector<Column> columns, std::function<Stream(int64_t epoch)> open, int64_t size = -1,
               const SourceOptions& options = {}, std::shared_ptr<SourceState> state = nullptr);

struct NamedTensor {
  std::string name;
  Tensor tensor;
};
// Row i of each tensor is sample i. Throws InvalidArgument unless all have the same dim 0.
Dataset tensors(std::vector<NamedTensor> columns, const SourceOptions& options = {});

}  // namespace tessera::data
