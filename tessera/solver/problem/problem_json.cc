#include "tessera/solver/problem/problem_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/json/bounded_json.h"

namespace tessera::solver {
namespace {

using Json = nlohmann::json;

constexpr double kForbiddenFrom = 1e18;
constexpr JsonKind kProblemJson{.name = "problem", .max_levels = 8};  // the format nests five deep

// A large file is lists of numbers, most of them alike, as networks repeat their layers. They are taken out of the text
// before it is parsed: what is left is short, and equal lists are read once.
class NumberLists {
 public:
  // The text with a list of one number, its place here, for each list that holds numbers and nothing else.
  std::string take_out(std::string_view text) {
    text_ = text;
    std::string rest;
    for (size_t i = 0; i < text.size();) {
      if (text[i] == '[') {
        const size_t end = skip_numbers(text, i + 1);
        const bool is_empty = text.substr(i, end - i).find_first_of("0123456789") == std::string_view::npos;
        if (end < text.size() && text[end] == ']' && !is_empty) {
          fmt::format_to(std::back_inserter(rest), "[{}]", place_of(text.substr(i, end + 1 - i)));
          i = end + 1;
          continue;
        }
      }
      const size_t begin = i;
      if (text[i++] == '"') {
        while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
        i = std::min(i + 1, text.size());
      }
      rest.append(text, begin, i - begin);
    }
    return rest;
  }
  // Whether the list was taken out: of those that are left none holds numbers alone.
  static bool has(const Json& list) { return list.size() == 1 && list[0].is_number_unsigned(); }
  // A discarded value where a number is none.
  Json read(const Json& list) const { return parse_json_or_discard<Json>(texts_[list[0].get<size_t>()], kProblemJson); }
  // Throws what is wrong with the text that lists were taken out of: they have moved what is left.
  [[noreturn]] void refuse(const std::string& path) const {
    [[maybe_unused]] const Json whole = parse_bounded_json<Json>(text_, path, kProblemJson);
    throw InvalidArgument("{}: it has a list that cannot be read", path);
  }
  std::string_view text(const Json& list) const { return texts_[list[0].get<size_t>()]; }

 private:
  static size_t skip_numbers(std::string_view text, size_t i) {
    static constexpr auto is_of_number = [] {
      std::array<bool, 256> is{};
      for (const char c : std::string_view("0123456789+-.eE, \t\r\n")) is[static_cast<unsigned char>(c)] = true;
      return is;
    }();
    while (i < text.size() && is_of_number[static_cast<unsigned char>(text[i])]) ++i;
    return i;
  }
  size_t place_of(std::string_view text) {
    constexpr size_t kShort = 32;  // sooner read again than found
    if (text.size() >= kShort) {
      const auto [known, is_new] = places_.emplace(text, texts_.size());
      if (!is_new) return known->second;
    }
    texts_.push_back(text);
    return texts_.size() - 1;
  }

  std::string_view text_;
  std::vector<std::string_view> texts_;
  std::unordered_map<std::string_view, size_t> places_;
};

class Reader {
 public:
  Reader(const std::string& path, const NumberLists& lists) : path_(path), lists_(lists) {}

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
  SharedCosts costs(const Json& values, const std::function<std::string()>& where) {
    const auto known =
        NumberLists::has(list(values, where)) ? costs_.try_emplace(lists_.text(values).data()).first : costs_.end();
    if (known != costs_.end() && !known->second.empty()) return known->second;
    std::vector<double> result;
    for (const Json& value : elements(values)) {
      if (!value.is_number()) fail("{}[{}] is {}, expected a number", where(), result.size(), value.type_name());
      const auto cost = value.get<double>();
      result.push_back(cost >= kForbiddenFrom ? kForbidden : cost);
    }
    SharedCosts costs(std::move(result));
    if (known != costs_.end()) known->second = costs;
    return costs;
  }
  std::vector<int64_t> integers(const Json& values, const std::function<std::string()>& where) const {
    std::vector<int64_t> result;
    if (NumberLists::has(list(values, where)) && read_plain(lists_.text(values), result)) return result;
    result.clear();
    for (const Json& value : elements(values)) result.push_back(integer(value, where()));
    return result;
  }
  std::pair<int64_t, int64_t> pair(const Json& value, const std::function<std::string()>& where) const {
    if (!value.is_array()) fail("{} is no array of two", where());
    const auto both = integers(value, where);
    if (both.size() != 2) fail("{} is no array of two", where());
    return {both[0], both[1]};
  }

 private:
  const Json& list(const Json& values, const std::function<std::string()>& where) const {
    if (!values.is_array()) fail("{} is {}, expected an array", where(), values.type_name());
    return values;
  }
  Json elements(const Json& values) const {
    if (!NumberLists::has(values)) return values;
    Json list = lists_.read(values);
    if (list.is_discarded()) lists_.refuse(path_);
    return list;
  }
  // "[12,7]" without anything unusual; false: to be parsed.
  static bool read_plain(std::string_view text, std::vector<int64_t>& numbers) {
    const char* at = text.data() + 1;
    const char* end = text.data() + text.size() - 1;
    while (at < end) {
      while (at < end && *at == ' ') ++at;
      if (at == end || (*at == '0' && at + 1 < end && at[1] != ',')) return false;
      const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
      if (error != std::errc() || (next < end && *next != ',') || next + 1 == end) return false;
      at = next + 1;
    }
    return true;
  }

  const std::string& path_;
  const NumberLists& lists_;
  std::unordered_map<const char*, SharedCosts> costs_;  // of lists that were read, by where their text is
};

}  // namespace

Problem parse_problem(std::string_view text, const std::string& path) {
  NumberLists lists;
  const std::string rest = lists.take_out(text);
  Reader reader(path, lists);
  const auto root = parse_json_or_discard<Json>(rest, kProblemJson);
  if (root.is_discarded()) lists.refuse(path);
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
    ProblemNode node;
    const auto where = [n](const char* what) {
      return [n, what] { return fmt::format("problem.nodes.{}[{}]", what, n); };
    };
    std::tie(node.begin, node.end) = reader.pair(intervals[n], where("intervals"));
    node.costs = reader.costs(costs[n], where("costs"));
    node.usages = reader.integers(usages[n], where("usages"));
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
    const auto where = [e] { return fmt::format("problem.edges.nodes[{}]", e); };
    const auto [u, v] = reader.pair(ends[e], where);
    for (const int64_t end : {u, v}) {
      if (end < 0 || end >= count) reader.fail("{} names node {}, the nodes are 0 to {}", where(), end, count - 1);
    }
    problem.edges.push_back({static_cast<int>(u), static_cast<int>(v),
                             reader.costs(edge_costs[e], [e] { return fmt::format("problem.edges.costs[{}]", e); })});
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
