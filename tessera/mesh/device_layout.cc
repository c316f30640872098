#include "tessera/mesh/device_layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/mesh/rank_limits.h"
#include "tessera/mesh/strategy.h"
#include "tessera/mesh/text_reader.h"

namespace tessera::mesh {
namespace {

// From an axis counted from the right to an index into the device matrix.
size_t index_of(const DeviceLayout& layout, int axis) {
  return layout.device_matrix.size() - 1 - static_cast<size_t>(axis);
}

int64_t axis_size(const DeviceLayout& layout, int axis) { return layout.device_matrix[index_of(layout, axis)]; }

// How many positions lie between neighbours along an axis.
int64_t axis_stride(const DeviceLayout& layout, int axis) {
  int64_t stride = 1;
  for (int inner = 0; inner < axis; ++inner) stride *= axis_size(layout, inner);
  return stride;
}

void check_position(const DeviceLayout& layout, int64_t position) {
  if (position < 0 || position >= layout.num_ranks()) {
    throw InvalidArgument("layout {} has {} ranks, none at position {}", to_string(layout), layout.num_ranks(),
                          position);
  }
}

// Where an axis of a sharding stands: in which dim and how deep; -1 for none.
struct Place {
  int dim = -1;
  int depth = 0;
};

DeviceLayout merge_axes(const Sharding& sharding, const Mesh& mesh, const Shape* shape) {
  if (sharding.is_partial()) {
    throw InvalidArgument("sharding {} is partial; a device layout describes whole values only",
                          sharding.to_string(mesh));
  }
  const auto num_axes = static_cast<size_t>(mesh.num_axes());
  std::vector<int> axes;  // those larger than 1, in mesh order
  for (int a = 0; a < mesh.num_axes(); ++a) {
    if (mesh.axis(a).size > 1) axes.push_back(a);
  }
  std::vector<Place> places(num_axes);
  std::vector<std::vector<int>> dims(sharding.dims.size());  // without axes of size 1
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    for (const int axis : sharding.dims[dim]) {
      if (mesh.axis(axis).size == 1) continue;
      places[static_cast<size_t>(axis)] = {static_cast<int>(dim), static_cast<int>(dims[dim].size())};
      dims[dim].push_back(axis);
    }
  }
  // Whether an axis is one device axis with the axis before it.
  std::vector<bool> joins(num_axes);
  const auto sizes_of = [&](const std::vector<int>& split_by) {
    std::vector<int64_t> sizes;
    for (const int axis : split_by) {
      if (!sizes.empty() && joins[static_cast<size_t>(axis)]) {
        sizes.back() *= mesh.axis(axis).size;
      } else {
        sizes.push_back(mesh.axis(axis).size);
      }
    }
    return sizes;
  };
  for (size_t i = 1; i < axes.size(); ++i) {
    const auto at = static_cast<size_t>(axes[i]);
    const Place& outer = places[static_cast<size_t>(axes[i - 1])];
    const Place& inner = places[at];
    joins[at] = outer.dim == inner.dim && (inner.dim < 0 || inner.depth == outer.depth + 1);
    if (!joins[at] || inner.dim < 0 || shape == nullptr) continue;
    std::vector<int64_t> fine;
    for (const int axis : dims[static_cast<size_t>(inner.dim)]) fine.push_back(mesh.axis(axis).size);
    joins[at] = refines_exactly((*shape)[inner.dim], sizes_of(dims[static_cast<size_t>(inner.dim)]), fine);
  }
  DeviceLayout layout{sizes_of(axes), {}};
  std::vector<int> device_axis(num_axes);
  int next = static_cast<int>(layout.device_matrix.size());
  for (const int axis : axes) {
    if (!joins[static_cast<size_t>(axis)]) --next;
    device_axis[static_cast<size_t>(axis)] = next;
  }
  for (const auto& split_by : dims) {
    auto& map = layout.tensor_map.emplace_back();
    for (const int axis : split_by) {
      if (!joins[static_cast<size_t>(axis)]) map.push_back(device_axis[static_cast<size_t>(axis)]);
    }
  }
  return layout;
}

}  // namespace

