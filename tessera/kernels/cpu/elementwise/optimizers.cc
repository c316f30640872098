// The optimizers as tile programs: parameter, states and gradient are read once and written once, in place. Learning
// rates are scalars, so what is made of them alone is computed once per thread.
#include <algorithm>
#include <array>

#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/tile_program.h"
#include "tessera/kernels/registry.h"
#include "tessera/tensor/update_group.h"
#include "tessera/tensor/update_rows.h"

namespace tessera::kernels::cpu {
namespace {

bool in_f32_or_half(const KernelRequest& request) {
  for (const auto& views : {request.inputs, request.outputs}) {
    for (const TensorView& view : views) {
      if (view.dtype != DType::kF32 && view.dtype != DType::kBF16 && view.dtype != DType::kF16) return false;
    }
  }
  return true;
}

// A program whose constants come first: those every optimizer has, where they do something, or -1.
struct Update {
  TileProgram program;
  int loss_scale, weight_decay;
  bool scales, decays;

  explicit Update(const KernelRequest& request) {
    program.num_inputs = static_cast<int>(request.inputs.size());
    const double scale = request.attributes.get_double("loss_scale");
    const double decay = request.attributes.get_double("weight_decay");
    scales = scale != 1;
    decays = decay != 0;
    loss_scale = scales ? program.constant(scale) : -1;
    weight_decay = decays ? program.constant(decay) : -1;
  }
  int add(int a, int b) { return program.add(ElementOp::kAdd, a, b); }
  int sub(int a, int b) { return program.add(ElementOp::kSub, a, b); }
  int mul(int a, int b) { return program.add(ElementOp::kMul, a, b); }
  int div(int a, int b) { return program.add(ElementOp::kDiv, a, b); }
  int sqrt(int a) { return program.add(ElementOp::kSqrt, a); }
  // grad / loss_scale, and that + weight_decay * param
  int unscaled(int grad) { return scales ? div(grad, loss_scale) : grad; }
  int decayed(int grad, int param) {
    const int g = unscaled(grad);
    return decays ? add(g, mul(weight_decay, param)) : g;
  }
};

std::optional<PreparedKernel> finish(const KernelRequest& request, Update update, std::vector<int> results) {
  update.program.results = std::move(results);
  return prepare_tile_program(request, std::move(update.program), "cpu." + request.op);
}

std::optional<PreparedKernel> prepare_momentum(const KernelRequest& request) {
  if (!in_f32_or_half(request)) return std::nullopt;
  enum { kParam, kMoment, kGrad, kRate, kMomentum };
  Update u(request);
  const int g = u.decayed(kGrad, kParam);
  const int moment = u.add(u.mul(kMomentum, kMoment), g);
  const bool nesterov = request.attributes.get_bool("nesterov");
  const int step = nesterov ? u.add(u.mul(g, kRate), u.mul(u.mul(moment, kMomentum), kRate)) : u.mul(kRate, moment);
  const int param = u.sub(kParam, step);
  return finish(request, std::move(u), {param, moment});
}

// Operands of sgd.
enum SgdInput : size_t { kParam, kAccum, kGrad, kRate, kMomentum, kFirst };
constexpr std::array<size_t, 3> kInputsOfPlainSgd{kParam, kGrad, kRate};

// sgd without momentum: of a parameter, its gradient and the rate. The accumulator is neither used nor changed.
std::optional<PreparedKernel> prepare_plain_sgd(const KernelRequest& request) {
  KernelRequest part = request;
  part.inputs.clear();
  for (const size_t input : kInputsOfPlainSgd) part.inputs.push_back(request.inputs[input]);
  part.outputs.resize(1);
  enum { kParamOfPart, kGradOfPart, kRateOfPart };
  Update u(part);
  const int param = u.sub(kParamOfPart, u.mul(kRateOfPart, u.decayed(kGradOfPart, kParamOfPart)));
  return finish(part, std::move(u), {param});
}

// Whether the parameter's new value may stand where `kernel`, which is asked whenever `plain` may run, has it.
bool may_stand_where(const PreparedKernel& kernel, const PreparedKernel& plain) {
  return std::ranges::all_of(kernel.in_place, [&](const std::pair<int, int>& pair) {
    const auto* const input = std::ranges::find(kInputsOfPlainSgd, static_cast<size_t>(pair.first));
    if (pair.second != 0 || input == kInputsOfPlainSgd.end()) return true;
    const std::pair<int, int> here(static_cast<int>(input - kInputsOfPlainSgd.begin()), 0);
    return std::ranges::find(plain.in_place, here) != plain.in_place.end();
  });
}

// Runs `plain`, which has a quarter of the instructions, where the momentum is 0 and the accumulator stays where it is,
// and `kernel`, which takes any momentum, elsewhere. The momentum is a state: it is known when the kernel runs.
PreparedKernel by_momentum(PreparedKernel kernel, PreparedKernel plain) {
  kernel.scratch_bytes = std::max(kernel.scratch_bytes, plain.scratch_bytes);
  kernel.run = [with_momentum = std::move(kernel.run), without = std::move(plain.run)](const KernelArgs& args) {
    if (!is_zero_scalar(args.inputs[kMomentum]) || args.outputs[kAccum].data != args.inputs[kAccum].data) {
      return with_momentum(args);
    }
    std::array<TensorView, kInputsOfPlainSgd.size()> inputs;
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = args.inputs[kInputsOfPlainSgd[i]];
    without({inputs, args.outputs.first(1), args.attributes, args.scratch, args.parallel_for});
  };
  return kernel;
}

std::optional<PreparedKernel> prepare_sgd(const KernelRequest& request) {
  if (!in_f32_or_half(request)) return std::nullopt;
  Update u(request);
  const int kept = u.program.constant(1 - request.attributes.get_double("dampening"));
  const int g = u.decayed(kGrad, kParam);
  const int next = u.add(u.mul(kMomentum, kAccum), u.mul(kept, g));
  const int accum = u.program.add(ElementOp::kSelect, kFirst, g, next);
  const bool nesterov = request.attributes.get_bool("nesterov");
  const int direction = nesterov ? u.add(g, u.mul(kMomentum, accum)) : accum;
  // Without momentum the accumulator is neither used nor changed.
  const int param = u.sub(kParam, u.mul(kRate, u.program.add(ElementOp::kSelect, kMomentum, direction, g)));
  const int kept_accum = u.program.add(ElementOp::kSelect, kMomentum, accum, kAccum);
  auto kernel = finish(request, std::move(u), {param, kept_accum});
  auto plain = prepare_plain_sgd(request);
  if (!kernel || !plain || !may_stand_where(*kernel, *plain)) return kernel;
  return by_momentum(std::move(*kernel), std::move(*plain));
}

// The running moments of both Adams, from the gradient g.
struct Moments {
  int keep1, take1, keep2, take2, eps;
  int m = -1;
  int v = -1;

