"""Tables of learning rates, one per step, for an optimizer's learning_rate."""
import math

from mindspore._missing import missing


def _check(who, counts, rates=(), positive=()):
    """TypeError or ValueError unless counts are ints from 1 on, rates numbers from 0 on, and positive ones above 0."""
    for name, value in counts:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"For '{who}', the '{name}' must be int, but got {type(value).__name__}.")
        if value < 1:
            raise ValueError(f"For '{who}', the '{name}' must be greater than 0, but got {value}.")
    for name, value in (*rates, *positive):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"For '{who}', the '{name}' must be float, but got {type(value).__name__}.")
        if value < 0 or (value == 0 and (name, value) in positive):
            raise ValueError(f"For '{who}', the '{name}' must be {'greater than' if (name, value) in positive else 'at least'} 0.0, but got {value}.")


def _check_decay(who, learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair):
    _check(who, (("total_step", total_step), ("step_per_epoch", step_per_epoch), ("decay_epoch", decay_epoch)),
           positive=(("learning_rate", learning_rate), ("decay_rate", decay_rate)))
    if not isinstance(is_stair, bool):
        raise TypeError(f"For '{who}', the 'is_stair' must be bool, but got {type(is_stair).__name__}.")


def _decays(total_step, step_per_epoch, decay_epoch, is_stair):
    """How many times decay_epoch epochs have gone by, at each step."""
    epochs = (step // step_per_epoch for step in range(total_step))
    return [epoch // decay_epoch if is_stair else epoch / decay_epoch for epoch in epochs]


def piecewise_constant_lr(milestone, learning_rates):
    """learning_rates[i] up to milestone[i] steps; as long as the last milestone."""
    for name, values in (("milestone", milestone), ("learning_rates", learning_rates)):
        if not isinstance(values, (tuple, list)):
            raise TypeError(f"For 'piecewise_constant_lr', the '{name}' must be tuple or list, but got {type(values).__name__}.")
    if len(milestone) != len(learning_rates):
        raise ValueError("For 'piecewise_constant_lr', the size of 'milestone' must be same with the size of 'learning_rates', but got "
                         f"{len(milestone)} and {len(learning_rates)}.")
    _check("piecewise_constant_lr", [("milestone", m) for m in milestone], [("learning_rates", r) for r in learning_rates])
    if sorted(set(milestone)) != list(milestone):
        raise ValueError(f"For 'piecewise_constant_lr', the values in 'milestone' must rise, but got {milestone}.")
    starts = [0, *milestone]
    return [rate for start, end, rate in zip(starts, milestone, learning_rates) for _ in range(start, end)]


def exponential_decay_lr(learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False):
    """learning_rate * decay_rate ^ (epoch / decay_epoch)."""
    _check_decay("exponential_decay_lr", learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair)
    return [learning_rate * decay_rate**p for p in _decays(total_step, step_per_epoch, decay_epoch, is_stair)]


def natural_exp_decay_lr(learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False):
    """learning_rate * e ^ (-decay_rate * epoch); is_stair: the epoch in steps of decay_epoch."""
    _check_decay("natural_exp_decay_lr", learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair)
    size = decay_epoch if is_stair else 1
    return [learning_rate * math.exp(-decay_rate * (step // step_per_epoch // size * size)) for step in range(total_step)]


def inverse_decay_lr(learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False):
    """learning_rate / (1 + decay_rate * epoch / decay_epoch)."""
    _check_decay("inverse_decay_lr", learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair)
    return [learning_rate / (1 + decay_rate * p) for p in _decays(total_step, step_per_epoch, decay_epoch, is_stair)]


def cosine_decay_lr(min_lr, max_lr, total_step, step_per_epoch, decay_epoch):
    """From max_lr to min_lr along half a cosine over decay_epoch epochs, then min_lr."""
    _check("cosine_decay_lr", (("total_step", total_step), ("step_per_epoch", step_per_epoch), ("decay_epoch", decay_epoch)),
           (("min_lr", min_lr),), (("max_lr", max_lr),))
    if min_lr >= max_lr:
        raise ValueError(f"For 'cosine_decay_lr', the 'max_lr' must be greater than the 'min_lr', but got {max_lr} and {min_lr}.")
    epochs = (min(step // step_per_epoch, decay_epoch) for step in range(total_step))
    return [min_lr + 0.5 * (max_lr - min_lr) * (1 + math.cos(math.pi * epoch / decay_epoch)) for epoch in epochs]


def polynomial_decay_lr(learning_rate, end_learning_rate, total_step, step_per_epoch, decay_epoch, power, update_decay_epoch=False):
    """(learning_rate - end_learning_rate) * (1 - epoch / decay_epoch) ^ power + end_learning_rate; update_decay_epoch: after
    decay_epoch epochs the decay goes on over twice, then three times as many, ..."""
    _check("polynomial_decay_lr", (("total_step", total_step), ("step_per_epoch", step_per_epoch), ("decay_epoch", decay_epoch)),
           (("end_learning_rate", end_learning_rate),), (("learning_rate", learning_rate), ("power", power)))
    if end_learning_rate >= learning_rate:
        raise ValueError("For 'polynomial_decay_lr', the 'learning_rate' must be greater than the 'end_learning_rate', but got "
                         f"{learning_rate} and {end_learning_rate}.")
    rates = []
    for step in range(total_step):
        epoch = step // step_per_epoch
        end = decay_epoch * max(math.ceil(epoch / decay_epoch), 1) if update_decay_epoch else decay_epoch
        rates.append((learning_rate - end_learning_rate) * (1 - min(epoch, end) / end)**power + end_learning_rate)
    return rates


def warmup_lr(learning_rate, total_step, step_per_epoch, warmup_epoch):
    """From 0 in equal steps to learning_rate at epoch warmup_epoch, then learning_rate."""
    _check("warmup_lr", (("total_step", total_step), ("step_per_epoch", step_per_epoch), ("warmup_epoch", warmup_epoch)),
           positive=(("learning_rate", learning_rate),))
    return [learning_rate * min(step // step_per_epoch, warmup_epoch) / warmup_epoch for step in range(total_step)]


__getattr__ = missing(__name__)
del missing
