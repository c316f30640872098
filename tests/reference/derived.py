"""Optimizers as published packages derive them: the words of the reference's own optimizers, not only those of its documentation."""
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, jit, nn, ops
from mindspore.common.initializer import initializer
from mindspore.nn.optim.optimizer import Optimizer, opt_init_args_register

from cases import grouped
from kinds import optimizer

_scaled, _decoupled = ops.MultitypeFuncGraph("scaled"), ops.MultitypeFuncGraph("decoupled")


@_scaled.register("Tensor", "Tensor")
def _scaled_by_tensor(scale, grad):
    return ops.mul(grad, ops.cast(scale, grad.dtype))


@_decoupled.register(*["Tensor"] * 11, "Bool", "Bool")
def _decoupled_of_one(power1, power2, beta1, beta2, eps, rate, decay, param, m, v, gradient, decay_flag, optim_filter):
    if not optim_filter:
        return gradient
    next_m = ops.mul(beta1, m) + ops.mul(ops.cast(ops.tuple_to_array((1.0, )), ms.float32) - beta1, gradient)
    next_v = ops.mul(beta2, v) + ops.mul(ops.cast(ops.tuple_to_array((1.0, )), ms.float32) - beta2, ops.square(gradient))
    update = next_m / (1 - power1) / (eps + ops.sqrt(next_v / (1 - power2)))
    if decay_flag:
        update = ops.mul(decay, param) + update
    next_param = param - ops.reshape(ops.mul(rate, update), ops.shape(param))
    next_param = ops.depend(next_param, ops.assign(param, ops.cast(next_param, param.dtype)))
    next_param = ops.depend(next_param, ops.assign(m, next_m))
    return ops.depend(next_param, ops.assign(v, next_v))


class Decoupled(Optimizer):
    """Adam with bias correction whose decay does not pass through the moments, one function for each parameter."""

    @opt_init_args_register
    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, loss_scale=1.0, clip=False):
        super().__init__(learning_rate, params, weight_decay)
        assert self.cls_name == "Decoupled" and self.init_args["beta1"] == beta1
        self.beta1, self.beta2, self.eps = (Tensor(np.array([value], np.float32)) for value in (beta1, beta2, eps))
        self.moments1 = self.parameters.clone(prefix="decoupled_m", init="zeros")
        self.moments2 = self.parameters.clone(prefix="decoupled_v", init="zeros")
        self.hyper_map = ops.HyperMap()
        self.beta1_power = Parameter(initializer(1, [1], ms.float32), name="beta1_power")
        self.beta2_power = Parameter(initializer(1, [1], ms.float32), name="beta2_power")
        self.reciprocal_scale = Tensor(1.0 / loss_scale, ms.float32)
        self.clip = clip

    def get_lr(self):
        rate = self.learning_rate
        if self.dynamic_lr:
            if self.is_group_lr:
                rate = ()
                for learning_rate in self.learning_rate:
                    rate += (learning_rate(self.global_step).reshape(()), )
            else:
                rate = self.learning_rate(self.global_step).reshape(())
        if self._is_dynamic_lr_or_weight_decay():
            self.assignadd(self.global_step, self.global_step_increase_tensor)
        return rate

    @jit
    def construct(self, gradients):
        rate = self.get_lr()
        gradients = self.map_(ops.partial(_scaled, self.reciprocal_scale), gradients)
        if self.clip:
            gradients = ops.clip_by_global_norm(gradients, 1.0, None)
        power1 = self.beta1_power * self.beta1
        self.beta1_power = power1
        power2 = self.beta2_power * self.beta2
        self.beta2_power = power2
        # MindSpore's compiler takes no `*` beside partial().
        if self.is_group and self.is_group_lr:
            step = ops.partial(_decoupled, power1, power2, self.beta1, self.beta2, self.eps)
            result = self.hyper_map(step, rate, self.weight_decay, self.parameters, self.moments1, self.moments2, gradients, self.decay_flags,
                                    self.optim_filter)
        elif self.is_group:
            step = ops.partial(_decoupled, power1, power2, self.beta1, self.beta2, self.eps, rate)
            result = self.hyper_map(step, self.weight_decay, self.parameters, self.moments1, self.moments2, gradients, self.decay_flags,
                                    self.optim_filter)
        else:
            step = ops.partial(_decoupled, power1, power2, self.beta1, self.beta2, self.eps, rate, self.weight_decay)
            result = self.hyper_map(step, self.parameters, self.moments1, self.moments2, gradients, self.decay_flags, self.optim_filter)
        if self.use_parallel:
            self.broadcast_params(result)
        return result


