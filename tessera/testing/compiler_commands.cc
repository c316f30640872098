#include "tessera/testing/compiler_commands.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/mixed_precision.h"
#include "tessera/compiler/verify/verify_plan.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/verify.h"

namespace tessera::testing_support {
namespace {

void append_line(std::string& text, std::string_view line) {
  text += line;
  text += '\n';
}

std::string checked_print(const ir::Graph& graph) {
  auto text = ir::print(graph);
  const auto again = ir::print(ir::parse(text));
  check_equal(again, text, "a graph's text does not parse back to the same graph");
  return text;
}

ir::Graph with_defaults(ir::Graph graph) {
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    auto& node = graph.mutable_node(n);
    node.attributes = ops::complete_attributes(ops::OpRegistry::instance().get(node.op), node.attributes);
  }
  return graph;
}

ir::Graph read_graph(const std::string& input) {
  ir::Graph graph = ir::parse(input);
  checked_print(graph);
  ops::verify_or_throw(graph);
  return with_defaults(std::move(graph));
}

// "off", "size:BYTES" or "index:2,5".
compiler::Fusion parse_fusion(std::string_view text) {
  using Mode = compiler::Fusion::Mode;
  const auto parts = split(text, ':');
  if (parts[0] == "off") return {.mode = Mode::kOff};
  if (parts[0] == "size") return {.mode = Mode::kSize, .bytes = parse_int(parts.at(1), "size")};
  compiler::Fusion fusion{.mode = Mode::kIndex};
  for (const auto number : split(parts.at(1), ',')) fusion.index.push_back(parse_int(number, "index"));
  return fusion;
}

// "bf16 all": the low dtype, and that nothing is kept in f32 but what nodes ask for.
compiler::Precision precision_of(std::span<const std::string> words) {
  compiler::Precision precision{.compute = parse_dtype(words[0])};
  for (const auto& word : words.subspan(1)) {
    if (word == "low_norms" || word == "all") precision.keep_norms_f32 = false;
    if (word == "all") precision.keep_sums_f32 = false;
  }
  return precision;
}

// "data=4 x=[data,_] rank=1 unfused", taken apart.
struct Options {
  std::vector<mesh::Axis> axes;
  std::vector<std::pair<std::string, std::string>> hints;
  std::vector<std::pair<std::string, std::string>> edits;
  std::vector<std::string> kept;
  std::set<std::string> lacking;
  int rank = 0;
  compiler::CompileOptions compile{.verification = compiler::Verification::kAllRanks};

