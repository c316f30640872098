"""Training by a cell that is a training step itself: Model(step).train(...)."""
from mindspore.dataset.datasets import native_dataset
from mindspore.train.callback import RunContext, _CallbackManager, entered


def train_by_cell(step, epoch, dataset, callbacks, params, sink_size, initial_epoch=0):
    """Calls step(*batch) for every batch. sink_size: callbacks of steps stand around so many; 1: around each."""
    native, num_workers = native_dataset(dataset)
    batches = native.get_dataset_size()
    params.update(epoch_num=epoch - initial_epoch, batch_num=batches, cur_epoch_num=0, cur_step_num=0)
    step.set_train()
    with entered(callbacks) as callbacks:
        _train(step, epoch, native.batches(num_epochs=epoch - initial_epoch, num_workers=num_workers), batches, callbacks, params, sink_size,
               initial_epoch)


def _train(step, epoch, rows, batches, callbacks, params, sink_size, initial_epoch):
    context, manager = RunContext(params), _CallbackManager(callbacks)
    manager.on_train_begin(context)
    for number in range(initial_epoch + 1, epoch + 1):
        params.cur_epoch_num = number
        manager.on_train_epoch_begin(context)
        for begin in range(0, batches, sink_size):
            manager.on_train_step_begin(context)
            for _ in range(begin, min(begin + sink_size, batches)):
                params.train_dataset_element = next(rows)
                params.cur_step_num += 1
                params.net_outputs = step(*params.train_dataset_element)
            manager.on_train_step_end(context)
            if context.get_stop_requested():
                break
        manager.on_train_epoch_end(context)
        if context.get_stop_requested():
            break
    manager.on_train_end(context)
