#include "tests/laws/sharding_laws.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/compiler/partition/partition.h"
#include "tessera/compiler/plan/node_planner.h"
#include "tessera/compiler/verify/verify_local.h"
#include "tessera/compiler/verify/verify_plan.h"
#include "tessera/ops/verify.h"

namespace tessera::laws {
namespace {

using compiler::Plan;
using mesh::Sharding;
using testing_support::LocalProgram;
using testing_support::NamedTensors;

// Each axis splits a dim, or holds partial sums (of most inputs, where of one: sums pass only together), or neither.
Sharding drawn_sharding(const Type& type, const mesh::Mesh& mesh, uint64_t seed, const std::string& input) {
  Sharding sharding = Sharding::replicated(type.shape.ndim());
  const RandomStream of_all{.seed = seed, .stream = 1};
  const RandomStream own{.seed = seed, .stream = hash_name(input)};
  uint64_t draw = 0;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const bool sums = random_below(of_all, static_cast<uint64_t>(axis), 3) == 0 && random_below(own, draw++, 4) != 0;
    if (sums && type.dtype != DType::kBool) {
      sharding.partial.push_back({axis, mesh::Reduction::kSum});
      continue;
    }
    const auto dim = random_below(own, draw++, type.shape.ndim() + 1);
    if (dim == type.shape.ndim()) continue;
    auto& axes = sharding.dims[static_cast<size_t>(dim)];
    axes.insert(random_below(own, draw++, 2) == 0 ? axes.begin() : axes.end(), axis);
  }
  return sharding;
}

compiler::ShardingHints hints_of(const ShardingCase& c) {
  std::map<std::string, Sharding> shardings;
  if (c.arrival == Arrival::kFitting) {
    const auto operands = compiler::operand_shardings(c.example->rule, *c.factors);
    for (size_t i = 0; i < operands.size(); ++i) shardings[fmt::format("in{}", i)] = operands[i];
  } else {
    for (const auto& input : c.example->graph.inputs()) {
      shardings[input.name] = drawn_sharding(c.example->graph.type(input.value), *c.mesh, c.seed, input.name);
    }
  }
  return compiler::on_mesh(*c.mesh, shardings);
}

compiler::PlanOptions options_of(const ShardingCase& c) {
  if (c.arrival == Arrival::kPropagated) return {};
  return {.fixed = {{0, {.factors = *c.factors}}}};
}

// Of the largest element. Half types are summed in f32.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-10;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: return 2e-5;
    default: return 0;
  }
}

// Of each element: by so much two neighbours of a half type differ at most, which one sum may be rounded to.
double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 0x1p-10;
    case DType::kBF16: return 0x1p-7;
    default: return 0;
  }
}

// The largest difference beyond what rounding makes, infinite where only one of two is NaN or they differ in an
// infinity.
double deviation(const Tensor& actual, const Tensor& expected) {
  const double rounding = rounding_of(expected.dtype());
  const auto a = actual.to_doubles();
  const auto e = expected.to_doubles();
  double largest = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    if (a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]))) continue;
    const double difference = std::abs(a[i] - e[i]) - rounding * std::abs(e[i]);
    largest = std::max(largest, std::isnan(difference) ? INFINITY : difference);
  }
  return largest;
}

double scale_of(const Tensor& expected) {
  double scale = 1;
  for (const double x : expected.to_doubles()) {
    if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
  }
  return scale;
}

// What is wrong with one result, or nothing.
std::string compare(const std::string& name, const Tensor& expected, const mesh::Layout& layout,
                    const std::vector<Tensor>& pieces) {
  const auto& [mesh, sharding] = layout;
  const Tensor whole = testing_support::assemble(expected.type(), sharding, mesh, pieces);
  const double allowed = tolerance_of(expected.dtype()) * scale_of(expected);
  if (deviation(whole, expected) <= allowed) return "";
  size_t worst = 0;
  double largest = -1;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const double d = deviation(pieces[i], testing_support::cut(expected, sharding, mesh, mesh.ranks()[i]));
    if (d > largest) {
      largest = d;
      worst = i;
    }
  }
  return fmt::format("{} {} {} deviates by {:.3g} on rank {}, {:.3g} is allowed", name, expected.type(),
                     sharding.to_string(mesh), largest, mesh.ranks()[worst], allowed);
}

