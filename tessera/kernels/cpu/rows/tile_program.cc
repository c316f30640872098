#include "tessera/kernels/cpu/rows/tile_program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "tessera/kernels/cpu/rows/strided.h"

namespace tessera::kernels::cpu {
namespace {

// Floats in a tile: small enough for a dozen of them to share the first-level cache with what is prefetched.
constexpr int64_t kTile = 512;
// Below 32 tiles starting a thread costs more than it saves.
constexpr int64_t kGrainTiles = 32;
// Rows up to this size keep per-column values that do not change from row to row (a channel's factor, say).
constexpr int64_t kMaxColumns = 8192;
constexpr int kMaxTiles = 64;

// One input or output as the loop sees it: dims of size 1 dropped, dims that all operands walk alike merged.
struct Operand {
  DType dtype = DType::kF32;
  size_t element_bytes = 4;
  std::array<int64_t, kMaxNdim> strides{};  // per merged dim, outermost first
  int64_t row_stride = 0;                   // between rows of a tile
  int64_t stride = 1;                       // between elements of a row
  bool direct = false;                      // the tile is a run of floats in place
  bool invariant = false;                   // every tile has the same values: filled once per thread
  bool columns = false;                     // direct, and the same values for every row, of which a tile is a part
  int tile = -1;                            // where it is materialised otherwise
  RowLoad load = nullptr;
  RowStore store = nullptr;
};

struct Plan {
  // Outer dims, then a tile of `tile_rows` rows of `row_size` elements at most.
  std::vector<int64_t> outer;
  int64_t num_rows = 1;  // the dim whose pieces the rows of a tile are (two-level), or 1
  int64_t row_size = 1;
  int64_t tile_rows = 1;
  int64_t tile_columns = 1;
  int64_t tiles_per_outer = 1;
  int64_t num_tiles = 0;

  std::vector<Operand> operands;  // inputs, then outputs
  int num_inputs = 0;
  std::vector<int> streams;  // the operands whose tiles are runs of memory that move on with every tile

  struct Step {
    RowFunction run;
    int a, b, c, slot;
  };

  std::vector<Step> once;   // what depends on invariant operands only: run once per thread
  std::vector<Step> steps;  // run for every tile
  std::vector<float> constants;
  std::vector<int> slot_tile;    // scratch tile of each slot, or -1
  std::vector<int> slot_output;  // the output that the slot is, or -1
  int num_tiles_needed = 0;
  std::vector<int> slot_columns;  // the buffer of a whole row that an invariant slot is kept in, or -1
  int num_column_buffers = 0;
  int64_t column_buffer_size = 0;

  int64_t scratch_floats() const { return num_tiles_needed * kTile + num_column_buffers * column_buffer_size; }
};

// The operand that holds result `output`.
size_t result_slot(const Plan& plan, int output) {
  return static_cast<size_t>(plan.num_inputs) + static_cast<size_t>(output);
}

template <typename T>
void gather_as(const void* from, int64_t stride, float* to, int64_t n) {
  const T* p = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(p[i * stride]);
}

template <typename T>
void scatter_as(const T* from, void* to, int64_t stride, int64_t n) {
  T* p = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) p[i * stride] = from[i];
}

void load_row(const Operand& operand, const std::byte* from, float* to, int64_t n) {
  if (operand.stride == 1) return operand.load(from, to, static_cast<size_t>(n));
  if (operand.stride == 0) {
    operand.load(from, to, 1);
    return std::fill(to + 1, to + n, to[0]);
  }
  switch (operand.dtype) {
    case DType::kF32: return gather_as<float>(from, operand.stride, to, n);
    case DType::kBF16: return gather_as<BFloat16>(from, operand.stride, to, n);
    case DType::kF16: return gather_as<Float16>(from, operand.stride, to, n);
    default: return gather_as<uint8_t>(from, operand.stride, to, n);
  }
}

void store_row(const Operand& operand, const float* from, std::byte* to, int64_t n) {
  if (operand.stride == 1) return operand.store(from, to, static_cast<size_t>(n));
  if (operand.dtype == DType::kF32) return scatter_as<float>(from, to, operand.stride, n);
  alignas(64) std::array<uint16_t, kTile> row;
  operand.store(from, row.data(), static_cast<size_t>(n));
  if (operand.element_bytes == 2) return scatter_as<uint16_t>(row.data(), to, operand.stride, n);
  scatter_as<uint8_t>(reinterpret_cast<const uint8_t*>(row.data()), to, operand.stride, n);
}

// For each instruction whether it has the same result for every tile, or for every row.
enum class Variance : uint8_t { kNone, kByColumn, kByTile };

std::vector<Variance> find_variance(const Plan& plan, const TileProgram& program) {
  const int first_result = plan.num_inputs + static_cast<int>(program.constants.size());
  std::vector<Variance> variance(program.instructions.size());
  const auto of_slot = [&](int slot) {
    if (slot < 0) return Variance::kNone;
    if (slot < plan.num_inputs) {
      const Operand& operand = plan.operands[static_cast<size_t>(slot)];
      return operand.invariant ? Variance::kNone : operand.columns ? Variance::kByColumn : Variance::kByTile;
    }
    return slot < first_result ? Variance::kNone : variance[static_cast<size_t>(slot - first_result)];
  };
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const TileInstruction& instruction = program.instructions[i];
    const bool is_result = plan.slot_output[static_cast<size_t>(first_result) + i] >= 0;
    variance[i] = is_result ? Variance::kByTile
                            : std::max({of_slot(instruction.a), of_slot(instruction.b), of_slot(instruction.c)});
  }
  return variance;
}

