#include <map>

#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/loops.h"
#include "tessera/kernels/reference/loops/walk.h"

namespace tessera::kernels::reference {
namespace {

// The strides of the dims [begin, end).
Strides range_of(const Strides& strides, int begin, int end) {
  Strides result;
  for (int d = begin; d < end; ++d) result.push_back(strides[d]);
  return result;
}

void run_one_hot(const KernelArgs& args) {
  const TensorView& indices = args.inputs[0];
  const TensorView& y = args.outputs[0];
  const int axis = normalize_axis(args.attributes.get_int("axis"), y.shape.ndim(), "axis");
  copy_elements(broadcast_view(args.inputs[2], y.shape), y);
  dispatch_dtype(y.dtype, "one_hot", [&](auto zero) {
    using T = decltype(zero);
    const T on = *args.inputs[1].as<T>();
    for_each_element<2>(indices.shape, {indices.strides, without(y.strides, axis)},
                        [&](const std::array<int64_t, 2>& at) {
                          const int64_t index = read_index(indices, at[0]);
                          if (index >= 0 && index < y.shape[axis]) y.as<T>()[at[1] + index * y.strides[axis]] = on;
                        });
  });
}

// How the rows along `axis` of a table correspond to the tensor that has the indices' dims in the axis' place.
struct Rows {
  Shape shape;             // of a row: the table's without the axis
  Strides table;           // of a row in the table
  Strides expanded;        // of a row in the other tensor
  Strides expanded_index;  // of the indices' dims in the other tensor
};

Rows rows_of(const TensorView& table, const TensorView& expanded, const TensorView& indices, int axis) {
  Rows rows{without(table.shape, axis), without(table.strides, axis), range_of(expanded.strides, 0, axis),
            range_of(expanded.strides, axis, axis + indices.shape.ndim())};
  for (int d = axis + indices.shape.ndim(); d < expanded.shape.ndim(); ++d)
    rows.expanded.push_back(expanded.strides[d]);
  return rows;
}

void run_gather(const KernelArgs& args) {
  const TensorView& table = args.inputs[0];
  const TensorView& indices = args.inputs[1];
  const TensorView& y = args.outputs[0];
  const int axis = normalize_axis(args.attributes.get_int("axis"), table.shape.ndim(), "axis");
  const Rows rows = rows_of(table, y, indices, axis);
  for_each_element<2>(indices.shape, {indices.strides, rows.expanded_index}, [&](const std::array<int64_t, 2>& at) {
    const int64_t index = read_index(indices, at[0]);
    const TensorView to = subview(y, at[1], rows.shape, rows.expanded);
    if (index >= 0 && index < table.shape[axis]) {
      copy_elements(subview(table, index * table.strides[axis], rows.shape, rows.table), to);
    } else {
      fill_elements(to, 0);
    }
  });
}

void run_scatter_add(const KernelArgs& args) {
  const TensorView& base = args.inputs[0];
  const TensorView& indices = args.inputs[1];
  const TensorView& updates = args.inputs[2];
  const TensorView& y = args.outputs[0];
  const int axis = normalize_axis(args.attributes.get_int("axis"), base.shape.ndim(), "axis");
  if (y.data != base.data) copy_elements(base, y);
  const Rows rows = rows_of(y, updates, indices, axis);
  dispatch_numeric(y.dtype, "scatter_add", [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    for_each_element<2>(indices.shape, {indices.strides, rows.expanded_index}, [&](const std::array<int64_t, 2>& at) {
      const int64_t index = read_index(indices, at[0]);
      if (index < 0 || index >= y.shape[axis]) return;
      T* to = y.as<T>() + index * y.strides[axis];
      const T* from = updates.as<T>() + at[1];
      for_each_element<2>(rows.shape, {rows.table, rows.expanded}, [&](const std::array<int64_t, 2>& element) {
        const auto a = static_cast<C>(to[element[0]]);
        const auto b = static_cast<C>(from[element[1]]);
        if constexpr (std::is_integral_v<C>) {
          to[element[0]] = static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // wraps around
        } else {
          to[element[0]] = static_cast<T>(a + b);
        }
      });
    });
  });
}

void write_index(const TensorView& view, int64_t offset, int64_t value) {
  if (view.dtype == DType::kI32) {
    view.as<int32_t>()[offset] = static_cast<int32_t>(value);
  } else {
    view.as<int64_t>()[offset] = value;
  }
}

// Entries are counted in row-major order over the dims of ids, which rows begin with.
class Entries {
 public:
  explicit Entries(const Shape& ids) : ids_(ids) {}

