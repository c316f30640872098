"""What a script gets that asks for a name which is not here: an error that says so, and what there is instead."""
import dis
import difflib
import sys

# Parts of the reference that Tessera will have, by what they wait for.
WAITS = {
    "PipelineCell": "pipeline stages",
    "MicroBatchInterleaved": "pipeline stages",
    "set_ps_context": "the parameter server",
    "get_ps_context": "the parameter server",
    "reset_ps_context": "the parameter server",
    "load_distributed_checkpoint": "the conversion of checkpoints",
    "transform_checkpoints": "the conversion of checkpoints",
    "transform_checkpoint_by_rank": "the conversion of checkpoints",
    "rank_list_for_transform": "the conversion of checkpoints",
    "merge_pipeline_strategys": "the conversion of checkpoints",
    "merge_sliced_parameter": "the conversion of checkpoints",
    "build_searched_strategy": "the conversion of checkpoints",
    "restore_group_info_list": "the conversion of checkpoints",
    "infer_train_layout": "the conversion of checkpoints",
    "infer_predict_layout": "the conversion of checkpoints",
    "infer_preict_layout": "the conversion of checkpoints",
}


def missing(module):
    """The module's __getattr__."""

    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(name)
        text = f"{module}.{name} is not part of Tessera's mindspore package"
        if name in WAITS:
            text = f"{module}.{name} waits for {WAITS[name]}, which Tessera does not have yet"
        else:
            near = difflib.get_close_matches(name, [n for n in vars(sys.modules[module]) if not n.startswith("_")], 1)
            text += f"; it has {near[0]}" if near else "; its names are in help(" + module + ")"
        frame = sys._getframe(1)
        is_import = dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"
        raise (ImportError if is_import else AttributeError)(text)

    return __getattr__