int64_t DeviceLayout::num_ranks() const {
  int64_t product = 1;
  for (const int64_t size : device_matrix) product *= size;
  return product;
}

std::vector<int64_t> DeviceLayout::slice_counts() const {
  std::vector<int64_t> counts;
  for (const auto& axes : tensor_map) {
    counts.push_back(1);
    for (const int axis : axes) counts.back() *= axis_size(*this, axis);
  }
  return counts;
}

std::string to_string(const DeviceLayout& layout) {
  std::vector<std::string> dims;
  for (const auto& axes : layout.tensor_map) {
    dims.push_back(axes.empty()       ? "-1"
                   : axes.size() == 1 ? std::to_string(axes[0])
                                      : fmt::format("({})", fmt::join(axes, ",")));
  }
  return fmt::format("([{}],[{}])", fmt::join(layout.device_matrix, ","), fmt::join(dims, ","));
}

DeviceLayout parse_device_layout(std::string_view text) {
  TextReader reader(text, "device layout");
  DeviceLayout layout;
  const auto list = [&](char open, char close, const std::function<void()>& entry) {
    reader.expect(open);
    while (!reader.accept(close)) {
      entry();
      if (!reader.sees(close)) reader.expect(',');
    }
  };
  reader.expect('(');
  list('[', ']', [&] { layout.device_matrix.push_back(reader.integer()); });
  reader.expect(',');
  list('[', ']', [&] {
    auto& axes = layout.tensor_map.emplace_back();
    const auto read_axis = [&] { axes.push_back(static_cast<int>(reader.integer())); };
    if (reader.sees('(')) {
      list('(', ')', read_axis);
    } else {
      read_axis();
      if (axes[0] == -1) axes.clear();
    }
  });
  reader.accept(',');
  reader.expect(')');
  reader.end();
  validate(layout);
  return layout;
}

void validate(const DeviceLayout& layout) {
  for (const int64_t size : layout.device_matrix) {
    if (size < 1) throw InvalidArgument("layout {}: sizes of device axes must be at least 1", to_string(layout));
  }
  int64_t num_ranks = 1;
  for (const int64_t size : layout.device_matrix) {
    if (size > kMaxRanks / num_ranks) {
      throw InvalidArgument("layout {} has more than {} ranks, the most there may be", to_string(layout), kMaxRanks);
    }
    num_ranks *= size;
  }
  std::vector<bool> used(layout.device_matrix.size());
  for (const auto& axes : layout.tensor_map) {
    for (const int axis : axes) {
      if (axis < 0 || axis >= static_cast<int>(used.size())) {
        throw InvalidArgument("layout {}: no device axis {}, there are {}", to_string(layout), axis, used.size());
      }
      if (used[static_cast<size_t>(axis)]) {
        throw InvalidArgument("layout {}: device axis {} splits more than once", to_string(layout), axis);
      }
      used[static_cast<size_t>(axis)] = true;
    }
  }
}

DeviceLayout standard_form(const DeviceLayout& layout) {
  validate(layout);
  DeviceLayout result;
  std::vector<int> renumbered;  // by axis from the right
  int kept = 0;
  for (int axis = 0; axis < static_cast<int>(layout.device_matrix.size()); ++axis) {
    renumbered.push_back(axis_size(layout, axis) > 1 ? kept++ : -1);
  }
  for (const int64_t size : layout.device_matrix) {
    if (size > 1) result.device_matrix.push_back(size);
  }
  for (const auto& axes : layout.tensor_map) {
    auto& map = result.tensor_map.emplace_back();
    for (const int axis : axes) {
      if (const int to = renumbered[static_cast<size_t>(axis)]; to >= 0) map.push_back(to);
    }
  }
  return result;
}