  // How many the dims behind the first have.
  int64_t of_row() const { return ids_[0] == 0 ? 0 : ids_.num_elements() / ids_[0]; }
  int64_t offset_of(const TensorView& view, int64_t i) const {
    int64_t offset = 0;
    for (int dim = ids_.ndim(); dim-- > 0; i /= ids_[dim]) offset += i % ids_[dim] * view.strides[dim];
    return offset;
  }
  TensorView row_of(const TensorView& view, int64_t i) const {
    Shape shape;
    for (int dim = ids_.ndim(); dim < view.shape.ndim(); ++dim) shape.push_back(view.shape[dim]);
    return subview(view, offset_of(view, i), shape, range_of(view.strides, ids_.ndim(), view.shape.ndim()));
  }

 private:
  const Shape& ids_;
};

// Writes the numbers of the entries [begin, end) once each, from `begin` on in the order in which they first come, and
// -1 behind them. Calls `each(i, place, is_new)` for each entry: where its number stands, -1 where it is none of the
// table's, and whether it is the first one of that number. Returns where the numbers end.
template <typename F>
int64_t list_numbers(const KernelArgs& args, const TensorView& ids, const TensorView& numbers, int64_t begin,
                     int64_t end, F&& each) {
  const Entries entries(ids.shape);
  const int64_t num_rows = args.attributes.get_int("num_rows");
  int64_t next = begin;
  std::map<int64_t, int64_t> places;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t number = read_index(ids, entries.offset_of(ids, i));
    if (number < 0 || number >= num_rows) {
      each(i, int64_t{-1}, false);
      continue;
    }
    const auto [place, is_new] = places.try_emplace(number, next);
    if (is_new) write_index(numbers, entries.offset_of(numbers, next++), number);
    each(i, place->second, is_new);
  }
  for (int64_t i = next; i < end; ++i) write_index(numbers, entries.offset_of(numbers, i), -1);
  return next;
}

void run_add_up_rows(const KernelArgs& args) {
  const TensorView& rows = args.inputs[0];
  const TensorView& ids = args.inputs[1];
  const TensorView& sums = args.outputs[0];
  const Ints& bounds = args.attributes.get_ints("bounds");
  const Entries entries(ids.shape);
  const auto add = [&](int64_t i, int64_t place, bool is_new) {
    if (place < 0) return;
    const TensorView row = entries.row_of(rows, i);
    const TensorView sum = entries.row_of(sums, place);
    if (is_new) return copy_elements(row, sum);
    for_each_element<2>(row.shape, {row.strides, sum.strides}, [&](const std::array<int64_t, 2>& at) {
      store_element(sum, at[1], load_element(sum, at[1]) + load_element(row, at[0]));
    });
  };
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    const int64_t end = bounds[part + 1] * entries.of_row();
    int64_t next = list_numbers(args, ids, args.outputs[1], bounds[part] * entries.of_row(), end, add);
    for (; args.attributes.get_bool("clears") && next < end; ++next) fill_elements(entries.row_of(sums, next), 0);
  }
}

void run_list_rows(const KernelArgs& args) {
  const TensorView& ids = args.inputs[0];
  const TensorView& places = args.outputs[1];
  const Ints& bounds = args.attributes.get_ints("bounds");
  const Entries entries(ids.shape);
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    const int64_t begin = bounds[part] * entries.of_row();
    const auto write_place = [&](int64_t i, int64_t place, bool) {
      write_index(places, entries.offset_of(places, i), place < 0 ? -1 : place - begin);
    };
    list_numbers(args, ids, args.outputs[0], begin, bounds[part + 1] * entries.of_row(), write_place);
  }
}

void run_spread_rows(const KernelArgs& args) {
  const TensorView& rows = args.inputs[0];
  const TensorView& places = args.inputs[1];
  const TensorView& y = args.outputs[0];
  const Ints& bounds = args.attributes.get_ints("bounds");
  const Entries entries(places.shape);
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    const int64_t begin = bounds[part] * entries.of_row();
    const int64_t end = bounds[part + 1] * entries.of_row();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = read_index(places, entries.offset_of(places, i));
      if (place >= 0 && begin + place < end) {
        copy_elements(entries.row_of(rows, begin + place), entries.row_of(y, i));
      } else {
        fill_elements(entries.row_of(y, i), 0);
      }
    }
  }
}

}  // namespace

void add_indexing(KernelRegistry& registry) {
  registry.add_function("one_hot", "reference", run_one_hot);
  registry.add_function("gather", "reference", run_gather);
  registry.add_function("scatter_add", "reference", run_scatter_add, {{0, 0}});
  registry.add_function("add_up_rows", "reference", run_add_up_rows);
  registry.add_function("list_rows", "reference", run_list_rows);
  registry.add_function("spread_rows", "reference", run_spread_rows);
}

}  // namespace tessera::kernels::reference