// Gives each slot that needs one a scratch tile; a tile is free again after the last instruction that reads it, those
// of inputs, constants and invariant results never.
void assign_tiles(Plan& plan, const TileProgram& program, const std::vector<Variance>& variance) {
  const int first_result = plan.num_inputs + static_cast<int>(program.constants.size());
  const auto num_slots = static_cast<size_t>(first_result) + program.instructions.size();
  std::vector<int> last_use(num_slots, -1);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const int slot : {program.instructions[i].a, program.instructions[i].b, program.instructions[i].c}) {
      if (slot >= 0) last_use[static_cast<size_t>(slot)] = static_cast<int>(i);
    }
  }
  plan.slot_tile.assign(num_slots, -1);
  plan.slot_columns.assign(num_slots, -1);
  int next = 0;
  for (int slot = 0; slot < first_result; ++slot) {
    const bool direct = slot < plan.num_inputs && plan.operands[static_cast<size_t>(slot)].direct;
    if (!direct) plan.slot_tile[static_cast<size_t>(slot)] = next++;
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const size_t slot = static_cast<size_t>(first_result) + i;
    if (variance[i] == Variance::kNone) plan.slot_tile[slot] = next++;
    if (variance[i] == Variance::kByColumn) plan.slot_columns[slot] = plan.num_column_buffers++;
  }
  std::vector<int> free_tiles;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (variance[i] != Variance::kByTile) continue;
    const size_t slot = static_cast<size_t>(first_result) + i;
    const int output = plan.slot_output[slot];
    const bool direct = output >= 0 && plan.operands[result_slot(plan, output)].direct;
    if (!direct) {
      if (free_tiles.empty()) {
        plan.slot_tile[slot] = next++;
      } else {
        plan.slot_tile[slot] = free_tiles.back();
        free_tiles.pop_back();
      }
    }
    for (size_t other = static_cast<size_t>(first_result); other <= slot; ++other) {
      const bool temporary =
          variance[other - static_cast<size_t>(first_result)] == Variance::kByTile && plan.slot_output[other] < 0;
      if (temporary && last_use[other] == static_cast<int>(i)) free_tiles.push_back(plan.slot_tile[other]);
    }
  }
  plan.num_tiles_needed = next;
}

void fill_tile(const Operand& operand, const std::byte* from, float* tile, int64_t rows, int64_t columns) {
  if (operand.stride == 1 && (rows == 1 || operand.row_stride == columns)) {
    return operand.load(from, tile, static_cast<size_t>(rows * columns));
  }
  for (int64_t r = 0; r < rows; ++r) {
    load_row(operand, from + r * operand.row_stride * static_cast<int64_t>(operand.element_bytes), tile + r * columns,
             columns);
  }
}

// Asks for memory to be brought near; into the second-level cache, the first is full of tiles.
void prefetch(const std::byte* from, int64_t bytes, bool to_write) {
  for (int64_t at = 0; at < bytes; at += 64) {
    if (to_write) {
      __builtin_prefetch(from + at, 1, 2);
    } else {
      __builtin_prefetch(from + at, 0, 2);
    }
  }
}