  explicit Options(std::span<const std::string> words) {
    for (const auto& word : words) {
      const auto at = word.find('=');
      if (at == std::string::npos) {
        set_flag(word);
        continue;
      }
      const auto name = word.substr(0, at);
      const auto value = word.substr(at + 1);
      if (name.starts_with('%') || name.starts_with("return.")) {
        edits.emplace_back(name, value);
      } else if (value.starts_with('[')) {
        hints.emplace_back(name, value);
      } else if (name == "rank") {
        rank = static_cast<int>(parse_int(value, "rank"));
      } else if (name == "bucket") {
        compile.partition.bucket_bytes = parse_int(value, "bucket");
      } else if (name == "kept") {
        kept.push_back(value);
      } else if (name == "lacks") {
        lacking.insert(value);
      } else if (name == "memory_limit") {
        compile.memory_limit_bytes = parse_int(value, name);
      } else if (name == "prefetch") {
        compile.partition.prefetch_bytes = parse_int(value, name);
      } else if (name == "fusion_id") {
        const auto parts = split(value, ':');
        compile.partition.fusion_ids[std::string(parts[0])] = static_cast<int>(parse_int(parts.at(1), name));
      } else if (name == "all_reduce_fusion") {
        compile.partition.all_reduce_fusion = parse_fusion(value);
      } else if (name == "all_gather_fusion") {
        compile.partition.all_gather_fusion = parse_fusion(value);
      } else if (name == "reduce_scatter_fusion") {
        compile.partition.reduce_scatter_fusion = parse_fusion(value);
      } else if (name == "fusions") {
        compile.fusions = compiler::parse_fusions(value);
      } else if (name == "partial_state") {
        compile.plan.partial_states.insert(value);
      } else if (name == "optimizer_shard_size") {
        compile.plan.optimizer_shard_size = static_cast<int>(parse_int(value, name));
      } else if (name == "optimizer_shard") {
        compile.plan.optimizer_shards.insert(value);
      } else {
        axes.push_back({name, static_cast<int>(parse_int(value, name))});
      }
    }
  }
  void set_flag(const std::string& word) {
    if (word == "unfused") {
      compile.fusions = compiler::Fusions::none();
    } else if (word == "debug") {
      compile.schedule.share_memory = false;
      compile.fusions = compiler::Fusions::none();
    } else if (word == "semi_auto") {
      compile.plan.batch_by_default = true;
    } else if (word == "propagate") {
      compile.plan.propagate_strategies = true;
    } else if (word == "row_major") {
      compile.schedule.channels_last = false;
    } else if (word == "on_device") {
      compile.schedule.host_copies = true;
    } else if (word == "devices_communicate") {
      compile.schedule.communicates_there = [](const Ints&) { return true; };
    } else {
      throw InvalidArgument("unknown option {}", word);
    }
  }
  mesh::Mesh mesh() const { return mesh::Mesh(axes.empty() ? std::vector<mesh::Axis>{{"data", 1}} : axes); }
  compiler::ShardingHints sharding_hints() const {
    compiler::ShardingHints result;
    for (const auto& [name, text] : hints) result[name] = {mesh(), mesh::parse_sharding(text, mesh())};
    return result;
  }
};

// Of a device that lacks some operators, which the host computes.
class LackingCatalogue final : public ops::FakeKernelCatalogue {
 public:
  explicit LackingCatalogue(const std::set<std::string>& lacking) : lacking_(lacking) {}
  ops::ChosenKernel choose(const KernelRequest& request) const override {
    auto choice = FakeKernelCatalogue::choose(request);
    choice.on_host = lacking_.contains(request.op);
    return choice;
  }

 private:
  const std::set<std::string>& lacking_;
};

compiler::Compiled compile(const ir::Graph& graph, const Options& options, int rank) {
  const auto mesh = options.mesh();
  const auto hints = options.sharding_hints();
  const auto plan = compiler::propagate(graph, mesh, hints, options.compile.plan);
  ir::PersistentLayout persistent;
  for (const auto& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) continue;
    if (std::find(options.kept.begin(), options.kept.end(), input.name) != options.kept.end()) continue;
    Type type = graph.type(input.value);
    type.shape =
        mesh::local_shape(type.shape, plan.values[static_cast<size_t>(input.value)], plan.mesh_of(input.value), rank);
    persistent.add(input.name, type);
  }
  auto compiled =
      compiler::compile(graph, mesh, hints, rank, persistent, LackingCatalogue(options.lacking), options.compile);
  checked_print(compiled.logical);
  checked_print(compiled.local);
  return compiled;
}

std::string gradients_text(ir::Graph graph, std::span<const std::string> words) {
  if (words.empty()) throw InvalidArgument("gradients: say of which output");
  const ir::Output* output = graph.find_output(words[0]);
  if (output == nullptr) throw InvalidArgument("graph {} has no output \"{}\"", graph.name(), words[0]);
  std::vector<ir::Value> wrt;
  std::vector<std::string> names;
  for (const auto& input : graph.inputs()) {
    const bool named = std::find(words.begin() + 1, words.end(), input.name) != words.end();
    if (words.size() > 1 ? !named : !is_floating(graph.type(input.value).dtype)) continue;
    wrt.push_back(graph.value(input.value));
    names.push_back(input.name);
  }
  const auto found = compiler::gradients(graph.value(output->value), wrt);
  for (size_t i = 0; i < found.size(); ++i) graph.add_output("d" + names[i], found[i]);
  ops::verify_or_throw(graph);
  return checked_print(graph);
}

std::string layouts_text(const ir::Graph& graph) {
  const auto strides = compiler::assign_layouts(graph);
  std::string text;
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    const Type& type = graph.type(v);
    const bool is_image = !(strides[static_cast<size_t>(v)] == dense_strides(type.shape));
    append_line(text, fmt::format("{} {} {}", graph.value_name(v), type, is_image ? "channels-last" : "row-major"));
  }
  return text;
}

ir::ValueId find_value(const ir::Graph& graph, std::string_view name) {
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    if (graph.value_name(v) == name) return v;
  }
  throw InvalidArgument("graph {} has no value {}", graph.name(), name);
}

