// The canonical text of a graph: printer and parser, side by side so that they stay each other's inverse.
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/ir/graph.h"

namespace tessera::ir {
namespace {

// Words of one line, with a position for messages.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) {}

  [[noreturn]] void fail(std::string_view expected) const {
    throw InvalidArgument("graph text, line {}: expected {} at \"{}\"", number_, expected, rest_.substr(0, 40));
  }
  // What f throws does not know where in the text it is.
  template <typename F>
  auto naming_line(F&& f) const {
    try {
      return f();
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("graph text, line {}: {}", number_, error.what());
    }
  }
  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  bool done() {
    skip_space();
    return rest_.empty();
  }
  bool take(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("\"{}\"", token));
  }
  // A name: anything up to a space, comma or parenthesis.
  std::string word(std::string_view what) {
    skip_space();
    size_t length = 0;
    while (length < rest_.size() && std::string_view(" ,(){}\t").find(rest_[length]) == std::string_view::npos)
      ++length;
    if (length == 0) fail(what);
    std::string result(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return result;
  }
  Type type() {
    skip_space();
    const auto end = rest_.find(']');
    if (end == std::string_view::npos) fail("a type like f32[2,3]");
    const auto text = rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    return naming_line([&] { return parse_type(text); });
  }
  Attributes attributes() {
    skip_space();
    bool in_string = false;
    for (size_t i = 0; i < rest_.size(); ++i) {
      if (rest_[i] == '\\' && in_string) {
        ++i;
      } else if (rest_[i] == '"') {
        in_string = !in_string;
      } else if (rest_[i] == '}' && !in_string) {
        auto result = naming_line([&] { return parse_attributes(rest_.substr(0, i + 1)); });
        rest_.remove_prefix(i + 1);
        return result;
      }
    }
    fail("a closing }");
  }
  DType dtype() {
    const auto text = word("a dtype");
    return naming_line([&] { return parse_dtype(text); });
  }
  mesh::Strategy strategy() {
    const auto text = parenthesized();
    return naming_line([&] { return mesh::parse_strategy(text); });
  }
  mesh::StrategyGrid strategy_grid() {
    std::string text(parenthesized());
    expect(":");
    text += ":";
    text += parenthesized();
    return naming_line([&] { return mesh::parse_strategy_grid(text); });
  }
  bool next_is(char c) {
    skip_space();
    return !rest_.empty() && rest_.front() == c;
  }

 private:
  // What stands between the next ( and its ), with them.
  std::string_view parenthesized() {
    skip_space();
    int depth = 0;
    for (size_t i = 0; i < rest_.size(); ++i) {
      depth += rest_[i] == '(' ? 1 : rest_[i] == ')' ? -1 : 0;
      if (depth > 0) continue;
      const auto text = rest_.substr(0, i + 1);
      rest_.remove_prefix(i + 1);
      return text;
    }
    fail("a closing )");
  }
  std::string_view rest_;
  int number_;
};

class Parser {
 public:
  Graph parse(std::string_view text) {
    int number = 0;
    bool started = false;
    bool returned = false;
    for (const auto raw : split(text, '\n')) {
      ++number;
      if (trim(raw).empty() || trim(raw).starts_with("#")) continue;
      Line line(trim(raw), number);
      if (!started) {
        line.expect("graph");
        graph_.set_name(line.word("the graph's name"));
        started = true;
      } else if (returned) {
        line.fail("the end after \"return\"");
      } else if (line.take("param ")) {
        input(line, InputKind::kParameter);
      } else if (line.take("state ")) {
        input(line, InputKind::kState);
      } else if (line.take("input ")) {
        input(line, InputKind::kInput);
      } else if (line.take("return")) {
        outputs(line);
        returned = true;
      } else {
        node(line);
      }
      if (!line.done()) line.fail("the end of the line");
    }
    if (!started) throw InvalidArgument("graph text is empty: expected \"graph NAME\"");
    if (!returned) throw InvalidArgument("graph text ends without a \"return\" line");
    return std::move(graph_);
  }