// The tile that is at hand: which rows and columns of the row-blocks it has.
struct TilePart {
  int64_t row = 0;
  int64_t column = 0;
  int64_t rows = 1;
  int64_t columns = 0;

  int64_t num_elements() const { return rows * columns; }
};

// One thread's way through its tiles, with scratch tiles of its own.
class TileRun {
 public:
  TileRun(const Plan& plan, const KernelArgs& args, float* scratch)
      : plan_(plan), args_(args), column_buffers_(scratch + plan.num_tiles_needed * kTile) {
    const int first_result = plan.num_inputs + static_cast<int>(plan.constants.size());
    for (size_t slot = 0; slot < plan.slot_tile.size(); ++slot) {
      if (plan.slot_tile[slot] >= 0) slots_[slot] = scratch + plan.slot_tile[slot] * kTile;
    }
    for (int slot = plan.num_inputs; slot < first_result; ++slot) {
      std::fill_n(slots_[static_cast<size_t>(slot)], kTile,
                  plan.constants[static_cast<size_t>(slot - plan.num_inputs)]);
    }
    for (int i = 0; i < plan.num_inputs; ++i) {
      const Operand& operand = operand_of(i);
      if (operand.invariant) {
        fill_tile(operand, base_of(i), slots_[static_cast<size_t>(i)], plan.tile_rows, plan.tile_columns);
      }
    }
  }

  // Runs tiles [begin, end).
  void run(int64_t begin, int64_t end) {
    compute_once();
    seek(begin);
    for (int64_t tile = begin; tile < end; ++tile) {
      run_tile();
      advance();
    }
  }

 private:
  const Operand& operand_of(int i) const { return plan_.operands[static_cast<size_t>(i)]; }
  std::byte* base_of(int operand) const {
    const auto i = static_cast<size_t>(operand);
    const auto inputs = static_cast<size_t>(plan_.num_inputs);
    return static_cast<std::byte*>(i < inputs ? args_.inputs[i].data : args_.outputs[i - inputs].data);
  }
  float* slot_of(int slot) const { return slot < 0 ? nullptr : slots_[static_cast<size_t>(slot)]; }
  void run_step(const Plan::Step& step, int64_t num_elements) const {
    step.run(slot_of(step.a), slot_of(step.b), slot_of(step.c), slot_of(step.slot), static_cast<size_t>(num_elements));
  }
  void place_columns(int64_t column) {
    for (size_t slot = 0; slot < plan_.slot_columns.size(); ++slot) {
      const int buffer = plan_.slot_columns[slot];
      if (buffer >= 0) slots_[slot] = column_buffers_ + buffer * plan_.column_buffer_size + column;
    }
  }

  // What is the same in all tiles, or in all of a column.
  void compute_once() {
    const int64_t size = plan_.num_column_buffers > 0 ? plan_.row_size : plan_.tile_rows * plan_.tile_columns;
    for (int64_t column = 0; column < size && !plan_.once.empty(); column += kTile) {
      place_columns(column);
      for (int i = 0; i < plan_.num_inputs; ++i) {
        if (operand_of(i).columns) slots_[static_cast<size_t>(i)] = reinterpret_cast<float*>(base_of(i)) + column;
      }
      for (const Plan::Step& step : plan_.once) run_step(step, std::min(kTile, size - column));
    }
  }

  // Goes to the tile of that number; from there the outer index counts up like an odometer.
  void seek(int64_t tile) {
    piece_ = tile % plan_.tiles_per_outer;
    int64_t rest = tile / plan_.tiles_per_outer;
    for (size_t d = plan_.outer.size(); d-- > 0;) {
      index_[d] = rest % plan_.outer[d];
      rest /= plan_.outer[d];
      for (size_t i = 0; i < plan_.operands.size(); ++i) offset_[i] += index_[d] * plan_.operands[i].strides[d];
    }
  }

  void advance() {
    if (++piece_ < plan_.tiles_per_outer) return;
    piece_ = 0;
    for (size_t d = plan_.outer.size(); d-- > 0;) {
      const bool wraps = ++index_[d] == plan_.outer[d];
      const int64_t steps = wraps ? 1 - plan_.outer[d] : 1;
      for (size_t i = 0; i < plan_.operands.size(); ++i) offset_[i] += steps * plan_.operands[i].strides[d];
      if (!wraps) return;
      index_[d] = 0;
    }
  }

