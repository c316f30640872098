#include "tessera/data/source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>

#include "tessera/base/files/crc32c.h"
#include "tessera/data/dataset.h"

namespace tessera::data {
namespace {

void require_columns(const char* who, const std::vector<Column>& columns) {
  if (columns.empty()) throw InvalidArgument("{}: needs at least one column", who);
  std::set<std::string> names;
  for (const Column& column : columns) {
    if (column.name.empty()) throw InvalidArgument("{}: a column of type {} has no name", who, column.type);
    if (!names.insert(column.name).second) throw InvalidArgument("{}: two columns are named \"{}\"", who, column.name);
  }
}

class Generator : public Source {
 public:
  Generator(std::vector<Column> columns, int64_t size, std::function<void(int64_t, std::span<const TensorView>)> read,
            std::shared_ptr<SourceState> state)
      : columns_(std::move(columns)), size_(size), read_(std::move(read)), state_(std::move(state)) {}
  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return size_; }
  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override {
    read_(sample.index, outputs);
  }
  std::string to_string() const override { return "generator"; }
  SourceState* own_state() const override { return state_.get(); }

 private:
  std::vector<Column> columns_;
  int64_t size_;
  std::function<void(int64_t, std::span<const TensorView>)> read_;
  std::shared_ptr<SourceState> state_;
};

// Its state is that of the pass's beginning, from where a resume reads it again.
class StreamSource : public Source, private SourceState {
 public:
  StreamSource(std::vector<Column> columns, std::function<Stream(int64_t)> open, int64_t size,
               std::shared_ptr<SourceState> state)
      : columns_(std::move(columns)), open_(std::move(open)), size_(size), state_(std::move(state)) {
    if (size_ >= 0) return;
    Pass pass{.next = open_(0)};
    size_ = 0;
    std::vector<Tensor> sample = make_sample();
    std::vector<TensorView> views = views_of(sample);
    while (pass.next(views)) ++size_;
  }
  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return size_; }
  std::string to_string() const override { return "stream"; }
  SourceState* own_state() const override { return state_ ? const_cast<StreamSource*>(this) : nullptr; }

  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override {
    const std::lock_guard lock(mutex_);
    Pass& pass = pass_of(sample.epoch);
    while (static_cast<int64_t>(pass.samples.size()) <= sample.index) {
      std::vector<Tensor> next = make_sample();
      const std::vector<TensorView> views = views_of(next);
      if (!pass.next(views)) {
        throw InvalidArgument("stream: the pass of epoch {} ended after {} samples, {} were promised", sample.epoch,
                              pass.samples.size(), size_);
      }
      pass.samples.push_back(std::move(next));
    }
    const std::vector<Tensor>& values = pass.samples[static_cast<size_t>(sample.index)];
    for (size_t i = 0; i < values.size(); ++i) copy_elements(values[i].view(), outputs[i]);
  }

 private:
  struct Pass {
    int64_t epoch = -1;
    uint64_t last_used = 0;
    std::string state;  // before it was opened
    Stream next;
    std::vector<std::vector<Tensor>> samples;
  };

  bool is_told() const override { return state_->is_told(); }
  std::string get(int64_t epoch) override {
    const std::lock_guard lock(mutex_);
    for (const Pass& pass : passes_) {
      if (pass.epoch == epoch) return pass.state;
    }
    return state_->get(epoch);
  }
  // What has been read was drawn from another state.
  void set(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    passes_ = {};
    state_->set(text);
  }

  std::vector<Tensor> make_sample() const {
    std::vector<Tensor> sample;
    for (const Column& column : columns_) sample.emplace_back(column.type);
    return sample;
  }
  static std::vector<TensorView> views_of(const std::vector<Tensor>& sample) {
    std::vector<TensorView> views;
    for (const Tensor& tensor : sample) views.push_back(tensor.view());
    return views;
  }
  // Batches made ahead reach into the next epoch, so two passes are open at a time.
  Pass& pass_of(int64_t epoch) const {
    Pass* oldest = &passes_[0];
    for (Pass& pass : passes_) {
      if (pass.epoch == epoch) {
        pass.last_used = ++uses_;
        return pass;
      }
      if (pass.last_used < oldest->last_used) oldest = &pass;
    }
    *oldest = Pass{};
    if (state_ && state_->is_told()) oldest->state = state_->get(epoch);
    oldest->next = open_(epoch);
    oldest->epoch = epoch;
    oldest->last_used = ++uses_;
    return *oldest;
  }

