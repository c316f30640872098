#include "tessera/ops/defs/equal_rows.h"

#include <algorithm>
#include <iterator>

#include "tessera/base/error.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/localize.h"

namespace tessera::ops {
namespace {

void require_bounds(const Ints& bounds, int64_t size) {
  const bool fits = bounds.size() >= 2 && bounds.front() == 0 && bounds.back() == size;
  if (fits && std::ranges::is_sorted(bounds)) return;
  throw InvalidArgument("bounds must ascend from 0 to {}, the size of dim 0, got [{}]", size, fmt::join(bounds, ","));
}

void require_ids(const Attributes& attributes, const Type& ids) {
  if (ids.dtype != DType::kI32 && ids.dtype != DType::kI64) {
    throw InvalidArgument("ids must be i32 or i64, got {}", ids.dtype);
  }
  if (ids.shape.ndim() == 0) throw InvalidArgument("ids must have a dim, which bounds cut into parts");
  require_bounds(attributes.get_ints("bounds"), ids.shape[0]);
  if (attributes.get_int("num_rows") < 0) throw InvalidArgument("num_rows must not be negative");
}

// `what`: one entry for each row.
void require_rows_of(const Type& rows, const Type& entries, const char* what) {
  const int lead = entries.shape.ndim();
  bool fits = lead > 0 && lead <= rows.shape.ndim();
  for (int d = 0; fits && d < lead; ++d) fits = entries.shape[d] == rows.shape[d];
  if (!fits) throw InvalidArgument("rows must begin with the dims of {}, {}, got {}", what, entries.shape, rows.shape);
}

std::vector<Type> infer_sums(const Attributes& attributes, std::span<const Type> types) {
  const Type& rows = types[0];
  require_floating(rows, "rows");
  if (rows.dtype != DType::kF32 && rows.dtype != DType::kF64) {
    throw InvalidArgument("rows must be f32 or f64, got {}: sums of half types would lose digits", rows.dtype);
  }
  require_rows_of(rows, types[1], "ids");
  require_ids(attributes, types[1]);
  return {rows, types[1]};
}

std::vector<Type> infer_list(const Attributes& attributes, std::span<const Type> types) {
  require_ids(attributes, types[0]);
  return {types[0], {DType::kI32, types[0].shape}};
}

std::vector<Type> infer_spread(const Attributes& attributes, std::span<const Type> types) {
  if (types[1].dtype != DType::kI32) throw InvalidArgument("places must be i32, got {}", types[1].dtype);
  require_rows_of(types[0], types[1], "places");
  require_bounds(attributes.get_ints("bounds"), types[1].shape[0]);
  return {types[0]};
}

// The dims of ids, or of what else has an entry for each row: all of a part must be together.
IndexRule::Dims dims_of_entries(const Type& entries) {
  IndexRule::Dims dims(static_cast<size_t>(entries.shape.ndim()), "");
  dims[0] = "i0";
  return dims;
}

IndexRule::Dims dims_of_rows(const Type& rows, const IndexRule::Dims& entries) {
  auto dims = numbered_dims(rows.shape.ndim());
  std::copy(entries.begin(), entries.end(), dims.begin());
  return dims;
}

// The parts that have something in a range, whole.
mesh::Range whole_parts(const Ints& bounds, const mesh::Range& held) {
  if (held.size == 0) return held;
  const int64_t begin = *std::prev(std::upper_bound(bounds.begin(), bounds.end(), held.offset));
  const int64_t end = *std::lower_bound(bounds.begin(), bounds.end(), held.offset + held.size);
  return {begin, end - begin};
}

Ints bounds_within(const Ints& bounds, const mesh::Range& range) {
  Ints own = {0};
  for (const int64_t bound : bounds) {
    if (bound > range.offset && bound < range.offset + range.size) own.push_back(bound - range.offset);
  }
  own.push_back(range.size);
  return own;
}

// What a part is made of lies on one rank, as a rule; else each rank fetches all of the parts that it has some of.
std::vector<Value> localize_parts(const LocalizeContext& c) {
  const Ints& bounds = c.attributes.get_ints("bounds");
  const mesh::Range held = c.input_slices[0][0];
  const mesh::Range needed = whole_parts(bounds, held);
  std::vector<Value> inputs = c.inputs;
  bool fetches = false;
  if (c.is_split("i0")) {
    for (const int rank : c.placement->mesh.ranks()) {
      const mesh::Range of_rank = slices_of(c, rank).inputs[0][0];
      fetches = fetches || !(whole_parts(bounds, of_rank) == of_rank);
    }
  }
  for (size_t i = 0; fetches && i < inputs.size(); ++i) {
    inputs[i] = fetch(c, i, {"i0"}, [&](const RankSlices& slices) {
      Box box = slices.inputs[i];
      box[0] = whole_parts(bounds, box[0]);
      return box;
    });
  }
  Attributes attributes = c.attributes;
  attributes.set("bounds", bounds_within(bounds, needed));
  auto results = apply(c.graph, c.op, inputs, attributes);
  const int64_t begin = held.offset - needed.offset;
  for (Value& result : results) result = slice_along(result, 0, begin, begin + held.size);
  return results;
}

AttributeDef bounds_attribute() {
  return of_run({"bounds", std::nullopt, "where the parts begin along dim 0, and where the last one ends"});
}

void add_sums(OpRegistry& registry) {
  OpDef def{
      .name = "add_up_rows",
      .doc =
          "Rows [ids..., ...] that ids give one number within a part become one: their sum, added up in their order. "
          "Parts are the stretches of dim 0 between two bounds. Returns rows and ids of the same types. In both a part "
          "begins with one entry for each of its numbers, in the order in which they come first; behind them ids are "
          "-1, and rows are 0, or undefined where `clears` is false. A number outside of [0, num_rows) is passed over.",
      .inputs = {"rows", "ids"},
      .attributes = {bounds_attribute(),
                     {"num_rows", std::nullopt, "the numbers of the table's rows are below it"},
                     {"table", std::string(), "whose rows they are, for errors"},
                     of_run({"clears", true, "whether rows behind a part's last are 0"})},
      .outputs = {"rows", "ids"},
      .infer = infer_sums,
      .rule =
          [](const Attributes&, std::span<const Type> types, std::span<const Type>) {
            const auto ids = dims_of_entries(types[1]);
            const auto rows = dims_of_rows(types[0], ids);
            IndexRule rule{.inputs = {rows, ids}, .outputs = {rows, ids}};
            // Ranks that share a row's elements all have its number.
            for (size_t d = ids.size(); d < rows.size(); ++d) rule.completions[rows[d]] = Completion::kWhole;
            return rule;
          },
      .flops = per_element(1),
      .localize = localize_parts};
  const auto add = [&](DType dtype, DType index, const Shape& ids, const Shape& row, const Ints& bounds, int64_t limit,
                       int64_t num_rows) {
    Shape rows = ids;
    for (const int64_t size : row) rows.push_back(size);
    def.examples.push_back({.inputs = {{{dtype, rows}, Domain::kAny}, {{index, ids}, Domain::kIndex, limit}},
                            .attributes = {{"bounds", bounds}, {"num_rows", num_rows}},
                            .check_gradient = false});
  };
  add(DType::kF32, DType::kI32, {8}, {3}, {0, 8}, 4, 4);
  add(DType::kF64, DType::kI64, {8}, {4}, {0, 4, 8}, 3, 3);
  add(DType::kF32, DType::kI32, {7, 2}, {3}, {0, 3, 5, 7}, 5, 4);
  add(DType::kF32, DType::kI32, {9}, {}, {0, 0, 6, 9}, 2, 2);
  add(DType::kF64, DType::kI32, {6}, {2, 2}, {0, 6}, 9, 9);
  add(DType::kF32, DType::kI32, {5}, {70}, {0, 5}, 1, 1);
  add(DType::kF32, DType::kI32, {0}, {3}, {0, 0}, 1, 1);
  registry.add(std::move(def));
}

void add_list(OpRegistry& registry) {
  OpDef def{
      .name = "list_rows",
      .doc =
          "The numbers that ids give within a part, each once: a part of the numbers begins with them, in the "
          "order in which they come first, and behind them they are -1. Parts are the stretches of dim 0 between "
          "two bounds. The places, i32, say of each of the ids where its number stands in the part, counted over "
          "all dims. A number outside of [0, num_rows) is not listed and its place is -1; a step that is given one "
          "stops.",
      .inputs = {"ids"},
      .attributes = {bounds_attribute(),
                     {"num_rows", std::nullopt, "the numbers of the table's rows are below it"},
                     {"reader", std::string("gather"), "the operator that looks the rows up, for errors"}},
      .outputs = {"numbers", "places"},
      .infer = infer_list,
      .rule =
          [](const Attributes&, std::span<const Type> types, std::span<const Type>) {
            const auto ids = dims_of_entries(types[0]);
            return IndexRule{.inputs = {ids}, .outputs = {ids, ids}};
          },
      .localize = localize_parts,
      .indices = [](const Attributes& attributes, std::span<const Type>) -> std::optional<IndexRange> {
        return IndexRange{0, 0, attributes.get_int("num_rows")};
      }};
  const auto add = [&](DType index, const Shape& ids, const Ints& bounds, int64_t num_rows) {
    def.examples.push_back({.inputs = {{{index, ids}, Domain::kIndex, num_rows}},
                            .attributes = {{"bounds", bounds}, {"num_rows", num_rows}},
                            .check_gradient = false});
  };
  add(DType::kI32, {8}, {0, 8}, 4);
  add(DType::kI64, {8}, {0, 4, 8}, 3);
  add(DType::kI32, {7, 2}, {0, 3, 5, 7}, 5);
  add(DType::kI64, {9, 1}, {0, 0, 6, 9}, 50);
  add(DType::kI32, {0}, {0, 0}, 1);
  registry.add(std::move(def));
}

void add_spread(OpRegistry& registry) {
  OpDef def{.name = "spread_rows",
            .doc =
                "The rows [places..., ...] that places, i32, name within a part, as list_rows gives them: each counts "
                "from the part's begin over all dims of places. Parts are the stretches of dim 0 between two bounds. A "
                "place that is none of the part's, as -1, gives a row of zeros.",
            .inputs = {"rows", "places"},
            .attributes = {bounds_attribute()},
            .infer = infer_spread,
            .rule =
                [](const Attributes&, std::span<const Type> types, std::span<const Type>) {
                  const auto places = dims_of_entries(types[1]);
                  const auto rows = dims_of_rows(types[0], places);
                  return IndexRule{.inputs = {rows, places}, .outputs = {rows}};
                },
            .localize = localize_parts};
  const auto add = [&](DType dtype, const Shape& places, const Shape& row, const Ints& bounds, int64_t limit) {
    Shape rows = places;
    for (const int64_t size : row) rows.push_back(size);
    def.examples.push_back({.inputs = {{{dtype, rows}}, {{DType::kI32, places}, Domain::kIndex, limit}},
                            .attributes = {{"bounds", bounds}},
                            .check_gradient = false});
  };
  add(DType::kF32, {8}, {3}, {0, 8}, 8);
  add(DType::kF64, {8}, {4}, {0, 4, 8}, 4);
  add(DType::kBF16, {7, 2}, {3}, {0, 3, 5, 7}, 6);  // some are none of the part's
  add(DType::kI32, {9}, {}, {0, 0, 6, 9}, 3);
  add(DType::kF32, {0}, {3}, {0, 0}, 1);
  registry.add(std::move(def));
}

}  // namespace

void add_equal_rows(OpRegistry& registry) {
  add_sums(registry);
  add_list(registry);
  add_spread(registry);
}

}  // namespace tessera::ops
