// The functions of tessera/ops: their operands may be values, tensors, parameters, numbers or arrays. What help() says
// is the registry's text.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>

#include "python/src/bind.h"
#include "python/src/helped_module.h"
#include "python/src/known_values.h"
#include "python/src/parameters.h"

namespace tessera::python {
namespace {

// What Python passes for a parameter of a C++ function, and how it becomes what the function takes.
template <typename T>
struct Passed {
  using type = T;
  static T convert(Operation&, type value) { return value; }
};
template <>
struct Passed<ir::Value> {
  using type = nb::handle;
  static ir::Value convert(Operation& operation, nb::handle object) { return operation.value(object); }
};
template <>
struct Passed<ops::Operand> {
  using type = nb::handle;
  static ops::Operand convert(Operation& operation, nb::handle object) { return operation.operand(object); }
};
template <>
struct Passed<const std::vector<ir::Value>&> {
  using type = nb::handle;
  static std::vector<ir::Value> convert(Operation& operation, nb::handle object) { return operation.values(object); }
};
template <>
struct Passed<const Ints&> {
  using type = nb::handle;
  static Ints convert(Operation&, nb::handle object) { return to_ints(object); }
};
template <>
struct Passed<const Shape&> {
  using type = nb::handle;
  static Shape convert(Operation&, nb::handle object) { return Shape(to_ints(object)); }
};
template <>
struct Passed<DType> {
  using type = nb::handle;
  static DType convert(Operation&, nb::handle object) { return to_dtype(object); }
};
template <>
struct Passed<ir::Graph&> {};  // the one being traced; see add_creation()

std::string doc_of(const char* op, const std::string& more) {
  const ops::OpDef* def = ops::OpRegistry::instance().find(op);
  const std::string doc = def != nullptr ? def->doc : "";
  return doc + (doc.empty() || more.empty() ? "" : "\n\n") + more;
}

// Binds f, whose parameters are operands and settings.
template <typename R, typename... P, typename... Extra>
void add_function(nb::module_& m, const char* name, R (*f)(P...), const std::string& doc, const Extra&... extra) {
  helped(m).def(
      name,
      [f](typename Passed<P>::type... passed) {
        Operation operation;
        return operation.finish(f(Passed<P>::convert(operation, passed)...));
      },
      extra..., doc_of(name, doc).c_str());
}

// The same for a function that makes a value from nothing: its graph comes first.
template <typename... P, typename... Extra>
void add_creation(nb::module_& m, const char* name, ir::Value (*f)(ir::Graph&, P...), const std::string& doc,
                  const Extra&... extra) {
  helped(m).def(
      name,
      [f](typename Passed<P>::type... passed) {
        Operation operation;
        return operation.finish(f(operation.graph(), Passed<P>::convert(operation, passed)...));
      },
      extra..., doc_of(name, doc).c_str());
}

// f of two operands.
template <typename F>
nb::object binary(const F& f, nb::handle x, nb::handle y) {
  Operation operation;
  // A bare number takes the dtype of the other operand: one of two numbers is a tensor.
  const nb::object first = is_number(x) && is_number(y) ? nb::cast(to_tensor(x)) : nb::borrow(x);
  const auto [a, b] = operation.operands(first, y);
  return operation.finish(f(a, b));
}

// The elementwise operators that are functions of x, or of x and y, and of nothing else.
void bind_elementwise_of_registry(nb::module_& m) {
  using Names = std::vector<std::string>;
  const std::string broadcasts = "Operands broadcast and are promoted; raises InvalidArgument when they cannot be.";
  for (const auto& [name, def] : ops::OpRegistry::instance().all()) {
    if (!def.elementwise || !def.attributes.empty()) continue;
    if (def.inputs == Names{"x"}) {
      helped(m).def(
          name.c_str(),
          [name = name](nb::handle x) {
            Operation operation;
            return operation.finish(ops::apply1(name, {operation.value(x)}));
          },
          "x"_a, doc_of(name.c_str(), "").c_str());
    } else if (def.inputs == Names{"x", "y"}) {
      const auto f = [name = name](const ops::Operand& x, const ops::Operand& y) {
        return ops::apply_broadcast(name, x, y);
      };
      helped(m).def(
          name.c_str(), [f](nb::handle x, nb::handle y) { return binary(f, x, y); }, "x"_a, "y"_a,
          doc_of(name.c_str(), broadcasts).c_str());
    }
  }
}

void bind_elementwise(nb::module_& m) {
  bind_elementwise_of_registry(m);
  const std::pair<const char*, ir::Value (*)(ir::Value)> one[] = {
      {"flatten", ops::flatten}, {"zeros_like", ops::zeros_like}, {"ones_like", ops::ones_like}};
  for (const auto& [name, f] : one) add_function(m, name, f, "", "x"_a);
  helped(m).def(
      "select",
      [](nb::handle condition, nb::handle x, nb::handle y) {
        Operation operation;
        const auto [a, b] = operation.operands(x, y);
        return operation.finish(ops::select(operation.value(condition), a, b));
      },
      "condition"_a, "x"_a, "y"_a, doc_of("select", "").c_str());
  helped(m).def(
      "promote_numbers", [](bool promote) { numbers_promote() = promote; }, "promote"_a,
      "From here on a float makes an integer or bool tensor that it meets float32, and an int a bool one int64. "
      "Without it a "
      "number takes the tensor's dtype, and one that the dtype cannot hold is refused.");
  add_function(m, "gelu", ops::gelu, "", "x"_a, "approximate"_a = true);
  add_function(m, "cast", ops::cast, "", "x"_a, "dtype"_a);
}

void bind_clipping(nb::module_& m) {
  helped(m).def(
      "clip_by_value",
      [](nb::handle x, std::optional<double> least, std::optional<double> most) {
        Operation operation;
        return operation.finish(nn::clip_by_value(operation.value(x), least, most));
      },
      "x"_a, "least"_a = nb::none(), "most"_a = nb::none(),
      R"(x, at least the one and at most the other, of x's shape and dtype. None does not bind.

Raises InvalidArgument when both are None. For example: ops.clip_by_value(gradient, -1.0, 1.0).)");
  helped(m).def(
      "clip_by_norm",
      [](nb::handle x, double norm, nb::handle axes) {
        Operation operation;
        return operation.finish(nn::clip_by_norm(operation.value(x), norm, to_ints(axes)));
      },
      "x"_a, "clip_norm"_a, "axes"_a = nb::none(),
      R"(x scaled so that its root of the sum of squares over the axes, all of them for None, is at most clip_norm.

x: floating, of any shape, which the result has, too. Raises InvalidArgument unless clip_norm is positive. For example:
ops.clip_by_norm(x, 1.0, axes=1) has rows of a norm of 1 at most, for x of [n,c].)");
  helped(m).def(
      "clip_by_global_norm",
      [](nb::handle values, double norm) {
        Operation operation;
        return operation.finish(nn::clip_by_global_norm(operation.values(values), norm));
      },
      "values"_a, "clip_norm"_a,
      R"(Values scaled alike, so that the root of the sum of all their squares is at most clip_norm.

values: floating, each of its shape and dtype, which its result has, too; the norm is computed in float32 at least. Raises
InvalidArgument unless clip_norm is positive and there is a value. For example, in a step that is a cell:
optimizer.update(parameters, ops.clip_by_global_norm(gradients, 1.0)).)");
}

void bind_reductions(nb::module_& m) {
  const std::pair<const char*, ir::Value (*)(ir::Value, const Ints&, bool)> reductions[] = {
      {"reduce_sum", ops::reduce_sum}, {"reduce_mean", ops::reduce_mean}, {"reduce_max", ops::reduce_max},
      {"reduce_min", ops::reduce_min}, {"reduce_prod", ops::reduce_prod}, {"reduce_all", ops::reduce_all},
      {"reduce_any", ops::reduce_any}};
  for (const auto& [name, f] : reductions) {
    add_function(m, name, f, "axes: the dims to reduce, one or several; None means all.", "x"_a, "axes"_a = nb::none(),
                 "keep_dims"_a = false);
  }
  add_function(m, "argmax", ops::argmax, "", "x"_a, "axis"_a = -1);
  add_function(m, "top_k", ops::top_k, "Returns (values, indices).", "x"_a, "k"_a);
  add_function(m, "cumsum", ops::cumsum, "", "x"_a, "axis"_a, "exclusive"_a = false, "reverse"_a = false);
}

void bind_shapes(nb::module_& m) {
  add_function(m, "reshape", ops::reshape, "One size may be -1.", "x"_a, "shape"_a);
  add_function(m, "transpose", ops::transpose, "Without perm the dims are reversed.", "x"_a, "perm"_a = nb::none());
  add_function(m, "squeeze", ops::squeeze, "", "x"_a, "axes"_a = nb::none());
  add_function(m, "expand_dims", ops::expand_dims, "", "x"_a, "axes"_a);
  add_function(m, "concat", ops::concat, "", "values"_a, "axis"_a = 0);
  add_function(m, "stack", ops::stack, "", "values"_a, "axis"_a = 0);
  add_function(m, "split", ops::split, "", "x"_a, "num_parts"_a, "axis"_a = 0);
  add_function(m, "split_sizes", ops::split_sizes, "", "x"_a, "sizes"_a, "axis"_a = 0);
  add_function(m, "slice", ops::slice, "", "x"_a, "begin"_a, "end"_a, "strides"_a = nb::none());
  add_function(m, "pad", ops::pad, "", "x"_a, "before"_a, "after"_a, "value"_a = 0.0);
  add_function(m, "tile", ops::tile, "", "x"_a, "multiples"_a);
  add_function(m, "broadcast_to", ops::broadcast_to, "-1 keeps the size of x's dim.", "x"_a, "shape"_a);
}

void bind_creation(nb::module_& m) {
  add_creation(m, "fill", ops::fill, "", "shape"_a, "value"_a, "dtype"_a = "float32");
  add_creation(m, "range", ops::range, "", "start"_a, "limit"_a, "delta"_a = 1.0, "dtype"_a = "int32");
  helped(m).def(
      "one_hot",
      [](nb::handle indices, int64_t depth, nb::handle on, nb::handle off, int64_t axis) {
        Operation operation;
        return operation.finish(
            ops::one_hot(operation.value(indices), depth, operation.value(on), operation.value(off), axis));
      },
      "indices"_a, "depth"_a, "on"_a = 1.0, "off"_a = 0.0, "axis"_a = -1, doc_of("one_hot", "").c_str());
  add_function(m, "gather", ops::gather, "", "table"_a, "indices"_a, "axis"_a = 0);
  add_function(m, "scatter_add", ops::scatter_add, "", "base"_a, "indices"_a, "updates"_a, "axis"_a = 0);
}

ops::PadMode pad_mode(const std::string& name) {
  if (name == "valid") return ops::PadMode::kValid;
  if (name == "same") return ops::PadMode::kSame;
  if (name == "pad") return ops::PadMode::kPad;
  throw InvalidArgument("unknown pad_mode \"{}\"; the known ones are valid, same, pad", name);
}

void bind_network(nb::module_& m) {
  add_function(m, "matmul", ops::matmul, "", "lhs"_a, "rhs"_a, "transpose_a"_a = false, "transpose_b"_a = false);
  add_function(m, "batch_matmul", ops::batch_matmul, "", "lhs"_a, "rhs"_a, "transpose_a"_a = false,
               "transpose_b"_a = false);
  add_function(m, "bias_add", ops::bias_add, "", "x"_a, "bias"_a);
  const auto filters = [](nb::handle stride, const std::string& mode, nb::handle padding, nb::handle dilation,
                          int64_t groups) {
    return ops::ConvolutionOptions{.stride = to_ints(stride),
                                   .pad_mode = pad_mode(mode),
                                   .padding = to_ints(padding),
                                   .dilation = to_ints(dilation),
                                   .groups = groups};
  };
  const std::string sizes =
      "stride, dilation: one number or (height, width); padding: one or (top, bottom, left, right).";
  helped(m).def(
      "conv2d",
      [filters](nb::handle x, nb::handle weight, nb::handle stride, const std::string& mode, nb::handle padding,
                nb::handle dilation, int64_t groups) {
        Operation operation;
        return operation.finish(
            ops::conv2d(operation.value(x), operation.value(weight), filters(stride, mode, padding, dilation, groups)));
      },
      "x"_a, "weight"_a, "stride"_a = 1, "pad_mode"_a = "valid", "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      doc_of("conv2d", sizes).c_str());
  helped(m).def(
      "conv2d_transpose",
      [filters](nb::handle x, nb::handle weight, nb::handle stride, const std::string& mode, nb::handle padding,
                nb::handle dilation, int64_t groups, nb::handle size) {
        Operation operation;
        return operation.finish(ops::conv2d_transpose(operation.value(x), operation.value(weight),
                                                      filters(stride, mode, padding, dilation, groups),
                                                      size.is_none() ? Ints{} : to_ints(size)));
      },
      "x"_a, "weight"_a, "stride"_a = 1, "pad_mode"_a = "valid", "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      "size"_a.none() = nb::none(),
      doc_of(
          "",
          "The transpose of conv2d: x[n,ci,h,w] with weight[ci,co/groups,kh,kw] -> [n,co,oh,ow].\n\nsize: (oh, ow), of "
          "which conv2d must make (h, w); None: as nn.Conv2dTranspose has it. " +
              sizes)
          .c_str());
  const auto pool = [&](const char* name, auto f) {
    helped(m).def(
        name,
        [f](nb::handle x, nb::handle kernel, nb::handle stride, const std::string& mode, nb::handle padding) {
          Operation operation;
          const ops::PoolOptions options{.kernel = to_ints(kernel),
                                         .stride = to_ints(stride),
                                         .pad_mode = pad_mode(mode),
                                         .padding = to_ints(padding)};
          return operation.finish(f(operation.value(x), options));
        },
        "x"_a, "kernel"_a = 1, "stride"_a = 1, "pad_mode"_a = "valid", "padding"_a = 0, doc_of(name, "").c_str());
  };
  pool("max_pool2d", [](ir::Value x, const ops::PoolOptions& options) { return ops::max_pool2d(x, options); });
  pool("avg_pool2d", [](ir::Value x, const ops::PoolOptions& options) { return ops::avg_pool2d(x, options); });
  helped(m).def(
      "attention",
      [](nb::handle query, nb::handle key, nb::handle value, nb::handle mask, bool causal,
         std::optional<double> scale) {
        Operation operation;
        ops::AttentionOptions options{.causal = causal, .scale = scale};
        if (!mask.is_none()) options.mask = operation.value(mask);
        return operation.finish(
            ops::attention(operation.value(query), operation.value(key), operation.value(value), options));
      },
      "query"_a, "key"_a, "value"_a, "mask"_a = nb::none(), "causal"_a = false, "scale"_a = nb::none(),
      doc_of("attention", "").c_str());
  add_function(m, "softmax", ops::softmax, "", "x"_a, "axis"_a = -1);
  add_function(m, "log_softmax", ops::log_softmax, "", "x"_a, "axis"_a = -1);
  add_function(m, "softmax_cross_entropy", ops::softmax_cross_entropy, "", "logits"_a, "labels"_a);
  add_function(m, "layer_norm", ops::layer_norm, "", "x"_a, "gamma"_a, "beta"_a, "begin_axis"_a = -1, "eps"_a = 1e-5);
}

mesh::Reduction reduction(const std::string& name) {
  for (const auto known :
       {mesh::Reduction::kSum, mesh::Reduction::kMax, mesh::Reduction::kMin, mesh::Reduction::kProd}) {
    if (name == mesh::to_string(known)) return known;
  }
  throw InvalidArgument("unknown reduction \"{}\"; the known ones are sum, max, min, prod", name);
}

ops::RankGroup group_of(const std::string& name) { return session::rank_group(context(), name); }

void bind_collectives(nb::module_& m) {
  const auto world = cluster::kWorldGroup;
  helped(m).def(
      "all_reduce",
      [](nb::handle x, const std::string& group, const std::string& op) {
        Operation operation;
        return operation.finish(ops::all_reduce(operation.value(x), group_of(group), reduction(op)));
      },
      "x"_a, "group"_a = world, "reduction"_a = "sum",
      doc_of("all_reduce", "Every rank of the group must call it.").c_str());
  helped(m).def(
      "all_gather",
      [](nb::handle x, const std::string& group, int64_t dim) {
        Operation operation;
        return operation.finish(ops::all_gather(operation.value(x), group_of(group), dim));
      },
      "x"_a, "group"_a = world, "dim"_a = 0, doc_of("all_gather", "Every rank of the group must call it.").c_str());
  helped(m).def(
      "reduce_scatter",
      [](nb::handle x, const std::string& group, int64_t dim, const std::string& op) {
        Operation operation;
        return operation.finish(ops::reduce_scatter(operation.value(x), group_of(group), dim, reduction(op)));
      },
      "x"_a, "group"_a = world, "dim"_a = 0, "reduction"_a = "sum", doc_of("reduce_scatter", "").c_str());
  helped(m).def(
      "broadcast",
      [](nb::handle x, const std::string& group, int root) {
        Operation operation;
        return operation.finish(ops::broadcast(operation.value(x), group_of(group), root));
      },
      "x"_a, "group"_a = world, "root"_a = 0, doc_of("broadcast", "").c_str());
  helped(m).def(
      "all_to_all",
      [](nb::handle x, const std::string& group, int64_t split_dim, int64_t concat_dim) {
        Operation operation;
        return operation.finish(ops::all_to_all(operation.value(x), group_of(group), split_dim, concat_dim));
      },
      "x"_a, "group"_a = world, "split_dim"_a = 0, "concat_dim"_a = 0, doc_of("all_to_all", "").c_str());
  helped(m).def(
      "send",
      [](nb::handle x, int peer, const std::string& group) {
        Operation operation;
        return operation.finish(ops::send(operation.value(x), group_of(group), peer));
      },
      "x"_a, "peer"_a, "group"_a = world, doc_of("send", "").c_str());
  helped(m).def(
      "receive",
      [](nb::handle shape, nb::handle dtype, int peer, const std::string& group) {
        Operation operation;
        return operation.finish(
            ops::receive(operation.graph(), group_of(group), peer, {to_dtype(dtype), Shape(to_ints(shape))}));
      },
      "shape"_a, "dtype"_a, "peer"_a, "group"_a = world, doc_of("receive", "").c_str());
}

// Operands without dims, such as numbers and the step of a random operator, have the strategy () unless they are given.
void shard(ir::Value x, const mesh::Strategy& strategy) {
  const ir::NodeId made_by = x.graph().info(x.id()).node;
  if (made_by == ir::kNone) {
    ops::shard(x, strategy);  // says that nothing makes it
    return;
  }
  const auto& operands = x.graph().node(made_by).inputs;
  size_t num_missing = operands.size() > strategy.size() ? operands.size() - strategy.size() : 0;
  mesh::Strategy complete;
  auto next = strategy.begin();
  for (const auto operand : operands) {
    if (num_missing > 0 && x.graph().type(operand).shape.ndim() == 0) {
      complete.emplace_back();
      --num_missing;
    } else if (next != strategy.end()) {
      complete.push_back(*next++);
    }
  }
  complete.insert(complete.end(), next, strategy.end());
  ops::shard(x, complete);
}

// Whether a key has Python's numbers, slices of them, ... and None alone. tessera/_indexing.py has the others.
bool is_basic(nb::handle key) {
  const auto is_whole = [](nb::handle k) { return PyLong_Check(k.ptr()) && !PyBool_Check(k.ptr()); };
  const nb::tuple keys = nb::isinstance<nb::tuple>(key) ? nb::borrow<nb::tuple>(key) : nb::make_tuple(key);
  return std::all_of(keys.begin(), keys.end(), [&](nb::handle k) {
    if (!PySlice_Check(k.ptr())) return k.is_none() || k.ptr() == Py_Ellipsis || is_whole(k);
    return std::ranges::all_of(std::array{"start", "stop", "step"}, [&](const char* name) {
      const nb::object bound = k.attr(name);
      return bound.is_none() || is_whole(bound);
    });
  });
}

// x[key] of a basic key.
ir::Value index(ir::Value x, nb::handle key) {
  const nb::tuple keys = nb::isinstance<nb::tuple>(key) ? nb::borrow<nb::tuple>(key) : nb::make_tuple(key);
  int used = 0;
  for (const nb::handle k : keys) used += k.is_none() || k.ptr() == Py_Ellipsis ? 0 : 1;
  if (used > x.ndim()) throw nb::index_error(fmt::format("{} indices for a tensor {}", used, x.type()).c_str());
  Ints begin, end, strides, dropped, added;
  int kept = 0;  // dims of the result so far
  const auto whole = [&] {
    begin.push_back(0);
    end.push_back(ops::kToEnd);
    strides.push_back(1);
    ++kept;
  };
  for (const nb::handle k : keys) {
    const auto dim = static_cast<int>(begin.size());
    if (k.is_none()) {
      added.push_back(kept++);
    } else if (k.ptr() == Py_Ellipsis) {
      for (int i = x.ndim() - used; i > 0; --i) whole();
      used = x.ndim();
    } else if (PyLong_Check(k.ptr())) {
      const auto size = x.shape()[dim];
      const auto at = nb::cast<int64_t>(nb::int_(k));
      if (at < -size || at >= size)
        throw nb::index_error(fmt::format("{} is outside dim {} of {}", at, dim, x.type()).c_str());
      begin.push_back(at < 0 ? at + size : at);
      end.push_back(begin.back() + 1);
      strides.push_back(1);
      dropped.push_back(dim);
    } else {
      Py_ssize_t from = 0, to = 0, step = 1;
      if (PySlice_Unpack(k.ptr(), &from, &to, &step) != 0) throw nb::python_error();
      begin.push_back(from);
      end.push_back(to == (step > 0 ? PY_SSIZE_T_MAX : PY_SSIZE_T_MIN) ? ops::kToEnd : to);
      strides.push_back(step);
      ++kept;
    }
  }
  ir::Value result = begin.empty() ? x : ops::slice(x, begin, end, strides);
  if (!dropped.empty()) result = ops::squeeze(result, dropped);
  return added.empty() ? result : ops::expand_dims(result, added);
}

template <typename F, typename... Extra>
void method(nb::handle cls, const char* name, const F& f, const Extra&... extra) {
  cls.attr(name) = nb::cpp_function(f, nb::name(name), nb::scope(cls), nb::is_method(), extra...);
}

DType dtype_of(const ops::Operand& x, const ops::Operand& y) {
  if (x.is_number() || y.is_number()) return (x.is_number() ? y : x).value().dtype();
  return promote(x.value().dtype(), y.value().dtype());
}

// The largest whole number that is not above x / y, and what is left of x beyond so many times y.
// Whole numbers are divided as f64, exactly up to 2^53.
ir::Value floor_div(ops::Operand x, ops::Operand y) {
  const DType dtype = dtype_of(x, y);
  const auto wide = [&](const ops::Operand& operand) {
    return operand.is_number() || is_floating(dtype) ? operand : ops::Operand(ops::cast(operand.value(), DType::kF64));
  };
  return ops::cast(ops::floor(ops::div(wide(x), wide(y))), dtype);
}
ir::Value floor_mod(ops::Operand x, ops::Operand y) { return ops::sub(x, ops::mul(floor_div(x, y), y)); }

// What NumPy's arrays have as methods.
void bind_methods_of(nb::handle cls) {
  const std::pair<const char*, ir::Value (*)(ir::Value)> one[] = {
      {"__abs__", ops::abs}, {"__invert__", ops::logical_not}, {"abs", ops::abs},  {"exp", ops::exp}, {"log", ops::log},
      {"sqrt", ops::sqrt},   {"square", ops::square},          {"tanh", ops::tanh}};
  for (const auto& [name, f] : one) {
    method(cls, name, [f = f](nb::handle x) {
      Operation operation;
      return operation.finish(f(operation.value(x)));
    });
  }
  const std::pair<const char*, ir::Value (*)(ir::Value, ir::Value)> logical[] = {{"__and__", ops::logical_and},
                                                                                 {"__or__", ops::logical_or}};
  for (const auto& [name, f] : logical) {
    method(cls, name, [f = f](nb::handle x, nb::handle y) {
      Operation operation;
      return operation.finish(f(operation.value(x), operation.value(y)));
    });
  }
  const std::pair<const char*, ir::Value (*)(ir::Value, const Ints&, bool)> reductions[] = {
      {"sum", ops::reduce_sum},   {"mean", ops::reduce_mean}, {"max", ops::reduce_max}, {"min", ops::reduce_min},
      {"prod", ops::reduce_prod}, {"all", ops::reduce_all},   {"any", ops::reduce_any}};
  for (const auto& [name, f] : reductions) {
    method(
        cls, name,
        [f = f](nb::handle x, nb::handle axis, bool keep_dims) {
          Operation operation;
          return operation.finish(f(operation.value(x), to_ints(axis), keep_dims));
        },
        "axis"_a = nb::none(), "keep_dims"_a = false);
  }
  method(cls, "transpose", [](nb::handle x, const nb::args& perm) {
    Operation operation;
    const nb::handle dims = perm.size() == 1 ? nb::handle(perm[0]) : nb::handle(perm);
    return operation.finish(ops::transpose(operation.value(x), to_ints(dims)));
  });
  method(
      cls, "argmax",
      [](nb::handle x, nb::handle axis, bool keep_dims) {
        Operation operation;
        const ir::Value value = operation.value(x);
        if (axis.is_none()) {
          if (keep_dims) throw InvalidArgument("argmax: keep_dims needs an axis");
          return operation.finish(ops::argmax(ops::reshape(value, {-1}), 0));
        }
        const auto dim = nb::cast<int64_t>(nb::int_(axis));
        const ir::Value place = ops::argmax(value, dim);
        return operation.finish(keep_dims ? ops::expand_dims(place, {dim}) : place);
      },
      "axis"_a = nb::none(), "keep_dims"_a = false);
  method(
      cls, "clip",
      [](nb::handle x, nb::handle least, nb::handle most) {
        Operation operation;
        ir::Value value = operation.value(x);
        const DType dtype = value.dtype();
        if (least.is_none() && most.is_none()) throw InvalidArgument("clip: one of the two bounds must be given");
        if (!least.is_none()) value = ops::maximum(value, operation.operand(least));
        if (!most.is_none()) value = ops::minimum(value, operation.operand(most));
        return operation.finish(ops::cast(value, dtype));
      },
      "min"_a = nb::none(), "max"_a = nb::none());
  method(cls, "flatten", [](nb::handle x) {
    Operation operation;
    return operation.finish(ops::reshape(operation.value(x), {-1}));
  });
  method(
      cls, "squeeze",
      [](nb::handle x, nb::handle axis) {
        Operation operation;
        return operation.finish(ops::squeeze(operation.value(x), to_ints(axis)));
      },
      "axis"_a = nb::none());
  method(
      cls, "expand_dims",
      [](nb::handle x, nb::handle axis) {
        Operation operation;
        return operation.finish(ops::expand_dims(operation.value(x), to_ints(axis)));
      },
      "axis"_a);
}

// A value's graph lives as long as its trace; Python may keep the value longer.
bool is_alive(ir::Value value) { return &value.graph() == current_graph(); }

Type type_of(nb::handle object) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor&>(object).type();
  if (nb::isinstance<nn::Parameter>(object)) return parameter_type(nb::cast<nn::Parameter&>(object));
  const auto& value = nb::cast<ir::Value&>(object);
  if (!is_alive(value)) throw InvalidArgument("a value of a trace that has ended has no shape and no dtype any more");
  return value.type();
}

}  // namespace

void bind_operators_of(nb::handle cls) {
  const auto two = [&](const char* name, const char* reversed, ir::Value (*f)(ops::Operand, ops::Operand)) {
    method(cls, name, [f](nb::handle x, nb::handle y) { return binary(f, x, y); });
    if (reversed == nullptr) return;
    method(cls, reversed, [f](nb::handle x, nb::handle y) { return binary(f, y, x); });
  };
  two("__add__", "__radd__", ops::add);
  two("__sub__", "__rsub__", ops::sub);
  two("__mul__", "__rmul__", ops::mul);
  two("__truediv__", "__rtruediv__", ops::div);
  two("__pow__", "__rpow__", ops::pow);
  two("__floordiv__", "__rfloordiv__", floor_div);
  two("__mod__", "__rmod__", floor_mod);
  two("__lt__", nullptr, ops::less);
  two("__le__", nullptr, ops::less_equal);
  two("__gt__", nullptr, ops::greater);
  two("__ge__", nullptr, ops::greater_equal);
  two("__eq__", nullptr, ops::equal);
  two("__ne__", nullptr, ops::not_equal);
  // Elementwise comparison takes the place of identity; as keys they are still themselves.
  cls.attr("__hash__") = nb::handle(reinterpret_cast<PyObject*>(&PyBaseObject_Type)).attr("__hash__");
  method(cls, "__matmul__", [](nb::handle x, nb::handle y) {
    Operation operation;
    return operation.finish(ops::matmul(operation.value(x), operation.value(y)));
  });
  method(cls, "__neg__", [](nb::handle x) {
    Operation operation;
    return operation.finish(ops::neg(operation.value(x)));
  });
  method(
      cls, "__getitem__",
      [](nb::handle x, nb::handle key) -> nb::object {
        if (!is_basic(key)) return nb::module_::import_("tessera._indexing").attr("get")(x, key);
        Operation operation;
        return operation.finish(index(operation.value(x), key));
      },
      "key"_a.none());
  method(cls, "astype", [](nb::handle x, nb::handle dtype) {
    Operation operation;
    return operation.finish(ops::cast(operation.value(x), to_dtype(dtype)));
  });
  method(cls, "reshape", [](nb::handle x, const nb::args& shape) {
    Operation operation;
    const nb::handle sizes = shape.size() == 1 ? nb::handle(shape[0]) : nb::handle(shape);
    return operation.finish(ops::reshape(operation.value(x), to_ints(sizes)));
  });
  cls.attr("view") = cls.attr("reshape");
  bind_methods_of(cls);
  const auto property = [&](const char* name, auto get) {
    const nb::object builtin = nb::module_::import_("builtins").attr("property");
    cls.attr(name) = builtin(nb::cpp_function(get, nb::name(name), nb::scope(cls), nb::is_method()));
  };
  property("shape", [](nb::handle self) { return nb::tuple(nb::cast(type_of(self).shape.to_vector())); });
  property("dtype", [](nb::handle self) { return type_of(self).dtype; });
  property("ndim", [](nb::handle self) { return type_of(self).shape.ndim(); });
  property("T", [](nb::handle self) {
    Operation operation;
    return operation.finish(ops::transpose(operation.value(self)));
  });
  property("size", [](nb::handle self) { return type_of(self).shape.num_elements(); });
}

void bind_operators(nb::module_& m) {
  auto value =
      nb::class_<ir::Value>(m, "Value", "What an operator computes, inside construct(): a type without elements yet.");
  // What is made of constants alone is known; a call f(tensor) of it gives the rest.
  const auto if_known = [&](const char* name, const char* what, auto f) {
    method(value, name, [what, f](nb::handle self) -> nb::object {
      const auto tensor = known_value(nb::cast<ir::Value>(self));
      if (!tensor) refuse_use_as(what);
      return f(*tensor);
    });
  };
  const auto as = [](const char* builtin) {
    return [builtin](const Tensor& tensor) { return nb::module_::import_("builtins").attr(builtin)(nb::cast(tensor)); };
  };
  if_known("__bool__", "truth", as("bool"));
  if_known("__float__", "number", as("float"));
  if_known("__int__", "number", as("int"));
  if_known("__index__", "number", [](const Tensor& tensor) -> nb::object {
    if (is_floating(tensor.dtype())) throw nb::type_error("a place is a whole number, this is a value of floats");
    return nb::int_(static_cast<int64_t>(tensor.item()));
  });
  if_known("asnumpy", "elements", [](const Tensor& tensor) { return nb::cast(tensor).attr("numpy")(); });
  if_known("numpy", "elements", [](const Tensor& tensor) { return nb::cast(tensor).attr("numpy")(); });
  value.def("__len__", [](nb::handle self) {
    const Shape shape = type_of(self).shape;
    if (shape.ndim() == 0) throw nb::type_error("a value without dims has no length");
    return shape[0];
  });
  value.def("__repr__", [](ir::Value self) -> std::string {
    if (!is_alive(self)) return "Value(of a trace that has ended)";
    return fmt::format("Value({} {})", self.type(), self.graph().value_name(self.id()));
  });
  bind_operators_of(value);

  auto ops_module =
      m.def_submodule("ops", "The operators as functions of tensors, of parameters, and of what construct() computes.");
  bind_elementwise(ops_module);
  bind_clipping(ops_module);
  bind_reductions(ops_module);
  bind_shapes(ops_module);
  bind_creation(ops_module);
  bind_network(ops_module);
  bind_collectives(ops_module);
  bind_sharded_call(ops_module);
  helped(ops_module)
      .def(
          "shard",
          [](nb::object x, const mesh::Strategy& strategy) {
            if (nb::isinstance<ir::Value>(x)) shard(nb::cast<ir::Value>(x), strategy);
            return x;
          },
          "x"_a, "strategy"_a,
          "Fixes how the operator that makes x is split: one tuple of counts per operand, one count per dim; operands "
          "without "
          "dims need none. Returns x.");
}

}  // namespace tessera::python
