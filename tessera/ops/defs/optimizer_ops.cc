#include "tessera/base/error.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"
#include "tessera/tensor/update_group.h"

namespace tessera::ops {
namespace {

// An optimizer's operator takes a parameter, its states and its gradient, all of one shape, then scalars; its results
// are the new parameter and states. It is computed in f32, in f64 for an f64 parameter.
OpDef optimizer(std::string name, std::string doc, size_t num_states, std::vector<std::string> inputs,
                std::vector<AttributeDef> attributes, double flops_per_element) {
  const size_t num_results = 1 + num_states;
  OpDef def{.name = std::move(name), .doc = std::move(doc), .inputs = std::move(inputs)};
  def.attributes = std::move(attributes);
  def.attributes.push_back({"weight_decay", 0.0, "times the parameter is added to the gradient, after loss_scale"});
  def.attributes.push_back({"loss_scale", 1.0, "the gradient is divided by it first"});
  def.outputs.assign(def.inputs.begin(), def.inputs.begin() + static_cast<std::ptrdiff_t>(num_results));
  const auto names = def.inputs;
  const auto numbers = def.attributes;
  def.infer = [num_results, names, numbers](const Attributes& all, std::span<const Type> types) {
    for (const auto& attribute : numbers) {
      if (std::holds_alternative<bool>(*attribute.default_value)) {
        all.get_bool(attribute.name);
      } else {
        all.get_double(attribute.name);
      }
    }
    if (all.get_double("loss_scale") == 0) throw InvalidArgument("attribute loss_scale must not be 0");
    const Type& param = types[0];
    require_floating(param, "param");
    for (size_t i = 1; i <= num_results; ++i) {
      require_floating(types[i], names[i]);
      require_shape(types[i], param.shape, names[i]);
    }
    for (size_t i = num_results + 1; i < types.size(); ++i) {
      require_shape(types[i], {}, names[i]);
      if (types[i].dtype != param.dtype && types[i].dtype != DType::kF32) {
        throw InvalidArgument("{} must be f32 or {}, is {}", names[i], param.dtype, types[i].dtype);
      }
    }
    return std::vector<Type>(types.begin(), types.begin() + static_cast<std::ptrdiff_t>(num_results));
  };
  def.rule = [](const Attributes&, std::span<const Type> types, std::span<const Type> results) {
    std::vector<Shape> in;
    std::vector<Shape> out;
    for (const Type& type : types) in.push_back(type.shape);
    for (const Type& type : results) out.push_back(type.shape);
    return elementwise_rule(in, out);
  };
  def.update = true;
  def.flops = [flops_per_element](const Attributes&, std::span<const Type> types, std::span<const Type>) {
    return flops_per_element * static_cast<double>(types[0].shape.num_elements());
  };
  return def;
}

struct UpdateCase {
  DType param;
  DType state;
  DType grad;
  DType scalar;
  Shape shape;
};
std::vector<UpdateCase> update_cases() {
  return {{DType::kF32, DType::kF32, DType::kF32, DType::kF32, {3, 5}},
          {DType::kF64, DType::kF64, DType::kF64, DType::kF32, {2, 3, 2, 2}},
          {DType::kF64, DType::kF64, DType::kF64, DType::kF64, {7}},
          {DType::kF32, DType::kF32, DType::kBF16, DType::kF32, {4}},
          {DType::kBF16, DType::kF32, DType::kBF16, DType::kF32, {6}},
          {DType::kF16, DType::kF16, DType::kF16, DType::kF16, {2, 3}},
          {DType::kF32, DType::kF32, DType::kF32, DType::kF32, {0, 4}},
          {DType::kF32, DType::kF32, DType::kF32, DType::kF32, {}}};
}

// One example per case and set of attributes. States and scalars are positive, as second moments are.
void add_examples(OpDef& def, const std::vector<Attributes>& settings) {
  const size_t num_results = def.outputs.size();
  for (const UpdateCase& c : update_cases()) {
    for (const Attributes& attributes : settings) {
      Example example{.attributes = attributes, .check_gradient = false};
      example.inputs.push_back({{c.param, c.shape}});
      for (size_t i = 1; i < num_results; ++i) example.inputs.push_back({{c.state, c.shape}, Domain::kPositive});
      example.inputs.push_back({{c.grad, c.shape}});
      while (example.inputs.size() < def.inputs.size()) example.inputs.push_back({{c.scalar, {}}, Domain::kPositive});
      def.examples.push_back(std::move(example));
    }
  }
}

AttributeDef nesterov() { return {"nesterov", false, "step along the momentum that the next step would have"}; }
std::vector<AttributeDef> adam_attributes() {
  return {{"beta1", 0.9, "decay of the mean of gradients"},
          {"beta2", 0.999, "decay of the mean of squared gradients"},
          {"eps", 1e-8, "added to the root of v"}};
}

// The types of one member's operands.
std::vector<Type> member_types(const UpdateGroup& group, std::span<const Type> inputs, size_t member) {
  std::vector<Type> types;
  for (size_t i = 0; i < group.num_tensors + group.num_scalars; ++i) types.push_back(inputs[group.input(member, i)]);
  return types;
}

void add_update_group(OpRegistry& registry) {
  registry.add({
      .name = "update_group",
      .doc = "The updates of many parameters by one optimizer as one node, made by the fusion pass: its operands are "
             "(parameter, states..., gradient) for each, then the scalars that they share; its results (parameter, "
             "states...) for each. No rank splits it: fusion comes after partition.",
      .inputs = {"values..."},
      .attributes = {{"optimizer", std::nullopt, "the operator that updates one of them"},
                     {"settings", std::nullopt, "its attributes, as text"},
                     {"count", std::nullopt, "number of parameters"},
                     {"scalars", std::nullopt, "number of shared scalars"}},
      .infer =
          [](const Attributes& attributes, std::span<const Type> inputs) {
            const UpdateGroup group(attributes, inputs.size());
            const OpDef& optimizer = OpRegistry::instance().get(group.optimizer);
            if (!optimizer.update) throw InvalidArgument("{} is no optimizer's operator", group.optimizer);
            std::vector<Type> results;
            for (size_t m = 0; m < group.count; ++m) {
              for (const Type& type : optimizer.infer(group.settings, member_types(group, inputs, m))) {
                results.push_back(type);
              }
            }
            return results;
          },
      .flops =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
            const UpdateGroup group(attributes, inputs.size());
            const OpDef& optimizer = OpRegistry::instance().get(group.optimizer);
            double flops = 0;
            for (size_t m = 0; m < group.count; ++m) {
              const auto types = member_types(group, inputs, m);
              flops += optimizer.flops(group.settings, types, {});
            }
            return flops;
          },
      .examples = {{.inputs = {{{DType::kF32, {3, 5}}},
                               {{DType::kF32, {3, 5}}},
                               {{DType::kF32, {3, 5}}},
                               {{DType::kF32, {7}}},
                               {{DType::kF32, {7}}},
                               {{DType::kBF16, {7}}},
                               {{DType::kF32, {2}}},
                               {{DType::kF32, {2}}},
                               {{DType::kF32, {2}}},
                               {{DType::kF32, {}}},
                               {{DType::kF32, {}}}},
                    .attributes = {{"optimizer", "momentum"},
                                   {"settings", "{loss_scale=2.0, nesterov=false, weight_decay=0.01}"},
                                   {"count", int64_t{3}},
                                   {"scalars", int64_t{2}}},
                    .check_gradient = false},
                   {.inputs = {{{DType::kF32, {4}}},
                               {{DType::kF32, {4}}},
                               {{DType::kF32, {4}}},
                               {{DType::kF32, {0}}},
                               {{DType::kF32, {0}}},
                               {{DType::kF32, {0}}},
                               {{DType::kF32, {}}},
                               {{DType::kF32, {}}}},
                    .attributes = {{"optimizer", "momentum"},
                                   {"settings", "{loss_scale=1.0, nesterov=true, weight_decay=0.0}"},
                                   {"count", int64_t{2}},
                                   {"scalars", int64_t{2}}},
                    .check_gradient = false}},
  });
}

}  // namespace

