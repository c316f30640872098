#include "tessera/kernels/cuda/core/writer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::cuda {
namespace {

struct Dim {
  int64_t size = 1;
  std::vector<int64_t> strides;  // by view
};

// The shape with as few dims as walk all views in the same order.
std::vector<Dim> merged_dims(const Shape& shape, const std::vector<NamedStrides>& views) {
  std::vector<Dim> dims;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == 1) continue;
    Dim dim{shape[d], {}};
    for (const auto& view : views) dim.strides.push_back(view.strides[d]);
    bool merges = !dims.empty();
    for (size_t v = 0; v < views.size() && merges; ++v) {
      merges = dims.back().strides[v] == dim.strides[v] * dim.size;
    }
    if (merges) {
      dim.size *= dims.back().size;
      dims.back() = std::move(dim);
    } else {
      dims.push_back(std::move(dim));
    }
  }
  return dims;
}

}  // namespace

std::string index_type(const Shape& shape, const std::vector<NamedStrides>& views) {
  constexpr int64_t kLimit = int64_t{1} << 30;  // a loop's index goes beyond its end by a grid of threads
  bool fits = shape.num_elements() < kLimit;
  for (const auto& view : views) {
    int64_t last = 0;
    for (int d = 0; d < shape.ndim(); ++d) last += (shape[d] - 1) * std::abs(view.strides[d]);
    fits = fits && last < 2 * kLimit;
  }
  return fits ? "int" : "i64";
}

std::string offsets_text(const Shape& shape, const std::vector<NamedStrides>& views, const std::string& index) {
  const std::string type = index_type(shape, views);
  const auto dims = merged_dims(shape, views);
  std::string text;
  if (dims.size() == 1) {
    text += fmt::format("const {} at_ = {};\n", type, index);
    for (size_t v = 0; v < views.size(); ++v) {
      text += fmt::format("const {} {} = at_ * {};\n", type, views[v].name, dims[0].strides[v]);
    }
    return text;
  }
  for (const auto& view : views) text += fmt::format("{} {} = 0;\n", type, view.name);
  if (dims.empty()) return text;
  text += fmt::format("{{\n{} rest_ = {};\n", type, index);
  for (size_t d = dims.size(); d-- > 0;) {
    if (d > 0) {
      text += fmt::format("{{ const {} at_ = rest_ % {}; rest_ /= {};", type, dims[d].size, dims[d].size);
    } else {
      text += fmt::format("{{ const {} at_ = rest_;", type);
    }
    for (size_t v = 0; v < views.size(); ++v) {
      if (dims[d].strides[v] != 0) text += fmt::format(" {} += at_ * {};", views[v].name, dims[d].strides[v]);
    }
    text += " }\n";
  }
  return text + "}\n";
}

ViewWalk in_order_of_first(const Shape& shape, std::vector<NamedStrides> views) {
  std::vector<int> order;
  for (int d = 0; d < shape.ndim(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return views[0].strides[a] > views[0].strides[b]; });
  Shape ordered;
  std::vector<NamedStrides> lies = views;
  for (auto& view : lies) view.strides = {};
  for (const int d : order) {
    ordered.push_back(shape[d]);
    for (size_t v = 0; v < views.size(); ++v) lies[v].strides.push_back(views[v].strides[d]);
  }
  ViewWalk walk;
  for (auto& view : lies) walk.views.push_back({view.name, {}});
  for (const Dim& dim : merged_dims(ordered, lies)) {
    walk.shape.push_back(dim.size);
    for (size_t v = 0; v < views.size(); ++v) walk.views[v].strides.push_back(dim.strides[v]);
  }
  return walk;
}

std::optional<ViewWalk> packed(const ViewWalk& walk, int64_t pack) {
  if (pack == 1) return walk;
  const int last = walk.shape.ndim() - 1;
  if (last < 0 || walk.shape[last] % pack != 0) return std::nullopt;
  ViewWalk packs = walk;
  packs.shape[last] /= pack;
  for (auto& view : packs.views) {
    const int64_t step = view.strides[last];
    if (step != 0 && step != 1) return std::nullopt;
    for (int d = 0; d < last && step == 1; ++d) {
      if (view.strides[d] % pack != 0) return std::nullopt;
    }
    view.strides[last] = step * pack;
  }
  return packs;
}

std::string loop_text(const std::string& index_type, const std::string& index, int64_t count) {
  return fmt::format("for ({0} {1} = first_index<{0}>(); {1} < {2}; {1} += num_threads<{0}>()) {{\n", index_type, index,
                     count);
}

int64_t blocks_for(const Gpu& gpu, int64_t count, int threads) {
  const int64_t room = int64_t{gpu.num_multiprocessors()} * (2048 / threads) * 4;
  return std::clamp<int64_t>((count + threads - 1) / threads, 1, room);
}

Strides stretched(const TensorView& view, const Shape& shape) {
  Strides strides = shape;
  const int added = shape.ndim() - view.shape.ndim();
  for (int d = 0; d < shape.ndim(); ++d) {
    strides[d] = d < added || (view.shape[d - added] == 1 && shape[d] != 1) ? 0 : view.strides[d - added];
  }
  return strides;
}

std::string literal(double value, DType dtype) {
  const bool is_double = dtype == DType::kF64;
  const std::string type = to_string(dtype);
  if (!is_floating(dtype)) return fmt::format("{}({}LL)", type, static_cast<int64_t>(value));
  if (std::isnan(value)) return fmt::format("{}({})", type, is_double ? "NAN_F64" : "NAN_F32");
  if (std::isinf(value))
    return fmt::format("({}{})", value < 0 ? "-" : "", is_double ? "INFINITY_F64" : "INFINITY_F32");
  std::string number = is_double ? fmt::format("{:.17g}", value) : fmt::format("{:.9g}", static_cast<float>(value));
  if (number.find_first_of(".e") == std::string::npos) number += ".0";
  return fmt::format("{}({}{})", type, number, is_double ? "" : "f");
}

DType computed_in(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype; }

}  // namespace tessera::cuda
