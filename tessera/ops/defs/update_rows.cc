// update_rows: what becomes of a table of which a batch has looked up some rows.
#include "tessera/tensor/update_rows.h"

#include "tessera/ops/defs/equal_rows.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/localize.h"

namespace tessera::ops {
namespace {

// The operands of the optimizer's own operator, which updates all of the parameter.
std::vector<Type> types_of_whole(const UpdateRows& update, std::span<const Type> types) {
  std::vector<Type> whole(types.begin(), types.begin() + static_cast<std::ptrdiff_t>(update.num_results()));
  whole.push_back({UpdateRows::computed(types[0].dtype), types[0].shape});
  for (size_t i = 0; i < update.num_scalars; ++i) whole.push_back(types[update.scalar(i)]);
  return whole;
}

const OpDef& optimizer_of(const UpdateRows& update) {
  const OpDef& optimizer = OpRegistry::instance().get(update.optimizer);
  if (!optimizer.update || optimizer.is_variadic()) {
    throw InvalidArgument("{} is no operator that updates a whole parameter", update.optimizer);
  }
  return optimizer;
}

std::vector<Type> infer(const Attributes& attributes, std::span<const Type> types) {
  const UpdateRows update(attributes, types.size());
  const OpDef& optimizer = optimizer_of(update);
  const size_t operands = update.num_results() + 1 + update.num_scalars;
  if (optimizer.outputs.size() != update.num_results() || optimizer.inputs.size() != operands) {
    throw InvalidArgument("{} has {} states and {} scalars, got {} and {}", update.optimizer,
                          optimizer.outputs.size() - 1, optimizer.inputs.size() - optimizer.outputs.size() - 1,
                          update.num_states, update.num_scalars);
  }
  const Type& param = types[0];
  if (param.shape.ndim() == 0) throw InvalidArgument("a parameter without dims has no rows");
  const Type& ids = types[update.ids()];
  require_index(ids, "ids");
  require_ndim(ids, 1, "ids");
  require_floating(types[update.rows()], "rows");
  Shape rows = param.shape;
  rows[0] = ids.shape[0];
  require_shape(types[update.rows()], rows, "rows");
  if (update.may_be_whole) require_scalar(types[update.whole()], "whole");
  return optimizer.infer(update.settings, types_of_whole(update, types));
}

// Rows of the table and elements of a row may be split, not what the batch has looked up: it is needed whole where the
// table is.
IndexRule rule(const Attributes& attributes, std::span<const Type> types, std::span<const Type>) {
  const UpdateRows update(attributes, types.size());
  const auto table = numbered_dims(types[0].shape.ndim());
  auto rows = table;
  rows[0] = "";
  IndexRule made;
  made.inputs.assign(types.size(), {});
  for (size_t i = 0; i < update.num_results(); ++i) made.inputs[i] = table;
  made.inputs[update.ids()] = {""};
  made.inputs[update.rows()] = rows;
  made.outputs.assign(update.num_results(), table);
  return made;
}

struct Case {
  DType param;
  DType state;
  DType rows;
  DType ids;
  Shape shape;
  int64_t count;  // of rows that were looked up
};

void add_examples(OpDef& def, const std::string& optimizer, const std::string& settings, size_t states, size_t scalars,
                  bool may_be_whole = false, bool keeps_states = false) {
  const Case cases[] = {{DType::kF32, DType::kF32, DType::kF32, DType::kI32, {5, 3}, 7},
                        {DType::kF64, DType::kF64, DType::kF64, DType::kI64, {4, 2, 3}, 5},
                        {DType::kF32, DType::kF32, DType::kBF16, DType::kU8, {6}, 4},
                        {DType::kBF16, DType::kF32, DType::kF32, DType::kI32, {3, 5}, 2},
                        {DType::kF32, DType::kF32, DType::kF32, DType::kI32, {300, 40}, 90},
                        {DType::kF32, DType::kF32, DType::kF32, DType::kI32, {4, 3}, 0},
                        {DType::kF32, DType::kF32, DType::kF32, DType::kI32, {0, 3}, 2}};
  for (const Case& c : cases) {
    Shape rows = c.shape;
    rows[0] = c.count;
    const DType scalar = c.param == DType::kF64 ? DType::kF64 : DType::kF32;
    Example example{.attributes = {{"optimizer", optimizer},
                                   {"settings", settings},
                                   {"states", static_cast<int64_t>(states)},
                                   {"may_be_whole", may_be_whole},
                                   {"keeps_states", keeps_states}},
                    .check_gradient = false};
    example.inputs.push_back({{c.param, c.shape}});
    for (size_t i = 0; i < states; ++i) example.inputs.push_back({{c.state, c.shape}, Domain::kPositive});
    // The last numbers are none of rows.
    example.inputs.push_back({{c.ids, {c.count}}, Domain::kIndex, c.shape[0] + 2});
    example.inputs.push_back({{c.rows, rows}});
    for (size_t i = 0; i < scalars; ++i)
      example.inputs.push_back({{scalar, {}}, i == 0 ? Domain::kPositive : Domain::kUnit});
    if (may_be_whole) example.inputs.push_back({{scalar, {}}, Domain::kBool});
    def.examples.push_back(std::move(example));
  }
}

}  // namespace

void add_update_rows(OpRegistry& registry) {
  OpDef def{
      .name = "update_rows",
      .doc =
          "The update of the rows of a parameter that were looked up, by the operator `optimizer`. Operands: the "
          "parameter and its states; ids [n], numbers of rows, which may repeat; rows [n, ...], the gradient of each; "
          "the optimizer's scalars; with may_be_whole a scalar that says by not being 0 that all rows are updated, "
          "those that ids do not name by zeros. With keeps_states the states stay as they are where not all rows are "
          "updated, and the optimizer sees zeros in their place. Rows of one number are added up in their order, in "
          "f32 (f64 for an f64 parameter); a number outside of the parameter's rows is passed over. Returns the new "
          "parameter and states.",
      .inputs = {"values..."},
      .attributes = {{"optimizer", std::nullopt, "the operator that updates all of a parameter"},
                     {"settings", std::nullopt, "its attributes, as text"},
                     {"states", std::nullopt, "number of states"},
                     {"may_be_whole", false, "whether the last operand says that all rows are updated"},
                     {"keeps_states", false, "whether the states stay where not all rows are updated"}},
      .infer = infer,
      .rule = rule,
      .flops =
          [](const Attributes& attributes, std::span<const Type> types, std::span<const Type> results) {
            const UpdateRows update(attributes, types.size());
            auto whole = types_of_whole(update, types);
            for (size_t i = 0; i <= update.num_results(); ++i) whole[i].shape = types[update.rows()].shape;
            return optimizer_of(update).flops(update.settings, whole, results) + count(types[update.rows()]);
          },
      .localize = [](const LocalizeContext& c) -> std::vector<Value> {
        const UpdateRows update(c.attributes, c.inputs.size());
        auto inputs = c.inputs;
        Value& ids = inputs[update.ids()];
        ids = shift_indices(ids, c.input_slices[0][0].offset);
        return apply(c.graph, "update_rows", inputs, c.attributes);
      },
      .update = true};
  add_examples(def, "sgd", "{dampening=0.0, loss_scale=2.0, nesterov=false, weight_decay=0.01}", 1, 3);
  add_examples(def, "sgd", "{dampening=0.0, loss_scale=2.0, nesterov=false, weight_decay=0.0}", 1, 3, true, true);
  add_examples(def, "adam", "{beta1=0.9, beta2=0.999, eps=1e-08, loss_scale=1.0, nesterov=false, weight_decay=0.0}", 2,
               3);
  add_examples(def, "ftrl", "{l1=0.1, l2=0.1, loss_scale=1.0, lr_power=-0.5, weight_decay=0.0}", 2, 1, true);
  registry.add(std::move(def));
  add_equal_rows(registry);
}

}  // namespace tessera::ops