  TilePart part() const {
    TilePart part{.columns = plan_.row_size};
    if (plan_.tile_columns < plan_.row_size) {
      part.column = piece_ * plan_.tile_columns;
      part.columns = std::min(plan_.tile_columns, plan_.row_size - part.column);
    } else {
      part.row = piece_ * plan_.tile_rows;
      part.rows = std::min(plan_.tile_rows, plan_.num_rows - part.row);
    }
    return part;
  }

  // Where an operand's elements of that part begin.
  std::byte* place(int i, const TilePart& part) const {
    const Operand& operand = operand_of(i);
    const int64_t elements =
        offset_[static_cast<size_t>(i)] + part.row * operand.row_stride + part.column * operand.stride;
    return base_of(i) + elements * static_cast<int64_t>(operand.element_bytes);
  }

  void run_tile() {
    const TilePart part = this->part();
    read_inputs(part);
    if (plan_.num_column_buffers > 0) place_columns(part.column);
    for (size_t k = 0; k < plan_.steps.size(); ++k) {
      prefetch_share(k, part);
      const Plan::Step& step = plan_.steps[k];
      const int output = plan_.slot_output[static_cast<size_t>(step.slot)];
      const bool is_direct = output >= 0 && plan_.operands[result_slot(plan_, output)].direct;
      if (is_direct) {
        slots_[static_cast<size_t>(step.slot)] = reinterpret_cast<float*>(place(plan_.num_inputs + output, part));
      }
      run_step(step, part.num_elements());
      if (output >= 0 && !is_direct) write_result(output, slot_of(step.slot), part);
    }
  }

  void read_inputs(const TilePart& part) {
    for (int i = 0; i < plan_.num_inputs; ++i) {
      const Operand& operand = operand_of(i);
      float*& slot = slots_[static_cast<size_t>(i)];
      if (operand.direct) {
        slot = reinterpret_cast<float*>(place(i, part));
      } else if (!operand.invariant) {
        fill_tile(operand, place(i, part), slot, part.rows, part.columns);
      }
    }
  }

  // While the steps compute, the next tile is on its way: some operands' share before each step, for there is only so
  // much that may be under way at a time.
  void prefetch_share(size_t k, const TilePart& part) const {
    const size_t streams = plan_.streams.size();
    for (size_t i = streams * k / plan_.steps.size(); i < streams * (k + 1) / plan_.steps.size(); ++i) {
      const int operand = plan_.streams[i];
      const int64_t bytes = part.num_elements() * static_cast<int64_t>(operand_of(operand).element_bytes);
      prefetch(place(operand, part) + bytes, bytes, operand >= plan_.num_inputs);
    }
  }

  void write_result(int output, const float* tile, const TilePart& part) const {
    const Operand& operand = plan_.operands[result_slot(plan_, output)];
    std::byte* to = place(plan_.num_inputs + output, part);
    if (operand.stride == 1 && (part.rows == 1 || operand.row_stride == part.columns)) {
      operand.store(tile, to, static_cast<size_t>(part.num_elements()));
      return;
    }
    for (int64_t r = 0; r < part.rows; ++r) {
      store_row(operand, tile + r * part.columns,
                to + r * operand.row_stride * static_cast<int64_t>(operand.element_bytes), part.columns);
    }
  }

  const Plan& plan_;
  const KernelArgs& args_;
  float* column_buffers_;
  std::array<float*, kMaxTiles * 2> slots_{};
  std::array<int64_t, kMaxNdim> index_{};       // of the outer dims
  std::array<int64_t, kMaxOperands> offset_{};  // by operand, in elements: where the outer index is
  int64_t piece_ = 0;                           // the tile's number within the outer index
};

// Every output is an instruction's result, and a different one: others get a copy.
void separate_results(TileProgram& program) {
  const int first_result = program.num_inputs + static_cast<int>(program.constants.size());
  std::vector<int> taken;
  for (int& slot : program.results) {
    if (slot < first_result || std::find(taken.begin(), taken.end(), slot) != taken.end()) {
      slot = program.add(ElementOp::kCopy, slot);
    }
    taken.push_back(slot);
  }
}

