"""Networks in the form of other programs."""
import tessera

_INSTEAD = ("'ONNX' is the format that is written; save_checkpoint writes the parameters, and load_checkpoint reads them into a network "
            "that a script makes")


def export(net, *inputs, file_name, file_format, **kwargs):
    """Writes what the network predicts as an ONNX model, for inputs of exactly these shapes: tessera.export_onnx. ".onnx" is appended to the
    file's name where it is missing."""
    if file_format in ("MINDIR", "AIR"):
        raise ValueError(f"For 'export', the 'file_format' {file_format} is not available: {_INSTEAD}.")
    if file_format != "ONNX":
        raise ValueError(f"For 'export', the 'file_format' must be one of ['AIR', 'ONNX', 'MINDIR'], but got {file_format}: {_INSTEAD}.")
    if not isinstance(file_name, str):
        raise TypeError(f"For 'export', the 'file_name' must be str, but got {type(file_name).__name__}.")
    if not isinstance(net, tessera.nn.Cell):
        raise ValueError(f"For 'export', a file of the format ONNX is made of a Cell, but got {type(net).__name__}.")
    if kwargs:
        raise ValueError(f"For 'export', {', '.join(sorted(kwargs))} has no meaning for a file of the format ONNX: it holds the network alone, "
                         "and is not encrypted.")
    tessera.export_onnx(net, *inputs, path=file_name if file_name.endswith(".onnx") else file_name + ".onnx")
