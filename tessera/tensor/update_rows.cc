#include "tessera/tensor/update_rows.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/table_rows.h"
#include "tessera/tensor/alignment.h"

namespace tessera {
namespace {

// So many elements of a parameter are copied to where the optimizer's kernel finds them side by side. With gradient and
// states they stay in the second-level cache, and are enough to make up for what a call of the kernel begins with.
constexpr int64_t kElementsOfBlock = 4096;
constexpr int kMostDigitBits = 11;
// Of an optimizer's kernel.
constexpr size_t kMaxOperands = 16;

// Rows of the gradient, each in one number: whose it is, above where it stands.
class Lookups {
 public:
  using Number = uint64_t;

  // Positions take so many bits that rows are left what they need.
  Lookups(int64_t num_rows, int64_t num_lookups) : row_bits_(bits_of(num_rows)), position_bits_(bits_of(num_lookups)) {
    check(row_bits_ + position_bits_ <= 64, "what is looked up in a table fits into memory");
  }

  Number number(int64_t row, int64_t position) const {
    return static_cast<Number>(row) << position_bits_ | static_cast<Number>(position);
  }
  int64_t row(Number number) const { return static_cast<int64_t>(number >> position_bits_); }
  int64_t position(Number number) const { return static_cast<int64_t>(number & ((Number{1} << position_bits_) - 1)); }

  // By row, those of one row in their order. Digit by digit, lowest first; returns where the result lies.
  Number* sort(Number* from, Number* to, int64_t count) const {
    const int num_digits = (row_bits_ + kMostDigitBits - 1) / kMostDigitBits;
    const int digit_bits = num_digits == 0 ? 0 : (row_bits_ + num_digits - 1) / num_digits;
    const Number mask = (Number{1} << digit_bits) - 1;
    for (int digit = 0; digit < num_digits; ++digit) {
      const int shift = position_bits_ + digit * digit_bits;
      std::array<int64_t, size_t{1} << kMostDigitBits> begins;
      std::fill_n(begins.begin(), mask + 1, 0);
      for (int64_t i = 0; i < count; ++i) ++begins[from[i] >> shift & mask];
      int64_t so_far = 0;
      for (Number d = 0; d <= mask; ++d) so_far += std::exchange(begins[d], so_far);
      for (int64_t i = 0; i < count; ++i) to[begins[from[i] >> shift & mask]++] = from[i];
      std::swap(from, to);
    }
    return from;
  }

 private:
  static int bits_of(int64_t count) { return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, count) - 1)); }

  int row_bits_;
  int position_bits_;
};

// How the rows of a tensor lie.
struct Rows {
  Shape shape;  // of one
  Strides strides;
  bool is_dense = false;
  int64_t bytes = 0;
  int64_t row_stride = 0;  // bytes

  Rows() = default;
  explicit Rows(const TensorView& view) {
    for (int d = 1; d < view.shape.ndim(); ++d) {
      shape.push_back(view.shape[d]);
      strides.push_back(view.strides[d]);
    }
    is_dense = tessera::is_dense(shape, strides);
    const auto element = static_cast<int64_t>(size_bytes(view.dtype));
    bytes = shape.num_elements() * element;
    row_stride = view.strides[0] * element;
  }
  std::byte* data(const TensorView& view, int64_t row) const {
    return static_cast<std::byte*>(view.data) + row * row_stride;
  }
  TensorView at(const TensorView& view, int64_t row) const { return {data(view, row), view.dtype, shape, strides}; }
  void prefetch(const TensorView& view, int64_t row) const {
    if (is_dense) prefetch_row(data(view, row), bytes);
  }
  // To or from a row that lies dense.
  void read(const TensorView& view, int64_t row, std::byte* to) const {
    if (is_dense) {
      copy_row(data(view, row), to, bytes);
    } else {
      copy_elements(at(view, row), {to, Type{view.dtype, shape}});
    }
  }
  void write(const TensorView& view, int64_t row, std::byte* from) const {
    if (is_dense) {
      copy_row(from, data(view, row), bytes);
    } else {
      copy_elements({from, Type{view.dtype, shape}}, at(view, row));
    }
  }
};