DeviceLayout repeated(const DeviceLayout& layout, int64_t num_ranks) {
  validate(layout);
  const int64_t own = layout.num_ranks();
  if (num_ranks < 1 || num_ranks % own != 0) {
    throw InvalidArgument("layout {} has {} ranks, which do not divide {}", to_string(layout), own, num_ranks);
  }
  if (own == num_ranks) return layout;
  DeviceLayout result = layout;
  result.device_matrix.push_back(num_ranks / own);
  for (auto& axes : result.tensor_map) {
    for (int& axis : axes) ++axis;
  }
  return result;
}

DeviceLayout device_layout(const Sharding& sharding, const Mesh& mesh) { return merge_axes(sharding, mesh, nullptr); }

DeviceLayout device_layout(const Sharding& sharding, const Mesh& mesh, const Shape& shape) {
  if (static_cast<int>(sharding.dims.size()) != shape.ndim()) {
    throw InvalidArgument("sharding {} has {} dims, the tensor {} has {}", sharding.to_string(mesh),
                          sharding.dims.size(), shape, shape.ndim());
  }
  return merge_axes(sharding, mesh, &shape);
}

Sharding sharding_of(const DeviceLayout& layout, const Mesh& mesh) {
  const DeviceLayout full = standard_form(repeated(layout, mesh.size()));
  const auto num_device_axes = full.device_matrix.size();
  std::vector<std::vector<int>> factors(num_device_axes);  // by index into the device matrix
  int axis = 0;
  for (size_t i = 0; i < num_device_axes; ++i) {
    int64_t product = 1;
    for (; axis < mesh.num_axes() && product < full.device_matrix[i]; ++axis) {
      if (mesh.axis(axis).size == 1) continue;
      product *= mesh.axis(axis).size;
      factors[i].push_back(axis);
    }
    if (product != full.device_matrix[i]) {
      throw InvalidArgument("layout {}: mesh {} does not refine its device matrix", to_string(layout),
                            mesh.to_string());
    }
  }
  Sharding sharding;
  for (const auto& axes : full.tensor_map) {
    auto& dim = sharding.dims.emplace_back();
    for (const int device_axis : axes) {
      const auto& split_by = factors[index_of(full, device_axis)];
      dim.insert(dim.end(), split_by.begin(), split_by.end());
    }
  }
  return sharding;
}

int64_t slice_index(const DeviceLayout& layout, int64_t position) {
  check_position(layout, position);
  int64_t index = 0;
  for (const auto& axes : layout.tensor_map) {
    for (const int axis : axes) {
      const int64_t size = axis_size(layout, axis);
      index = index * size + position / axis_stride(layout, axis) % size;
    }
  }
  return index;
}

std::vector<std::vector<int64_t>> replica_groups(const DeviceLayout& layout) {
  validate(layout);
  int64_t num_slices = 1;
  for (const int64_t count : layout.slice_counts()) num_slices *= count;
  std::vector<std::vector<int64_t>> groups(static_cast<size_t>(num_slices));
  for (int64_t position = 0; position < layout.num_ranks(); ++position) {
    groups[static_cast<size_t>(slice_index(layout, position))].push_back(position);
  }
  return groups;
}

std::vector<int64_t> replicas(const DeviceLayout& layout, int64_t position) {
  return replica_groups(layout)[static_cast<size_t>(slice_index(layout, position))];
}

std::vector<int64_t> axis_group(const DeviceLayout& layout, int axis, int64_t position) {
  check_position(layout, position);
  if (axis < 0 || axis >= static_cast<int>(layout.device_matrix.size())) {
    throw InvalidArgument("layout {} has no device axis {}", to_string(layout), axis);
  }
  const int64_t stride = axis_stride(layout, axis);
  const int64_t size = axis_size(layout, axis);
  const int64_t first = position - position / stride % size * stride;
  std::vector<int64_t> group;
  for (int64_t i = 0; i < size; ++i) group.push_back(first + i * stride);
  return group;
}

}  // namespace tessera::mesh