std::string run_and_compare(const LawExample& example, const Plan& plan, const std::vector<LocalProgram>& programs) {
  const auto results = testing_support::run_lockstep(programs);
  const auto& outputs = example.graph.outputs();
  for (size_t o = 0; o < outputs.size(); ++o) {
    std::vector<Tensor> pieces;
    for (const auto& named : results) pieces.push_back(named.at(outputs[o].name));
    const auto layout = plan.output_layout(example.graph, o);
    auto fault = compare(outputs[o].name, example.expected.at(outputs[o].name), layout, pieces);
    if (!fault.empty()) return fault;
  }
  return "";
}

// Numbers, also lists of them, as one #: what is left of two messages is equal when they have one reason.
std::string without_numbers(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool is_number = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool after_number = !result.empty() && result.back() == '#';
    if (!is_number && !(after_number && c == ',')) {
      result += c;
    } else if (!after_number) {
      result += '#';
    }
  }
  return result;
}

}  // namespace

namespace {

std::string first_of(const std::vector<std::string>& faults) { return faults.empty() ? "" : faults[0]; }

// Of local graphs, by the operators' definitions and by the plan.
std::string first_fault(const ir::Graph& graph, const Plan& plan, const std::vector<compiler::RankGraph>& ranks) {
  for (const auto& each : ranks) {
    if (auto fault = first_of(ops::verify(each.graph)); !fault.empty()) return fault;
  }
  return first_of(compiler::verify_local(graph, plan, ranks));
}

std::vector<LocalProgram> with_inputs(const LawExample& example, const Plan& plan,
                                      std::vector<compiler::RankGraph> ranks) {
  std::vector<LocalProgram> programs;
  for (auto& each : ranks) {
    LocalProgram& program = programs.emplace_back(LocalProgram{each.rank, std::move(each.graph), {}});
    for (const auto& input : example.graph.inputs()) {
      program.inputs[input.name] =
          testing_support::cut(example.inputs.at(input.name), plan.values[static_cast<size_t>(input.value)],
                               plan.mesh_of(input.value), each.rank);
    }
  }
  return programs;
}

}  // namespace

CaseResult check_case(const ShardingCase& c, const CaseHooks& hooks) {
  const LawExample& example = *c.example;
  CaseResult result;
  const auto fails = [&](const std::string& message) {
    result.verdict = Verdict::kFails;
    result.message = message;
    return result;
  };
  try {
    std::vector<compiler::RankGraph> ranks;
    Plan plan;
    try {
      plan = compiler::propagate(example.graph, *c.mesh, hints_of(c), options_of(c));
      if (hooks.plan && !hooks.plan(c, plan)) return {};
      result.verifier = first_of(compiler::verify_plan(example.graph, plan));
      if (!hooks.run && !result.verifier.empty()) return result;
      ranks = compiler::partition_all(example.graph, plan);
    } catch (const InvalidArgument& refusal) {
      result.verdict = Verdict::kRefused;
      result.message = refusal.what();
      return result;
    }
    bool is_changed = !hooks.local;
    for (auto& each : ranks) {
      if (hooks.local && hooks.local(c, plan, each)) is_changed = true;
    }
    if (!is_changed) return {};
    if (result.verifier.empty()) result.verifier = first_fault(example.graph, plan, ranks);
    const bool is_mutant = hooks.plan || hooks.local;
    if (!is_mutant && !result.verifier.empty()) return fails("the verifier objects: " + result.verifier);
    if (!hooks.run) return result;
    if (hooks.local) {
      // As a job would be refused whose local graphs do not verify; kernels trust them.
      for (const auto& each : ranks) {
        if (const auto fault = first_of(ops::verify(each.graph)); !fault.empty()) return fails(fault);
      }
    }
    const auto fault = run_and_compare(example, plan, with_inputs(example, plan, std::move(ranks)));
    if (!fault.empty()) return fails(fault);
  } catch (const std::exception& error) {
    return fails(error.what());
  }
  return result;
}

void Tally::add(const ShardingCase& sharding_case, const CaseResult& result) {
  ++cases_;
  if (result.verdict == Verdict::kFails) ++failures_;
  if (result.verdict != Verdict::kRefused) return;
  ++refused_;
  auto& refusal = refusals_[without_numbers(result.message)];
  if (refusal.count++ == 0) refusal.first = fmt::format("{}: {}", sharding_case.name(), result.message);
}

std::string Tally::report() const {
  std::string text;
  for (const auto& [reason, refusal] : refusals_) {
    text += fmt::format("refused {} times, first {}\n", refusal.count, refusal.first);
  }
  return text + fmt::format("{} refused for {} reasons\n", refused_, refusals_.size());
}

}  // namespace tessera::laws
