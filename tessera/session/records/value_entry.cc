#include "tessera/session/records/value_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/json/bounded_json.h"
#include "tessera/checkpoint/format/element_hash.h"

namespace tessera::session {

using nlohmann::json;

double ValueStatistics::mean() const { return num_finite() > 0 ? sum / static_cast<double>(num_finite()) : 0; }

double ValueStatistics::norm() const { return std::sqrt(sum_of_squares); }

void ValueStatistics::add(const ValueStatistics& others) {
  if (others.num_finite() > 0) {
    min = num_finite() > 0 ? std::min(min, others.min) : others.min;
    max = num_finite() > 0 ? std::max(max, others.max) : others.max;
  }
  count += others.count;
  num_not_finite += others.num_not_finite;
  sum += others.sum;
  sum_of_squares += others.sum_of_squares;
}

ValueStatistics statistics_of(const Tensor& elements) {
  ValueStatistics statistics{.count = elements.num_elements()};
  double min = std::numeric_limits<double>::infinity();
  double max = -min;
  for (const double x : elements.to_doubles()) {
    if (!std::isfinite(x)) {
      ++statistics.num_not_finite;
      continue;
    }
    min = std::min(min, x);
    max = std::max(max, x);
    statistics.sum += x;
    statistics.sum_of_squares += x * x;
  }
  if (statistics.num_finite() > 0) {
    statistics.min = min;
    statistics.max = max;
  }
  return statistics;
}

std::string ValueName::key() const {
  return fmt::format("{} {} {} {} {} {} {}", static_cast<int>(moment), run, is_gradient ? 1 : 0, ordinal, output, op,
                     source);
}

std::string ValueName::text() const {
  const std::string batch = run > 1 ? fmt::format(" of micro-batch {}", run) : "";
  switch (moment) {
    case ValueMoment::kInput: return fmt::format("the data \"{}\"{}", source, batch);
    case ValueMoment::kBefore: return fmt::format("the parameter or state \"{}\" before the step", source);
    case ValueMoment::kAfter: return fmt::format("the parameter or state \"{}\" behind the step", source);
    case ValueMoment::kMade: break;
  }
  return fmt::format(
      "{}{}{}{}{}{}", is_gradient ? "the gradient " : "", op, source.empty() ? "" : fmt::format(" \"{}\"", source),
      ordinal > 1 ? fmt::format(" #{}", ordinal) : "", output > 0 ? fmt::format(", result {}", output) : "", batch);
}

void describe_piece(ValueEntry& entry, const Tensor& piece) {
  const auto element_bytes = static_cast<int64_t>(size_bytes(piece.dtype()));
  check_equal(piece.num_elements(), entry.region.shape.num_elements(), "elements of a recorded piece");
  if (piece.num_elements() > 0) {
    checkpoint::RegionHash hash(entry.region, entry.type.shape, element_bytes);
    hash.add(piece.bytes());
    entry.hash = hash.sum();
  }
  entry.statistics = statistics_of(piece);
}

namespace {

constexpr const char* kMoments[] = {"input", "before", "made", "after"};
// Far beyond what a graph or a piece has; what is beyond it is no record. Those of a million ranks add up to no
// overflow.
constexpr int64_t kMostNumber = int64_t{1} << 42;

double double_in(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw InvalidArgument("\"{}\" is missing", name);
  if (found->is_null()) return std::numeric_limits<double>::infinity();  // JSON has no other way to say it
  if (!found->is_number()) throw InvalidArgument("\"{}\" must be a number", name);
  return found->get<double>();
}

int64_t int_in(const json& object, const char* name, int64_t least) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer())
    throw InvalidArgument("\"{}\" must be a whole number", name);
  const auto value = found->get<int64_t>();
  if (value < least || value > kMostNumber) {
    throw InvalidArgument("\"{}\" must be from {} to {}, got {}", name, least, kMostNumber, value);
  }
  return value;
}

std::string text_in(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) throw InvalidArgument("\"{}\" must be a text", name);
  return found->get<std::string>();
}