// An input may share memory with an output that is walked alike and whose value is made no earlier than the input's
// last use.
std::vector<std::pair<int, int>> in_place_pairs(const Plan& plan, const TileProgram& program) {
  std::vector<std::pair<int, int>> pairs;
  const int num_outputs = static_cast<int>(program.results.size());
  const int first_result = program.num_inputs + static_cast<int>(program.constants.size());
  for (int i = 0; i < plan.num_inputs; ++i) {
    int last = -1;
    for (size_t k = 0; k < program.instructions.size(); ++k) {
      const TileInstruction& instruction = program.instructions[k];
      if (instruction.a == i || instruction.b == i || instruction.c == i) last = static_cast<int>(k);
    }
    const Operand& input = plan.operands[static_cast<size_t>(i)];
    // What is read once for all tiles, or tile-wise before the first instruction, is read early enough as well, but
    // only direct and like-strided operands are worth the planner's while.
    for (int o = 0; o < num_outputs; ++o) {
      const Operand& output = plan.operands[result_slot(plan, o)];
      const int made = program.results[static_cast<size_t>(o)] - first_result;
      if (input.dtype == output.dtype && input.strides == output.strides && input.row_stride == output.row_stride &&
          input.stride == output.stride && !input.invariant && made >= last) {
        pairs.emplace_back(i, o);
      }
    }
  }
  return pairs;
}

// False where a row of an operand's dtype cannot be loaded.
bool add_operands(Plan& plan, const std::vector<TensorView>& views) {
  for (const TensorView& view : views) {
    Operand operand;
    operand.dtype = view.dtype;
    operand.element_bytes = size_bytes(view.dtype);
    operand.load = row_load(view.dtype);
    operand.store = row_store(view.dtype);
    if (operand.load == nullptr) return false;
    plan.operands.push_back(operand);
  }
  return true;
}

// The dims of `shape` as all operands walk them, `num_inputs` inputs and then outputs. nullopt where one of them cannot
// be walked so.
std::optional<std::vector<MergedDim>> dims_of(const Shape& shape, const std::vector<TensorView>& views,
                                              size_t num_inputs) {
  std::vector<Strides> strides;
  for (const TensorView& view : views) {
    const auto seen = broadcast_strides(view, shape);
    if (!seen) return std::nullopt;
    strides.push_back(*seen);
  }
  auto dims = merge_dims(shape, strides, num_inputs);
  if (!dims) return std::nullopt;
  for (size_t i = num_inputs + 1; i < views.size(); ++i) {
    for (const MergedDim& dim : *dims) {
      if (dim.strides[i] == 0) return std::nullopt;
    }
  }
  return dims;
}

// What tiles are cut of: the innermost dim and, where that is short, the dim around it, whose pieces are the tile's
// rows.
struct TiledDims {
  explicit TiledDims(const std::vector<MergedDim>& dims)
      : inner(dims.back()),
        rows(dims.size() > 1 && inner.size <= kTile / 2 ? &dims[dims.size() - 2] : nullptr),
        outer(dims.data(), dims.size() - (rows != nullptr ? 2 : 1)) {}

  const MergedDim& inner;
  const MergedDim* rows;  // nullptr: a tile is one row, or a part of it
  std::span<const MergedDim> outer;
};

void cut_into_tiles(Plan& plan, const TiledDims& dims) {
  const int64_t row_size = dims.inner.size;
  plan.row_size = row_size;
  plan.num_rows = dims.rows != nullptr ? dims.rows->size : 1;
  plan.tile_columns = std::min(row_size, kTile);
  plan.tile_rows = dims.rows != nullptr ? std::min(dims.rows->size, kTile / row_size) : 1;
  plan.tiles_per_outer = dims.rows != nullptr ? (dims.rows->size + plan.tile_rows - 1) / plan.tile_rows
                                              : (row_size + plan.tile_columns - 1) / plan.tile_columns;
  plan.num_tiles = plan.tiles_per_outer;
  for (const MergedDim& dim : dims.outer) {
    plan.outer.push_back(dim.size);
    plan.num_tiles *= dim.size;
  }
}