// Says of a value, an operand or a result of the graph that it is in another sharding.
void edit(compiler::Plan& plan, const ir::Graph& graph, const std::string& place, const std::string& text) {
  const auto dot = place.find('.');
  const auto name = place.substr(0, dot);
  if (name == "return") {
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      if (graph.outputs()[i].name != place.substr(dot + 1)) continue;
      plan.outputs[i] = parse_sharding(text, plan.output_layout(graph, i).mesh);
    }
    return;
  }
  const auto v = find_value(graph, name);
  const auto sharding = parse_sharding(text, plan.mesh_of(v));
  if (dot == std::string::npos) {
    plan.values[static_cast<size_t>(v)] = sharding;
  } else {
    auto& operands = plan.operands[static_cast<size_t>(graph.info(v).node)];
    operands.at(static_cast<size_t>(parse_int(place.substr(dot + 1), place))) = sharding;
  }
}

std::string verify_plan_text(const ir::Graph& graph, const Options& options) {
  auto plan = compiler::propagate(graph, options.mesh(), options.sharding_hints(), options.compile.plan);
  for (const auto& [place, text] : options.edits) edit(plan, graph, place, text);
  std::string text;
  for (const auto& fault : compiler::verify_plan(graph, plan)) append_line(text, fault);
  return text.empty() ? "sound\n" : text;
}

std::string order_text(const ir::Graph& graph, const Options& options) {
  std::string first;
  const int ranks = options.mesh().size();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto list = compiler::collective_list(compile(graph, options, rank).local);
    if (rank == 0) first = list;
    if (list != first) throw InvalidArgument("rank {} communicates in another order than rank 0:\n{}", rank, list);
  }
  return first.empty() ? "no collectives\n" : first;
}

}  // namespace

std::string run_compiler_command(const std::string& input, const std::string& command) {
  if (const auto pipe = command.find(" | "); pipe != std::string::npos) {
    return run_compiler_command(run_compiler_command(input, command.substr(0, pipe)), command.substr(pipe + 3));
  }
  std::vector<std::string> words;
  for (const auto word : split(command, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  if (words.empty()) throw InvalidArgument("an empty command");
  const auto name = words[0];
  words.erase(words.begin());

  if (name == "parse") return checked_print(ir::parse(input));
  if (name == "verify") {
    const auto faults = ops::verify(ir::parse(input));
    std::string text;
    for (const auto& fault : faults) append_line(text, fault);
    return faults.empty() ? "sound\n" : text;
  }
  const ir::Graph graph = read_graph(input);
  if (name == "dce") return checked_print(compiler::remove_dead_code(graph));
  if (name == "cse") return checked_print(compiler::merge_common_subexpressions(graph));
  if (name == "fold") return checked_print(compiler::fold_constants(graph));
  if (name == "simplify") {
    return checked_print(
        compiler::remove_dead_code(compiler::merge_common_subexpressions(compiler::fold_constants(graph))));
  }
  if (name == "wide") return checked_print(compiler::keep_results_wide(graph));
  if (name == "precision") return checked_print(compiler::rewrite_precision(graph, precision_of(words)));
  if (name == "layouts") return layouts_text(graph);
  if (name == "gradients") {
    std::erase(words, "of");
    return gradients_text(graph, words);
  }
  if (name == "fuse")
    return checked_print(compiler::fuse(graph, compiler::parse_fusions(words.empty() ? "all" : words[0])));
  Options options(words);
  if (name == "plan") {
    const auto plan = compiler::propagate(graph, options.mesh(), options.sharding_hints(), options.compile.plan);
    return compiler::print(graph, plan);
  }
  if (name == "verify_plan") return verify_plan_text(graph, options);
  if (name == "recompute") {
    return checked_print(
        compiler::plan_ranks(graph, options.mesh(), options.sharding_hints(), options.compile).logical);
  }
  if (name == "local") {
    options.compile.fusions = compiler::Fusions::none();
    return checked_print(compile(graph, options, options.rank).local);
  }
  if (name == "order") return order_text(graph, options);
  if (name == "schedule") return ir::print(compile(graph, options, options.rank).schedule);
  throw InvalidArgument("unknown command {}", name);
}

}  // namespace tessera::testing_support