// sum[k] += row[k], vector by vector.
void add_elements(const float* row, float* sum, int64_t count) {
  int64_t k = 0;
  for (; k + 4 <= count; k += 4) _mm_storeu_ps(sum + k, _mm_add_ps(_mm_loadu_ps(sum + k), _mm_loadu_ps(row + k)));
  for (; k < count; ++k) sum[k] += row[k];
}

void add_elements(const double* row, double* sum, int64_t count) {
  int64_t k = 0;
  for (; k + 2 <= count; k += 2) _mm_storeu_pd(sum + k, _mm_add_pd(_mm_loadu_pd(sum + k), _mm_loadu_pd(row + k)));
  for (; k < count; ++k) sum[k] += row[k];
}

// What one thread works in.
struct Block {
  std::vector<int64_t> values;   // byte offsets of the rows of the parameter and each state
  std::vector<int64_t> results;  // of their new values: the same where the optimizer's kernel works in place
  int64_t gradient = 0;
  int64_t row = 0;  // of one row of the gradient, converted
  int64_t scratch = 0;
  int64_t bytes = 0;
};

class RowUpdater {
 public:
  RowUpdater(const KernelRequest& request, const UpdateRows& update, KernelRequest part, PreparedKernel optimizer,
             int64_t rows_of_block)
      : update_(update),
        part_(std::move(part)),
        optimizer_(std::move(optimizer)),
        num_rows_(request.inputs[0].shape[0]),
        num_lookups_(request.inputs[update.ids()].shape[0]),
        lookups_(num_rows_, num_lookups_),
        rows_of_block_(rows_of_block),
        num_threads_(request.num_threads),
        computed_(UpdateRows::computed(request.inputs[0].dtype)),
        gradients_(request.inputs[update.rows()]),
        are_gradients_dense_(request.inputs[update.rows()].is_dense() &&
                             request.inputs[update.rows()].dtype == computed_),
        are_gradients_as_computed_(gradients_.is_dense && request.inputs[update.rows()].dtype == computed_) {
    for (size_t i = 0; i < update_.num_results(); ++i) rows_.emplace_back(request.outputs[i]);
    row_size_ = rows_[0].shape.num_elements();
    lay_out();
  }

  int64_t scratch_bytes() const { return shares_begin() + num_threads_ * block_.bytes; }
  const std::string& name() const { return optimizer_.name; }