_changed = ops.MultitypeFuncGraph("changed")


@_changed.register("Tensor", "Tensor", "Tensor", "Tensor")
def _changed_of_one(rate, param, gradient, previous):
    success = Tensor(True, ms.bool_)
    if ops.reduce_sum(previous) == 0.0:
        success = ops.depend(success, ops.assign(previous, gradient))
    success = ops.depend(success, ops.assign(param, param - rate * (gradient + gradient - previous)))
    return ops.depend(success, ops.assign(previous, gradient))


class SinceLast(Optimizer):
    """A gradient and how it has changed since the last step, which the first step takes for its own: an `if` on a value."""

    def __init__(self, params, learning_rate=1e-3, weight_decay=0.0, loss_scale=1.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.previous = self.parameters.clone(prefix="previous", init="zeros")

    @jit
    def construct(self, gradients):
        gradients = self.scale_grad(self.decay_weight(gradients))
        return self.map_(ops.partial(_changed, self.get_lr()), self.parameters, gradients, self.previous)


class Differences(Optimizer):
    """Momentum of a gradient and of how it has changed, with the helpers that the reference's optimizers call before they update."""

    @opt_init_args_register
    def __init__(self, params, learning_rate=1e-3, beta=0.9, weight_decay=0.0, loss_scale=1.0):
        super().__init__(learning_rate, params, weight_decay=weight_decay, loss_scale=loss_scale)
        self.factor = Tensor(beta, ms.float32)
        self.moment = self._parameters.clone(prefix="moment", init="zeros")
        self.previous = self._parameters.clone(prefix="previous", init="zeros")

    def construct(self, gradients):
        gradients = self.flatten_gradients(gradients)
        gradients = self.decay_weight(gradients)
        gradients = self.gradients_centralization(gradients)
        gradients = self.scale_grad(gradients)
        gradients = self._grad_sparse_indices_deduplicate(gradients)
        rate = self.get_lr()
        if self._is_dynamic_lr_or_weight_decay():
            self.assignadd(self.global_step, self.global_step_increase_tensor)
        for i in range(len(self._parameters)):
            moment = self.factor * self.moment[i] + gradients[i] + 0.5 * (gradients[i] - self.previous[i])
            ops.assign(self.moment[i], moment)
            ops.assign(self.previous[i], gradients[i])
            step = rate[i] if self.is_group_lr else rate
            ops.assign(self._parameters[i], self._parameters[i] - step * moment)
        return True

    @Optimizer.target.setter
    def target(self, value):
        self._set_base_target(value)


for made, rate in ((Decoupled, 0.01), (Differences, 0.05)):
    which = f"nn.Optimizer derived as {made.__name__}"
    settings = {"": {}, "decay": {"weight_decay": 0.1}, "scale": {"loss_scale": 8.0}, "decay and scale": {"weight_decay": 0.1, "loss_scale": 8.0}}
    for label, given in settings.items():
        optimizer(f"{which} {label}".strip(), lambda net, m=made, r=rate, g=given: m(net.trainable_params(), r, **g))
    optimizer(f"{which} rates", lambda net, m=made: m(net.trainable_params(), [0.01, 0.02, 0.03, 0.04]))
    optimizer(f"{which} schedule", lambda net, m=made: m(net.trainable_params(), nn.CosineDecayLR(0.01, 0.05, 6)))
    optimizer(f"{which} groups", lambda net, m=made: m(grouped(net), 0.01, weight_decay=0.2))
    optimizer(f"{which} groups in order", lambda net, m=made: m(grouped(net, order=True), 0.01))
    optimizer(f"{which} group rates",
              lambda net, m=made: m([{"params": [net.weight], "lr": [0.1, 0.2, 0.3, 0.4]}, {"params": [net.beta], "weight_decay": 0.3}], 0.1))
optimizer("nn.Optimizer derived as SinceLast", lambda net: SinceLast(net.trainable_params(), 0.05))
optimizer("nn.Optimizer derived as SinceLast decay", lambda net: SinceLast(net.trainable_params(), 0.05, weight_decay=0.1, loss_scale=8.0))
optimizer("nn.Optimizer derived as Decoupled clip", lambda net: Decoupled(net.trainable_params(), 0.01, clip=True))
