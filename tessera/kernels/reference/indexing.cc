#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/loops.h"

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

}  // namespace

void add_indexing(KernelRegistry& registry) {
  registry.add_function("one_hot", "reference", run_one_hot);
  registry.add_function("gather", "reference", run_gather);
  registry.add_function("scatter_add", "reference", run_scatter_add, {{0, 0}});
}

}  // namespace tessera::kernels::reference
