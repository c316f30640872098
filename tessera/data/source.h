// A Source is where a data set's samples come from: columns of fixed types, a number of samples, and random access to
// them. SourceOptions say in which order they are read and which of them belong to this shard.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::data {

struct Column {
  std::string name;
  Type type;
  bool operator==(const Column&) const = default;
};

// Stands for a size in a column's type that differs from sample to sample, as images from files do. Such a column is
// brought to one size by the transforms of map(), before batch().
inline constexpr int64_t kAnySize = -1;
bool has_any_size(const Type& type);
// Throws InvalidArgument saying that `who` needs samples of one size where the column's are not.
void require_one_size(const std::string& who, const Column& column);

// A sample of one pass, and its place in that pass's order over all shards: the random transforms draw by it.
struct SampleRef {
  int64_t epoch = 0;
  int64_t index = 0;
  int64_t position = 0;
};

// The state of random numbers that a source draws by itself, which are no function of a sample's place. Who sets it
// before reading on from a position reads what would have been read, as long as one thread reads. One thread at a time
// calls these.
class SourceState {
 public:
  virtual ~SourceState() = default;
  // Whether the source tells it. One that draws and does not tell draws anew in each process, and the rest is not
  // called.
  virtual bool is_told() const { return true; }
  // The text for set(), where all samples before the next one are read, which is of that epoch.
  virtual std::string get(int64_t epoch) = 0;
  virtual void set(const std::string& text) = 0;
};

class Source {
 public:
  virtual ~Source() = default;
  virtual const std::vector<Column>& columns() const = 0;
  virtual int64_t size() const = 0;
  // Writes the sample, of index in [0, size()), into one dense view per column, but columns of any size. Called by
  // several threads.
  virtual void read(const SampleRef& sample, std::span<const TensorView> outputs) const = 0;
  // The sample's value of a column of any size. Called by several threads.
  virtual Tensor read_any_size(const SampleRef& sample, size_t column) const;
  // Where the sample is from, for messages.
  virtual std::string sample_name(const SampleRef& sample) const;
  // What it is, for messages and for the data set's text form: "cifar10 train".
  virtual std::string to_string() const = 0;
  // Of the samples that lie in memory, or of some of them where they are many, of labels or names of files: equal for
  // equal samples in one order. 0 where samples are known only by reading them.
  virtual uint64_t content_hash() const { return 0; }
  // nullptr: it draws no random numbers by itself, as far as anybody knows.
  virtual SourceState* own_state() const { return nullptr; }
};

// SourceOptions say in which order a source's samples come, and which part of it is this shard's.
//
// Without shuffle the order is 0 .. N-1, with it a permutation that depends only on (seed, epoch) and is therefore the
// same in all shards. Shard s of n has places s, s + n, s + 2n, ... of that order: ceil(N / n) samples in every shard;
// places from N on wrap around to the order's beginning.
struct SourceOptions {
  int64_t num_samples = 0;  // at most so many of this shard's samples, the first ones; 0: all
  bool shuffle = false;
  int64_t num_shards = 1;
  int64_t shard_id = 0;
  uint64_t seed = 0;  // the seed of everything random in the data set: order, shuffle(), transforms
};

}  // namespace tessera::data
