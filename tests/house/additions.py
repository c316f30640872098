"""An operator of each sort and a kind of collective, as somebody would add them: what goes into each file, by the text before
which it stands. tests/house counts the files; additions_test.py also builds and tries what they make."""

import shutil
from pathlib import Path


class Addition:
    """`name` becomes known to C++ by that name, and to Python, with that signature; `constant` is another name of it in C++. `limit`: as
    many files it may touch. `headers_words`: who has them counts on what it adds to a header, and has to be compiled again."""

    def __init__(self, name, limit, lines, check, in_python="(x)", constant=None, headers_words=()):
        self.name, self.limit, self.lines, self.check, self.in_python = name, limit, lines, check, in_python
        self.constant, self.headers_words = constant, headers_words

    def sources(self, root):
        """Those that are compiled on their own."""
        touched = {file for file in self.lines if file.startswith("tessera/") and file.endswith(".cc")}
        library = (path for path in Path(root, "tessera").rglob("*.cc") if not path.stem.endswith(("_test", "_bench")))
        return touched | {path.relative_to(root).as_posix() for path in library if any(word in path.read_text() for word in self.headers_words)}


def apply(root, additions, scratch):
    """Writes the files that they touch into `scratch`, as they are with all of them. Returns their paths."""
    texts = {}
    for addition in additions:
        for file, insertions in addition.lines.items():
            text = texts.get(file) or Path(root, file).read_text()
            for before, new in insertions:
                if text.count(before) != 1:
                    raise ValueError(f"{file}: {text.count(before)} places are {before!r}, where {addition.name} wants one")
                text = text.replace(before, new + before)
            texts[file] = text
    for file, text in texts.items():
        path = Path(scratch, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return sorted(texts)


CONTRACTION = Addition("matrix_vector", 4, {
    "tessera/ops/defs/matmul.cc": [("""  registry.add({
      .name = "bias_add",
""", """  registry.add({
      .name = "matrix_vector",
      .doc = "Matrix lhs [m,k] times vector rhs [k]: [m].",
      .inputs = {"lhs", "rhs"},
      .infer = [](const Attributes&, std::span<const Type> inputs) -> std::vector<Type> {
        require_number(inputs[0]);
        require_ndim(inputs[0], 2, "lhs");
        require_type(inputs[1], {inputs[0].dtype, {inputs[0].shape[1]}}, "rhs");
        return {{inputs[0].dtype, {inputs[0].shape[0]}}};
      },
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dy = context.cotangent(0);
        const Value column = apply1("expand_dims", {dy}, {{"axes", Ints{1}}});
        const Value row = apply1("expand_dims", {context.inputs[1]}, {{"axes", Ints{0}}});
        const Value transposed = apply1("transpose", {context.inputs[0]}, {{"perm", Ints{1, 0}}});
        return {apply1("matmul", {column, row}), apply1("matrix_vector", {transposed, dy})};
      },
      .rule = [](const Attributes&, std::span<const Type>,
                 std::span<const Type>) { return parse_rule("m k, k -> m"); },
      .linear_in = {{0}, {1}},
      .flops = [](const Attributes&, std::span<const Type> inputs,
                  std::span<const Type>) { return 2 * count(inputs[0]); },
      .arithmetic = Arithmetic::kProduct,
      .precision = MixedPrecision::kLow,
      .examples = {{.inputs = {{{DType::kF32, {3, 4}}}, {{DType::kF32, {4}}}}},
                   {.inputs = {{{DType::kF64, {7, 2}}}, {{DType::kF64, {2}}}}},
                   {.inputs = {{{DType::kF32, {3, 0}}}, {{DType::kF32, {0}}}}}},
  });

""")],
    "tessera/kernels/reference/matmul.cc": [("""}  // namespace

std::optional<PreparedKernel> prepare_matmul(""", """void run_matrix_vector(const KernelArgs& args) {
  const TensorView& lhs = args.inputs[0];
  const TensorView& rhs = args.inputs[1];
  const TensorView& out = args.outputs[0];
  dispatch_dtype(lhs.dtype, "matrix_vector", [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < out.num_elements(); ++i) {
      double sum = 0;
      for (int64_t k = 0; k < rhs.num_elements(); ++k) {
        sum += static_cast<double>(lhs.as<T>()[i * lhs.strides[0] + k * lhs.strides[1]]) *
               static_cast<double>(rhs.as<T>()[k * rhs.strides[0]]);
      }
      out.as<T>()[i * out.strides[0]] = static_cast<T>(sum);
    }
  });
}

"""), ("""  registry.add_function("bias_add", "reference\"""", """  registry.add_function("matrix_vector", "reference", run_matrix_vector);
""")],
    "tessera/ops/functions/network_functions.h": [("""// x[n,c,...] + bias[c].
""", """// [m,k] x [k] -> [m].
inline Value matrix_vector(Value lhs, Value rhs) { return apply1("matrix_vector", {lhs, rhs}); }
""")],
    "python/src/operators.cc": [("""  add_function(m, "bias_add\"""", """  add_function(m, "matrix_vector", ops::matrix_vector, "", "lhs"_a, "rhs"_a);
""")],
}, "ops::matrix_vector(input({3, 4}), input({4}))", in_python="(lhs, rhs)")

REDUCTION = Addition("reduce_max_abs", 4, {
    "tessera/ops/defs/reduce.cc": [("""struct Reduction {
  const char* name;
""", """Gradients max_abs_gradient(const GradientContext& c) {
  const Value x = c.inputs[0];
  const Value holders = cast(equal(abs(x), stretch(c, c.outputs[0])), x.dtype());
  const Value share = c.cotangent(0) / reduce_same(c, "reduce_sum", holders);
  return {holders * sign(x) * stretch(c, share)};
}

"""), ("""    {"reduce_prod", """, """    {"reduce_max_abs", "The largest absolute value over `axes`; 0 over nothing; NaN if any is.", Kind::kNumeric,
     Completion::kMax, max_abs_gradient},
""")],
    "tessera/kernels/reference/reduce.cc": [("""struct All {
""", """struct MaxAbs {
  template <typename T>
  static auto begin() {
    return Accumulator<T>(0);
  }
  template <typename A>
  static A step(A a, A x) {
    return Max::step(a, x < A(0) ? static_cast<A>(-x) : x);
  }
  template <typename A>
  static A end(A a, int64_t) {
    return a;
  }
};
"""), ("""  registry.add_function("reduce_prod\"""", """  registry.add_function("reduce_max_abs", "reference", reduce_numeric<MaxAbs>);
""")],
    "tessera/ops/functions/reduce_functions.h": [("""// bool operand and result""", """// Takes numeric dtypes: the largest absolute value. 0 over nothing.
inline Value reduce_max_abs(Value x, const Ints& axes = {}, bool keep_dims = false) {
  return reduce("reduce_max_abs", x, axes, keep_dims);
}
""")],
    "python/src/operators.cc": [("""      {"reduce_any", ops::reduce_any}};""", """      {"reduce_max_abs", ops::reduce_max_abs},
""")],
}, "ops::reduce_max_abs(input({3, 4}), {1})", in_python="(x, axes=None, keep_dims=False)")

ELEMENTWISE = Addition("log1p_exp", 4, {
    "tessera/tensor/element_op.h": [("""  X(kSinh, """, """  X(kLog1pExp, "log1p_exp", 1, kFloating, false, false)        \\
"""), ("""    if constexpr (kOp == kSinh) return""", """    if constexpr (kOp == kLog1pExp) return std::log1p(std::exp(-std::abs(a))) + element_value<kRelu>(a);
""")],
    "tessera/ops/defs/elementwise.cc": [("""    {"sinh", """, """    {"log1p_exp", "The natural logarithm of 1 + e to the power of x; 0 at -inf.", Kind::kFloating, Domain::kAny,
     2 * kTranscendental, [](Value x, Value, Value dy) { return dy * sigmoid(x); }, false, kLosesDigits},
""")],
    "tessera/kernels/cpu/rows/row_ops.cc": [("""  if constexpr (kOp == ElementOp::kSinh) return""", """  if constexpr (kOp == ElementOp::kLog1pExp) {
    return hn::Add(vlog1p(vexp(hn::Neg(hn::Abs(a)))), apply<ElementOp::kRelu>(a));
  }
""")],
    "tessera/ops/functions/elementwise_functions.h": [("""inline Value sinh(Value x)""", """inline Value log1p_exp(Value x) { return apply1("log1p_exp", {x}); }  // log(1 + exp(x)), finite wherever x is
""")],
}, "ops::log1p_exp(input({3, 4}))", constant="kLog1pExp", headers_words=("ElementOp", "element_op.h"))

# Of a function of <cmath> that no operator calls so far.
OF_ANOTHER_FUNCTION = Addition("binary_logarithm", 4, {
    "tessera/tensor/element_op.h": [("""  X(kSinh, """, """  X(kBinaryLogarithm, "binary_logarithm", 1, kFloating, false, false) \\
"""), ("""    if constexpr (kOp == kSinh) return""", """    if constexpr (kOp == kBinaryLogarithm) return std::log2(a);
""")],
    "tessera/ops/defs/elementwise.cc": [("""    {"sinh", """, """    {"binary_logarithm", "The logarithm of x to the base 2; NaN below 0.", Kind::kFloating, Domain::kPositive,
     kTranscendental, [](Value x, Value, Value dy) { return dy / x * 1.4426950408889634; }, false, kLosesDigits},
""")],
    "tessera/kernels/cpu/rows/row_ops.cc": [("""  if constexpr (kOp == ElementOp::kSinh) return""", """  if constexpr (kOp == ElementOp::kBinaryLogarithm) return hn::Mul(vlog(a), vset(1.44269504F));
""")],
    "tessera/ops/functions/elementwise_functions.h": [("""inline Value sinh(Value x)""", """inline Value binary_logarithm(Value x) { return apply1("binary_logarithm", {x}); }
""")],
}, "ops::binary_logarithm(input({3, 4}))", constant="kBinaryLogarithm", headers_words=("ElementOp", "element_op.h"))

COLLECTIVE = Addition("reduce_onto", 4, {
    "tessera/ops/defs/collectives.cc": [("""#include <numeric>
""", """#include <cstring>
"""), ("""int64_t checked_peer(""", """void add_reduce_onto(OpRegistry& registry) {
  static const CollectiveDef communication{
      .reduces = true,
      .received = "(n-1) B",
      .traffic = [](const CollectiveCall& call) -> Traffic {
        return {(call.group_size() - 1) * call.inputs[0].size_bytes()};
      },
      .boxes = [](const CollectiveCall& call) -> ExchangeBoxes {
        const int64_t root = call.attributes.get_int("root");
        const auto whole = wholes(call.inputs[0].shape, call.group_size());
        const auto none = nothings(call.group_size());
        ExchangeBoxes boxes{none, call.own() == root ? whole : none};
        boxes.send[static_cast<size_t>(root)] = whole[0];
        return boxes;
      },
      .agreement =
          [](const CollectiveCall& call) {
            return fmt::format("{} of {} to {}", call.attributes.get_string("reduction"), call.inputs[0],
                               call.attributes.get_int("root"));
          },
      .prepare = [](const CollectiveRun& run) -> Work {
        std::vector<int64_t> counts(static_cast<size_t>(run.group.size()));
        const auto root = static_cast<int>(run.attributes.get_int("root"));
        counts[static_cast<size_t>(root)] = run.inputs[0].num_elements();
        return [&group = run.group, in = run.inputs[0], out = run.outputs[0], counts, root,
                op = reduce_op_of(run.attributes), who = run.who] {
          group.reduce_scatter(in.data, out.data, counts, in.dtype, op, who);
          if (group.rank() != root) std::memset(out.data, 0, static_cast<size_t>(out.size_bytes()));
        };
      },
      .examples = {{{{3, 2}, {3, 2}, {3, 2}}, {{{"root", int64_t{1}}}}}, {{{4}, {4}}, {{{"root", int64_t{0}}}}}}};
  registry.add({.name = "reduce_onto",
                .doc = "The reduction of the group's x on its rank `root`; zeros on the others.",
                .inputs = {"x"},
                .attributes = group_attributes({{"root", int64_t{0}, "place of the receiver in `ranks`"}, kReduction}),
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  require_reducible(types[0], attributes);
                  const int64_t n = group_size(attributes);
                  const int64_t root = attributes.get_int("root");
                  if (root < 0 || root >= n) throw InvalidArgument("root={} must be in [0, {})", root, n);
                  return {types[0]};
                },
                .gradient = [](const GradientContext& c) -> Gradients {
                  if (!is_floating(c.inputs[0].dtype())) return {Value{}};
                  Attributes attributes = same_group(c.attributes);
                  attributes.set("root", c.attributes.get_int("root"));
                  return {apply1("broadcast", {c.cotangent(0)}, attributes)};
                },
                .collective = &communication,
                .precision = MixedPrecision::kWide});
}

"""), ("""  add_send(registry);
""", """  add_reduce_onto(registry);
""")],
    "tessera/ops/functions/collective_functions.h": [("""// Cut into equal parts along split_dim""", """// The sum of the group's x on the rank at place `root`; zeros on the others.
inline Value reduce_onto(Value x, const RankGroup& group, int root = 0) {
  return collective("reduce_onto", x, group, {{"root", int64_t{root}}});
}
""")],
    "python/src/operators.cc": [("""  helped(m).def(
      "all_to_all",
""", """  helped(m).def(
      "reduce_onto",
      [](nb::handle x, const std::string& group, int root) {
        Operation operation;
        return operation.finish(ops::reduce_onto(operation.value(x), group_of(group), root));
      },
      "x"_a, "group"_a = world, "root"_a = 0, doc_of("reduce_onto", "").c_str());
""")],
    "docs/collectives.md": [("""| broadcast, send, receive | 1 | B |
""", """| reduce_onto | 1 | (n-1) B |
""")],
}, 'ops::reduce_onto(input({3, 4}), {.name = "all", .ranks = {0, 1}, .own = 0}, 1)', in_python="(x, group='world', root=0)")

ALL = (CONTRACTION, REDUCTION, ELEMENTWISE, OF_ANOTHER_FUNCTION, COLLECTIVE)


def overlay(root, scratch, additions=ALL):
    """The whole project with the additions, as links but for the files that they touch; for what reads sources and pages."""
    touched = apply(root, additions, scratch)
    for folder in ("tessera", "python/src", "docs"):
        for path in Path(root, folder).rglob("*"):
            file = path.relative_to(root)
            if path.is_file() and file.as_posix() not in touched:
                Path(scratch, file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, Path(scratch, file))
    return touched
