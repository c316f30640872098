"""Optimizers."""
import tessera

from mindspore import _check, ops
from mindspore._missing import missing
from mindspore.nn.optim.optimizer import NativeOptimizer, Optimizer, looks_up_sparsely, rate


class Momentum(NativeOptimizer):
    """v = momentum * v + g; p -= lr * v. use_nesterov: p -= lr * g + lr * momentum * v."""

    def __init__(self, params, learning_rate, momentum, weight_decay=0.0, loss_scale=1.0, use_nesterov=False):
        who = "Momentum"
        settings = (_check.non_negative(who, "momentum", momentum), _check.weight_decay(who, weight_decay),
                    _check.positive(who, "loss_scale", loss_scale), _check.boolean(who, "use_nesterov", use_nesterov))
        super().__init__(params, lambda groups: tessera.nn.Momentum(rate(learning_rate), *settings, groups, is_strict=False))


class SGD(NativeOptimizer):
    """p -= lr * v, v = momentum * v + (1 - dampening) * g."""

    def __init__(self, params, learning_rate=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, loss_scale=1.0):
        who = "SGD"
        settings = (_check.non_negative(who, "momentum", momentum), _check.non_negative(who, "dampening", dampening),
                    _check.weight_decay(who, weight_decay), _check.positive(who, "loss_scale", loss_scale),
                    _check.boolean(who, "nesterov", nesterov))
        super().__init__(params, lambda groups: tessera.nn.SGD(rate(learning_rate), *settings, groups, is_strict=False))

    def added_states(self):
        """{name: value} of stat.<parameter>, which the reference keeps: ones before the first step, zeros after it."""
        value = float(self._step_states[0].asnumpy()[0] == 0)
        return {f"stat.{p.name}": tessera.ops.fill(tuple(p.shape), value, p.dtype) for p in self.parameters}

    def take_added_states(self, found):
        """Where these values of stat.<parameter> say that steps were made, the next one is not the first, though the reference counts
        its steps where the rate depends on them only."""
        stat = [found[f"stat.{p.name}"] for p in self.parameters if f"stat.{p.name}" in found]
        step = self._step_states[0]
        if stat and step.asnumpy()[0] == 0 and not any(value.asnumpy().any() for value in stat):
            step.set_data(tessera.Tensor([1], tessera.int32))


class Adam(NativeOptimizer):
    """Kingma and Ba, ICLR 2015. use_amsgrad: of the second moments the largest, Reddi et al., ICLR 2018; use_nesterov has no effect beside it, as in
    the reference. use_lazy: as LazyAdam. use_locking and use_offload have no effect: nobody else updates, and all is in the host's
    memory. sparse_opt keeps the remarks that scripts make on the reference's operator of sparse updates, without effect; of LazyAdam and FTRL, too."""

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, use_locking=False, use_nesterov=False,
                 weight_decay=0.0, loss_scale=1.0, use_amsgrad=False, use_lazy=False, use_offload=False):
        who = "Adam"
        for name, value in (("use_locking", use_locking), ("use_lazy", use_lazy), ("use_offload", use_offload)):
            _check.boolean(who, name, value)
        if use_lazy and use_offload:
            raise ValueError("For 'Adam', 'use_lazy' and 'use_offload' can not both be True.")
        if _check.boolean(who, "use_amsgrad", use_amsgrad) and (use_lazy or use_offload):
            raise ValueError(f"For lazy Adam and Adam with offload, there is no parameter named 'use_amsgrad'. but got 'use_amsgrad'={use_amsgrad}.")
        settings = (*_check.betas(who, beta1, beta2, eps), _check.weight_decay(who, weight_decay),
                    _check.positive(who, "loss_scale", loss_scale), _check.boolean(who, "use_nesterov", use_nesterov))
        own = []

        def native(groups):
            if use_lazy:
                return tessera.nn.LazyAdam(rate(learning_rate), *settings, groups, looks_up_sparsely(own))
            if use_amsgrad:  # whose operator in the reference knows no Nesterov
                return tessera.nn.AMSGrad(rate(learning_rate), *settings[:-1], groups)
            return tessera.nn.Adam(rate(learning_rate), *settings, groups)

        super().__init__(params, native)
        own.extend(self.parameters)
        self.sparse_opt = ops.FusedSparseAdam()


class LazyAdam(NativeOptimizer):
    """Adam; of tables that nn.EmbeddingLookup(sparse=True), ops.EmbeddingLookup or ops.SparseGatherV2 look up, the rows alone that a step
    has looked up. A row's decay counts once, however often it was looked up."""

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, use_locking=False, use_nesterov=False,
                 weight_decay=0.0, loss_scale=1.0):
        who = "LazyAdam"
        _check.boolean(who, "use_locking", use_locking)
        settings = (*_check.betas(who, beta1, beta2, eps), _check.weight_decay(who, weight_decay),
                    _check.positive(who, "loss_scale", loss_scale), _check.boolean(who, "use_nesterov", use_nesterov))
        own = []
        super().__init__(params, lambda groups: tessera.nn.LazyAdam(rate(learning_rate), *settings, groups, looks_up_sparsely(own)))
        own.extend(self.parameters)
        self.sparse_opt = ops.FusedSparseLazyAdam()


class AdamWeightDecay(NativeOptimizer):
    """Adam without bias correction; the decay does not pass through the moments."""

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0):
        who = "AdamWeightDecay"
        settings = (*_check.betas(who, beta1, beta2, eps), _check.weight_decay(who, weight_decay))
        super().__init__(params, lambda groups: tessera.nn.AdamWeightDecay(rate(learning_rate), *settings, groups))


class Lamb(NativeOptimizer):
    """Adam whose step is as long, for each parameter, as the parameter times the rate. You et al., ICLR 2020."""

    def __init__(self, params, learning_rate, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0):
        who = "Lamb"
        settings = (*_check.betas(who, beta1, beta2, eps), _check.weight_decay(who, weight_decay))
        super().__init__(params, lambda groups: tessera.nn.Lamb(rate(learning_rate), *settings, groups=groups))


__getattr__ = missing(__name__)
del missing