  std::vector<Column> columns_;
  std::function<Stream(int64_t)> open_;
  int64_t size_;
  std::shared_ptr<SourceState> state_;
  mutable std::mutex mutex_;
  mutable uint64_t uses_ = 0;
  mutable std::array<Pass, 2> passes_;
};

class Tensors : public Source {
 public:
  explicit Tensors(std::vector<NamedTensor> named) {
    for (NamedTensor& column : named) {
      const Shape& shape = column.tensor.shape();
      columns_.push_back({column.name, {column.tensor.dtype(), Shape(std::span(shape.begin() + 1, shape.end()))}});
      tensors_.push_back(std::move(column.tensor));
    }
  }
  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return tensors_[0].shape()[0]; }
  std::string to_string() const override { return "tensors"; }
  uint64_t content_hash() const override {
    // Rows in another order show in some of them.
    constexpr int64_t kMostRows = 1024;
    const int64_t step = std::max<int64_t>(1, size() / kMostRows);
    uint32_t hash = 0;
    for (const Tensor& tensor : tensors_) {
      const auto row_bytes = static_cast<size_t>(tensor.view().size_bytes() / std::max<int64_t>(1, size()));
      for (int64_t row = 0; row < size(); row += step) {
        hash = crc32c(tensor.bytes().subspan(static_cast<size_t>(row) * row_bytes, row_bytes), hash);
      }
    }
    return hash;
  }
  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto bytes = static_cast<size_t>(outputs[i].size_bytes());
      if (bytes == 0) continue;
      std::memcpy(outputs[i].data, tensors_[i].bytes().data() + static_cast<size_t>(sample.index) * bytes, bytes);
    }
  }

 private:
  std::vector<Column> columns_;
  std::vector<Tensor> tensors_;
};

}  // namespace

bool has_any_size(const Type& type) {
  return std::find(type.shape.begin(), type.shape.end(), kAnySize) != type.shape.end();
}

void require_one_size(const std::string& who, const Column& column) {
  if (!has_any_size(column.type)) return;
  throw InvalidArgument(
      "{}: samples of column \"{}\" differ in size; map it before: decode, then a resize or crop to one size", who,
      column.name);
}

std::string Source::sample_name(const SampleRef& sample) const {
  return fmt::format("{}, sample {}", to_string(), sample.index);
}

Tensor Source::read_any_size(const SampleRef&, size_t) const {
  check(false, "a source without columns of any size was asked for one");
  return Tensor(DType::kU8, {0});
}

Dataset generator(std::vector<Column> columns, int64_t size,
                  std::function<void(int64_t, std::span<const TensorView>)> read, const SourceOptions& options,
                  std::shared_ptr<SourceState> state) {
  require_columns("generator", columns);
  if (!read) throw InvalidArgument("generator: needs a function that reads a sample");
  return {std::make_shared<Generator>(std::move(columns), size, std::move(read), std::move(state)), options};
}

Dataset stream(std::vector<Column> columns, std::function<Stream(int64_t)> open, int64_t size,
               const SourceOptions& options, std::shared_ptr<SourceState> state) {
  require_columns("stream", columns);
  if (!open) throw InvalidArgument("stream: needs a function that opens a pass");
  if (options.shuffle || options.num_shards != 1) {
    throw InvalidArgument("stream: shuffle and num_shards need random access; use generator, or .shuffle(buffer_size)");
  }
  return {std::make_shared<StreamSource>(std::move(columns), std::move(open), size, std::move(state)), options};
}

Dataset tensors(std::vector<NamedTensor> columns, const SourceOptions& options) {
  if (columns.empty()) throw InvalidArgument("tensors: needs at least one column");
  std::vector<Column> types;
  for (const NamedTensor& column : columns) {
    types.push_back({column.name, column.tensor.type()});
    if (column.tensor.ndim() == 0 || column.tensor.shape()[0] != columns[0].tensor.shape()[0]) {
      throw InvalidArgument("tensors: all columns must have the same dim 0: \"{}\" is {}, \"{}\" is {}",
                            columns[0].name, columns[0].tensor.type(), column.name, column.tensor.type());
    }
  }
  require_columns("tensors", types);
  return {std::make_shared<Tensors>(std::move(columns)), options};
}

}  // namespace tessera::data