Shape shape_in(const json& object, const char* name, int ndim) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array() || std::ssize(*found) != ndim) {
    throw InvalidArgument("\"{}\" must be a list of {} numbers", name, ndim);
  }
  std::vector<int64_t> sizes;
  for (const json& size : *found) {
    if (!size.is_number_integer() || size.get<int64_t>() < 0) throw InvalidArgument("\"{}\" must be sizes", name);
    sizes.push_back(size.get<int64_t>());
  }
  return Shape(sizes);
}

}  // namespace

std::string print_entry(const ValueEntry& entry) {
  const ValueName& name = entry.name;
  const ValueStatistics& statistics = entry.statistics;
  json object = {{"moment", kMoments[static_cast<size_t>(name.moment)]},
                 {"run", name.run},
                 {"number", entry.number},
                 {"op", name.op},
                 {"source", name.source},
                 {"gradient", name.is_gradient},
                 {"ordinal", name.ordinal},
                 {"output", name.output},
                 {"type", fmt::format("{}", entry.type)},
                 {"offset", entry.region.offset.to_vector()},
                 {"shape", entry.region.shape.to_vector()},
                 {"reduction", entry.reduction},
                 {"hash", fmt::format("{:016x}", entry.hash)},
                 {"count", statistics.count},
                 {"not_finite", statistics.num_not_finite},
                 {"min", statistics.min},
                 {"max", statistics.max},
                 {"sum", statistics.sum},
                 {"sum_of_squares", statistics.sum_of_squares}};
  if (!entry.line.empty()) object["line"] = entry.line;
  // Names may have any bytes.
  return object.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

ValueEntry parse_entry(std::string_view line) {
  const json object = parse_bounded_json<json>(line, "", {.name = "recorded value"});
  if (!object.is_object()) throw InvalidArgument("no JSON object");
  ValueEntry entry;
  const auto moment = text_in(object, "moment");
  const auto* found = std::find(std::begin(kMoments), std::end(kMoments), moment);
  if (found == std::end(kMoments)) throw InvalidArgument("\"moment\" is \"{}\"", moment);
  entry.name.moment = static_cast<ValueMoment>(found - std::begin(kMoments));
  entry.name.run = int_in(object, "run", 1);
  entry.number = int_in(object, "number", 0);
  entry.name.op = text_in(object, "op");
  entry.name.source = text_in(object, "source");
  const auto gradient = object.find("gradient");
  if (gradient == object.end() || !gradient->is_boolean()) throw InvalidArgument("\"gradient\" must be true or false");
  entry.name.is_gradient = gradient->get<bool>();
  entry.name.ordinal = int_in(object, "ordinal", 1);
  entry.name.output = int_in(object, "output", 0);
  entry.type = parse_type(text_in(object, "type"));
  const int ndim = entry.type.shape.ndim();
  entry.region = {shape_in(object, "offset", ndim), shape_in(object, "shape", ndim)};
  for (int dim = 0; dim < ndim; ++dim) {
    // Without a sum, which could overflow.
    const int64_t size = entry.type.shape[dim];
    if (entry.region.shape[dim] > size || entry.region.offset[dim] > size - entry.region.shape[dim]) {
      throw InvalidArgument("the piece {} is not within {}", entry.region.to_string(), entry.type);
    }
  }
  entry.reduction = text_in(object, "reduction");
  if (object.contains("line")) entry.line = text_in(object, "line");
  const auto hash = text_in(object, "hash");
  const bool is_hash = hash.size() == 16 && hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_hash) throw InvalidArgument("\"hash\" must be 16 hexadecimal digits");
  entry.hash = std::stoull(hash, nullptr, 16);
  entry.statistics = {.count = int_in(object, "count", 0),
                      .num_not_finite = int_in(object, "not_finite", 0),
                      .min = double_in(object, "min"),
                      .max = double_in(object, "max"),
                      .sum = double_in(object, "sum"),
                      .sum_of_squares = double_in(object, "sum_of_squares")};
  if (entry.statistics.num_not_finite > entry.statistics.count) {
    throw InvalidArgument("\"not_finite\" must be at most \"count\"");
  }
  return entry;
}

}  // namespace tessera::session
