// An operator of your own, in a program of your own: squared distances between rows and prototypes, without the
// [n,k,d] differences that an expression of operators would make. Its definition says what a compiler asks of it: the
// type of its result, its gradient, which dims may be split among ranks. A network with it then trains like any other:
//     custom_operator                        one rank
//     tessera run -n 2 custom_operator       the rows, the prototypes or the features split: equal losses
#include <CLI/CLI.hpp>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT: an example reads better without prefixes

constexpr int64_t kFeatures = 24;
constexpr int64_t kClasses = 12;

ops::OpDef squared_distance() {
  return {.name = "squared_distance",
          .doc = "The squared distance of each row of x [n,d] from each row of prototypes [k,d]: [n,k].",
          .inputs = {"x", "prototypes"},
          // What does not fit is refused when a network is built, with the operator's name and its operands' types.
          .infer = [](const Attributes&, std::span<const Type> inputs) -> std::vector<Type> {
            ops::require_ndim(inputs[0], 2, "x");
            ops::require_dtype(inputs[0], DType::kF32, "x");
            ops::require_type(inputs[1], {DType::kF32, {inputs[1].shape[0], inputs[0].shape[1]}}, "prototypes");
            return {{DType::kF32, {inputs[0].shape[0], inputs[1].shape[0]}}};
          },
          // Of dy [n,k]: one cotangent for each operand, made of operators that there are.
          .gradient = [](const ops::GradientContext& c) -> std::vector<nn::Value> {
            const nn::Value dy = c.cotangent(0);
            const nn::Value x = c.inputs[0];
            const nn::Value prototypes = c.inputs[1];
            const nn::Value of_columns = ops::reshape(ops::reduce_sum(dy, {0}), {-1, 1});
            return {2 * (x * ops::reduce_sum(dy, {1}, /*keep_dims=*/true) - ops::matmul(dy, prototypes)),
                    2 * (prototypes * of_columns - ops::matmul(dy, x, /*transpose_a=*/true))};
          },
          // n and k split the result. d, which the result has not, leaves sums of parts: an all_reduce adds them up.
          .rule = [](const Attributes&, std::span<const Type>,
                     std::span<const Type>) { return ops::parse_rule("n d, k d -> n k"); },
          // For plans and simulations: a difference, a product and a sum.
          .flops =
              [](const Attributes&, std::span<const Type> in, std::span<const Type> out) {
                return 3.0 * static_cast<double>(out[0].shape.num_elements() * in[0].shape[1]);
              }};
}

// The kernel, for operands in any strides. Each thread of the rank takes a range of the rows.
void compute_distances(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& prototypes = args.inputs[1];
  const TensorView& out = args.outputs[0];
  args.parallel_for(x.shape[0], /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t k = 0; k < prototypes.shape[0]; ++k) {
        float sum = 0;
        for (int64_t d = 0; d < x.shape[1]; ++d) {
          const float difference = x.as<float>()[n * x.strides[0] + d * x.strides[1]] -
                                   prototypes.as<float>()[k * prototypes.strides[0] + d * prototypes.strides[1]];
          sum += difference * difference;
        }
        out.as<float>()[n * out.strides[0] + k * out.strides[1]] = sum;
      }
    }
  });
}

// Asked once for each node, with its shapes and strides: what is prepared here, no step has to do. A kernel that does
// not take the request returns nullopt.
std::optional<PreparedKernel> prepare_distances(const KernelRequest&) {
  return PreparedKernel{.name = "example.squared_distance", .run = compute_distances};
}

// A row is of the class whose prototype is nearest.
struct Prototypes : nn::Cell {
  nn::Parameter& prototypes = parameter("prototypes", {DType::kF32, {kClasses, kFeatures}}, nn::normal(0.3));
  using nn::Cell::construct;
  nn::Value construct(nn::Value x) override { return ops::neg(ops::apply1("squared_distance", {x, prototypes})); }
};

// Rows around a point of their class.
data::Dataset clouds(int64_t size, uint64_t seed) {
  const auto write = [seed](int64_t index, std::span<const TensorView> outputs) {
    const int64_t label = index % kClasses;
    for (int64_t d = 0; d < kFeatures; ++d) {
      const auto at = static_cast<uint64_t>(d);
      const double middle = random_normal({.seed = 1, .stream = static_cast<uint64_t>(label)}, at);
      const double noise = random_normal({.seed = seed, .stream = static_cast<uint64_t>(index)}, at);
      outputs[0].as<float>()[d] = static_cast<float>(middle + 1.5 * noise);
    }
    *outputs[1].as<int32_t>() = static_cast<int32_t>(label);
  };
  return data::generator({{"x", {DType::kF32, {kFeatures}}}, {"label", {DType::kI32, {}}}}, size, write).batch(96);
}

void train_split(cluster::Context& context, const std::string& split, int64_t epochs) {
  const int64_t ranks = context.size();
  Prototypes network;
  if (split == "rows") network.shard("squared_distance", {{ranks, 1}, {1, 1}});
  if (split == "prototypes") network.shard("squared_distance", {{1, 1}, {ranks, 1}});
  if (split == "features") network.shard("squared_distance", {{1, ranks}, {1, ranks}});
  nn::CrossEntropy loss;
  nn::Adam optimizer({.learning_rate = 0.01});
  train::Model model(
      context, network, &loss, &optimizer,
      {.parallel_mode = train::ParallelMode::kSemiAuto, .seed = 1, .metrics = {train::make_metric("accuracy")}});
  if (context.rank() == 0) train::print_line(split + " split:");
  model.train(epochs, clouds(1920, 2), {train::EpochSummary({.valid = clouds(480, 3)})});
}

}  // namespace

int main(int argc, char** argv) {
  int64_t epochs = 3;
  CLI::App app("Trains a network with an operator that this program defines, split in three ways.");
  app.add_option("--epochs", epochs, "times through the rows")->check(CLI::Range(1, 1000))->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return code_after_output(app.exit(error));  // --help
    return cluster::usage_error(argv[0], error.what());
  }
  // Before anything else: when operators have been used, none can be added.
  ops::add_operator(squared_distance(), prepare_distances);
  return cluster::run(argc, argv, [&](cluster::Context& context) {
    for (const auto* split : {"rows", "prototypes", "features"}) train_split(context, split, epochs);
  });
}