  void run(const KernelArgs& args) const {
    for (size_t i = 0; i < update_.num_results(); ++i) {
      if (args.outputs[i].data != args.inputs[i].data) copy_elements(args.inputs[i], args.outputs[i]);
    }
    if (row_size_ == 0) return;
    auto* const from = reinterpret_cast<Lookups::Number*>(args.scratch.data());
    const TensorView& ids = args.inputs[update_.ids()];
    int64_t count = list(ids, from);
    Work work;
    work.lookups = lookups_.sort(from, from + num_lookups_, count);
    auto* const begins = reinterpret_cast<int64_t*>(from + 2 * num_lookups_);
    // Written for each and kept for the first of a row: nobody foresees which is.
    for (int64_t i = 0, before = -1; i < count; ++i) {
      const int64_t row = lookups_.row(work.lookups[i]);
      begins[work.num_named] = i;
      work.num_named += row != std::exchange(before, row) ? 1 : 0;
    }
    begins[work.num_named] = count;
    work.begins = begins;
    work.is_whole = update_.may_be_whole && !is_zero_scalar(args.inputs[update_.whole()]);
    work.keeps_order = work.num_named == count && !work.is_whole && are_gradients_dense_;
    if (work.keeps_order) {
      list(ids, from);
      work.lookups = from;
    }
    const int64_t num_updated = work.is_whole ? num_rows_ : work.num_named;
    const int64_t num_blocks = (num_updated + rows_of_block_ - 1) / rows_of_block_;
    const int64_t num_shares = std::min<int64_t>(num_threads_, num_blocks);
    args.parallel_for(num_shares, 1, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share) {
        std::byte* const memory = args.scratch.data() + shares_begin() + share * block_.bytes;
        const int64_t last = num_blocks * (share + 1) / num_shares;
        for (int64_t block = num_blocks * share / num_shares; block < last; ++block) {
          const int64_t first = block * rows_of_block_;
          update_block(args, work, memory, first, std::min(rows_of_block_, num_updated - first));
        }
      }
    });
  }

 private:
  struct Work {
    const Lookups::Number* lookups = nullptr;  // by row, or in their order
    const int64_t* begins = nullptr;           // where those of each row begin, and one past the last
    int64_t num_named = 0;                     // rows
    bool is_whole = false;
    bool keeps_order = false;  // no row comes twice, and they are taken as they come: their gradients lie side by side
  };

  int64_t row(const Work& work, int64_t named) const { return lookups_.row(work.lookups[work.begins[named]]); }
  int64_t position(const Work& work, int64_t lookup) const { return lookups_.position(work.lookups[lookup]); }
  int64_t first_named_from(const Work& work, int64_t row_number) const {
    int64_t first = 0;
    for (int64_t end = work.num_named; first < end;) {
      const int64_t middle = (first + end) / 2;
      if (row(work, middle) < row_number) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    return first;
  }

  // The rows that are looked up, in their order. Returns how many: indices of no row are left out.
  int64_t list(const TensorView& ids, Lookups::Number* to) const {
    switch (ids.dtype) {
      case DType::kI32: return list_of(ids.as<int32_t>(), ids.strides[0], to);
      case DType::kI64: return list_of(ids.as<int64_t>(), ids.strides[0], to);
      case DType::kU8: return list_of(ids.as<uint8_t>(), ids.strides[0], to);
      default: throw InternalError(fmt::format("update_rows: numbers of rows are {}", ids.dtype));
    }
  }
  template <typename Id>
  int64_t list_of(const Id* ids, int64_t stride, Lookups::Number* to) const {
    int64_t count = 0;
    for (int64_t i = 0; i < num_lookups_; ++i) {
      const auto row = static_cast<int64_t>(ids[i * stride]);
      to[count] = lookups_.number(row, i);
      count += row >= 0 && row < num_rows_ ? 1 : 0;
    }
    return count;
  }

  // The gradients of a whole block where they lie side by side, and the optimizer's kernel reads them there; else null.
  const std::byte* gradients_in_place(const KernelArgs& args, const Work& work, int64_t first, int64_t count) const {
    if (!work.keeps_order || count < rows_of_block_) return nullptr;
    const int64_t begin = position(work, first);
    if (position(work, first + count - 1) != begin + count - 1) return nullptr;
    return static_cast<const std::byte*>(args.inputs[update_.rows()].data) + begin * gradients_.bytes;
  }

  bool works_in_place(size_t i) const {
    const std::pair<int, int> pair{static_cast<int>(i), static_cast<int>(i)};
    return std::find(optimizer_.in_place.begin(), optimizer_.in_place.end(), pair) != optimizer_.in_place.end();
  }

  void lay_out() {
    const auto take = [this](int64_t bytes) {
      const int64_t at = block_.bytes;
      block_.bytes += aligned(bytes);
      return at;
    };
    for (size_t i = 0; i < update_.num_results(); ++i) {
      const int64_t bytes = rows_[i].bytes * rows_of_block_;
      block_.values.push_back(take(bytes));
      block_.results.push_back(works_in_place(i) ? block_.values[i] : take(bytes));
    }
    const int64_t row_bytes = row_size_ * static_cast<int64_t>(size_bytes(computed_));
    block_.gradient = take(row_bytes * rows_of_block_);
    block_.row = take(row_bytes);
    block_.scratch = take(optimizer_.scratch_bytes);
  }

  int64_t shares_begin() const {
    return aligned(2 * num_lookups_ * static_cast<int64_t>(sizeof(Lookups::Number)) +
                   (num_lookups_ + 1) * static_cast<int64_t>(sizeof(int64_t)));
  }

  void update_block(const KernelArgs& args, const Work& work, std::byte* memory, int64_t first, int64_t count) const {
    const auto number = [&](int64_t b) { return work.is_whole ? first + b : row(work, first + b); };
    const size_t num_moved = work.is_whole || !update_.keeps_states ? update_.num_results() : 1;
    // The first named row that is here; where all rows are updated, some of them are not named.
    int64_t named = work.is_whole ? first_named_from(work, first) : first;
    const int64_t row_bytes = row_size_ * static_cast<int64_t>(size_bytes(computed_));
    const int64_t ahead = prefetched_rows(rows_[0].bytes);
    const std::byte* const in_place = gradients_in_place(args, work, first, count);
    for (int64_t b = 0; b < count; ++b) {
      const int64_t here = number(b);
      // Rows of the next block are asked for here, too.
      for (size_t i = 0; !work.is_whole && first + b + ahead < work.num_named && i < num_moved; ++i) {
        rows_[i].prefetch(args.outputs[i], number(b + ahead));
      }
      for (size_t i = 0; i < num_moved; ++i) {
        rows_[i].read(args.outputs[i], here, memory + block_.values[i] + b * rows_[i].bytes);
      }
      if (in_place != nullptr) continue;
      std::byte* const sum = memory + block_.gradient + b * row_bytes;
      if (named < work.num_named && row(work, named) == here) {
        add_up(args, work, named++, sum, memory + block_.row);
      } else {
        std::memset(sum, 0, static_cast<size_t>(row_bytes));
      }
    }
    // The optimizer's kernel takes whole blocks: what is behind the last row is computed and forgotten.
    for (size_t i = 0; i < num_moved; ++i) {
      std::memset(memory + block_.values[i] + count * rows_[i].bytes, 0,
                  static_cast<size_t>((rows_of_block_ - count) * rows_[i].bytes));
    }
    std::memset(memory + block_.gradient + count * row_bytes, 0,
                static_cast<size_t>((rows_of_block_ - count) * row_bytes));
    // In place of states that nobody reads the optimizer's kernel sees zeros.
    for (size_t i = num_moved; i < update_.num_results(); ++i) {
      std::memset(memory + block_.values[i], 0, static_cast<size_t>(rows_of_block_ * rows_[i].bytes));
    }
    compute(args, memory, in_place != nullptr ? in_place : memory + block_.gradient);
    for (int64_t b = 0; b < count; ++b) {
      for (size_t i = 0; i < num_moved; ++i) {
        rows_[i].write(args.outputs[i], number(b), memory + block_.results[i] + b * rows_[i].bytes);
      }
    }
  }

  void add_up(const KernelArgs& args, const Work& work, int64_t named, std::byte* sum, std::byte* converted) const {
    const TensorView& gradients = args.inputs[update_.rows()];
    const int64_t last = work.begins[work.num_named] - 1;
    const int64_t ahead = prefetched_rows(gradients_.bytes);
    for (int64_t i = work.begins[named]; i < work.begins[named + 1]; ++i) {
      gradients_.prefetch(gradients, position(work, std::min(i + ahead, last)));
      const int64_t at = position(work, i);
      const std::byte* from = gradients_.data(gradients, at);
      if (!are_gradients_as_computed_) {
        copy_elements(gradients_.at(gradients, at), {converted, Type{computed_, gradients_.shape}});
        from = converted;
      }
      const bool is_first = i == work.begins[named];
      if (computed_ == DType::kF64) {
        add_row(reinterpret_cast<const double*>(from), reinterpret_cast<double*>(sum), is_first);
      } else {
        add_row(reinterpret_cast<const float*>(from), reinterpret_cast<float*>(sum), is_first);
      }
    }
  }

  template <typename C>
  void add_row(const C* from, C* sum, bool is_first) const {
    if (is_first) {
      copy_row(reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(sum),
               row_size_ * static_cast<int64_t>(sizeof(C)));
      return;
    }
    add_elements(from, sum, row_size_);
  }

  void compute(const KernelArgs& args, std::byte* memory, const std::byte* gradients) const {
    const ParallelFor alone(1);
    std::array<TensorView, kMaxOperands> inputs;
    std::array<TensorView, kMaxOperands> outputs;
    const size_t results = update_.num_results();
    for (size_t i = 0; i < results; ++i) {
      inputs[i] = part_.inputs[i];
      inputs[i].data = memory + block_.values[i];
      outputs[i] = part_.outputs[i];
      outputs[i].data = memory + block_.results[i];
    }
    inputs[results] = part_.inputs[results];
    inputs[results].data = const_cast<std::byte*>(gradients);  // it is read only
    for (size_t i = 0; i < update_.num_scalars; ++i) inputs[results + 1 + i] = args.inputs[update_.scalar(i)];
    const std::span<std::byte> scratch(memory + block_.scratch, static_cast<size_t>(optimizer_.scratch_bytes));
    optimizer_.run({{inputs.data(), results + 1 + update_.num_scalars},
                    {outputs.data(), results},
                    update_.settings,
                    scratch,
                    alone});
  }

  UpdateRows update_;
  KernelRequest part_;  // of the optimizer: a block of rows
  PreparedKernel optimizer_;
  int64_t num_rows_;
  int64_t num_lookups_;
  Lookups lookups_;
  int64_t rows_of_block_;
  int num_threads_;
  DType computed_;
  std::vector<Rows> rows_;  // of the parameter and its states
  Rows gradients_;
  bool are_gradients_dense_;        // all together, and of the type that they are added up in
  bool are_gradients_as_computed_;  // each of them
  int64_t row_size_ = 0;
  Block block_;
};

}  // namespace