 private:
  Value use(Line& line) {
    const auto name = line.word("a value");
    const auto it = values_.find(name);
    if (it == values_.end()) line.fail(fmt::format("a value defined above, got {} before", name));
    return graph_.value(it->second);
  }
  void define(Line& line, const std::string& name, Value value) {
    if (!values_.emplace(name, value.id()).second) line.fail(fmt::format("a new name instead of {} before", name));
  }
  void input(Line& line, InputKind kind) {
    const auto name = line.word("an input's name");
    if (name.starts_with('%')) line.fail("an input's name, which % does not begin, before");
    const auto type = line.type();
    if (values_.contains(name)) line.fail(fmt::format("a new name instead of {} before", name));
    define(line, name, graph_.add_input(kind, name, type));
  }
  void node(Line& line) {
    std::vector<std::string> names;
    do names.push_back(line.word("%N"));
    while (line.take(","));
    line.expect("=");
    const auto op = line.word("an operator");
    std::vector<Value> inputs;
    if (!line.next_is(':') && !line.next_is('{')) {
      do inputs.push_back(use(line));
      while (line.take(","));
    }
    Attributes attributes;
    if (line.next_is('{')) attributes = line.attributes();
    line.expect(":");
    std::vector<Type> types;
    do types.push_back(line.type());
    while (line.take(","));
    if (types.size() != names.size()) line.fail(fmt::format("{} types, one per result, before", names.size()));
    std::optional<DType> compute_dtype;
    if (line.take("in")) compute_dtype = line.dtype();
    mesh::Strategy strategy;
    if (line.take("shard")) strategy = line.strategy();
    mesh::StrategyGrid grid;
    if (!strategy.empty() && line.take("on ")) grid = line.strategy_grid();
    RecomputeMark mark;
    if (line.take("recompute ")) mark = recompute_mark(line);
    int stage = kNone;
    int segment = 0;
    if (line.take("stage ")) stage = place_number(line, "stage");
    if (stage != kNone && line.take("segment ")) segment = place_number(line, "segment");
    Graph::Origin origin;
    if (line.take("@")) origin.source = line.word("a source");
    const bool again = line.take("(again");
    if (again || line.take("(grad of")) {
      origin.forward = graph_.info(use(line).id()).node;
      line.expect(")");
    }
    graph_.set_origin(origin);
    const auto results = graph_.add_node(op, inputs, attributes, types);
    graph_.set_origin({});
    Node& made = graph_.mutable_node(graph_.num_nodes() - 1);
    made.strategy = std::move(strategy);
    made.grid = std::move(grid);
    made.recompute = mark;
    made.stage = stage;
    made.segment = segment;
    made.again = again;
    made.compute_dtype = compute_dtype;
    for (size_t i = 0; i < names.size(); ++i) define(line, names[i], results[i]);
  }
  // Of a stage or a segment.
  static int place_number(Line& line, const std::string& of) {
    const auto text = line.word("a " + of + "'s number");
    const auto number = line.naming_line([&] { return parse_int(text, of); });
    if (number < 0) line.fail("a " + of + "'s number, from 0, before");
    return static_cast<int>(number);
  }
  RecomputeMark recompute_mark(Line& line) {
    const auto number = line.word("a block's number");
    const auto block = line.naming_line([&] { return parse_int(number, "recompute"); });
    if (block < 1) line.fail("a block's number, from 1, before");
    RecomputeMark mark{.block = static_cast<int>(block)};
    mark.repeats_collectives = !line.take("keep_collectives");
    mark.gathers_parameters = line.take("gather_parameters");
    return mark;
  }
  void outputs(Line& line) {
    if (line.done()) return;
    do {
      const auto name = line.word("an output's name");
      line.expect("=");
      const Value value = use(line);
      line.naming_line([&] { graph_.add_output(name, value); });
    } while (line.take(","));
  }

  Graph graph_;
  std::unordered_map<std::string, ValueId> values_;
};

}  // namespace

std::string print(const Graph& graph) {
  // value_name() walks the graph; here every name is wanted, so number them in one pass.
  std::vector<std::string> names(static_cast<size_t>(graph.num_values()));
  for (const auto& input : graph.inputs()) names[static_cast<size_t>(input.value)] = input.name;
  int number = 0;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).outputs) names[static_cast<size_t>(v)] = fmt::format("%{}", ++number);
  }
  const auto name_of = [&](ValueId v) -> const std::string& { return names[static_cast<size_t>(v)]; };

  std::string text = fmt::format("graph {}\n", graph.name());
  for (const auto& input : graph.inputs()) {
    text += fmt::format("  {} {} {}\n", to_string(input.kind), input.name, graph.type(input.value));
  }
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    text += "  ";
    for (size_t i = 0; i < node.outputs.size(); ++i) text += (i > 0 ? ", " : "") + name_of(node.outputs[i]);
    text += " = " + node.op;
    for (size_t i = 0; i < node.inputs.size(); ++i) text += (i > 0 ? ", " : " ") + name_of(node.inputs[i]);
    if (!node.attributes.empty()) text += " " + node.attributes.to_string();
    text += " : ";
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      text += (i > 0 ? ", " : "") + graph.type(node.outputs[i]).to_string();
    }
    if (node.compute_dtype) text += fmt::format(" in {}", *node.compute_dtype);
    if (!node.strategy.empty()) text += " shard " + mesh::to_string(node.strategy);
    if (!node.strategy.empty() && !node.grid.empty()) text += " on " + mesh::to_string(node.grid);
    if (node.recompute.block > 0) {
      text += fmt::format(" recompute {}{}{}", node.recompute.block,
                          node.recompute.repeats_collectives ? "" : " keep_collectives",
                          node.recompute.gathers_parameters ? " gather_parameters" : "");
    }
    if (node.stage != kNone) text += fmt::format(" stage {}", node.stage);
    if (node.stage != kNone && node.segment > 0) text += fmt::format(" segment {}", node.segment);
    if (!node.source.empty()) text += " @ " + node.source;
    if (node.forward != kNone)
      text += (node.again ? " (again " : " (grad of ") + name_of(graph.node(node.forward).outputs.at(0)) + ")";
    text += "\n";
  }
  text += "  return";
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto& output = graph.outputs()[i];
    text += fmt::format("{} {} = {}", i > 0 ? "," : "", output.name, name_of(output.value));
  }
  return text + "\n";
}

Graph parse(std::string_view text) { return Parser().parse(text); }

}  // namespace tessera::ir