// How operand `i` is walked, tile by tile, once the tiles are cut.
void set_walk(Plan& plan, const TiledDims& dims, size_t i) {
  Operand& operand = plan.operands[i];
  operand.stride = dims.inner.strides[i];
  operand.row_stride = dims.rows != nullptr ? dims.rows->strides[i] : 0;
  bool fixed = true;
  for (size_t d = 0; d < dims.outer.size(); ++d) {
    operand.strides[d] = dims.outer[d].strides[i];
    fixed = fixed && operand.strides[d] == 0;
  }
  const bool is_input = i < static_cast<size_t>(plan.num_inputs);
  const bool is_run = operand.stride == 1 && (plan.tile_rows == 1 || operand.row_stride == plan.row_size);
  operand.direct = operand.dtype == DType::kF32 && is_run;
  operand.columns = operand.direct && dims.rows == nullptr && is_input && fixed && !dims.outer.empty() &&
                    plan.row_size <= kMaxColumns;
  const bool whole_row = plan.tile_columns == plan.row_size || operand.stride == 0;
  operand.invariant = !operand.direct && is_input && fixed && operand.row_stride == 0 && whole_row;
  if (is_run && !operand.columns && !operand.invariant) plan.streams.push_back(static_cast<int>(i));
}

// The program's instructions, once slots, tiles and operands are known. False where they need too many tiles.
bool add_steps(Plan& plan, const TileProgram& program) {
  const int first_result = program.num_inputs + static_cast<int>(program.constants.size());
  plan.slot_output.assign(static_cast<size_t>(first_result) + program.instructions.size(), -1);
  for (size_t o = 0; o < program.results.size(); ++o) {
    plan.slot_output[static_cast<size_t>(program.results[o])] = static_cast<int>(o);
  }
  const std::vector<Variance> variance = find_variance(plan, program);
  assign_tiles(plan, program, variance);
  plan.column_buffer_size = (plan.row_size + 15) / 16 * 16;
  if (plan.num_tiles_needed > kMaxTiles) return false;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const TileInstruction& instruction = program.instructions[i];
    (variance[i] == Variance::kByTile ? plan.steps : plan.once)
        .push_back({row_function(instruction.op), instruction.a, instruction.b, instruction.c,
                    first_result + static_cast<int>(i)});
  }
  return true;
}

}  // namespace

std::optional<PreparedKernel> prepare_tile_program(const KernelRequest& request, TileProgram program,
                                                   std::string name) {
  check_equal(static_cast<int>(request.inputs.size()), program.num_inputs, "tile program's inputs");
  check_equal(request.outputs.size(), program.results.size(), "tile program's results");
  separate_results(program);

  std::vector<TensorView> views = request.inputs;
  views.insert(views.end(), request.outputs.begin(), request.outputs.end());
  const int num_slots = program.num_inputs + static_cast<int>(program.constants.size() + program.instructions.size());
  if (views.size() > kMaxOperands || num_slots > kMaxTiles * 2 || request.outputs.empty()) return std::nullopt;
  const Shape& shape = request.outputs[0].shape;
  for (const TensorView& output : request.outputs) {
    if (output.shape != shape) return std::nullopt;
  }

  auto plan = std::make_shared<Plan>();
  plan->num_inputs = program.num_inputs;
  plan->constants = program.constants;
  if (!add_operands(*plan, views)) return std::nullopt;
  if (shape.num_elements() > 0) {
    const auto dims = dims_of(shape, views, request.inputs.size());
    if (!dims) return std::nullopt;
    const TiledDims tiled(*dims);
    cut_into_tiles(*plan, tiled);
    for (size_t i = 0; i < plan->operands.size(); ++i) set_walk(*plan, tiled, i);
  }
  if (!add_steps(*plan, program)) return std::nullopt;

  PreparedKernel kernel;
  kernel.name = std::move(name);
  kernel.in_place = in_place_pairs(*plan, program);
  std::erase_if(kernel.in_place, [&](const std::pair<int, int>& pair) {
    return !(request.inputs[static_cast<size_t>(pair.first)].shape == shape);
  });
  const int64_t part_bytes = plan->scratch_floats() * static_cast<int64_t>(sizeof(float));
  kernel.scratch_bytes = part_bytes * request.num_threads;
  kernel.run = [plan = std::shared_ptr<const Plan>(plan), part_bytes](const KernelArgs& args) {
    args.parallel_for.with_parts(plan->num_tiles, kGrainTiles, [&](int64_t begin, int64_t end, int part) {
      TileRun(*plan, args, reinterpret_cast<float*>(args.scratch.data() + part * part_bytes)).run(begin, end);
    });
  };
  return kernel;
}

}  // namespace tessera::kernels::cpu
