#include "tessera/tools/dot.h"

#include <memory>

namespace tessera::tools {
namespace {

constexpr const char* kCollectiveColor = "#f6c667";
constexpr const char* kInputColor = "#d9e6f2";

// As a string of the DOT language: in quotes, line breaks as \n.
std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + "\"";
}

// A box of nodes and of boxes.
struct Cluster {
  std::string label;
  std::vector<std::string> lines;
  std::vector<std::unique_ptr<Cluster>> children;

  Cluster& child(std::string_view name) {
    for (const auto& known : children) {
      if (known->label == name) return *known;
    }
    children.push_back(std::make_unique<Cluster>());
    children.back()->label = name;
    return *children.back();
  }
  // The box of an attribute path: that of "layer1.0" lies in that of "layer1".
  Cluster& at_path(std::string_view path) {
    if (path.empty() || path == ".") return *this;
    const auto dot = path.find('.');
    Cluster& first = child(path.substr(0, dot));
    return dot == std::string_view::npos ? first : first.at_path(path.substr(dot + 1));
  }
  void print(std::string& text, int depth, int& number) const {
    const std::string indent(static_cast<size_t>(2 * depth + 2), ' ');
    for (const auto& line : lines) text += indent + line + "\n";
    for (const auto& inner : children) {
      text +=
          fmt::format("{}subgraph cluster_{} {{\n{}  label={};\n", indent, number++, indent, in_quotes(inner->label));
      inner->print(text, depth + 1, number);
      text += indent + "}\n";
    }
  }
};

std::string digraph(const std::string& name, const Cluster& root, const std::vector<std::string>& edges) {
  std::string text = fmt::format("digraph {} {{\n", in_quotes(name));
  text += "  node [shape=box, style=filled, fillcolor=white, fontname=Helvetica];\n";
  text += "  edge [fontname=Helvetica, fontsize=10];\n";
  int number = 0;
  root.print(text, 0, number);
  for (const auto& edge : edges) text += "  " + edge + "\n";
  return text + "}\n";
}

std::string group_text(const Attributes& attributes) {
  return fmt::format("\nover {} ({}), #{}", attributes.get_string("group"), attributes.get_ints("ranks").size(),
                     attributes.get_int("order"));
}

// What a graph's nodes and inputs are called in DOT.
std::string id_of(const ir::Graph& graph, ir::ValueId v) {
  const auto& info = graph.info(v);
  return info.node == ir::kNone ? fmt::format("input{}", info.index) : fmt::format("node{}", info.node);
}

std::string dot_of_graph(const ir::Graph& graph, const compiler::Plan* plan) {
  Cluster root;
  std::vector<std::string> edges;
  const auto sharding_of = [&](ir::ValueId v) {
    return plan->values[static_cast<size_t>(v)].to_string(plan->mesh_of(v));
  };
  const auto value_text = [&](ir::ValueId v) {
    auto text = graph.type(v).to_string();
    if (plan != nullptr) text += "\n" + sharding_of(v);
    return text;
  };
  // `wanted`: the sharding that the reader takes it in, where there is a plan.
  const auto add_edge = [&](ir::ValueId v, const std::string& to, const std::string& wanted) {
    const bool moves = plan != nullptr && wanted != sharding_of(v);
    edges.push_back(fmt::format("{} -> {} [label={}{}];", id_of(graph, v), to,
                                in_quotes(value_text(v) + (moves ? " -> " + wanted : "")),
                                moves ? ", color=red, fontcolor=red" : ""));
  };
  for (const auto& input : graph.inputs()) {
    const auto label = fmt::format("{} {}\n{}", ir::to_string(input.kind), input.name, value_text(input.value));
    root.lines.push_back(fmt::format("{} [label={}, shape=ellipse, fillcolor={}];", id_of(graph, input.value),
                                     in_quotes(label), in_quotes(kInputColor)));
  }
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    std::string label = node.op;
    std::string look;
    if (ops::OpRegistry::instance().get(node.op).collective) {
      label += group_text(node.attributes);
      look = fmt::format(", fillcolor={}", in_quotes(kCollectiveColor));
    }
    if (!node.strategy.empty()) label += "\n" + mesh::to_string(node.strategy);
    if (node.forward != ir::kNone) look += ", shape=oval";
    const auto id = fmt::format("node{}", n);
    root.at_path(node.source).lines.push_back(fmt::format("{} [label={}{}];", id, in_quotes(label), look));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto wanted = [&] { return plan->operands[static_cast<size_t>(n)][i].to_string(plan->mesh_of_node(n)); };
      add_edge(node.inputs[i], id, plan == nullptr ? "" : wanted());
    }
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto id = fmt::format("output{}", i);
    root.lines.push_back(fmt::format("{} [label={}, shape=ellipse, fillcolor={}];", id,
                                     in_quotes("return " + graph.outputs()[i].name), in_quotes(kInputColor)));
    const auto wanted = [&] {
      const auto layout = plan->output_layout(graph, i);
      return layout.sharding.to_string(layout.mesh);
    };
    add_edge(graph.outputs()[i].value, id, plan == nullptr ? "" : wanted());
  }
  return digraph(graph.name(), root, edges);
}