  Moments(Update& u, const Attributes& attributes) {
    const double beta1 = attributes.get_double("beta1");
    const double beta2 = attributes.get_double("beta2");
    keep1 = u.program.constant(beta1);
    take1 = u.program.constant(1 - beta1);
    keep2 = u.program.constant(beta2);
    take2 = u.program.constant(1 - beta2);
    eps = u.program.constant(attributes.get_double("eps"));
  }
  void update(Update& u, int old_m, int old_v, int g) {
    m = u.add(u.mul(keep1, old_m), u.mul(take1, g));
    v = u.add(u.mul(keep2, old_v), u.mul(u.mul(take2, g), g));
  }
  int root(Update& u) const { return u.add(u.sqrt(v), eps); }
};

std::optional<PreparedKernel> prepare_adam(const KernelRequest& request) {
  if (!in_f32_or_half(request)) return std::nullopt;
  enum { kParam, kM, kV, kGrad, kRate, kBeta1Power, kBeta2Power };
  Update u(request);
  Moments moments(u, request.attributes);
  const int one = u.program.constant(1);
  const int rate = u.div(u.mul(kRate, u.sqrt(u.sub(one, kBeta2Power))), u.sub(one, kBeta1Power));
  const int g = u.decayed(kGrad, kParam);
  moments.update(u, kM, kV, g);
  const bool nesterov = request.attributes.get_bool("nesterov");
  const int m_hat = nesterov ? u.add(u.mul(moments.keep1, moments.m), u.mul(moments.take1, g)) : moments.m;
  const int param = u.sub(kParam, u.div(u.mul(rate, m_hat), moments.root(u)));
  return finish(request, std::move(u), {param, moments.m, moments.v});
}

std::optional<PreparedKernel> prepare_adam_weight_decay(const KernelRequest& request) {
  if (!in_f32_or_half(request)) return std::nullopt;
  enum { kParam, kM, kV, kGrad, kRate };
  Update u(request);
  Moments moments(u, request.attributes);
  const int g = u.unscaled(kGrad);
  moments.update(u, kM, kV, g);
  const int ratio = u.div(moments.m, moments.root(u));
  const int param = u.sub(kParam, u.mul(kRate, u.decays ? u.add(ratio, u.mul(u.weight_decay, kParam)) : ratio));
  return finish(request, std::move(u), {param, moments.m, moments.v});
}

std::optional<PreparedKernel> prepare_adamw(const KernelRequest& request) {
  if (!in_f32_or_half(request)) return std::nullopt;
  enum { kParam, kM, kV, kGrad, kRate, kBeta1Power, kBeta2Power };
  Update u(request);
  Moments moments(u, request.attributes);
  const int one = u.program.constant(1);
  const int rate = u.div(kRate, u.sub(one, kBeta1Power));
  const int root_correction = u.div(one, u.sqrt(u.sub(one, kBeta2Power)));
  const int g = u.unscaled(kGrad);
  moments.update(u, kM, kV, g);
  const int root = u.add(u.mul(u.sqrt(moments.v), root_correction), moments.eps);
  const int kept = u.decays ? u.mul(kParam, u.sub(one, u.mul(kRate, u.weight_decay))) : kParam;
  const int param = u.sub(kept, u.div(u.mul(rate, moments.m), root));
  return finish(request, std::move(u), {param, moments.m, moments.v});
}

std::optional<PreparedKernel> prepare_adagrad(const KernelRequest& request) {
  if (!in_f32_or_half(request)) return std::nullopt;
  enum { kParam, kAccum, kGrad, kRate };
  Update u(request);
  const int g = u.decayed(kGrad, kParam);
  const int accum = request.attributes.get_bool("update_slots") ? u.add(kAccum, u.mul(g, g)) : static_cast<int>(kAccum);
  const int param = u.sub(kParam, u.div(u.mul(kRate, g), u.sqrt(accum)));
  return finish(request, std::move(u), {param, accum});
}

std::optional<PreparedKernel> prepare_ftrl(const KernelRequest& request) {
  if (!in_f32_or_half(request)) return std::nullopt;
  enum { kParam, kMoments, kLinear, kGrad, kRate };
  Update u(request);
  const int l1 = u.program.constant(request.attributes.get_double("l1"));
  const int twice_l2 = u.program.constant(2 * request.attributes.get_double("l2"));
  const double exponent = -request.attributes.get_double("lr_power");
  const int exponent_slot = u.program.constant(exponent);
  const int zero = u.program.constant(0);
  const auto power = [&](int x) {
    return exponent == 0.5 ? u.sqrt(x) : u.program.add(ElementOp::kPow, x, exponent_slot);
  };
  const int g = u.decayed(kGrad, kParam);
  const int old_root = power(kMoments);  // before the moments are written in their place
  const int next = u.add(kMoments, u.mul(g, g));
  const int root = power(next);
  const int linear = u.sub(u.add(kLinear, g), u.mul(u.div(u.sub(root, old_root), kRate), kParam));
  const int towards = u.mul(u.program.add(ElementOp::kSign, linear), l1);
  const int shrunk = u.div(u.sub(towards, linear), u.add(u.div(root, kRate), twice_l2));
  const int is_beyond = u.program.add(ElementOp::kGreater, u.program.add(ElementOp::kAbs, linear), l1);
  const int param = u.program.add(ElementOp::kSelect, is_beyond, shrunk, zero);
  // A rate of 0, by which was divided, leaves all as it is.
  const int moves = u.program.add(ElementOp::kGreater, kRate, zero);
  const auto moved = [&](int value, int before) { return u.program.add(ElementOp::kSelect, moves, value, before); };
  return finish(request, std::move(u), {moved(param, kParam), moved(next, kMoments), moved(linear, kLinear)});
}

}  // namespace

void add_optimizers(KernelRegistry& registry) {
  registry.add("momentum", prepare_momentum);
  registry.add("sgd", prepare_sgd);
  registry.add("adam", prepare_adam);
  registry.add("adam_weight_decay", prepare_adam_weight_decay);
  registry.add("update_group",
               [](const KernelRequest& request) { return prepare_update_group(request, cpu_kernels()); });
  registry.add("adamw", prepare_adamw);
  registry.add("adagrad", prepare_adagrad);
  registry.add("ftrl", prepare_ftrl);
  registry.add("update_rows", [](const KernelRequest& request) { return prepare_update_rows(request, cpu_kernels()); });
}

}  // namespace tessera::kernels::cpu
