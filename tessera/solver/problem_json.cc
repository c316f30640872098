#include "tessera/solver/problem_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"

namespace tessera::solver {
namespace {

using Json = nlohmann::json;

constexpr double kForbiddenFrom = 1e18;
constexpr int kMaxDepth = 8;  // the format nests five deep

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw InvalidArgument("{}: {}", path_, fmt::format(text, std::forward<Args>(args)...));
  }
  const Json& member(const Json& object, const char* name, const std::string& where) const {
    if (!object.is_object()) fail("{} is {}, expected an object", where, object.type_name());
    const auto it = object.find(name);
    if (it == object.end()) fail("{} has no member \"{}\"", where, name);
    return *it;
  }
  const Json& array(const Json& object, const char* name, const std::string& where) const {
    const Json& value = member(object, name, where);
    if (!value.is_array()) fail("{}.{} is {}, expected an array", where, name, value.type_name());
    return value;
  }
  int64_t integer(const Json& value, const std::string& where) const {
    if (value.is_number_integer() &&
        !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})) {
      return value.get<int64_t>();
    }
    fail("{} is not an integer of 64 bits", where);
  }
  std::vector<double> costs(const Json& values, const std::string& where) const {
    if (!values.is_array()) fail("{} is {}, expected an array", where, values.type_name());
    std::vector<double> result;
    result.reserve(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i].is_number()) fail("{}[{}] is {}, expected a number", where, i, values[i].type_name());
      const auto cost = values[i].get<double>();
      result.push_back(cost >= kForbiddenFrom ? kForbidden : cost);
    }
    return result;
  }
  std::pair<int64_t, int64_t> pair(const Json& value, const std::string& where) const {
    if (!value.is_array() || value.size() != 2) fail("{} is no array of two", where);
    return {integer(value[0], where), integer(value[1], where)};
  }

 private:
  const std::string& path_;
};

Json parse(std::string_view text, const Reader& reader) {
  try {
    return Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kMaxDepth) reader.fail("nested deeper than {}", kMaxDepth);
      return true;
    });
  } catch (const Json::exception& error) {
    reader.fail("is no JSON: {}", error.what());
  }
}

}  // namespace

Problem parse_problem(std::string_view text, const std::string& path) {
  const Reader reader(path);
  const Json root = parse(text, reader);
  const Json& json = reader.member(root, "problem", "the file");
  Problem problem;
  if (json.is_object() && json.contains("name") && json["name"].is_string()) problem.name = json["name"];

  const Json& nodes = reader.member(json, "nodes", "problem");
  const Json& intervals = reader.array(nodes, "intervals", "problem.nodes");
  const Json& costs = reader.array(nodes, "costs", "problem.nodes");
  const Json& usages = reader.array(nodes, "usages", "problem.nodes");
  if (intervals.size() != costs.size() || usages.size() != costs.size()) {
    reader.fail("problem.nodes has {} intervals, {} costs and {} usages, expected as many of each", intervals.size(),
                costs.size(), usages.size());
  }
  problem.nodes.reserve(costs.size());
  for (size_t n = 0; n < costs.size(); ++n) {
    Node node;
    std::tie(node.begin, node.end) = reader.pair(intervals[n], fmt::format("problem.nodes.intervals[{}]", n));
    node.costs = reader.costs(costs[n], fmt::format("problem.nodes.costs[{}]", n));
    const auto where = fmt::format("problem.nodes.usages[{}]", n);
    if (!usages[n].is_array()) reader.fail("{} is {}, expected an array", where, usages[n].type_name());
    for (const Json& usage : usages[n]) node.usages.push_back(reader.integer(usage, where));
    problem.nodes.push_back(std::move(node));
  }

  const Json& edges = reader.member(json, "edges", "problem");
  const Json& ends = reader.array(edges, "nodes", "problem.edges");
  const Json& edge_costs = reader.array(edges, "costs", "problem.edges");
  if (ends.size() != edge_costs.size()) {
    reader.fail("problem.edges has {} nodes and {} costs, expected as many of each", ends.size(), edge_costs.size());
  }
  const auto count = static_cast<int64_t>(problem.nodes.size());
  problem.edges.reserve(ends.size());
  for (size_t e = 0; e < ends.size(); ++e) {
    const auto where = fmt::format("problem.edges.nodes[{}]", e);
    const auto [u, v] = reader.pair(ends[e], where);
    for (const int64_t end : {u, v}) {
      if (end < 0 || end >= count) reader.fail("{} names node {}, the nodes are 0 to {}", where, end, count - 1);
    }
    problem.edges.push_back({static_cast<int>(u), static_cast<int>(v),
                             reader.costs(edge_costs[e], fmt::format("problem.edges.costs[{}]", e))});
  }
  if (json.contains("usage_limit")) {
    problem.usage_limit = reader.integer(json["usage_limit"], "problem.usage_limit");
  }
  try {
    validate(problem);
  } catch (const InvalidArgument& error) {
    reader.fail("{}", error.what());
  }
  return problem;
}

}  // namespace tessera::solver