// Which steps wrote what lies in memory: a step may read it as another value, in a bucket or under another shape.
class LastWriters {
 public:
  struct Writer {
    size_t step;
    int value;
  };
  explicit LastWriters(const ir::Schedule& schedule) : schedule_(schedule) {}

  void write(int value, size_t step) {
    const auto [begin, end] = range_of(value);
    std::erase_if(writers_, [&, begin = begin, end = end](const auto& entry) {
      return entry.first < end && range_of(entry.second.value).second > begin;
    });
    if (begin < end) writers_[begin] = {step, value};
  }
  std::vector<Writer> of(int value) const {
    const auto [begin, end] = range_of(value);
    std::vector<Writer> found;
    for (const auto& [offset, writer] : writers_) {
      if (offset < end && range_of(writer.value).second > begin) found.push_back(writer);
    }
    return found;
  }

 private:
  std::pair<int64_t, int64_t> range_of(int index) const {
    const auto& value = schedule_.values[static_cast<size_t>(index)];
    return {value.offset, value.offset + value.type.size_bytes()};
  }

  const ir::Schedule& schedule_;
  std::map<int64_t, Writer> writers_;  // by offset
};

std::string step_label(const ir::Schedule& schedule, size_t index) {
  const ir::Step& step = schedule.steps[index];
  std::string label = fmt::format("{} ", index);
  switch (step.kind) {
    case ir::StepKind::kCompute: label += step.kernel; break;
    case ir::StepKind::kCopy: label += "copy"; break;
    case ir::StepKind::kStart: label += step.op + " start" + group_text(step.attributes); break;
    case ir::StepKind::kWait: label += step.op + " wait"; break;
    case ir::StepKind::kCheckFinite: label += "check_finite"; break;
  }
  if (!step.source.empty()) label += "\n" + step.source;
  return label;
}

}  // namespace

std::string dot_of(const ir::Graph& graph) { return dot_of_graph(graph, nullptr); }

std::string dot_of(const ir::Graph& graph, const compiler::Plan& plan) { return dot_of_graph(graph, &plan); }

std::string dot_of(const ir::Schedule& schedule) {
  Cluster root;
  root.child("compute");
  root.child("communication");
  std::vector<std::string> edges;
  LastWriters writers(schedule);
  size_t before = schedule.steps.size();
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const ir::Step& step = schedule.steps[s];
    const bool starts = step.kind == ir::StepKind::kStart;
    root.child(starts ? "communication" : "compute")
        .lines.push_back(fmt::format("step{} [label={}{}];", s, in_quotes(step_label(schedule, s)),
                                     starts ? fmt::format(", fillcolor={}", in_quotes(kCollectiveColor)) : ""));
    if (!starts) {
      if (before < s) edges.push_back(fmt::format("step{} -> step{} [style=invis];", before, s));
      before = s;
    }
    if (step.kind == ir::StepKind::kWait) {
      edges.push_back(fmt::format("step{} -> step{} [style=bold];", step.joins, s));
    } else {
      for (const int v : step.inputs) {
        for (const auto& [from, written] : writers.of(v)) {
          const auto& value = schedule.values[static_cast<size_t>(written)];
          edges.push_back(fmt::format("step{} -> step{} [label={}];", from, s,
                                      in_quotes(fmt::format("{} {} @{}", value.name, value.type, value.offset))));
        }
      }
    }
    // What a collective makes is there when it has been waited for.
    if (starts) continue;
    for (const int v : step.outputs) writers.write(v, s);
  }
  return digraph(schedule.name, root, edges);
}

}  // namespace tessera::tools