void add_optimizers(OpRegistry& registry) {
  add_update_group(registry);
  OpDef momentum = optimizer(
      "momentum",
      "g = grad / loss_scale + weight_decay * param; moment = momentum * moment + g; param -= learning_rate * moment, "
      "with nesterov param -= learning_rate * (g + momentum * moment). Returns the new param and moment.",
      1, {"param", "moment", "grad", "learning_rate", "momentum"}, {nesterov()}, 6);
  add_examples(momentum, {{}, {{"weight_decay", 0.01}, {"loss_scale", 4.0}, {"nesterov", true}}});
  registry.add(std::move(momentum));

  OpDef sgd = optimizer(
      "sgd",
      "g = grad / loss_scale + weight_decay * param; accum = momentum * accum + (1 - dampening) * g, but g where first "
      "is not 0 (the first step); param -= learning_rate * accum, with nesterov learning_rate * (g + momentum * "
      "accum). With momentum 0 it is param -= learning_rate * g and accum stays. Returns the new param and accum.",
      1, {"param", "accum", "grad", "learning_rate", "momentum", "first"},
      {{"dampening", 0.0, "keeps that part of the gradient out of accum"}, nesterov()}, 6);
  add_examples(sgd, {{}, {{"dampening", 0.1}, {"weight_decay", 0.01}, {"loss_scale", 4.0}}, {{"nesterov", true}}});
  registry.add(std::move(sgd));

  OpDef adam = optimizer(
      "adam",
      "Adam (Kingma and Ba, 2015): m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; param -= "
      "learning_rate * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + eps), the powers being those of this "
      "step (beta1 in the first); with nesterov beta1 * m + (1 - beta1) * g in place of m. g = grad / loss_scale + "
      "weight_decay * param. Returns the new param, m and v.",
      2, {"param", "m", "v", "grad", "learning_rate", "beta1_power", "beta2_power"},
      [] {
        auto attributes = adam_attributes();
        attributes.push_back(nesterov());
        return attributes;
      }(),
      14);
  add_examples(adam, {{}, {{"beta1", 0.8}, {"weight_decay", 0.01}, {"loss_scale", 4.0}, {"nesterov", true}}});
  // The powers of betas are below 1.
  for (Example& example : adam.examples) {
    example.inputs[5].domain = Domain::kUnit;
    example.inputs[6].domain = Domain::kUnit;
  }
  registry.add(std::move(adam));

  OpDef adam_weight_decay = optimizer(
      "adam_weight_decay",
      "Adam without bias correction and with decoupled weight decay: g = grad / loss_scale; m = beta1 * m + (1 - "
      "beta1) "
      "* g; v = beta2 * v + (1 - beta2) * g^2; param -= learning_rate * (m / (sqrt(v) + eps) + weight_decay * param). "
      "Returns the new param, m and v.",
      2, {"param", "m", "v", "grad", "learning_rate"}, adam_attributes(), 13);
  for (AttributeDef& attribute : adam_weight_decay.attributes) {
    if (attribute.name == "eps") attribute.default_value = 1e-6;
    if (attribute.name == "weight_decay") attribute.doc = "times the parameter is added to the update";
  }
  add_examples(adam_weight_decay, {{}, {{"beta2", 0.9}, {"weight_decay", 0.01}, {"loss_scale", 4.0}}});
  registry.add(std::move(adam_weight_decay));

  OpDef adamw = optimizer(
      "adamw",
      "AdamW (Loshchilov and Hutter, 2019), Adam with bias correction and decoupled weight decay: g = grad / "
      "loss_scale; "
      "param *= 1 - learning_rate * weight_decay; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; "
      "param -= learning_rate / (1 - beta1_power) * m / (sqrt(v / (1 - beta2_power)) + eps), the powers being those of "
      "this step. Returns the new param, m and v.",
      2, {"param", "m", "v", "grad", "learning_rate", "beta1_power", "beta2_power"}, adam_attributes(), 16);
  for (AttributeDef& attribute : adamw.attributes) {
    if (attribute.name == "weight_decay") attribute.doc = "times the learning rate is taken off the parameter";
  }
  add_examples(adamw, {{}, {{"beta1", 0.8}, {"weight_decay", 0.01}, {"loss_scale", 4.0}}});
  for (Example& example : adamw.examples) {
    example.inputs[5].domain = Domain::kUnit;
    example.inputs[6].domain = Domain::kUnit;
  }
  registry.add(std::move(adamw));

  OpDef adagrad = optimizer(
      "adagrad",
      "Adagrad (Duchi, Hazan and Singer, 2011): g = grad / loss_scale + weight_decay * param; accum += g^2, unless "
      "update_slots is off; param -= learning_rate * g / sqrt(accum). Returns the new param and accum.",
      1, {"param", "accum", "grad", "learning_rate"}, {{"update_slots", true, "whether accum changes"}}, 7);
  add_examples(adagrad, {{}, {{"update_slots", false}, {"weight_decay", 0.01}, {"loss_scale", 4.0}}});
  registry.add(std::move(adagrad));

  OpDef ftrl = optimizer(
      "ftrl",
      "FTRL-proximal (McMahan et al., 2013): g = grad / loss_scale + weight_decay * param; next = moments + g^2; "
      "linear "
      "+= g - (next^-lr_power - moments^-lr_power) / learning_rate * param; param = (sign(linear) * l1 - linear) / "
      "(next^-lr_power / learning_rate + 2 * l2) where |linear| > l1, else 0; moments = next. With a learning_rate of "
      "0 "
      "all three stay. Returns the new param, moments and linear.",
      2, {"param", "moments", "linear", "grad", "learning_rate"},
      {{"l1", 0.0, "strength of the sum of magnitudes"},
       {"l2", 0.0, "strength of the sum of squares"},
       {"lr_power", -0.5, "moments are taken to minus this power; not positive"}},
      20);
  add_examples(ftrl, {{}, {{"l1", 0.7}, {"l2", 0.1}, {"lr_power", -0.3}, {"weight_decay", 0.01}, {"loss_scale", 4.0}}});
  registry.add(std::move(ftrl));
}

}  // namespace tessera::ops