bool is_zero_scalar(const TensorView& scalar) {
  double value = 0;
  copy_elements(scalar, {&value, Type{DType::kF64, {}}});
  return value == 0;
}

UpdateRows::UpdateRows(const Attributes& attributes, size_t num_inputs)
    : optimizer(attributes.get_string("optimizer")),
      settings(parse_attributes(attributes.get_string("settings"))),
      may_be_whole(attributes.get_bool("may_be_whole")),
      keeps_states(attributes.get_bool("keeps_states")) {
  const int64_t states = attributes.get_int("states");
  const int64_t scalars = static_cast<int64_t>(num_inputs) - 3 - states - (may_be_whole ? 1 : 0);
  if (states < 0 || scalars < 0) {
    throw InvalidArgument("{} operands are too few: a parameter, {} states, numbers of rows, rows{}", num_inputs,
                          states, may_be_whole ? " and whether all are updated" : "");
  }
  num_states = static_cast<size_t>(states);
  num_scalars = static_cast<size_t>(scalars);
}

std::optional<PreparedKernel> prepare_update_rows(const KernelRequest& request, const KernelRegistry& optimizers) {
  const UpdateRows update(request.attributes, request.inputs.size());
  if (update.num_results() + 1 + update.num_scalars > kMaxOperands) return std::nullopt;
  const TensorView& parameter = request.inputs[0];
  const int64_t row_size = std::max<int64_t>(1, Rows(parameter).shape.num_elements());
  const int64_t rows_of_block =
      std::clamp<int64_t>(kElementsOfBlock / row_size, 1, std::max<int64_t>(1, parameter.shape[0]));
  Shape shape = parameter.shape;
  shape[0] = rows_of_block;
  KernelRequest part{.op = update.optimizer, .attributes = update.settings, .num_threads = 1};
  for (size_t i = 0; i < update.num_results(); ++i) {
    part.inputs.emplace_back(nullptr, Type{request.inputs[i].dtype, shape});
    part.outputs.emplace_back(nullptr, Type{request.outputs[i].dtype, shape});
  }
  part.inputs.emplace_back(nullptr, Type{UpdateRows::computed(parameter.dtype), shape});
  for (size_t i = 0; i < update.num_scalars; ++i) part.inputs.push_back(request.inputs[update.scalar(i)]);
  auto optimizer = optimizers.find(part);
  if (!optimizer) return std::nullopt;
  PreparedKernel made{.name = optimizer->name + ".rows"};
  for (size_t i = 0; i < update.num_results(); ++i) {
    if (request.inputs[i].strides == request.outputs[i].strides) {
      made.in_place.emplace_back(static_cast<int>(i), static_cast<int>(i));
    }
  }
  const auto updater =
      std::make_shared<const RowUpdater>(request, update, std::move(part), std::move(*optimizer), rows_of_block);
  made.scratch_bytes = updater->scratch_bytes();
  made.run = [updater](const KernelArgs& args) { updater->run(args); };
  return made;
}

}  // namespace tessera
